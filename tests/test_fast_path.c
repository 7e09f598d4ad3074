/* test_fast_path.c - small blocking calls in shared memory without an operation (engine/blocking_fast_path.c): right
 * whichever rank is late, after any other call, from any memory; errors when ranks disagree; and waiting leaves the
 * core free. */
#include <time.h>

#include "base/rng.h"
#include "small_job.h"

static int port, world;
static const char *strategy;

static gw_comm *join(int rank) {
    gw_comm *comm = NULL;
    gw_options options = job_options(rank, world, port, strategy);
    CHECK_EQ(GW_OK, gw_init(&comm, &options));
    if (!comm) abort();
    return comm;
}

static void on(int ranks, const char *line, void (*body)(int rank)) {
    world = ranks;
    strategy = line;
    port = free_port();
    job_fork(ranks, body);
}

/* In rank order, as the library promises. */
static float expected_sum(int round, size_t i) {
    float sum = 0;
    for (int r = 0; r < world; r++) sum += (float)(r + 1) * 0.1f + (float)(round % 7) + (float)(i % 31);
    return sum;
}

static void one_call(gw_comm *comm, int rank, int round, size_t count, float *in, float *out) {
    size_t wrong = 0;
    int root = round % world;
    for (size_t i = 0; i < count; i++) {
        in[i] = (float)(rank + 1) * 0.1f + (float)(round % 7) + (float)(i % 31);
        if (out != in) out[i] = -1;
    }
    switch (round % 4) {
    case 0: CHECK_EQ(GW_OK, gw_barrier(comm)); return;
    case 1:
        CHECK_EQ(GW_OK, gw_broadcast(comm, in, out, count, GW_F32, root));
        for (size_t i = 0; i < count; i++)
            wrong += out[i] != (float)(root + 1) * 0.1f + (float)(round % 7) + (float)(i % 31);
        break;
    default:
        CHECK_EQ(GW_OK, gw_allreduce(comm, in, out, count, GW_F32, GW_SUM));
        for (size_t i = 0; i < count; i++) wrong += out[i] != expected_sum(round, i);
    }
    CHECK_EQ(0, wrong);
}

/* Ranks draw the same sizes and memory, and come late each in its own way: some calls end at once, some are handed
 * over to an operation; now and then one of messages stands between them. */
static void mixed_rank(int rank) {
    enum { LARGEST = 20000 };
    static const size_t counts[] = {0, 1, 3, 16, 255, 512, 1024, 1025, 4096, 16384, LARGEST};
    static float mine[LARGEST], other[LARGEST];
    gw_comm *comm = join(rank);
    float *shared = gw_alloc(comm, sizeof mine), *second = gw_alloc(comm, sizeof mine);
    gw_rng same = gw_rng_make(7, 0), own = gw_rng_make(7, (uint64_t)rank + 1);
    for (int round = 0; round < 600; round++) {
        uint64_t draw = gw_rng_u64(&same);
        size_t count = counts[draw % (sizeof counts / sizeof counts[0])];
        bool private = draw >> 20 & 1 && (draw >> 21 & 1 || rank == 0), in_place = draw >> 22 & 1;
        float *in = private ? mine : shared, *out = in_place ? in : private ? other : second;
        if (gw_rng_u64(&own) % 16 == 0) nanosleep(&(struct timespec){.tv_nsec = 300000}, NULL);
        one_call(comm, rank, round, count, in, out);
        if (round % 50 == 49) CHECK_EQ(GW_OK, gw_gather(comm, mine, shared, 100, GW_F32, 0));
    }
    gw_free(comm, shared);
    gw_free(comm, second);
    CHECK_EQ(GW_OK, gw_finalize(comm));
}

static void mixed_calls(void) {
    on(2, "transport=shm", mixed_rank);
    on(3, "transport=shm", mixed_rank);
}

static void odd_rank(int rank) {
    float x[64] = {0};
    gw_comm *comm = join(rank);
    CHECK_EQ(GW_OK, gw_allreduce(comm, x, x, 64, GW_F32, GW_SUM));
    CHECK_EQ(GW_MISMATCH, gw_allreduce(comm, x, x, rank == 1 ? 63 : 64, GW_F32, GW_SUM));
    CHECK(strstr(gw_last_error(comm), "rank 1") && strstr(gw_last_error(comm), "63 x f32"));
    CHECK_EQ(GW_MISMATCH, gw_barrier(comm));
    gw_finalize(comm);
}

static void disagreement(void) {
    setenv("GRADWIRE_FLIGHT_DIR", "/nonexistent", 1); /* nothing is left behind */
    on(3, "transport=shm", odd_rank);
    unsetenv("GRADWIRE_FLIGHT_DIR");
}

static double cpu_ms(void) {
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (double)used.tv_sec * 1e3 + (double)used.tv_nsec / 1e6;
}

/* A call that lasts 400 ms because the last rank comes late costs the others 1 ms, and what heartbeats take. A rank
 * that kept spinning would use most of the 400. */
#define CPU_MS_MAX 20

static void waiting_rank(int rank) {
    float x[1024] = {0};
    gw_comm *comm = join(rank);
    for (int i = 0; i < 3; i++) CHECK_EQ(GW_OK, gw_allreduce(comm, x, x, 1024, GW_F32, GW_SUM));
    if (rank == world - 1) nanosleep(&(struct timespec){.tv_nsec = 400000000}, NULL);
    double before = cpu_ms();
    CHECK_EQ(GW_OK, gw_allreduce(comm, x, x, 1024, GW_F32, GW_SUM));
    double used = cpu_ms() - before;
    CHECK(used < CPU_MS_MAX);
    if (used >= CPU_MS_MAX) printf("    rank %d of %d used %.1f ms with %s\n", rank, world, used, strategy);
    CHECK_EQ(GW_OK, gw_finalize(comm));
}

static void waiting_costs_no_core(void) {
    on(2, "transport=shm", waiting_rank);
    on(4, "transport=shm", waiting_rank);
    on(2, "transport=tcp", waiting_rank);
}

TEST_MAIN(CASE(mixed_calls), CASE(disagreement), CASE(waiting_costs_no_core))
