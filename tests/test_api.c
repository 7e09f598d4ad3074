/* test_api.c - the public calls from outside: wrong arguments and their errors, requests, groups, memory, the
 * environment, and several communicators and jobs in one process. helper_product.c checks the results. */
#include <pthread.h>
#include <time.h>

#include "base/dtype.h"
#include "small_job.h"

/* Sanitizers: asking for too much memory is part of the test. */
GW_API const char *__asan_default_options(void);
GW_API const char *__tsan_default_options(void);
const char *__asan_default_options(void) { return "allocator_may_return_null=1"; }
const char *__tsan_default_options(void) { return "allocator_may_return_null=1"; }

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static gw_comm *alone(void) {
    gw_comm *comm = NULL;
    gw_options options = job_options(0, 1, -1, NULL);
    CHECK_EQ(GW_OK, gw_init(&comm, &options));
    if (!comm) abort();
    return comm;
}

/* The call is refused, in a sentence that contains these words. */
#define REFUSED(words, call)                                                                                           \
    do {                                                                                                               \
        CHECK_EQ(GW_INVALID, call);                                                                                    \
        CHECK(strstr(gw_last_error(NULL), words) != NULL);                                                             \
        if (!strstr(gw_last_error(NULL), words)) printf("    said: %s\n", gw_last_error(NULL));                        \
    } while (0)

static void every_status_has_a_text(void) {
#define IS(name, value, text) CHECK_STR(text, gw_status_text(GW_##name));
    GW_STATUS_LIST(IS)
#undef IS
    CHECK_STR("not a status of gradwire", gw_status_text((gw_status)-1));
    CHECK_STR("not a status of gradwire", gw_status_text((gw_status)99));
}

static void no_communicator(void) {
    float x = 0;
    bool done = false;
    gw_comm *out = NULL;
    REFUSED("allreduce: the communicator is NULL", gw_allreduce(NULL, &x, &x, 1, GW_F32, GW_SUM));
    REFUSED("communicator is NULL", gw_reduce(NULL, &x, &x, 1, GW_F32, GW_SUM, 0));
    REFUSED("communicator is NULL", gw_broadcast(NULL, &x, &x, 1, GW_F32, 0));
    REFUSED("communicator is NULL", gw_reduce_scatter(NULL, &x, &x, 1, GW_F32, GW_SUM));
    REFUSED("communicator is NULL", gw_reduce_scatterv(NULL, &x, &x, (size_t[]){1}, GW_F32, GW_SUM));
    REFUSED("communicator is NULL", gw_allgather(NULL, &x, &x, 1, GW_F32));
    REFUSED("communicator is NULL", gw_allgatherv(NULL, &x, &x, (size_t[]){1}, GW_F32));
    REFUSED("communicator is NULL", gw_gather(NULL, &x, &x, 1, GW_F32, 0));
    REFUSED("communicator is NULL", gw_scatter(NULL, &x, &x, 1, GW_F32, 0));
    REFUSED("communicator is NULL", gw_gatherv(NULL, &x, &x, (size_t[]){1}, GW_F32, 0));
    REFUSED("communicator is NULL", gw_scatterv(NULL, &x, &x, (size_t[]){1}, GW_F32, 0));
    REFUSED("communicator is NULL", gw_alltoall(NULL, &x, &x, 1, GW_F32));
    REFUSED("communicator is NULL", gw_alltoallv(NULL, &x, (size_t[]){1}, NULL, &x, (size_t[]){1}, NULL, GW_F32));
    CHECK_EQ(GW_INVALID, gw_async_error(NULL));
    REFUSED("communicator is NULL", gw_barrier(NULL));
    REFUSED("communicator is NULL", gw_send(NULL, &x, 1, GW_F32, 0));
    REFUSED("communicator is NULL", gw_recv(NULL, &x, 1, GW_F32, 0));
    REFUSED("communicator is NULL", gw_group_start(NULL));
    REFUSED("communicator is NULL", gw_group_end(NULL));
    REFUSED("gw_abort: the communicator is NULL", gw_abort(NULL, "why"));
    REFUSED("gw_comm_split", gw_comm_split(NULL, 0, 0, &out));
    REFUSED("gw_shrink", gw_shrink(NULL, &out));
    REFUSED("gw_init", gw_init(NULL, NULL));
    CHECK(gw_alloc(NULL, 1) == NULL);
    gw_free(NULL, NULL);
    CHECK_EQ(GW_OK, gw_finalize(NULL));
    CHECK_EQ(GW_OK, gw_wait(NULL));
    CHECK_EQ(GW_OK, gw_test(NULL, &done));
    CHECK(done);
}

