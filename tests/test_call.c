/* test_call.c - calls that a gw_call describes: uneven parts, many tensors at once, groups with requests, deadlines of
 * their own; the status of a communicator from another thread, the log callback, and pointers that cannot be read. */
#include <pthread.h>
#include <sys/mman.h>

#include "small_job.h"

#define REFUSED(words, call)                                                                                           \
    do {                                                                                                               \
        CHECK_EQ(GW_INVALID, call);                                                                                    \
        CHECK(strstr(gw_last_error(NULL), words) != NULL);                                                             \
        if (!strstr(gw_last_error(NULL), words)) printf("    said: %s\n", gw_last_error(NULL));                        \
    } while (0)

static int port;
static const char *strategy;

static gw_comm *join(int rank, int world) {
    gw_comm *comm = NULL;
    gw_options options = job_options(rank, world, port, strategy);
    CHECK_EQ(GW_OK, gw_init(&comm, &options));
    if (!comm) printf("    %s\n", gw_last_error(NULL)), exit(1);
    gw_barrier(comm); /* all have joined before one fails on purpose; that may interrupt the barrier of another */
    return comm;
}

static void everywhere(int world, void (*body)(int)) {
    static const char *const strategies[] = {"transport=tcp", "transport=shm", "arch=ring", "arch=hierarchical"};
    for (int s = 0; s < 4; s++) {
        strategy = strategies[s];
        port = free_port();
        job_fork(world, body);
    }
}

/* Arguments. */

static void calls_are_checked(void) {
    gw_comm *comm = NULL;
    gw_options options = job_options(0, 1, -1, NULL);
    float x[4] = {1, 2, 3, 4}, y[4] = {0};
    gw_request *request = (gw_request *)x;
    CHECK_EQ(GW_OK, gw_init(&comm, &options));
    gw_call call = GW_CALL_DEFAULT;
    call.in = x, call.out = y, call.count = 4;
    CHECK_EQ(GW_OK, gw_run(comm, &call));
    CHECK(memcmp(x, y, sizeof x) == 0);
    REFUSED("the call is NULL", gw_run(comm, NULL));
    REFUSED("the request is NULL", gw_start(comm, &call, NULL));
    call.size = 0;
    REFUSED("_DEFAULT", gw_start(comm, &call, &request));
    CHECK(request == NULL);
    call.size = sizeof call;
    call.collective = (gw_collective)99;
    REFUSED("99 is not a gw_collective", gw_run(comm, &call));
    call.collective = GW_COLL_BROADCAST, call.root = 0, call.counts = (size_t[]){4};
    REFUSED("broadcast: it takes no counts", gw_run(comm, &call));
    call.counts = NULL, call.deadline_s = -1;
    REFUSED("a deadline of -1 s", gw_run(comm, &call));
    call.deadline_s = 0, call.collective = GW_COLL_BARRIER, call.tensors = &(gw_call_tensor){x, y, 4};
    REFUSED("barrier: it cannot be coalesced", gw_run(comm, &call));
    call.tensors = NULL, call.collective = GW_COLL_ALLTOALLV;
    REFUSED("in_counts or out_counts is NULL", gw_run(comm, &call));
    REFUSED("sends itself 3 elements and expects 4",
            gw_alltoallv(comm, x, (size_t[]){3}, NULL, y, (size_t[]){4}, NULL, GW_F32));
    REFUSED("no in-place form", gw_alltoallv(comm, x, (size_t[]){4}, NULL, x, (size_t[]){4}, NULL, GW_F32));
    REFUSED("do not fit in memory",
            gw_alltoallv(comm, x, (size_t[]){4}, (size_t[]){SIZE_MAX}, y, (size_t[]){4}, NULL, GW_F32));
    CHECK_EQ(GW_OK, gw_alltoallv(comm, x, (size_t[]){2}, (size_t[]){1}, y, (size_t[]){2}, (size_t[]){2}, GW_F32));
    CHECK(y[0] == 1 && y[1] == 2 && y[2] == 2 && y[3] == 3);
    CHECK_EQ(GW_OK, gw_finalize(comm));
}

