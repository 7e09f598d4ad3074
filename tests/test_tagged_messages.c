/* test_tagged_messages.c - sends and receives that match by tag, between processes over tcp (one stream and several)
 * and shm: tags in any order, sizes mixed, any source, and errors that name the tag. test_sim.c checks the same under
 * random delays and faults. */
#include "fault_job.h"
#include "runtime/comm.h"

#define MESSAGES 40
#define LARGEST 700001 /* bytes: three chunks */

static const size_t sizes[] = {4, LARGEST, 0, 1000, 65536, 65537, 300000};

static size_t bytes_of(int message) { return sizes[message % 7]; }

static gw_op_spec spec_of(bool sends, void *data, size_t bytes, int peer, int tag) {
    return (gw_op_spec){.collective = sends ? GW_COLL_SEND : GW_COLL_RECV, .in = sends ? data : NULL,
                        .out = sends ? NULL : data, .count = bytes, .dtype = GW_U8, .root = peer, .tagged = true,
                        .tag = tag};
}

static gw_status begin(gw_comm *comm, bool sends, void *data, size_t bytes, int peer, int tag, int *source,
                       gw_request **request) {
    gw_op_spec spec = spec_of(sends, data, bytes, peer, tag);
    spec.source = source;
    return gw_comm_begin(comm, &spec, request);
}

static gw_status now(gw_comm *comm, bool sends, void *data, size_t bytes, int peer, int tag) {
    gw_op_spec spec = spec_of(sends, data, bytes, peer, tag);
    return gw_comm_run(comm, &spec);
}

static uint8_t *filled(int message, int rank) {
    uint8_t *data = malloc(LARGEST);
    memset(data, 1 + message * 5 + rank, LARGEST);
    return data;
}

/* Whether the message is that of this rank, to its last byte. */
static bool holds(const uint8_t *data, int message, int rank) {
    size_t bytes = bytes_of(message);
    uint8_t right = (uint8_t)(1 + message * 5 + rank);
    for (size_t i = 0; i < bytes; i++)
        if (data[i] != right) return false;
    return true;
}

static void note(job_member *member, bool right) { member->wrong += !right; }

static void pause_ms(int ms) { usleep((useconds_t)ms * 1000); }

/* Rank 0 sends all at once, each with a tag of its own; rank 1 asks for them in the opposite order, one by one. */
static void opposite_orders(gw_comm *comm, const job *j, job_member *member) {
    gw_request *request[MESSAGES];
    uint8_t *data[MESSAGES];
    for (int i = 0; i < MESSAGES; i++) data[i] = filled(i, 0);
    for (int i = 0; i < MESSAGES && j->me == 0; i++)
        note(member, begin(comm, true, data[i], bytes_of(i), 1, i, NULL, &request[i]) == GW_OK);
    for (int i = 0; i < MESSAGES && j->me == 0; i++) note(member, gw_wait(request[i]) == GW_OK);
    for (int i = MESSAGES - 1; i >= 0 && j->me == 1; i--) {
        memset(data[i], 0, LARGEST);
        note(member, now(comm, false, data[i], bytes_of(i), 0, i) == GW_OK && holds(data[i], i, 0));
    }
    for (int i = 0; i < MESSAGES; i++) free(data[i]);
}

/* One tag: the order of the sends is kept, whether they are eager, announced, or granted ahead. */
static void one_tag_keeps_its_order(gw_comm *comm, const job *j, job_member *member) {
    for (int ahead = 1; ahead <= MESSAGES; ahead *= 3) {
        gw_request *request[MESSAGES];
        uint8_t *data[MESSAGES];
        for (int i = 0; i < MESSAGES; i++) {
            data[i] = filled(i, 0);
            if (j->me == 1) memset(data[i], 0, LARGEST);
            if (i >= ahead) note(member, gw_wait(request[i - ahead]) == GW_OK);
            note(member, begin(comm, j->me == 0, data[i], bytes_of(i), !j->me, 3, NULL, &request[i]) == GW_OK);
            if (i % 13 == ahead % 13) pause_ms(5 * (j->me == ahead % 2)); /* now one is first, now the other */
        }
        for (int i = MESSAGES - ahead; i < MESSAGES; i++) note(member, gw_wait(request[i]) == GW_OK);
        for (int i = 0; i < MESSAGES; i++) {
            note(member, holds(data[i], i, 0));
            free(data[i]);
        }
    }
}