static void wrong_arguments(void) {
    gw_comm *comm = alone();
    float x[4] = {1, 2, 3, 4}, y[4];
    size_t huge[] = {SIZE_MAX};
    gw_comm *out = comm;
    REFUSED("15 is not a gw_dtype", gw_allreduce(comm, x, y, 4, GW_DTYPES, GW_SUM));
    REFUSED("-1 is not a gw_dtype", gw_allgather(comm, x, y, 4, (gw_dtype)-1));
    REFUSED("8 is not a gw_redop", gw_allreduce(comm, x, y, 4, GW_F32, GW_REDOPS));
    CHECK_EQ(GW_UNSUPPORTED, gw_allreduce(comm, x, y, 4, GW_F32, GW_BXOR));
    CHECK_STR("allreduce: the bxor of f32 is not possible: only integers and bool have operations on bits",
              gw_last_error(NULL));
    CHECK_EQ(GW_UNSUPPORTED, gw_reduce_scatter(comm, x, y, 4, GW_BOOL, GW_AVG));
    CHECK_STR("reduce_scatter: the avg of bool is not possible: a bool has no average; use bor or band",
              gw_last_error(NULL));
    REFUSED("root 1 is not a rank", gw_broadcast(comm, x, y, 4, GW_F32, 1));
    REFUSED("root -1 is not a rank", gw_reduce(comm, x, y, 4, GW_F32, GW_SUM, -1));
    REFUSED("peer 7 is not a rank", gw_send(comm, x, 4, GW_F32, 7));
    REFUSED("this rank itself", gw_recv(comm, x, 4, GW_F32, 0));
    REFUSED("input buffer is NULL", gw_allreduce(comm, NULL, y, 4, GW_F32, GW_SUM));
    REFUSED("output buffer is NULL", gw_allreduce(comm, x, NULL, 4, GW_F32, GW_SUM));
    REFUSED("input buffer is NULL", gw_broadcast(comm, NULL, y, 4, GW_F32, 0));
    REFUSED("output buffer is NULL", gw_gather(comm, x, NULL, 4, GW_F32, 0));
    REFUSED("input buffer is NULL", gw_reduce_scatterv(comm, NULL, y, (size_t[]){4}, GW_F32, GW_SUM));
    REFUSED("output buffer is NULL", gw_allgatherv(comm, x, NULL, (size_t[]){4}, GW_F32));
    REFUSED("counts is NULL", gw_allgatherv(comm, x, y, NULL, GW_F32));
    REFUSED("counts is NULL", gw_reduce_scatterv(comm, x, y, NULL, GW_F32, GW_SUM));
    REFUSED("do not fit in memory", gw_allreduce(comm, x, y, SIZE_MAX / 4 + 2, GW_F32, GW_SUM));
    REFUSED("do not fit in memory", gw_alltoall(comm, x, y, SIZE_MAX, GW_U8));
    REFUSED("do not fit in memory", gw_allgatherv(comm, x, y, huge, GW_F64));
    REFUSED("the request is NULL", gw_allreduce_start(comm, x, y, 4, GW_F32, GW_SUM, NULL));
    REFUSED("gw_comm_split", gw_comm_split(comm, 0, 0, NULL));
    REFUSED("has not failed", gw_shrink(comm, &out));
    CHECK(out == NULL);
    gw_request *request = (gw_request *)x;
    REFUSED("gw_dtype", gw_allreduce_start(comm, x, y, 4, GW_DTYPES, GW_SUM, &request));
    CHECK(request == NULL);
    /* A call that was refused does not fail the communicator. */
    CHECK_EQ(GW_OK, gw_allreduce(comm, x, y, 4, GW_F32, GW_SUM));
    CHECK(memcmp(x, y, sizeof x) == 0);
    CHECK_EQ(GW_OK, gw_allreduce(comm, NULL, NULL, 0, GW_F32, GW_SUM));
    CHECK_EQ(GW_OK, gw_finalize(comm));
}