static void a_pointer_that_cannot_be_read_is_refused(void) {
    gw_comm *comm = NULL;
    gw_options options = job_options(0, 1, -1, NULL);
    float x[4] = {1, 2, 3, 4};
    char *device = mmap(NULL, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); /* as memory of a GPU is mapped */
    CHECK_EQ(GW_OK, gw_init(&comm, &options));
    for (int i = 0; i < 3; i++) {
        REFUSED("copy memory of a device to the host", gw_allreduce(comm, device + 16, x, 4, GW_F32, GW_SUM));
        REFUSED("the output buffer at", gw_allreduce(comm, x, device, 4, GW_F32, GW_SUM));
        REFUSED("can read", gw_allreduce(comm, x, (void *)(uintptr_t)64, 4, GW_F32, GW_SUM));
        CHECK_EQ(GW_OK, gw_allreduce(comm, x, x, 4, GW_F32, GW_SUM));
    }
    munmap(device, 8192);
    CHECK_EQ(GW_OK, gw_finalize(comm));
}

/* Uneven parts. */

enum { WORLD = 4 };

static float element(int from, int to, size_t i) { return (float)(1000 * from + 100 * to + (int)i); }
static size_t length(int from, int to) { return (size_t)((from * 3 + to * 5) % 7) * (from == 2 ? 20000 : 1); }

static void alltoallv_rank(int rank) {
    gw_comm *comm = join(rank, WORLD);
    size_t sent[WORLD], got[WORLD], at[WORLD], total_in = 0, total_out = 3;
    for (int r = 0; r < WORLD; r++) {
        sent[r] = length(rank, r);
        got[r] = length(r, rank);
        at[r] = total_out;
        total_in += sent[r];
        total_out += got[r] + 3;
    }
    float *in = calloc(total_in + 1, sizeof *in), *out = calloc(total_out, sizeof *out), *next = in;
    for (int r = 0; r < WORLD; r++)
        for (size_t i = 0; i < sent[r]; i++) *next++ = element(rank, r, i);
    for (int round = 0; round < 3; round++) {
        gw_request *request = NULL;
        for (size_t i = 0; i < total_out; i++) out[i] = -1;
        if (round == 1) CHECK_EQ(GW_OK, gw_alltoallv_start(comm, in, sent, NULL, out, got, at, GW_F32, &request));
        else CHECK_EQ(GW_OK, gw_alltoallv(comm, in, sent, NULL, out, got, at, GW_F32));
        CHECK_EQ(GW_OK, gw_wait(request));
        size_t wrong = 0, gaps = 0;
        for (int r = 0; r < WORLD; r++)
            for (size_t i = 0; i < got[r]; i++) wrong += out[at[r] + i] != element(r, rank, i);
        for (size_t i = 0; i < total_out; i++) gaps += out[i] == -1;
        CHECK_EQ(0, wrong);
        CHECK_EQ(3 * (WORLD + 1), gaps);
    }
    free(in);
    free(out);
    CHECK_EQ(GW_OK, gw_finalize(comm));
}

static void uneven_all_to_all(void) { everywhere(WORLD, alltoallv_rank); }

/* Rank 1 expects one element more than rank 0 sends; large: in many messages, empty: rank 0 sends nothing. */
static size_t sends, expects;

static void disagree_rank(int rank) {
    gw_comm *comm = join(rank, 2);
    float *in = calloc(sends + 1, sizeof *in), *out = calloc(expects + 1, sizeof *out);
    size_t none[2] = {0, 0}, to_1[2] = {0, sends}, from_0[2] = {expects, 0};
    gw_status status = gw_alltoallv(comm, in, rank ? none : to_1, NULL, out, rank ? from_0 : none, NULL, GW_F32);
    if (!status) status = gw_barrier(comm); /* the sender may be done before the receiver looks */
    CHECK_EQ(GW_MISMATCH, status);
    CHECK(strstr(gw_last_error(comm), "alltoallv of") != NULL);
    free(in);
    free(out);
    gw_finalize(comm);
}

static void ranks_that_disagree_are_told(void) {
    static const size_t cases[][2] = {{5, 6}, {0, 6}, {6, 0}, {400000, 400001}, {10, 400000}, {400000, 10}};
    for (int i = 0; i < 6; i++) {
        sends = cases[i][0], expects = cases[i][1];
        everywhere(2, disagree_rank);
    }
}

