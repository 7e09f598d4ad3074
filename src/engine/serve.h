/* serve.h - parameter servers as processes of their own (gradwire run --servers): they join the job after all workers,
 * know nothing of the program, and do what the first worker tells them, one errand after the other. What they do
 * together with workers, an errand's collective calls, follows it. */
#ifndef GW_ENGINE_SERVE_H
#define GW_ENGINE_SERVE_H

#include "engine/step_table.h"

typedef enum gw_errand {
    GW_ERRAND_STEP,  /* a step begins, or goes on over other ranks; its table follows */
    GW_ERRAND_TIMES, /* who waited for whom in a step (gw_step_workers) */
    GW_ERRAND_BYE    /* the job is over */
} gw_errand;

/* A worker's, called by all of them: the first sends. everyone: the communicator of all processes. */
gw_status gw_servers_call(gw_comm *everyone, gw_errand errand, uint32_t number, const gw_step_table *table,
                          gw_error *error);
/* This worker takes part in nothing any more: the first tells the servers. Not after a failure, of which they know. */
void gw_servers_dismiss(gw_comm *everyone);

/* Joins the job as the environment says and serves until it is over. */
gw_status gw_serve(gw_error *error);

#endif