static void requests(void) {
    gw_comm *comm = alone();
    int32_t x = 5, y = 0;
    gw_request *request = NULL;
    bool done = false;
    CHECK_EQ(GW_OK, gw_allreduce_start(comm, &x, &y, 1, GW_I32, GW_SUM, &request));
    REFUSED("gw_test", gw_test(request, NULL));
    while (!done) CHECK_EQ(GW_OK, gw_test(request, &done));
    CHECK_EQ(5, y);
    CHECK_EQ(GW_OK, gw_barrier_start(comm, &request));
    CHECK_EQ(GW_OK, gw_wait(request));
    CHECK_EQ(GW_OK, gw_finalize(comm));
}

static void groups(void) {
    gw_comm *comm = alone(), *part = NULL;
    int32_t x = 5, y = 0, started = 0;
    gw_request *request = NULL;
    REFUSED("no group is open", gw_group_end(comm));
    CHECK_EQ(GW_OK, gw_group_start(comm));
    REFUSED("a group is open already", gw_group_start(comm));
    CHECK_EQ(GW_OK, gw_allreduce_start(comm, &x, &started, 1, GW_I32, GW_SUM, &request));
    REFUSED("still open", gw_wait(request));
    REFUSED("inside a group", gw_comm_split(comm, 0, 0, &part));
    CHECK_EQ(GW_OK, gw_allreduce(comm, &x, &y, 1, GW_I32, GW_SUM));
    CHECK_EQ(0, y); /* not before the end */
    REFUSED("gw_redop", gw_allreduce(comm, &x, &y, 1, GW_I32, GW_REDOPS));
    CHECK_EQ(GW_OK, gw_group_end(comm));
    CHECK_EQ(5, y);
    CHECK_EQ(GW_OK, gw_wait(request));
    CHECK_EQ(5, started);
    CHECK_EQ(GW_OK, gw_group_start(comm)); /* an empty one */
    CHECK_EQ(GW_OK, gw_group_end(comm));
    CHECK_EQ(GW_OK, gw_group_start(comm)); /* one that is left open */
    CHECK_EQ(GW_OK, gw_allgatherv(comm, &x, &y, (size_t[]){1}, GW_I32));
    CHECK_EQ(GW_OK, gw_allreduce_start(comm, &x, &y, 1, GW_I32, GW_SUM, &request));
    CHECK_EQ(GW_OK, gw_finalize(comm));
}

static void use_memory(gw_comm *comm) {
    static const size_t sizes[] = {0, 1, 4096, 100000, 1 << 22};
    for (int i = 0; i < 10; i++) { /* each twice: reused memory is zero again */
        size_t bytes = sizes[i % 5], set = 0;
        uint8_t *memory = gw_alloc(comm, bytes);
        CHECK(memory != NULL && (uintptr_t)memory % 4096 == 0);
        for (size_t b = 0; memory && b < bytes; b++) set += memory[b] != 0;
        CHECK_EQ(0, set);
        if (memory) memset(memory, 0xFF, bytes);
        gw_free(comm, memory);
    }
    CHECK(gw_alloc(comm, SIZE_MAX - 100) == NULL);
    CHECK(strstr(gw_last_error(NULL), "memory") != NULL);
    CHECK_EQ(GW_OK, gw_finalize(comm));
}

static void memory_of_one(void) { use_memory(alone()); }

/* Wrong variables are refused before anything else happens. */
static void bad_setting(const char *name, const char *value, gw_status due, const char *words) {
    gw_comm *comm = (gw_comm *)name;
    setenv(name, value, 1);
    CHECK_EQ(due, gw_init(&comm, NULL));
    CHECK(comm == NULL);
    CHECK(strstr(gw_last_error(NULL), words) != NULL);
    if (!strstr(gw_last_error(NULL), words)) printf("    %s=%s: %s\n", name, value, gw_last_error(NULL));
    unsetenv(name);
}

