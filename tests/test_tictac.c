/* test_tictac.c - TIC and TAC (schedule/forward_graph.h) on random graphs beside the definitions of the paper, written
 * down plainly here, and beside a search of all orders. Times are small whole numbers, so that sums are exact. */
#include <math.h>

#include "base/rng.h"
#include "schedule/forward_graph.h"
#include "schedule/schedule.h"
#include "test.h"

enum { MOST = 24, SMALL = 8, MODELS = 2000 };

typedef struct model {
    int count;
    gw_schedule_tensor tensors[MOST];
    int after[MOST][MOST];
    uint32_t needs[MOST]; /* sets of tensors */
    double transfer[MOST], compute[MOST];
} model;

static double duration(gw_rng *rng) { return (double)(1 + gw_rng_below(rng, gw_rng_below(rng, 2) ? 8 : 80)); }

/* Operations follow the one before them, or another one before, or two; what nobody follows goes into the last. */
static void make_model(model *m, int count, bool chain, gw_rng *rng) {
    uint32_t followed = 0;
    *m = (model){.count = count};
    for (int i = 0; i < count; i++) {
        int *list = m->after[i], n = 0, kind = (int)gw_rng_below(rng, 10);
        if (i && (chain || kind < 5 || kind > 7)) list[n++] = i - 1;
        if (i && !chain && kind >= 5) list[n++] = (int)gw_rng_below(rng, (uint64_t)i);
        if (n == 2 && list[1] == i - 1) n = 1;
        for (int k = 0; k < n; k++) followed |= 1u << list[k];
        for (int k = 0; i == count - 1 && k < i; k++)
            if (!(followed >> k & 1)) list[n++] = k;
        m->needs[i] = 1u << i;
        for (int k = 0; k < n; k++) m->needs[i] |= m->needs[list[k]];
        m->transfer[i] = duration(rng);
        m->compute[i] = duration(rng);
        m->tensors[i] = (gw_schedule_tensor){.count = (size_t)m->transfer[i], .element = 4,
                                             .kind = i, .after = chain && i % 2 ? NULL : list, .after_count = n};
    }
}

/* ---- the definitions ---- */

static int members(uint32_t set) { return __builtin_popcount(set); }

static double transfers(const model *m, uint32_t set) {
    double sum = 0;
    for (int t = 0; t < m->count; t++) sum += set >> t & 1 ? m->transfer[t] : 0;
    return sum;
}

/* P: compute of all operations that wait for this tensor and no other. */
static double directly(const model *m, int t, uint32_t waiting) {
    double sum = 0;
    for (int op = 0; op < m->count; op++) sum += (m->needs[op] & waiting) == 1u << t ? m->compute[op] : 0;
    return sum;
}

/* M+: least transfers that some operation waits for, this tensor and others. */
static double impending(const model *m, int t, uint32_t waiting) {
    double least = INFINITY;
    for (int op = 0; op < m->count; op++) {
        uint32_t set = m->needs[op] & waiting;
        if (set >> t & 1 && members(set) > 1) least = fmin(least, transfers(m, set));
    }
    return least;
}

static bool is_before(const model *m, int a, int b, uint32_t waiting) {
    double left = fmin(directly(m, b, waiting), m->transfer[a]), right = fmin(directly(m, a, waiting), m->transfer[b]);
    if (left < right || left > right) return left < right;
    return impending(m, a, waiting) < impending(m, b, waiting);
}

static void tac_by_definition(const model *m, int *place) {
    uint32_t waiting = (uint32_t)((UINT64_C(1) << m->count) - 1);
    for (int next = 0; waiting; next++) {
        int best = -1;
        for (int t = 0; t < m->count; t++)
            if (waiting >> t & 1 && (best < 0 || is_before(m, t, best, waiting))) best = t;
        place[best] = next;
        waiting &= ~(1u << best);
    }
}

