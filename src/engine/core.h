/* core.h - one rank: its engine and its control plane, and what they tell each other. The same object file runs in
 * production (engine/node.c) and in the simulator (sim/world.c). Polled; one thread at a time. */
#ifndef GW_ENGINE_CORE_H
#define GW_ENGINE_CORE_H

#include "engine/control.h"
#include "engine/engine.h"

typedef struct gw_core gw_core;

typedef struct gw_core_config {
    int rank, world;
    gw_time deadline;
    bool any_side; /* quorum=off: after a loss every side of a cut goes on */
    void *ctx;
    const char *(*host_name)(void *ctx, int rank);
    void (*send)(void *ctx, int neighbour, const gw_control_message *message);
    void (*dial)(void *ctx, int rank); /* as in control.h; NULL where nothing is ever shrunk */
    /* The job's generation has failed; every operation is done. Links have been reset. */
    void (*failed)(void *ctx, const gw_error *error);
    void (*slow)(void *ctx, const char *sentence);
} gw_core_config;

/* A machine that is polled after the engine, by whoever polls the core. The caller's, until it is dropped. */
typedef struct gw_rider {
    void *ctx;
    bool (*poll)(void *ctx, gw_time now); /* true if anything moved */
    bool (*busy)(void *ctx);              /* it has something to do, or under way */
    struct gw_rider *next;                /* the core's */
} gw_rider;

gw_status gw_core_open(gw_core **core, const gw_core_config *config, gw_time now, gw_error *error);
void gw_core_close(gw_core *core);
gw_engine *gw_core_engine(gw_core *core);
gw_control *gw_core_control(gw_core *core);

void gw_core_carry(gw_core *core, gw_rider *rider);
void gw_core_drop(gw_core *core, gw_rider *rider);
/* Operations or riders are under way. */
bool gw_core_busy(const gw_core *core);

/* A driver looks many times a second; after a longer gap this process was stopped. */
bool gw_core_was_stopped(const gw_core *core, gw_time now);

/* As the functions of engine.h and control.h, and then settled. */
bool gw_core_poll(gw_core *core, gw_time now);
void gw_core_poll_control(gw_core *core, gw_time now);
gw_status gw_core_start(gw_core *core, gw_op **op, gw_team *team, const gw_op_spec *spec, gw_time now,
                        gw_error *error);
void gw_core_receive(gw_core *core, int neighbour, const gw_control_message *message, gw_time now);
void gw_core_link_up(gw_core *core, int rank, gw_time now);
void gw_core_link_lost(gw_core *core, int neighbour, const char *detail, gw_time now);
void gw_core_died(gw_core *core, int rank, const char *detail, gw_time now);
void gw_core_abort(gw_core *core, const gw_error *error, gw_time now);
/* When gw_control_shrunk says so the engine is ready for the survivors' teams. */
void gw_core_shrink(gw_core *core, gw_time until, gw_time now);

#endif
