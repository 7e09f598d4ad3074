/* run.h - plans run by their sizes alone: the streams, waits and messages of production plans (src/plan) for all ranks
 * on one virtual clock, over links that are shared fairly. No data moves, so a thousand ranks fit.
 *
 * What a message costs: the latency of its way, and its bytes at the rate that its connection gets. Messages of a
 * connection (from one rank to another) follow each other; where others use its links too, it waits in their queues. A
 * large message waits for its grant, which travels back, and
 * at most GW_PIPELINE of a stream are under way, as in the engine. Sums and copies take a rank's time one after the
 * other; what is done on a board takes the host's memory.
 *
 * Folding. Where all hosts are alike (one switch, the same number of ranks on each) and a plan looks the same from
 * every host, one host stands for all: what it sends to another host arrives at itself, from the host that sends such a
 * thing to it. Parts that differ by an element are taken as the first host has them, and none as empty. */
#ifndef GW_SIM_RUN_H
#define GW_SIM_RUN_H

#include "plan/plan.h"
#include "sim/fabric.h"
#include "sim/path.h"

typedef struct gw_run gw_run;

/* One collective of all ranks. */
typedef struct gw_run_spec {
    gw_collective collective;
    const gw_plan_builder *builder;
    size_t count;       /* as in gw_plan_request */
    size_t unit_bytes;  /* of an element, partial sums too */
    size_t chunk_bytes; /* 0: the engine's own */
    int root;           /* -1: none */
    uint8_t urgency;    /* its messages overtake those of their connection that have less, beyond ahead_bytes */
    bool announced;     /* a receiver makes room when it is told, as for letters (engine/mail.c) */
    int tag;            /* the caller's, for done */
} gw_run_spec;

typedef struct gw_run_op gw_run_op;

typedef struct gw_run_config {
    gw_topology topology;    /* host_of outlives the run */
    const gw_fabric *fabric; /* outlives the run; folded there: only the ranks of host 0 are run */
    double reduce_rate;      /* bytes per second that a rank adds or copies; 0: it takes no time */
    double message_seconds;  /* what a message costs besides the latency of links */
    double queue_bytes;      /* at most so many of other connections stand before it at a link */
    double ahead_bytes;      /* of a connection, that nothing can overtake */
    /* A rank has completed its part of an operation. May start others. */
    void (*done)(void *ctx, int rank, int tag);
    /* A message of gw_run_tell has arrived. NULL where nobody is told anything. */
    void (*told)(void *ctx, int rank, int tag);
    void *ctx;
} gw_run_config;

gw_status gw_run_open(gw_run **run, const gw_run_config *config, gw_error *error);
void gw_run_close(gw_run *run); /* NULL is fine */

/* Whether a collective looks the same from every host. */
bool gw_run_folds(const gw_run_spec *spec, const gw_topology *topology);

int gw_run_ranks(const gw_run *run); /* that are run: all, or those of one host */
double gw_run_now(const gw_run *run);
const gw_path *gw_run_path(const gw_run *run); /* of the moment */
uint64_t gw_run_messages(const gw_run *run);
double gw_run_bytes(const gw_run *run); /* sent so far, between hosts and within */

/* Lays an operation out for all ranks. It is freed when all of them have completed it. */
gw_status gw_run_prepare(gw_run *run, const gw_run_spec *spec, gw_run_op **op, gw_error *error);
/* A rank starts its part; every rank once. */
void gw_run_start(gw_run *run, gw_run_op *op, int rank);

/* A message from one rank to another outside any collective, over the same connection. Folded, `to` may be on another
 * host. */
gw_status gw_run_tell(gw_run *run, int from, int to, double bytes, int tag, gw_error *error);

/* Something of the caller's that happens at a time: `act` is called with ctx of the configuration. The path of that
 * moment is the present one and the seconds to it, as this part. */
typedef struct gw_run_timer {
    gw_event event; /* first, so that the event is the timer */
    gw_path path;
    void (*act)(struct gw_run_timer *timer, void *ctx);
} gw_run_timer;

void gw_run_after(gw_run *run, gw_run_timer *timer, double seconds, gw_path_part kind);

/* The same for work of a rank's own, which waits for its sums and copies, and they for it. */
void gw_run_busy(gw_run *run, int rank, gw_run_timer *timer, double seconds, gw_path_part kind);

/* Lets the next moment happen, whole. False: nothing is left to happen, or (*error) memory ran out. */
bool gw_run_moment(gw_run *run, gw_error *error);

#endif