static void bad_environment(void) {
    bad_setting("GRADWIRE_DEADLINE", "soon", GW_INVALID, "GRADWIRE_DEADLINE=\"soon\"");
    bad_setting("GRADWIRE_DEADLINE", "-1", GW_INVALID, "GRADWIRE_DEADLINE");
    bad_setting("GRADWIRE_DEADLINE", "0", GW_INVALID, "deadline of 0 s");
    bad_setting("GRADWIRE_QUORUM", "maybe", GW_INVALID, "GRADWIRE_QUORUM=\"maybe\" is neither on nor off");
    bad_setting("GRADWIRE_LOG", "loud", GW_INVALID, "GRADWIRE_LOG=\"loud\"");
    bad_setting("GRADWIRE_STRATEGY", "arch=torus", GW_INVALID, "torus");
    bad_setting("GRADWIRE_STRATEGY", "arch=torus", GW_INVALID, "hierarchical"); /* what is allowed */
    bad_setting("GRADWIRE_STRATEGY", "speed=high", GW_INVALID, "speed");
    bad_setting("GRADWIRE_STRATEGY", "transport=sim", GW_UNSUPPORTED, "simulat");
    bad_setting("GRADWIRE_STRATEGY_FILE", "/nowhere/strategy", GW_SYSTEM, "/nowhere/strategy");
    bad_setting("RANK", "one", GW_INVALID, "RANK");
    bad_setting("WORLD_SIZE", "0", GW_INVALID, "WORLD_SIZE");
}

static void bad_quorum(void) {
    gw_comm *comm = NULL;
    gw_options options = job_options(0, 1, -1, NULL);
    options.quorum = "perhaps";
    CHECK_EQ(GW_INVALID, gw_init(&comm, &options));
    CHECK(strstr(gw_last_error(NULL), "quorum=\"perhaps\" is neither on nor off") != NULL);
}

static void a_world_of_one_shrinks(void) {
    gw_comm *comm = NULL, *smaller = NULL;
    gw_options options = job_options(0, 1, -1, NULL);
    options.quorum = "on";
    CHECK_EQ(GW_OK, gw_init(&comm, &options));
    CHECK_EQ(GW_INVALID, gw_shrink(comm, &smaller));
    gw_abort(comm, "enough");
    CHECK_EQ(GW_OK, gw_shrink(comm, &smaller));
    CHECK(smaller && gw_size(smaller) == 1);
    CHECK_EQ(GW_OK, gw_finalize(smaller));
    gw_finalize(comm);
}

static void bad_options(void) {
    static const struct {
        int rank, world;
        double deadline;
    } bad[] = {{1, 1, 0}, {0, 1, 0.04}, {0, 0, 0}, {0, 1, 0.001}, {0, 1, -3}, {0, 1, 1e9}};
    for (int i = 0; i < 6; i++) {
        gw_comm *comm = NULL;
        gw_options options = job_options(bad[i].rank, bad[i].world, -1, NULL);
        options.deadline_s = bad[i].deadline;
        CHECK_EQ(GW_INVALID, gw_init(&comm, &options));
        CHECK(comm == NULL && gw_last_error(NULL)[0] != 0);
    }
}

/* With other ranks. */

static int port, second_port;
static const char *strategy;
static const char *const strategies[] = {"transport=tcp", "transport=shm", "arch=ring transport=shm", "arch=ring"};

static gw_comm *join(int rank, int world, int at) {
    gw_comm *comm = NULL;
    gw_options options = job_options(rank, world, at, strategy);
    CHECK_EQ(GW_OK, gw_init(&comm, &options));
    if (!comm) printf("    %s\n", gw_last_error(NULL)), exit(1);
    return comm;
}

static void on_every_strategy(int world, void (*body)(int)) {
    for (int s = 0; s < 4; s++) {
        strategy = strategies[s];
        port = free_port();
        second_port = free_port();
        job_fork(world, body);
    }
}

static void memory_rank(int rank) { use_memory(join(rank, 2, port)); }

static void memory_of_two(void) { on_every_strategy(2, memory_rank); }

