/* serving.h - workers and parameter servers on one virtual clock, where processes are lost: each runs the production
 * stepper over a simulated network; when one dies its core tells the others, all come together again over fresh links,
 * and what servers knew is handed over, as step_servers.c does it between real ones.
 *
 * Gradients are such that every weight counts the pushes of one worker that were used. While it runs, promises are
 * checked of every answer: all of the worker's own pushes are in it, once; under ssp nobody who is there is behind by
 * more than `lead`; rounds (bsp) have everybody who is there. At the end no push that was answered is missing and none
 * is there that was not made; nobody waited until the deadline; and nothing is left behind. */
#ifndef GW_SIM_SERVING_H
#define GW_SIM_SERVING_H

#include "base/clock.h"
#include "base/status.h"
#include "strategy/strategy.h"

#define GW_SERVING_SEATS_MAX 8
#define GW_SERVING_TENSORS_MAX 6

typedef struct gw_serving {
    uint64_t seed;
    int workers;                          /* seats 0 to workers - 1 */
    int apart;                            /* server processes, in the seats after them; 0: servers beside workers */
    int steps;                            /* of each worker */
    int tensors;
    size_t count[GW_SERVING_TENSORS_MAX]; /* floats */
    gw_time pace[GW_SERVING_SEATS_MAX];   /* ns that a step takes to compute, at most */
    gw_time latency, jitter;              /* ns */
    double bytes_per_second;
    int losses;                           /* processes that are killed, at most, one after the other */
    bool back;                            /* each is started again, unless it is dropped */
    bool meets;                           /* who has made all steps waits for the others before he leaves */
    gw_strategy strategy;
} gw_serving;

typedef struct gw_serving_outcome {
    bool ok;         /* every promise held */
    char text[600];  /* what did not, or "" */
    uint64_t events; /* of the network */
    uint64_t pushes; /* steps of all workers */
    int killed;
} gw_serving_outcome;

/* What a seed decides under a synchrony of the strategy line (bsp, backup, ssp, asp, delayed, periodic). Pure. */
gw_status gw_serving_make(gw_serving *serving, uint64_t seed, const char *sync, gw_error *error);
gw_status gw_serving_run(const gw_serving *serving, gw_serving_outcome *outcome, gw_error *error);

#endif