/* One unit for each transfer, nothing for compute, and no recomputation. */
static void tic_by_definition(const model *m, int *place) {
    model units = *m;
    double least[MOST];
    for (int t = 0; t < m->count; t++) units.transfer[t] = 1;
    for (int t = 0; t < m->count; t++) least[t] = impending(&units, t, UINT32_MAX >> (32 - m->count));
    for (int t = 0; t < m->count; t++) {
        place[t] = 0;
        for (int k = 0; k < m->count; k++) place[t] += least[k] < least[t] || (k < t && !(least[t] < least[k]));
    }
}

/* The end of the forward pass: whoever can run first does. */
static double span(const model *m, const int *place) {
    double arrived[MOST], ended[MOST], now = 0;
    uint32_t done = 0;
    for (int i = 0; i < m->count; i++)
        for (int t = 0; t < m->count; t++)
            if (place[t] == i) arrived[t] = now += m->transfer[t];
    now = 0;
    while (members(done) < m->count) {
        int best = -1;
        double earliest = INFINITY;
        for (int op = 0; op < m->count; op++) {
            uint32_t before = m->needs[op] & ~(1u << op);
            if (done >> op & 1 || (before & ~done)) continue;
            double from = fmax(arrived[op], now);
            for (int t = 0; t < op; t++)
                if (before >> t & 1) from = fmax(from, ended[t]);
            if (from < earliest) earliest = from, best = op;
        }
        now = ended[best] = earliest + m->compute[best];
        done |= 1u << best;
    }
    return now;
}

/* ---- cases ---- */

static bool same(const int *a, const int *b, int count) { return memcmp(a, b, (size_t)count * sizeof *a) == 0; }

static bool is_forward(const int *place, int count) {
    for (int t = 0; t < count; t++)
        if (place[t] != t) return false;
    return true;
}

static gw_forward_graph *graph_of(const model *m) {
    gw_forward_graph *g = NULL;
    gw_error error = {.rank = -1};
    CHECK_EQ(GW_OK, gw_forward_graph_open(&g, m->tensors, m->count, &error));
    return g;
}

static void a_chain_is_forward_order(void) {
    gw_rng rng = gw_rng_make(1, 0);
    for (int i = 0; i < 200; i++) {
        model m;
        int place[MOST];
        make_model(&m, 1 + i % MOST, true, &rng);
        gw_forward_graph *g = graph_of(&m);
        gw_forward_graph_tic(g, place);
        CHECK(is_forward(place, m.count));
        gw_forward_graph_tac(g, m.transfer, m.compute, place);
        CHECK(is_forward(place, m.count));
        gw_forward_graph_close(g);
    }
}

static void orders_are_those_of_the_paper(void) {
    gw_rng rng = gw_rng_make(2, 0);
    int tics = 0, tacs = 0, both = 0;
    for (int i = 0; i < MODELS; i++) {
        model m;
        int tic[MOST], tac[MOST], wanted[MOST];
        make_model(&m, i % 2 ? SMALL : MOST - i % 12, false, &rng);
        gw_forward_graph *g = graph_of(&m);
        gw_forward_graph_tic(g, tic);
        tic_by_definition(&m, wanted);
        CHECK(same(wanted, tic, m.count));
        gw_forward_graph_tac(g, m.transfer, m.compute, tac);
        tac_by_definition(&m, wanted);
        CHECK(same(wanted, tac, m.count));
        CHECK(span(&m, tac) == gw_forward_graph_span(g, tac, m.transfer, m.compute));
        tics += !is_forward(tic, m.count);
        tacs += !is_forward(tac, m.count);
        both += !same(tic, tac, m.count);
        gw_forward_graph_close(g);
    }
    printf("    of %d models: tic is not forward order on %d, tac on %d; tic and tac differ on %d\n", MODELS, tics,
           tacs, both);
    CHECK(tics > MODELS / 2 && tacs > MODELS / 2 && both > MODELS / 2);
}

