/* test_wait_diagnosis.c - a rank that waits for one that computes leaves its core to others: it sleeps after a
 * millisecond. */
#include <time.h>

#include "small_job.h"

#define LATE_MS 500
/* Spinning at first, and looking at deadlines now and then; a rank that kept spinning would take 500 ms. */
#define CPU_MS_MAX 20

static const char *strategy;
static int port;

static double cpu_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t); /* all threads */
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static void wait_for_the_last(int rank) {
    gw_options options = job_options(rank, 2, port, strategy);
    gw_comm *comm = NULL;
    float value = 1;
    CHECK_EQ(GW_OK, gw_init(&comm, &options));
    CHECK_EQ(GW_OK, gw_allreduce(comm, &value, &value, 1, GW_F32, GW_SUM));
    if (rank == 1) nanosleep(&(struct timespec){.tv_nsec = LATE_MS * 1000 * 1000L}, NULL);
    double before = cpu_ms();
    CHECK_EQ(GW_OK, gw_allreduce(comm, &value, &value, 1, GW_F32, GW_SUM));
    double used = cpu_ms() - before;
    CHECK(value == 4);
    if (used > CPU_MS_MAX) printf("rank %d took %.1f ms of CPU for a wait, with %s\n", rank, used, strategy);
    CHECK(used <= CPU_MS_MAX);
    CHECK_EQ(GW_OK, gw_finalize(comm));
}

static void waits_over(const char *line) {
    strategy = line;
    port = free_port();
    job_fork(2, wait_for_the_last);
}

static void shared_memory(void) { waits_over("transport=shm"); }
static void messages_in_shared_memory(void) { waits_over("transport=shm arch=ring"); }
static void tcp(void) { waits_over("transport=tcp"); }

TEST_MAIN(CASE(shared_memory), CASE(messages_in_shared_memory), CASE(tcp))