/* Whether a request that is left alone is over when it is asked for the first time, without a wait: on all ranks. */
static bool goes_on_by_itself(gw_comm *comm, float *data, int count, int elsewhere_ms) {
    gw_request *request = NULL;
    bool done = false;
    for (int i = 0; i < count; i++) data[i] = (float)(gw_rank(comm) + 1);
    CHECK_EQ(GW_OK, gw_allreduce_start(comm, data, data, (size_t)count, GW_F32, GW_SUM, &request));
    usleep((useconds_t)elsewhere_ms * 1000);
    double since = seconds();
    CHECK_EQ(GW_OK, gw_test(request, &done));
    int32_t quick = done && seconds() - since < 0.05;
    if (!done) CHECK_EQ(GW_OK, gw_wait(request));
    CHECK(data[0] == 6 && data[count - 1] == 6);
    CHECK_EQ(GW_OK, gw_allreduce(comm, &quick, &quick, 1, GW_I32, GW_MIN));
    return quick;
}

/* The progress thread does it all while the caller is elsewhere. On a busy machine that may take longer. */
static void overlap_rank(int rank) {
    enum { COUNT = 100000 };
    gw_comm *comm = join(rank, 3, port);
    float *data = gw_alloc(comm, COUNT * sizeof *data);
    int elsewhere_ms = 100;
    CHECK_EQ(GW_OK, gw_allreduce(comm, data, data, COUNT, GW_F32, GW_SUM)); /* connections stand */
    CHECK_IN_SOME_TRY(goes_on_by_itself(comm, data, COUNT, elsewhere_ms *= 2));
    gw_free(comm, data);
    CHECK_EQ(GW_OK, gw_finalize(comm));
}

static void requests_progress_by_themselves(void) { on_every_strategy(3, overlap_rank); }

/* One rank starts more than fits into the other's unexpected queue, and only then what the other waits for. */
static void eager_rank(int rank) {
    enum { COUNT = 65536, CALLS = 12 }; /* just a chunk each */
    gw_comm *comm = join(rank, 2, port), *first = NULL;
    gw_request *started[CALLS];
    int32_t *data = malloc(CALLS * COUNT * sizeof *data), urgent = rank;
    for (int i = 0; i < CALLS * COUNT; i++) data[i] = i * (rank + 1);
    CHECK_EQ(GW_OK, gw_comm_split(comm, 0, rank, &first));
    if (rank == 1) CHECK_EQ(GW_OK, gw_allreduce(first, &urgent, &urgent, 1, GW_I32, GW_SUM));
    for (int c = 0; c < CALLS; c++) {
        int32_t *at = data + c * COUNT;
        CHECK_EQ(GW_OK, gw_allreduce_start(comm, at, at, COUNT, GW_I32, GW_SUM, &started[c]));
    }
    if (rank == 0) CHECK_EQ(GW_OK, gw_allreduce(first, &urgent, &urgent, 1, GW_I32, GW_SUM));
    for (int c = 0; c < CALLS; c++) CHECK_EQ(GW_OK, gw_wait(started[c]));
    bool right = urgent == 1;
    for (int i = 0; i < CALLS * COUNT; i++) right &= data[i] == 3 * i;
    CHECK(right);
    free(data);
    CHECK_EQ(GW_OK, gw_finalize(first));
    CHECK_EQ(GW_OK, gw_finalize(comm));
}

static void eager_chunks_arrive_before_their_calls(void) { on_every_strategy(2, eager_rank); }

/* A request that no call waits for is complete when gw_finalize returns. */
static void forgotten_rank(int rank) {
    enum { COUNT = 300000 };
    static int32_t data[COUNT];
    gw_comm *comm = join(rank, 2, port);
    gw_request *requests_[3];
    for (int i = 0; i < COUNT; i++) data[i] = rank + 1;
    for (int i = 0; i < 3; i++)
        CHECK_EQ(GW_OK,
                 gw_allreduce_start(comm, data + i * 100000, data + i * 100000, 100000, GW_I32, GW_SUM, &requests_[i]));
    CHECK_EQ(GW_OK, gw_wait(requests_[1]));
    CHECK_EQ(GW_OK, gw_finalize(comm));
    CHECK_EQ(3, data[0]);
    CHECK_EQ(3, data[COUNT - 1]);
}

static void finalize_waits_for_requests(void) { on_every_strategy(2, forgotten_rank); }

