/* test_tag_matching.c - matching by tag against a plain model, in random interleavings of posts and announcements that
 * overtake each other; and its limits. */
#include "base/rng.h"
#include "engine/tag_matching.h"
#include "test.h"

#define RANKS 4
#define SENDS 24 /* of one rank */
#define RECVS (RANKS * SENDS)

static int below(gw_rng *rng, int bound) { return (int)gw_rng_below(rng, (uint64_t)bound); }

/* The model: arrays in order of time, searched from the front. */
typedef struct model_send {
    int source, tag;
    uint64_t number;
    bool matched;
} model_send;

typedef struct model {
    model_send ready[RECVS]; /* announced, with all predecessors */
    int ready_count;
    gw_tag_recv recv[RECVS];   /* as posted; also the nodes of the code under test */
    int matched_source[RECVS]; /* -1: not matched */
    uint64_t matched_number[RECVS];
    int recv_count;
    bool came[RANKS][SENDS];
    int tag_of[RANKS][SENDS];
    int processed[RANKS];
} model;

static bool model_accepts(const gw_tag_recv *recv, int source, int tag) {
    return recv->tag == tag && (recv->source == GW_ANY_SOURCE || recv->source == source);
}

static void model_pair(model *m, int recv, model_send *send) {
    m->matched_source[recv] = send->source;
    m->matched_number[recv] = send->number;
    send->matched = true;
}

static void model_ready(model *m, int source, uint64_t number) {
    model_send *send = &m->ready[m->ready_count++];
    *send = (model_send){.source = source, .tag = m->tag_of[source][number], .number = number};
    for (int r = 0; r < m->recv_count && !send->matched; r++)
        if (m->matched_source[r] < 0 && model_accepts(&m->recv[r], source, send->tag)) model_pair(m, r, send);
}

static void model_announce(model *m, int source, int number) {
    m->came[source][number] = true;
    while (m->processed[source] < SENDS && m->came[source][m->processed[source]])
        model_ready(m, source, (uint64_t)m->processed[source]++);
}

static void model_post(model *m, int recv) {
    m->matched_source[recv] = -1;
    m->recv_count = recv + 1;
    for (int s = 0; s < m->ready_count && m->matched_source[recv] < 0; s++)
        if (!m->ready[s].matched && model_accepts(&m->recv[recv], m->ready[s].source, m->ready[s].tag))
            model_pair(m, recv, &m->ready[s]);
}

typedef struct run {
    model m;
    gw_tag_matching *tags;
    int source_of[RECVS]; /* what the code under test matched; -1: nothing yet */
    uint64_t number_of[RECVS];
    gw_rng rng;
} run;

static void matched(run *r, const gw_tag_recv *recv, const gw_tag_send *send) {
    ptrdiff_t at = recv - r->m.recv;
    CHECK(at >= 0 && at < RECVS && r->source_of[at] < 0);
    CHECK_EQ(r->m.tag_of[send->source][send->number], send->tag);
    CHECK_EQ((int)(send->number % 2), (int)send->requested);
    r->source_of[at] = send->source;
    r->number_of[at] = send->number;
}

static void post(run *r) {
    int at = r->m.recv_count;
    gw_tag_send send;
    r->m.recv[at] =
        (gw_tag_recv){.source = below(&r->rng, 3) ? below(&r->rng, RANKS) : GW_ANY_SOURCE, .tag = below(&r->rng, 3)};
    model_post(&r->m, at);
    if (gw_tags_post(r->tags, &r->m.recv[at], &send)) matched(r, &r->m.recv[at], &send);
}

static void announce(run *r, int source, int number) {
    gw_tag_send send = {.source = source, .tag = r->m.tag_of[source][number], .number = (uint64_t)number,
                        .requested = number % 2};
    gw_tag_recv *recv;
    CHECK_EQ(GW_TAG_NEW, gw_tags_announce(r->tags, &send));
    CHECK_EQ(GW_TAG_SEEN, gw_tags_announce(r->tags, &send));
    while (gw_tags_next(r->tags, source, &send, &recv)) matched(r, recv, &send);
    CHECK_EQ(GW_TAG_SEEN, gw_tags_announce(r->tags, &(gw_tag_send){.source = source, .number = (uint64_t)number}));
    model_announce(&r->m, source, number);
}

