/* rank_core.h - the core of one rank: its engine, its control plane and the calls between them. The same object file
 * runs in production (runtime/context.c) and in the simulator (sim/fault_sim.c). Polled; one thread at a time. */
#ifndef GW_ENGINE_RANK_CORE_H
#define GW_ENGINE_RANK_CORE_H

#include "control/control.h"
#include "engine/engine.h"

typedef struct gw_core gw_core;

typedef struct gw_core_config {
    int rank, world;
    gw_time deadline;
    bool any_side; /* quorum=off: after a loss every side of a split network continues */
    void *ctx;
    const char *(*host_name)(void *ctx, int rank);
    void (*send)(void *ctx, int neighbour, const gw_control_message *message);
    void (*dial)(void *ctx, int rank); /* as in control.h; NULL: the job is never shrunk */
    /* The job's generation has failed: every operation is done, links have been reset. */
    void (*failed)(void *ctx, const gw_error *error);
    void (*slow)(void *ctx, const char *sentence);
} gw_core_config;

/* A state machine that gw_core_poll polls after the engine. The caller owns it; the core uses it until
 * gw_core_detach. */
typedef struct gw_progress_callback {
    void *ctx;
    bool (*poll)(void *ctx, gw_time now); /* true if anything moved */
    bool (*busy)(void *ctx);              /* it has work pending or running */
    struct gw_progress_callback *next;    /* the core's */
} gw_progress_callback;

gw_status gw_core_open(gw_core **core, const gw_core_config *config, gw_time now, gw_error *error);
void gw_core_close(gw_core *core);
gw_engine *gw_core_engine(gw_core *core);
gw_control *gw_core_control(gw_core *core);

void gw_core_attach(gw_core *core, gw_progress_callback *callback);
void gw_core_detach(gw_core *core, gw_progress_callback *callback);
/* Operations are pending or a progress callback is busy. */
bool gw_core_busy(const gw_core *core);

/* True if the gap since the last poll is so long that the process must have been stopped. */
bool gw_core_was_stopped(const gw_core *core, gw_time now);

/* Each calls the function of engine.h or control.h that it is named after, then applies the decisions of callbacks
 * (settle in rank_core.c). */
bool gw_core_poll(gw_core *core, gw_time now);
void gw_core_poll_control(gw_core *core, gw_time now);
gw_status gw_core_start(gw_core *core, gw_op **op, gw_team *team, const gw_op_spec *spec, gw_time now, gw_error *error);
void gw_core_receive(gw_core *core, int neighbour, const gw_control_message *message, gw_time now);
void gw_core_link_up(gw_core *core, int rank, gw_time now);
void gw_core_link_lost(gw_core *core, int neighbour, const char *detail, gw_time now);
void gw_core_died(gw_core *core, int rank, const char *detail, gw_time now);
void gw_core_abort(gw_core *core, const gw_error *error, gw_time now);
/* Once gw_control_shrunk is true, the engine is ready for the survivors' teams. */
void gw_core_shrink(gw_core *core, gw_time until, gw_time now);

#endif
