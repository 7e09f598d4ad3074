/* workers.h - who is slow, and how much the others wait for it: what each worker did since the training began, as it is
 * known to all after a meeting (gw_trainer_meet). */
#ifndef GW_TRAIN_WORKERS_H
#define GW_TRAIN_WORKERS_H

#include <stdbool.h>
#include <stdint.h>

/* Nanoseconds, but for counts. */
typedef struct gw_train_worker {
    uint64_t compute, exposed; /* passes and optimiser; communication that it waited for */
    uint64_t awaited;          /* that others waited for it: at the servers, or without them on average and longer than
                                  it did itself */
    uint64_t late;             /* pushes that came too late to be used (sync=backup) */
} gw_train_worker;

/* Without servers: sets `awaited` from what all have waited. */
void gw_train_workers_compare(gw_train_worker *workers, int count);
/* The one that computed longest, where that is a tenth longer than the others on average; -1: none. */
int gw_train_workers_slow(const gw_train_worker *workers, int count);

#endif
