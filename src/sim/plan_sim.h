/* plan_sim.h - simulates plans by their sizes alone: the streams, waits and messages of production plans (src/plan) of
 * all ranks on one virtual clock, over fairly shared links. No data moves, so a thousand ranks fit.
 *
 * A message costs the latency of its route, and its bytes at the rate of its connection. Messages of a connection (from
 * one rank to another) are sent one after the other, and wait in the queues of links that other connections use. As in
 * the engine, a large message waits for its grant (clear-to-send), which is a message too, and a stream has at most
 * GW_PIPELINE messages in flight. Reductions and copies of a rank run one after the other; host-local (shm) collectives
 * use the host's memory bandwidth.
 *
 * Folding: if all hosts are alike (one switch, the same number of ranks on each) and a plan looks the same from every
 * host, one host represents all. A message to another host arrives at this one instead, as the corresponding message
 * from another host. If the sizes of parts differ by one element between hosts, all have the size of the first
 * host's part; none is empty. */
#ifndef GW_SIM_PLAN_SIM_H
#define GW_SIM_PLAN_SIM_H

#include "plan/plan.h"
#include "sim/fabric.h"
#include "sim/time_breakdown.h"

typedef struct gw_plan_sim gw_plan_sim;

/* Some ranks of the run, which run a collective among themselves. The members of a host stand together, in the order of
 * hosts. */
typedef struct gw_plan_sim_team {
    gw_topology topology; /* of the members; host_of outlives the team */
    const int *ranks;     /* of the members */
} gw_plan_sim_team;

/* One collective. */
typedef struct gw_plan_sim_spec {
    const gw_plan_sim_team *team; /* outlives the operation; NULL: all ranks */
    gw_collective collective;
    const gw_plan_builder *builder;
    size_t count;       /* as in gw_plan_request */
    size_t unit_bytes;  /* of an element, also in partial sums */
    size_t chunk_bytes; /* 0: the engine's default */
    int root;           /* member; -1: none */
    uint8_t urgency;    /* its messages overtake less urgent ones of their connection, except the first ahead_bytes */
    bool announced;     /* receives are posted when the header arrives, as in engine/active_message.c */
    int tag;            /* the caller's, passed to done */
} gw_plan_sim_spec;

typedef struct gw_plan_sim_op gw_plan_sim_op;

typedef struct gw_plan_sim_config {
    gw_topology topology;    /* host_of outlives the run */
    const gw_fabric *fabric; /* outlives the run; if it is folded, only the ranks of host 0 are simulated */
    double reduce_rate;      /* bytes per second that a rank adds or copies; 0: takes no time */
    double message_seconds;  /* cost of a message besides the latency of links */
    double queue_bytes;      /* limit of other connections' bytes that a message waits for at a link */
    double ahead_bytes;      /* first bytes of a connection's queue, which nothing can overtake */
    /* A rank has completed its part of an operation. May start others. */
    void (*done)(void *ctx, int rank, int tag);
    /* A message of gw_plan_sim_send_message has arrived; may be NULL if there are none. */
    void (*delivered)(void *ctx, int rank, int tag);
    void *ctx;
} gw_plan_sim_config;

gw_status gw_plan_sim_open(gw_plan_sim **sim, const gw_plan_sim_config *config, gw_error *error);
void gw_plan_sim_close(gw_plan_sim *sim); /* NULL is fine */

/* Whether a collective looks the same from every host. */
bool gw_plan_sim_folds(const gw_plan_sim_spec *spec, const gw_topology *topology);

int gw_plan_sim_ranks(const gw_plan_sim *sim); /* simulated ranks: all, or those of one host */
double gw_plan_sim_now(const gw_plan_sim *sim);
const gw_time_breakdown *gw_plan_sim_path(const gw_plan_sim *sim); /* critical path of the current event */
uint64_t gw_plan_sim_messages(const gw_plan_sim *sim);
double gw_plan_sim_bytes(const gw_plan_sim *sim); /* sent so far, between hosts and within */

/* Prepares an operation for all members of its team. It is freed when all of them have completed it. */
gw_status gw_plan_sim_prepare(gw_plan_sim *sim, const gw_plan_sim_spec *spec, gw_plan_sim_op **op, gw_error *error);
/* A member starts its part; each one once. */
void gw_plan_sim_start(gw_plan_sim *sim, gw_plan_sim_op *op, int member);

/* Sends a message outside any collective, over the same connection. In a folded run, `to` may be on another host. */
gw_status gw_plan_sim_send_message(gw_plan_sim *sim, int from, int to, double bytes, int tag, gw_error *error);

/* A timer of the caller: `act` is called with the ctx of the configuration. Its critical path is the path of the event
 * that set it, plus the waiting time as one part. */
typedef struct gw_plan_sim_timer {
    gw_event event; /* first member: a pointer to it is one to the timer */
    gw_time_breakdown path;
    void (*act)(struct gw_plan_sim_timer *timer, void *ctx);
} gw_plan_sim_timer;

void gw_plan_sim_after(gw_plan_sim *sim, gw_plan_sim_timer *timer, double seconds, gw_time_part kind);
/* Makes a timer end so much later; without effect if it is not set. */
void gw_plan_sim_delay(gw_plan_sim *sim, gw_plan_sim_timer *timer, double seconds, gw_time_part kind);

/* A rank works for so long, which queues with its reductions and copies. Returns when that ends. */
double gw_plan_sim_occupy(gw_plan_sim *sim, int rank, double seconds);
/* The same, with a timer at its end. */
void gw_plan_sim_busy(gw_plan_sim *sim, int rank, gw_plan_sim_timer *timer, double seconds, gw_time_part kind);

/* Runs all events of the next point in time. False: none is left, or memory ran out (*error). */
bool gw_plan_sim_run_next(gw_plan_sim *sim, gw_error *error);

#endif
