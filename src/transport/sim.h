/* sim.h - a simulated network: N ranks in one process on a virtual clock.
 *
 * Each rank has an outgoing port that sends one frame after the other at the link's rate; a frame arrives a latency
 * later, plus a random delay from the seed. Frames of one pair keep their order; those of different pairs overtake
 * each other. A killed rank falls silent and its peers hear of it as a kernel would tell them; a partition loses
 * frames without a word. Payloads are read when they leave, not when they are handed over, so that a buffer reused
 * too early is noticed. */
#ifndef GW_TRANSPORT_SIM_H
#define GW_TRANSPORT_SIM_H

#include "base/rng.h"
#include "transport/transport.h"

typedef struct gw_sim_net gw_sim_net;

typedef struct gw_sim_config {
    int world;
    gw_time latency;         /* ns */
    double bytes_per_second; /* of each rank's outgoing port */
    gw_time jitter;          /* largest random delay, ns */
    uint64_t seed;
} gw_sim_config;

/* What happens on the network besides frames: side messages of any content (the control plane) and timers. */
typedef struct gw_sim_events {
    void *ctx;
    void (*message)(void *ctx, int from, int to, const void *bytes, size_t length);
    void (*hang_up)(void *ctx, int rank, int gone); /* rank hears that gone's process has ended */
    void (*timer)(void *ctx, int rank);
    void (*moved)(void *ctx, int rank); /* something happened at this rank: poll it */
    /* What came of gw_sim_dial, NULL where nobody dials. A connection is told to both ends. */
    void (*connected)(void *ctx, int rank, int peer);
    void (*refused)(void *ctx, int rank, int peer); /* the peer's host says that nobody listens there */
} gw_sim_events;

gw_status gw_sim_open(gw_sim_net **net, const gw_sim_config *config, const gw_sim_events *events, gw_error *error);
void gw_sim_close(gw_sim_net *net);
gw_transport *gw_sim_transport(gw_sim_net *net, int rank, gw_sink sink); /* owned by the network */

gw_time gw_sim_now(const gw_sim_net *net);
/* Carries out the next event. False: there is none. */
bool gw_sim_step(gw_sim_net *net);

void gw_sim_message(gw_sim_net *net, int from, int to, const void *bytes, size_t length);
/* A connection for side messages, which need none here: it only shows who can be reached. */
void gw_sim_dial(gw_sim_net *net, int from, int to);
/* From now on dials to this rank are refused. */
void gw_sim_shut(gw_sim_net *net, int rank);
void gw_sim_timer(gw_sim_net *net, int rank, gw_time at);
void gw_sim_kill(gw_sim_net *net, int rank);
bool gw_sim_alive(const gw_sim_net *net, int rank);
/* From now on nothing passes between ranks on different sides. */
void gw_sim_partition(gw_sim_net *net, const bool *side);
/* Nothing passes between these two any more. */
void gw_sim_cut(gw_sim_net *net, int a, int b);
/* Frames that this rank sends take `factor` times as long. */
void gw_sim_slow(gw_sim_net *net, int rank, double factor);
/* The rank does nothing until then: what reaches it waits. */
void gw_sim_pause(gw_sim_net *net, int rank, gw_time until);

#endif