/* The places of tensors in a schedule that has measured these times. */
static void scheduled(const model *m, int *place) {
    gw_error error = {.rank = -1};
    gw_schedule *s = NULL;
    gw_schedule_settings settings = {.measured = true};
    gw_schedule_facts facts = {.us_per_byte = 0.25, .forward_us = m->compute, .backward_us = m->compute};
    CHECK_EQ(GW_OK, gw_schedule_open(&s, &gw_policy_tictac, &settings, m->tensors, m->count, &error));
    gw_schedule_cut(s, &settings, &facts);
    for (int p = 0; p < gw_schedule_buckets(s); p++)
        place[gw_schedule_ranges(s, p)->tensor] = gw_schedule_bucket(s, p)->priority;
    gw_schedule_close(s);
}

static void a_schedule_is_seldom_slower_than_forward_order(void) {
    gw_rng rng = gw_rng_make(3, 0);
    int slower = 0, faster = 0, other = 0;
    for (int i = 0; i < MODELS; i++) {
        model m;
        int place[MOST], forward[MOST];
        make_model(&m, 4 + i % (MOST - 3), false, &rng);
        scheduled(&m, place);
        for (int t = 0; t < m.count; t++) forward[t] = t;
        double ours = span(&m, place), theirs = span(&m, forward);
        other += !is_forward(place, m.count);
        slower += ours > theirs;
        faster += ours < theirs;
    }
    printf("    of %d models with branches: %d in another order, %d faster and %d slower than forward order\n", MODELS,
           other, faster, slower);
    CHECK(slower * 20 <= MODELS && faster * 4 > MODELS);
}

static double best_span(const model *m, int *place, uint32_t left, int next) {
    double best = INFINITY;
    if (!left) return span(m, place);
    for (int t = 0; t < m->count; t++) {
        if (!(left >> t & 1)) continue;
        place[t] = next;
        best = fmin(best, best_span(m, place, left & ~(1u << t), next + 1));
    }
    return best;
}

/* All 40,320 orders of eight tensors: the schedule's is near the best. */
static void a_search_finds_little_better(void) {
    enum { SEARCHED = 20 };
    gw_rng rng = gw_rng_make(4, 0);
    double ours = 0, best = 0, forward = 0;
    for (int i = 0; i < SEARCHED; i++) {
        model m;
        int place[MOST], chain[MOST];
        make_model(&m, SMALL, false, &rng);
        scheduled(&m, place);
        for (int t = 0; t < m.count; t++) chain[t] = t;
        ours += span(&m, place);
        forward += span(&m, chain);
        best += best_span(&m, place, (1u << SMALL) - 1, 0);
    }
    printf("    forward order takes %.3f of the best, tac %.3f\n", forward / best, ours / best);
    CHECK(ours >= best && ours <= 1.03 * best && ours < forward);
}

static void tensors_without_elements_are_not_waited_for(void) {
    gw_schedule_tensor tensors[3] = {
        {.count = 1, .element = 4}, {.count = 0, .element = 4}, {.count = 1, .element = 4}};
    double us[3] = {1, 1, 1};
    int place[3];
    gw_error error = {.rank = -1};
    gw_forward_graph *g = NULL;
    CHECK_EQ(GW_OK, gw_forward_graph_open(&g, tensors, 3, &error));
    gw_forward_graph_tac(g, us, us, place);
    CHECK(place[0] == 0 && place[2] == 1 && place[1] == 2);
    gw_forward_graph_tic(g, place);
    CHECK(place[0] == 0 && place[2] == 1 && place[1] == 2);
    gw_forward_graph_close(g);
}

TEST_MAIN(CASE(a_chain_is_forward_order), CASE(orders_are_those_of_the_paper),
          CASE(a_schedule_is_seldom_slower_than_forward_order), CASE(a_search_finds_little_better),
          CASE(tensors_without_elements_are_not_waited_for))
