/* thread.c - see thread.h. */
#include "base/thread.h"

#include <signal.h>
#include <time.h>

int gw_thread_start(pthread_t *thread, void *(*run)(void *ctx), void *ctx) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* a new thread inherits the mask */
    int failure = pthread_create(thread, NULL, run, ctx);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failure;
}

void gw_thread_cond_init(pthread_cond_t *cond) {
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &monotonic);
    pthread_condattr_destroy(&monotonic);
}
