/* stragglers.h - finds slow workers, from the times of each worker since the start of training. gw_trainer_gather_work
 * brings these to all ranks. */
#ifndef GW_TRAIN_STRAGGLERS_H
#define GW_TRAIN_STRAGGLERS_H

#include <stdbool.h>
#include <stdint.h>

/* Times in ns. */
typedef struct gw_train_worker {
    uint64_t compute, waiting; /* passes and optimiser; in calls that waited */
    uint64_t awaited;          /* time that others waited for it: as servers count; without servers, the others' mean
                                  `waiting` minus its own */
    uint64_t late;             /* pushes that arrived too late to be used (sync=backup) */
} gw_train_worker;

/* Without servers: estimates `awaited` from the waiting times. */
void gw_train_workers_compare(gw_train_worker *workers, int count);
/* The worker with the longest compute time, if it is more than 10 % above the mean of the others; -1: none. */
int gw_train_workers_slow(const gw_train_worker *workers, int count);

#endif