static void gatherv_rank(int rank) {
    gw_comm *comm = join(rank, WORLD);
    const size_t counts[WORLD] = {5, 0, 70000, 3};
    size_t total = 0, before = 0;
    for (int r = 0; r < WORLD; r++) total += counts[r], before += r < rank ? counts[r] : 0;
    for (int root = 0; root < WORLD; root++) {
        float *own = calloc(counts[rank] + 1, sizeof *own), *all = calloc(total, sizeof *all);
        for (size_t i = 0; i < counts[rank]; i++) own[i] = element(rank, root, i);
        CHECK_EQ(GW_OK, gw_gatherv(comm, own, rank == root ? all : NULL, counts, GW_F32, root));
        size_t wrong = 0, at = 0;
        for (int r = 0; rank == root && r < WORLD; r++)
            for (size_t i = 0; i < counts[r]; i++) wrong += all[at++] != element(r, root, i);
        memset(own, 0, counts[rank] * sizeof *own);
        CHECK_EQ(GW_OK, gw_scatterv(comm, rank == root ? all : NULL, own, counts, GW_F32, root));
        for (size_t i = 0; i < counts[rank]; i++) wrong += own[i] != element(rank, root, i);
        if (rank == root) /* in place: the own part of the large buffer */
            CHECK_EQ(GW_OK, gw_gatherv(comm, all + before, all, counts, GW_F32, root));
        else CHECK_EQ(GW_OK, gw_gatherv(comm, own, NULL, counts, GW_F32, root));
        at = 0;
        for (int r = 0; rank == root && r < WORLD; r++)
            for (size_t i = 0; i < counts[r]; i++) wrong += all[at++] != element(r, root, i);
        CHECK_EQ(0, wrong);
        free(own);
        free(all);
    }
    CHECK_EQ(GW_OK, gw_finalize(comm));
}

static void uneven_gather_and_scatter(void) { everywhere(WORLD, gatherv_rank); }

/* Many tensors. */

enum { TENSORS = 6 };
static const size_t tensor_counts[TENSORS] = {1, 0, 17, 30000, 255, 70000};

static float *tensors_in[TENSORS], *tensors_out[TENSORS];

static void make_tensors(gw_call_tensor *tensors, int rank, int world) {
    for (int t = 0; t < TENSORS; t++) {
        size_t room = tensor_counts[t] * (size_t)world + 1;
        tensors_in[t] = calloc(room, sizeof(float));
        tensors_out[t] = calloc(room, sizeof(float));
        for (size_t i = 0; i < room; i++) tensors_in[t][i] = element(rank, t, i % 90);
        tensors[t] = (gw_call_tensor){tensors_in[t], tensors_out[t], tensor_counts[t]};
    }
}

static size_t wrong_sums(int world) {
    size_t wrong = 0;
    for (int t = 0; t < TENSORS; t++)
        for (size_t i = 0; i < tensor_counts[t]; i++) {
            float sum = 0;
            for (int r = 0; r < world; r++) sum += element(r, t, i % 90);
            wrong += tensors_out[t][i] != sum;
            tensors_out[t][i] = 0;
        }
    return wrong;
}

static void coalesced_rank(int rank) {
    gw_comm *comm = join(rank, WORLD);
    gw_call_tensor tensors[TENSORS];
    gw_request *first = NULL, *second = NULL;
    float extra_in = (float)rank, extra_out = -1, blocking_out = -1;
    make_tensors(tensors, rank, WORLD);
    gw_call call = GW_CALL_DEFAULT;
    call.tensors = tensors, call.tensor_count = TENSORS;
    for (int round = 0; round < 3; round++) {
        CHECK_EQ(GW_OK, gw_run(comm, &call));
        CHECK_EQ(0, wrong_sums(WORLD));
        CHECK_EQ(GW_OK, gw_start(comm, &call, &first));
        CHECK_EQ(GW_OK, gw_allreduce_start(comm, &extra_in, &extra_out, 1, GW_F32, GW_MAX, &second));
        CHECK_EQ(GW_OK, gw_wait(second));
        CHECK(extra_out == WORLD - 1);
        for (bool done = false; !done;) CHECK_EQ(GW_OK, gw_test(first, &done));
        CHECK_EQ(0, wrong_sums(WORLD));
        CHECK_EQ(GW_OK, gw_group_start(comm)); /* two requests and a blocking call */
        CHECK_EQ(GW_OK, gw_start(comm, &call, &first));
        CHECK_EQ(GW_OK, gw_allreduce(comm, &extra_in, &blocking_out, 1, GW_F32, GW_SUM));
        CHECK_EQ(GW_OK, gw_allreduce_start(comm, &extra_in, &extra_out, 1, GW_F32, GW_MIN, &second));
        CHECK_EQ(GW_OK, gw_group_end(comm));
        CHECK(blocking_out == 6);
        CHECK_EQ(GW_OK, gw_wait(second));
        CHECK_EQ(GW_OK, gw_wait(first));
        CHECK(extra_out == 0);
        CHECK_EQ(0, wrong_sums(WORLD));
    }
    call.collective = GW_COLL_ALLGATHER;
    CHECK_EQ(GW_OK, gw_run(comm, &call));
    size_t wrong = 0;
    for (int t = 0; t < TENSORS; t++)
        for (size_t i = 0; i < WORLD * tensor_counts[t]; i++)
            wrong += tensors_out[t][i] != element((int)(i / tensor_counts[t]), t, i % tensor_counts[t] % 90);
    call.collective = GW_COLL_REDUCE_SCATTER;
    CHECK_EQ(GW_OK, gw_run(comm, &call));
    for (int t = 0; t < TENSORS; t++)
        for (size_t i = 0; i < tensor_counts[t]; i++) {
            float sum = 0;
            for (int r = 0; r < WORLD; r++) sum += element(r, t, ((size_t)rank * tensor_counts[t] + i) % 90);
            wrong += tensors_out[t][i] != sum;
        }
    CHECK_EQ(0, wrong);
    call.tensor_count = 0;
    CHECK_EQ(GW_OK, gw_run(comm, &call));
    CHECK_EQ(GW_OK, gw_finalize(comm));
}

