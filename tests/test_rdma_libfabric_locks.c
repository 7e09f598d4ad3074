/* test_rdma_libfabric_locks.c - the replacement locks for libfabric's shm provider: they exclude, across processes too;
 * a lock whose holder was killed is taken over, one whose holder lives is not. */
#include "test.h"

#include "base/clock.h"
#include "transport/rdma/rdma.h"
#include "transport/rdma/rdma_libfabric_locks.h"
#include "transport/rdma/rdma_library.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define ROUNDS 200000

/* Seen by both processes. */
typedef struct table {
    pthread_spinlock_t lock;
    volatile long count;
    _Atomic int held;
} table;

static table *lay_table(void) {
    table *t = mmap(NULL, sizeof *t, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (t == MAP_FAILED) abort();
    pthread_spin_init(&t->lock, PTHREAD_PROCESS_SHARED);
    return t;
}

static void know_this_process(void) {
    gw_rdma_library library;
    gw_error error = {0};
    CHECK_EQ(GW_OK, gw_rdma_library_load(&library, &error));
    CHECK_EQ(GW_OK, gw_rdma_locks_redirect(library.handle, &error));
}

static void count_up(table *t) {
    for (int i = 0; i < ROUNDS; i++) {
        gw_rdma_locks_lock(&t->lock);
        t->count = t->count + 1;
        gw_rdma_locks_unlock(&t->lock);
    }
}

static void two_processes_exclude_each_other(void) {
    table *t = lay_table();
    know_this_process();
    pid_t other = fork();
    if (other == 0) {
        know_this_process();
        count_up(t);
        _exit(0);
    }
    count_up(t);
    waitpid(other, NULL, 0);
    CHECK_EQ(2 * ROUNDS, t->count);
    munmap(t, sizeof *t);
}

/* A process that takes the lock and keeps it for so long, or until it is killed. */
static pid_t hold(table *t, useconds_t us) {
    pid_t other = fork();
    if (other == 0) {
        know_this_process();
        gw_rdma_locks_lock(&t->lock);
        atomic_store(&t->held, 1);
        usleep(us);
        t->count = 1;
        gw_rdma_locks_unlock(&t->lock);
        _exit(0);
    }
    while (!atomic_load(&t->held)) usleep(100);
    return other;
}

static void locks_of_the_dead_are_released(void) {
    for (int reaped = 0; reaped < 2; reaped++) {
        table *t = lay_table();
        pid_t other = hold(t, 10000000);
        CHECK(gw_rdma_locks_try(&t->lock) != 0);
        kill(other, SIGKILL);
        if (reaped) waitpid(other, NULL, 0);
        gw_time begun = gw_clock_now();
        CHECK_EQ(0, gw_rdma_locks_lock(&t->lock));
        CHECK(gw_clock_now() - begun < GW_SECOND);
        CHECK(gw_rdma_locks_try(&t->lock) != 0); /* it is ours */
        gw_rdma_locks_unlock(&t->lock);
        CHECK_EQ(0, gw_rdma_locks_try(&t->lock));
        if (!reaped) waitpid(other, NULL, 0);
        munmap(t, sizeof *t);
    }
}

static void locks_of_the_living_are_kept(void) {
    table *t = lay_table();
    pid_t other = hold(t, 100000);
    CHECK_EQ(0, gw_rdma_locks_lock(&t->lock));
    CHECK_EQ(1, t->count); /* written as the last thing before it was given back */
    waitpid(other, NULL, 0);
    munmap(t, sizeof *t);
}

int main(int argc, char **argv) {
    gw_rdma_provider list[GW_RDMA_PROVIDERS_MAX];
    gw_error error = {0};
    if (gw_rdma_providers(list, &error) == 0) {
        printf("skipped: %s\n", error.text);
        return 77;
    }
    static const test_case cases[] = {CASE(two_processes_exclude_each_other), CASE(locks_of_the_dead_are_released),
                                      CASE(locks_of_the_living_are_kept)};
    return test_main(argc, argv, cases, (int)(sizeof cases / sizeof cases[0]));
}