/* Two jobs of the same processes, with ranks reversed in the second, each used by a thread of its own. */
static void *reduce_many(void *argument) {
    gw_comm *comm = argument;
    for (int i = 0; i < 200; i++) {
        int32_t sum = i + gw_rank(comm);
        CHECK_EQ(GW_OK, gw_allreduce(comm, &sum, &sum, 1, GW_I32, GW_SUM));
        CHECK_EQ(3 * i + 3, sum);
    }
    return NULL;
}

static void two_jobs_rank(int rank) {
    gw_comm *first = join(rank, 3, port), *second = join(2 - rank, 3, second_port);
    pthread_t thread;
    CHECK_EQ(rank, gw_rank(first));
    CHECK_EQ(2 - rank, gw_rank(second));
    CHECK_EQ(3, gw_local_size(first));
    pthread_create(&thread, NULL, reduce_many, first);
    reduce_many(second);
    pthread_join(thread, NULL);
    CHECK_EQ(GW_OK, gw_finalize(first));
    reduce_many(second); /* it does not need the first */
    CHECK_EQ(GW_OK, gw_finalize(second));
}

static void two_jobs_in_one_process(void) { on_every_strategy(3, two_jobs_rank); }

/* Two communicators of one job, each used by a thread of its own. */
static void two_threads_rank(int rank) {
    gw_comm *comm = join(rank, 3, port), *other = NULL;
    pthread_t thread;
    CHECK_EQ(GW_OK, gw_comm_split(comm, 4, 0, &other));
    pthread_create(&thread, NULL, reduce_many, other);
    reduce_many(comm);
    pthread_join(thread, NULL);
    CHECK_EQ(GW_OK, gw_finalize(other));
    CHECK_EQ(GW_OK, gw_finalize(comm));
}

static void two_communicators_in_two_threads(void) { on_every_strategy(3, two_threads_rank); }

/* Ranks that do not agree on the strategy get an error. */
static void other_strategy_rank(int rank) {
    int32_t x = 1;
    strategy = rank == 1 ? "arch=ring transport=tcp" : "arch=tree transport=tcp";
    gw_comm *comm = join(rank, 3, port);
    CHECK_EQ(GW_MISMATCH, gw_allreduce(comm, &x, &x, 1, GW_I32, GW_SUM));
    CHECK(strstr(gw_last_error(comm), "ring") && strstr(gw_last_error(comm), "tree"));
    CHECK_EQ(GW_MISMATCH, gw_barrier(comm));
    CHECK_EQ(GW_MISMATCH, gw_finalize(comm));
}

static void different_strategies(void) {
    setenv("GRADWIRE_LOG", "error", 1);
    port = free_port();
    job_fork(3, other_strategy_rank);
    unsetenv("GRADWIRE_LOG");
}

/* The result of a reduction is finished, even if there is nothing to combine. */
static void reductions_of_one_rank(void) {
    gw_comm *comm = alone();
    uint8_t flags[] = {0, 1, 2, 255};
    CHECK_EQ(GW_OK, gw_allreduce(comm, flags, flags, 4, GW_BOOL, GW_BOR));
    CHECK(memcmp(flags, (uint8_t[]){0, 1, 1, 1}, 4) == 0);
    uint32_t signalling = 0x7f800001, out = 0; /* of other types nothing changes */
    CHECK_EQ(GW_OK, gw_allreduce(comm, &signalling, &out, 1, GW_F32, GW_SUM));
    CHECK_EQ(signalling, out);
    CHECK_EQ(GW_OK, gw_finalize(comm));
}

TEST_MAIN(CASE(every_status_has_a_text), CASE(no_communicator), CASE(wrong_arguments), CASE(reductions_of_one_rank),
          CASE(requests), CASE(groups), CASE(memory_of_one), CASE(bad_environment), CASE(bad_options), CASE(bad_quorum),
          CASE(a_world_of_one_shrinks), CASE(memory_of_two), CASE(requests_progress_by_themselves),
          CASE(eager_chunks_arrive_before_their_calls), CASE(finalize_waits_for_requests),
          CASE(two_jobs_in_one_process), CASE(two_communicators_in_two_threads), CASE(different_strategies))