/* Rank 0 takes what the others send, whoever is first, and knows who it was. Tag 9 stays unmatched meanwhile: more such
 * sends than there are eager slots. */
static void any_source(gw_comm *comm, const job *j, job_member *member) {
    gw_request *held[15], *request[7];
    uint8_t *data = filled(0, 0), last[15];
    for (int i = 0; i < 15 && j->me > 0; i++)
        note(member, begin(comm, true, memset(&last[i], i, 1), 1, 0, 9, NULL, &held[i]) == GW_OK);
    for (int i = 0; i < 7; i++) { /* each message once from each */
        uint8_t *mine = filled(i, j->me);
        if (j->me > 0) note(member, now(comm, true, mine, bytes_of(i), 0, 10 + i) == GW_OK);
        for (int from = 1, seen = 0, source = -1; from < j->world && j->me == 0; from++, seen |= 1 << source) {
            note(member, begin(comm, false, data, bytes_of(i), GW_ANY_SOURCE, 10 + i, &source, &request[i]) == GW_OK);
            note(member, gw_wait(request[i]) == GW_OK && source > 0 && source < j->world && !(seen >> source & 1));
            note(member, holds(data, i, source));
        }
        free(mine);
    }
    for (int i = 0; i < 15 * (j->world - 1) && j->me == 0; i++) {
        uint8_t byte = 99;
        note(member, now(comm, false, &byte, 1, 1 + i / 15, 9) == GW_OK && byte == i % 15);
    }
    for (int i = 0; i < 15 && j->me > 0; i++) note(member, gw_wait(held[i]) == GW_OK);
    free(data);
}

/* Every rank sends to the next and receives from the one before, both started before either is waited for. */
static void ring(gw_comm *comm, const job *j, job_member *member) {
    int next = (j->me + 1) % j->world, before = (j->me + j->world - 1) % j->world;
    for (int i = 0; i < 3 * MESSAGES; i++) {
        uint8_t *out = filled(i, j->me), *in = calloc(1, LARGEST);
        gw_request *sent, *received;
        note(member, begin(comm, true, out, bytes_of(i), next, i % 3, NULL, &sent) == GW_OK);
        note(member, begin(comm, false, in, bytes_of(i), before, i % 3, NULL, &received) == GW_OK);
        note(member, gw_wait(received) == GW_OK && gw_wait(sent) == GW_OK && holds(in, i, before));
        free(out);
        free(in);
    }
}

/* A receive may wait for the message that comes after others with other tags. */
static void large_ones_pass_each_other(gw_comm *comm, const job *j, job_member *member) {
    uint8_t *a = filled(1, 0), *b = filled(8, 0);
    gw_request *first, *second;
    bool sends = j->me == 0;
    for (int i = 0; i < 10; i++) {
        int tag = sends ? 1 : 2; /* rank 1 offers its grant to the send with tag 1, which does not take it */
        note(member, begin(comm, sends, sends ? a : b, LARGEST, !j->me, tag, NULL, &first) == GW_OK);
        note(member, begin(comm, sends, sends ? b : a, LARGEST, !j->me, 3 - tag, NULL, &second) == GW_OK);
        note(member, gw_wait(first) == GW_OK && gw_wait(second) == GW_OK && holds(a, 1, 0) && holds(b, 8, 0));
        if (!sends) memset(a, 0, LARGEST), memset(b, 0, LARGEST);
    }
    free(a);
    free(b);
}

static const char *const lines[] = {"transport=tcp", "transport=tcp:streams=3", "transport=shm"};

static void finish(gw_comm *comm, const job *j, job_member *member) {
    static job_body *const bodies[] = {opposite_orders, one_tag_keeps_its_order, any_source, ring,
                                       large_ones_pass_each_other};
    bodies[j->kind](comm, j, member);
    member->finalized = gw_finalize(comm);
    note(member, member->finalized == GW_OK);
}

static void run_kind(int kind, int world) {
    for (int line = 0; line < 3; line++) {
        job j = {.world = world, .strategy = lines[line], .deadline_s = 60, .body = finish, .kind = kind};
        job_start(&j);
        for (int r = 0; r < world; r++) {
            CHECK(job_ended(&j, r, 30));
            CHECK_EQ(0, j.shared->member[r].wrong);
            if (j.shared->member[r].wrong) printf("    rank %d, %s\n", r, lines[line]);
        }
        job_close(&j);
    }
}

