/* thread.h - threads of the library. All signals are blocked in them: signals are for the program's own threads, whose
 * handlers may use memory or locks that only these have. */
#ifndef GW_BASE_THREAD_H
#define GW_BASE_THREAD_H

#include <pthread.h>

/* As pthread_create with default attributes: 0, or an error number. */
int gw_thread_start(pthread_t *thread, void *(*run)(void *ctx), void *ctx);
/* A condition whose timed waits use CLOCK_MONOTONIC: setting the system's time does not change them. */
void gw_thread_cond_init(pthread_cond_t *cond);

#endif