static void many_tensors_at_once(void) { everywhere(WORLD, coalesced_rank); }

/* A request that nobody waits for: gw_finalize does. */
static void forgotten_rank(int rank) {
    gw_comm *comm = join(rank, 2);
    gw_call_tensor tensors[TENSORS];
    gw_request *request = NULL;
    make_tensors(tensors, rank, 2);
    gw_call call = GW_CALL_DEFAULT;
    call.tensors = tensors, call.tensor_count = TENSORS;
    CHECK_EQ(GW_OK, gw_start(comm, &call, &request));
    CHECK_EQ(GW_OK, gw_finalize(comm));
    CHECK_EQ(0, wrong_sums(2));
}

static void forgotten_requests_are_completed(void) { everywhere(2, forgotten_rank); }

/* Tags and sources. */

static gw_call message_call(gw_collective what, const void *in, void *out, size_t count, int peer, int tag) {
    gw_call call = GW_CALL_DEFAULT;
    call.collective = what, call.in = in, call.out = out, call.count = count, call.root = peer, call.tag = tag;
    return call;
}

/* Every rank sends rank 0 two messages, the one with the higher tag first. Rank 0 takes the lower tag first, from
 * whichever rank has sent it. */
static void tags_rank(int rank) {
    gw_comm *comm = join(rank, WORLD);
    enum { MANY = 100000 };
    float *large = calloc(MANY, sizeof *large), small = (float)rank;
    bool seen[WORLD] = {true};
    for (int i = 0; i < MANY; i++) large[i] = element(rank, 1, (size_t)i % 90);
    if (rank) {
        gw_request *request = NULL;
        gw_call first = message_call(GW_COLL_SEND, large, NULL, MANY, 0, 9);
        gw_call second = message_call(GW_COLL_SEND, &small, NULL, 1, 0, 4);
        CHECK_EQ(GW_OK, gw_start(comm, &first, &request));
        CHECK_EQ(GW_OK, gw_run(comm, &second));
        CHECK_EQ(GW_OK, gw_wait(request));
    }
    for (int i = 1; rank == 0 && i < WORLD; i++) {
        int source = -1;
        gw_call call = message_call(GW_COLL_RECV, NULL, &small, 1, GW_ANY_SOURCE, 4);
        call.source = &source;
        CHECK_EQ(GW_OK, gw_run(comm, &call));
        CHECK(source > 0 && source < WORLD && !seen[source] && small == (float)source);
        if (source > 0) seen[source] = true;
        gw_call next = message_call(GW_COLL_RECV, NULL, large, MANY, source, 9);
        CHECK_EQ(GW_OK, gw_run(comm, &next));
        size_t wrong = 0;
        for (int k = 0; k < MANY; k++) wrong += large[k] != element(source, 1, (size_t)k % 90);
        CHECK_EQ(0, wrong);
    }
    gw_call bad = message_call(GW_COLL_SEND, large, NULL, 1, (rank + 1) % WORLD, -1);
    REFUSED("the tag -1 is negative", gw_run(comm, &bad));
    bad = message_call(GW_COLL_SEND, large, NULL, 1, GW_ANY_SOURCE, 0);
    REFUSED("peer -1 is not a rank", gw_run(comm, &bad));
    free(large);
    CHECK_EQ(GW_OK, gw_finalize(comm));
}

static void messages_match_by_tag(void) { everywhere(WORLD, tags_rank); }

/* Scales: 1.5 on the way in, 0.25 on the way out. */

