/* fault_sim_scenario.h - derives a scenario from a seed: the ranks, the program of collectives, and the fault. Pure
 * functions. */
#ifndef GW_SIM_FAULT_SIM_SCENARIO_H
#define GW_SIM_FAULT_SIM_SCENARIO_H

#include "base/clock.h"
#include "engine/engine.h"
#include "sim/fault_sim.h"

#define GW_SIM_OPERATIONS_MAX 24
#define GW_SIM_CALLS_AFTER 2 /* calls of the survivors after a fault */

typedef struct gw_sim_call {
    gw_collective collective;
    const gw_plan_builder *builder;
    gw_dtype dtype;
    gw_redop redop;
    gw_scale scale;
    size_t count;
    int root;      /* of a send: the sender */
    int peer;      /* of a send: the receiver; all others skip the call */
    bool in_place; /* all-reduce only */
    bool uneven;   /* parts have the sizes of gw_sim_part */
    /* Tagged sends come in groups to one receiver, which starts the receives of a reversed group in reverse order. */
    bool tagged, any_source, reversed;
    int tag;
    int group, group_size; /* its first call, and how many calls */
} gw_sim_call;

typedef struct gw_sim_scenario {
    uint64_t seed;
    int world;
    int *host_of; /* world entries, owned */
    gw_time latency, jitter, deadline;
    double bytes_per_second;
    int calls, ahead; /* ahead: operations that a rank has in flight at once */
    gw_sim_call call[GW_SIM_OPERATIONS_MAX];
    gw_sim_fault fault;
    gw_time fault_at;
    int victim, second_victim; /* ranks */
    int mismatch_call;
} gw_sim_scenario;

gw_status gw_sim_scenario_make(gw_sim_scenario *scenario, uint64_t seed, int world, gw_error *error);
void gw_sim_scenario_free(gw_sim_scenario *scenario);
bool gw_sim_reduces(gw_collective collective);
/* Whether the survivors shrink and go on after the fault. */
bool gw_sim_shrinks(const gw_sim_scenario *scenario);
/* The call that a rank makes as its n-th. */
int gw_sim_order(const gw_sim_scenario *scenario, int rank, int n);
bool gw_sim_takes_part(const gw_sim_call *call, int rank);
size_t gw_sim_part(const gw_sim_call *call, int rank); /* elements of a rank's part */

/* Fills gw_op_spec.counts of an uneven call: gw_counts_entries entries. */
void gw_sim_counts(const gw_sim_scenario *scenario, const gw_sim_call *call, int rank, size_t *counts);
/* The buffers of a call on a rank: element counts, contents of the input, and check of the output. Values are small
 * whole numbers, so that every order of summation is exact in every type. */
size_t gw_sim_in_count(const gw_sim_scenario *scenario, const gw_sim_call *call, int rank);
size_t gw_sim_out_count(const gw_sim_scenario *scenario, const gw_sim_call *call, int rank);
void gw_sim_fill(const gw_sim_scenario *scenario, int call, int rank, void *in);
/* The index of the first wrong element of out, or -1. source: rank that a tagged receive got its message from. */
int64_t gw_sim_check(const gw_sim_scenario *scenario, int call, int rank, int source, const void *out);

#endif
