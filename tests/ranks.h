/* ranks.h - for tests of shared memory: runs a function as several ranks, each a process, or, under the thread
 * sanitizer, a thread; each with a transport that reaches all others. */
#ifndef GW_TEST_RANKS_H
#define GW_TEST_RANKS_H

#include "base/clock.h"
#include "test.h"
#include "transport/shm/shm_transport.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define RANKS_MAX 8

#if defined(__SANITIZE_THREAD__)
#define RANKS_ARE_THREADS 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define RANKS_ARE_THREADS 1
#endif
#endif
#ifndef RANKS_ARE_THREADS
#define RANKS_ARE_THREADS 0
#endif

typedef struct ranks_common {
    _Atomic uint32_t met;
    _Atomic int dying;              /* 1 + the rank that kills itself */
    _Atomic bool asleep[RANKS_MAX]; /* the rank is about to sleep, or sleeps; written by that rank */
    uint8_t endpoints[RANKS_MAX][GW_SHM_ENDPOINT_BYTES];
} ranks_common;

typedef struct rank_env {
    ranks_common *common;
    int rank, ranks;
    uint32_t barriers;
    gw_transport *transport;
    uint64_t sleeps; /* times this rank has slept and was woken */
    void (*body)(struct rank_env *);
    gw_sink sink;
} rank_env;

static void rank_meet(rank_env *env) {
    uint32_t target = ++env->barriers * (uint32_t)env->ranks;
    atomic_fetch_add(&env->common->met, 1);
    while (atomic_load(&env->common->met) < target) sched_yield();
}

static void rank_run(rank_env *env) {
    gw_error error = {.status = GW_OK};
    gw_shm_config config = {.rank = env->rank, .world = env->ranks, .generation = 1, .sink = env->sink};
    CHECK_EQ(GW_OK, gw_shm_open(&env->transport, &config, &error));
    gw_shm_endpoint(env->transport, env->common->endpoints[env->rank]);
    rank_meet(env);
    for (int r = 0; r < env->ranks; r++)
        if (r != env->rank) CHECK_EQ(GW_OK, gw_shm_attach(env->transport, r, env->common->endpoints[r], &error));
    CHECK_STR("", error.text);
    rank_meet(env);
    env->body(env);
    rank_meet(env);
    env->transport->ops->close(env->transport);
}

__attribute__((unused)) static void *rank_thread(void *env) {
    rank_run(env);
    return NULL;
}

__attribute__((unused)) static void run_threads(rank_env *envs, int ranks) {
    pthread_t threads[RANKS_MAX];
    for (int r = 0; r < ranks; r++) pthread_create(&threads[r], NULL, rank_thread, &envs[r]);
    for (int r = 0; r < ranks; r++) pthread_join(threads[r], NULL);
}

/* Ends this rank as if by kill -9; the others' later barriers do not wait for it. */
__attribute__((unused)) static void rank_die(rank_env *env) {
    atomic_store(&env->common->dying, env->rank + 1);
    atomic_fetch_add(&env->common->met, 1 << 20);
    raise(SIGKILL);
}

__attribute__((unused)) static void run_processes(rank_env *envs, int ranks) {
    pid_t pids[RANKS_MAX];
    fflush(stdout);
    for (int r = 0; r < ranks; r++) {
        pids[r] = fork();
        if (pids[r]) continue;
        alarm(600);
        test_failures = 0;
        rank_run(&envs[r]);
        fflush(stdout);
        exit(test_failures != 0);
    }
    bool failed = false;
    for (int ended = 0; ended < ranks; ended++) {
        int status = 0, r = 0;
        pid_t pid = waitpid(-1, &status, 0);
        while (r < ranks && pids[r] != pid) r++;
        if (r == ranks) break;
        pids[r] = 0;
        int expected = atomic_load(&envs[r].common->dying) == r + 1 ? SIGKILL : 0;
        if (!failed) CHECK_EQ(expected, status);
        if (failed || status == expected) continue;
        failed = true; /* the others would wait for it */
        for (int other = 0; other < ranks; other++)
            if (pids[other]) kill(pids[other], SIGKILL);
    }
}

__attribute__((unused)) static void run_ranks(int ranks, void (*body)(rank_env *), const gw_sink *sink) {
    ranks_common *common = mmap(NULL, sizeof *common, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    rank_env envs[RANKS_MAX];
    for (int r = 0; r < ranks; r++) {
        envs[r] = (rank_env){.common = common, .rank = r, .ranks = ranks, .body = body};
        if (sink) envs[r].sink = *sink;
    }
    if (RANKS_ARE_THREADS) run_threads(envs, ranks);
    else run_processes(envs, ranks);
    munmap(common, sizeof *common);
}

/* Sleeps on the doorbell; look is called once more after arming and says whether there is news. A sleep that ends by
 * its deadline is a lost wake-up. */
__attribute__((unused)) static void rank_sleep(rank_env *env, bool (*look)(void *), void *ctx) {
    gw_transport *transport = env->transport;
    bool news = transport->ops->arm(transport, true);
    if (!look(ctx) && !news) {
        struct pollfd bell = {.fd = transport->ops->wait_fd(transport), .events = POLLIN};
        atomic_store(&env->common->asleep[env->rank], true);
        CHECK_EQ(1, poll(&bell, 1, TEST_PATIENCE_S * 1000));
        atomic_store(&env->common->asleep[env->rank], false);
        env->sleeps++;
    }
    transport->ops->arm(transport, false);
}

/* Until all other ranks sleep, so that what this rank does next must wake them. */
__attribute__((unused)) static void rank_await_sleepers(rank_env *env) {
    gw_time deadline = gw_clock_now() + TEST_PATIENCE_S * GW_SECOND;
    for (int r = 0; r < env->ranks; r++)
        while (r != env->rank && !atomic_load(&env->common->asleep[r]) && gw_clock_now() < deadline) sched_yield();
    CHECK(gw_clock_now() < deadline);
}

#endif