static void scale_rank(int rank) {
    gw_comm *comm = join(rank, WORLD);
    float in[40], out[40];
    for (int i = 0; i < 40; i++) in[i] = (float)(i + rank);
    gw_call call = GW_CALL_DEFAULT;
    call.in = in, call.out = out, call.count = 40, call.prescale = 1.5, call.postscale = 0.25;
    CHECK_EQ(GW_OK, gw_run(comm, &call));
    for (int i = 0; i < 40; i++) CHECK(out[i] == (float)(4 * i + 6) * 1.5f * 0.25f);
    CHECK_EQ(GW_OK, gw_allreduce(comm, in, out, 40, GW_F32, GW_SUM)); /* the next call is not scaled */
    for (int i = 0; i < 40; i++) CHECK(out[i] == (float)(4 * i + 6));
    call.op = GW_MAX;
    CHECK_EQ(GW_UNSUPPORTED, gw_run(comm, &call));
    call.op = GW_SUM, call.dtype = GW_I32;
    CHECK_EQ(GW_UNSUPPORTED, gw_run(comm, &call));
    call.dtype = GW_F32, call.collective = GW_COLL_ALLGATHER;
    REFUSED("it reduces nothing", gw_run(comm, &call));
    CHECK_EQ(GW_OK, gw_finalize(comm));
}

static void other_scale_rank(int rank) {
    gw_comm *comm = join(rank, WORLD);
    float in = 1, out;
    gw_call call = GW_CALL_DEFAULT;
    call.in = &in, call.out = &out, call.count = 1, call.postscale = rank ? 0.25 : 0.5;
    CHECK_EQ(GW_MISMATCH, gw_run(comm, &call));
    CHECK(strstr(gw_last_error(comm), "0.25") && strstr(gw_last_error(comm), "0.5"));
    gw_finalize(comm);
}

static void sums_are_scaled(void) {
    everywhere(WORLD, scale_rank);
    everywhere(WORLD, other_scale_rank);
}

/* Deadlines and errors. */

static void *watch(void *comm) {
    gw_status status = GW_OK;
    for (int i = 0; i < 2000 && !status; i++) {
        usleep(5000);
        status = gw_async_error(comm);
    }
    return (void *)(intptr_t)status;
}

static void deadline_rank(int rank) {
    gw_comm *comm = join(rank, 2);
    float x = 1, y = 0;
    pthread_t watcher;
    void *seen = NULL;
    CHECK_EQ(GW_OK, gw_async_error(comm));
    pthread_create(&watcher, NULL, watch, comm);
    gw_call call = GW_CALL_DEFAULT;
    call.in = &x, call.out = &y, call.count = 1, call.deadline_s = 0.3;
    gw_status status = GW_TIMEOUT;
    if (rank == 0) status = gw_run(comm, &call); /* rank 1 never calls it; the communicator's deadline is 20 s */
    CHECK_EQ(GW_TIMEOUT, status);
    pthread_join(watcher, &seen);
    CHECK_EQ(GW_TIMEOUT, (intptr_t)seen);
    CHECK(strstr(gw_last_error(comm), "rank 1") && strstr(gw_last_error(comm), "for 0.3 s (the deadline)"));
    gw_finalize(comm);
}

static void a_call_has_its_own_deadline(void) { everywhere(2, deadline_rank); }

/* Messages. */

static int messages;
static char message[300];

static void on_log(void *ctx, gw_log_level level, int rank, const char *text) {
    (void)rank;
    CHECK(ctx == &messages);
    CHECK(level <= GW_LOG_WARN);
    messages++;
    snprintf(message, sizeof message, "%s", text);
}

static void log_rank(int rank) {
    gw_set_log(on_log, &messages);
    gw_comm *comm = join(rank, 2);
    gw_abort(comm, "enough of it");
    for (int i = 0; i < 2000 && !gw_async_error(comm); i++) usleep(5000);
    gw_finalize(comm);
    gw_set_log(NULL, NULL);
    CHECK(messages > 0);
    CHECK(strstr(message, "enough of it") != NULL && !strchr(message, '\n'));
}

static void messages_go_to_the_callback(void) { everywhere(2, log_rank); }

TEST_MAIN(CASE(calls_are_checked), CASE(a_pointer_that_cannot_be_read_is_refused), CASE(uneven_all_to_all),
          CASE(ranks_that_disagree_are_told), CASE(uneven_gather_and_scatter), CASE(many_tensors_at_once),
          CASE(forgotten_requests_are_completed), CASE(messages_match_by_tag), CASE(sums_are_scaled),
          CASE(a_call_has_its_own_deadline), CASE(messages_go_to_the_callback))