/* The next announcement of a rank, or one a little later that overtakes it. */
static void announce_any(run *r) {
    int source = below(&r->rng, RANKS), first = 0;
    while (first < SENDS && r->m.came[source][first]) first++;
    int number = first + (below(&r->rng, 2) ? below(&r->rng, 4) : 0);
    if (number < SENDS && !r->m.came[source][number]) announce(r, source, number);
}

static void compare(run *r) {
    for (int i = 0; i < r->m.recv_count; i++) {
        CHECK_EQ(r->m.matched_source[i], r->source_of[i]);
        if (r->source_of[i] >= 0) CHECK_EQ(r->m.matched_number[i], r->number_of[i]);
    }
}

static void random_orders_agree_with_the_model(void) {
    for (uint64_t seed = 0; seed < 40000 && !test_failures; seed++) {
        run *r = calloc(1, sizeof *r);
        r->tags = gw_tags_open(RANKS);
        r->rng = gw_rng_make(seed, 0);
        memset(r->source_of, -1, sizeof r->source_of);
        for (int i = 0; i < RANKS * SENDS; i++) r->m.tag_of[i / SENDS][i % SENDS] = below(&r->rng, 3);
        int posts = 1 + below(&r->rng, 9); /* of ten steps */
        for (int step = 0; step < 150 && r->m.recv_count < RECVS; step++)
            if (below(&r->rng, 10) < posts) post(r);
            else announce_any(r);
        compare(r);
        if (test_failures) printf("    seed %" PRIu64 "\n", seed);
        gw_tags_close(r->tags);
        free(r);
    }
}

static gw_tag_verdict announce_number(gw_tag_matching *tags, uint64_t number) {
    gw_tag_recv *recv;
    gw_tag_send send = {.source = 1, .tag = 5, .number = number};
    gw_tag_verdict verdict = gw_tags_announce(tags, &send);
    CHECK(!gw_tags_next(tags, 1, &send, &recv));
    return verdict;
}

static void too_many_unmatched_sends(void) {
    gw_tag_matching *tags = gw_tags_open(2);
    gw_tag_send send;
    gw_tag_recv recv = {.source = 1, .tag = 5};
    for (uint64_t n = 0; n < GW_TAG_SENDS_MAX; n++) /* one half waits for the other's last */
        CHECK_EQ(GW_TAG_NEW, announce_number(tags, n < GW_TAG_SENDS_MAX / 2 ? n : n + 1));
    CHECK_EQ(GW_TAG_TOO_MANY, announce_number(tags, GW_TAG_SENDS_MAX / 2));
    CHECK(gw_tags_post(tags, &recv, &send));
    CHECK_EQ(GW_TAG_NEW, announce_number(tags, GW_TAG_SENDS_MAX / 2));
    for (uint64_t n = 1; n <= GW_TAG_SENDS_MAX; n++) {
        CHECK(gw_tags_post(tags, &recv, &send));
        CHECK_EQ(n, send.number);
    }
    CHECK(!gw_tags_post(tags, &recv, &send));
    gw_tags_close(tags);
}

static void forgets_all_but_the_numbers(void) {
    gw_tag_matching *tags = gw_tags_open(2);
    gw_tag_recv recv = {.source = GW_ANY_SOURCE, .tag = 6}, later = {.source = 1, .tag = 5}, *found;
    gw_tag_send send = {.source = 1, .tag = 6, .number = 2};
    CHECK(!gw_tags_post(tags, &recv, &send));
    announce_number(tags, 0);
    CHECK_EQ(GW_TAG_NEW, gw_tags_announce(tags, &(gw_tag_send){.source = 1, .tag = 6, .number = 2}));
    gw_tags_clear(tags);
    CHECK(!gw_tags_post(tags, &later, &send));
    CHECK_EQ(GW_TAG_SEEN, gw_tags_announce(tags, &(gw_tag_send){.source = 1, .tag = 5, .number = 0}));
    CHECK_EQ(GW_TAG_NEW, gw_tags_announce(tags, &(gw_tag_send){.source = 1, .tag = 5, .number = 1}));
    CHECK(gw_tags_next(tags, 1, &send, &found) && found == &later && send.number == 1);
    CHECK(!gw_tags_next(tags, 1, &send, &found));
    gw_tags_close(tags);
}

TEST_MAIN(CASE(random_orders_agree_with_the_model), CASE(too_many_unmatched_sends), CASE(forgets_all_but_the_numbers))
