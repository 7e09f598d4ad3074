/* ps_sim.h - simulates workers and parameter servers on one virtual clock while processes are lost. Each process runs
 * the production step engine over a simulated network. When one dies, the cores notify the others, all connect again
 * over new links, and the servers' state is transferred, as reducer/server_setup.c does it between real processes.
 *
 * Gradients are chosen so that every weight counts the applied pushes of one worker; where workers clip their own, they
 * are twice as long as the limit. During the run every answer is checked: it contains each of the worker's own pushes
 * once; under ssp no present worker is behind by more than `staleness`; rounds (bsp) contain all present workers. At
 * the end no answered push is missing, every counted push was made, no process has waited until the deadline, and no
 * operation is left.
 *
 * With a training instead, gradients and updates are the caller's, and the caller looks at the weights that come out;
 * no process is lost. */
#ifndef GW_SIM_PS_SIM_H
#define GW_SIM_PS_SIM_H

#include "base/clock.h"
#include "base/status.h"
#include "gradwire/reducer.h"
#include "strategy/strategy.h"

#define GW_PS_SIM_MEMBERS_MAX 8
#define GW_PS_SIM_TENSORS_MAX 6

/* Gradients and an optimiser of the caller's. */
typedef struct gw_ps_sim_training {
    const float *weights; /* at first: of all tensors, one after the other */
    /* Writes the gradient of a tensor. step counts from 0. */
    void (*gradient)(int member, int step, int tensor, float *gradient);
    gw_reducer_update_fn *update;
    void *ctx[GW_PS_SIM_MEMBERS_MAX]; /* of each member's update */
    bool whole_tensors;
    float *ended; /* gets the weights after the last step: those of the servers, if they have any */
} gw_ps_sim_training;

typedef struct gw_ps_sim {
    uint64_t seed;
    int workers; /* members 0 to workers - 1 */
    int apart;   /* server processes: members after the workers; 0: servers run in workers */
    int steps;   /* of each worker */
    int tensors;
    size_t count[GW_PS_SIM_TENSORS_MAX]; /* floats */
    gw_time pace[GW_PS_SIM_MEMBERS_MAX]; /* maximum compute time of a step, ns */
    gw_time latency, jitter;             /* ns */
    double bytes_per_second;
    int losses; /* maximum number of processes that are killed, one after the other */
    bool back;  /* a killed process is restarted; otherwise the others go on without it */
    bool clips; /* by the norm of all gradients */
    bool meets; /* workers pass a barrier after their last step, before they leave */
    gw_strategy strategy;
    const gw_ps_sim_training *training; /* NULL: weights count pushes */
} gw_ps_sim;

typedef struct gw_ps_sim_outcome {
    bool ok;         /* every check passed */
    char text[600];  /* the first that failed, or "" */
    uint64_t events; /* of the network */
    uint64_t pushes; /* steps of all workers */
    int killed;
} gw_ps_sim_outcome;

/* Derives a scenario from a seed, for a synchronization of the strategy line (bsp, backup, ssp, asp, delayed,
 * periodic). Pure. */
gw_status gw_ps_sim_make(gw_ps_sim *spec, uint64_t seed, const char *sync, gw_error *error);
gw_status gw_ps_sim_run(const gw_ps_sim *spec, gw_ps_sim_outcome *outcome, gw_error *error);

#endif