static void tags_in_opposite_orders(void) { run_kind(0, 2); }
static void same_tag_in_order(void) { run_kind(1, 2); }
static void from_any_of_four_ranks(void) { run_kind(2, 4); }
static void ring_exchange(void) { run_kind(3, 3); }
static void unwanted_offers(void) { run_kind(4, 2); }

/* Errors. */

enum { COUNTS_DIFFER, NOBODY_SENDS, NOBODY_SENDS_ANY, NOBODY_RECEIVES, SENDER_DIES, SENDER_DIES_ANY };

static void fail(gw_comm *comm, const job *j, job_member *member) {
    static uint8_t data[LARGEST];
    bool any = j->kind == NOBODY_SENDS_ANY || j->kind == SENDER_DIES_ANY;
    gw_status status = GW_OK;
    atomic_store(&member->rounds, 1);
    if (j->kind == NOBODY_RECEIVES) status = j->me ? GW_OK : now(comm, true, data, LARGEST, 1, 7);
    else if (j->kind == COUNTS_DIFFER) status = now(comm, j->me == 0, data, j->me ? j->count + 1 : j->count, !j->me, 7);
    else if (j->me == 0) status = now(comm, false, data, 5, any ? GW_ANY_SOURCE : 1, 7);
    if (!status && j->me != j->victim) { /* the failure reaches every rank */
        float x = 1;
        status = gw_allreduce(comm, &x, &x, 1, GW_F32, GW_SUM);
    }
    while (!status && j->me == j->victim) pause_ms(100); /* until the test kills it */
    job_failed(member, comm, status);
    gw_finalize(comm);
}

static void fails(job j, gw_status status, const char *words) {
    for (int line = 0; line < 3; line += 2) {
        j.strategy = lines[line];
        j.body = fail;
        job_start(&j);
        CHECK(job_all_reached(&j, 1, 10));
        if (j.victim > 0 && j.kind >= SENDER_DIES) kill(j.pid[j.victim], SIGKILL);
        for (int r = 0; r < j.world; r++) {
            if (r == j.victim) continue;
            CHECK(job_ended(&j, r, 20));
            CHECK_EQ(status, j.shared->member[r].status);
            CHECK(strstr(j.shared->member[r].text, words) != NULL);
            if (!strstr(j.shared->member[r].text, words)) printf("    rank %d said: %s\n", r, j.shared->member[r].text);
        }
        if (j.victim > 0 && j.kind < SENDER_DIES) kill(j.pid[j.victim], SIGKILL);
        if (j.victim > 0) waitpid(j.pid[j.victim], NULL, 0), j.pid[j.victim] = 0;
        job_close(&j);
    }
}

static void counts_differ(void) {
    fails((job){.world = 2, .deadline_s = 20, .kind = COUNTS_DIFFER, .count = 10, .victim = -1}, GW_MISMATCH,
          "receives 11 x u8; rank 0");
    fails((job){.world = 2, .deadline_s = 20, .kind = COUNTS_DIFFER, .count = 100000, .victim = -1}, GW_MISMATCH,
          "sends 100000 x u8");
}

static void nobody_sends(void) {
    fails((job){.world = 2, .deadline_s = 2, .kind = NOBODY_SENDS, .victim = 1}, GW_TIMEOUT,
          "waited for a message with tag 7 from rank 1, of 5 x u8");
    fails((job){.world = 2, .deadline_s = 2, .kind = NOBODY_SENDS_ANY, .victim = 1}, GW_TIMEOUT,
          "waited for a message with tag 7 from any rank, of 5 x u8");
}

static void nobody_receives(void) {
    fails((job){.world = 2, .deadline_s = 2, .kind = NOBODY_RECEIVES, .victim = 1}, GW_TIMEOUT,
          "waited for rank 1 to receive a message with tag 7, of 700001 x u8");
}

static void the_sender_dies(void) {
    fails((job){.world = 3, .deadline_s = 30, .kind = SENDER_DIES, .victim = 1}, GW_PEER_LOST, "rank 1");
    fails((job){.world = 3, .deadline_s = 30, .kind = SENDER_DIES_ANY, .victim = 2}, GW_PEER_LOST, "rank 2");
}

TEST_MAIN(CASE(tags_in_opposite_orders), CASE(same_tag_in_order), CASE(from_any_of_four_ranks), CASE(ring_exchange),
          CASE(unwanted_offers), CASE(counts_differ), CASE(nobody_sends), CASE(nobody_receives), CASE(the_sender_dies))
