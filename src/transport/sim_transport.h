/* sim_transport.h - a simulated network: N ranks in one process on a virtual clock.
 *
 * Each rank has an outgoing port that sends one frame after the other at the link's rate; a frame arrives a latency
 * later, plus a random delay from the seed. Frames of one pair keep their order; those of different pairs overtake
 * each other. The peers of a killed rank see a hang-up, as from a kernel; a partition loses frames silently.
 * Payloads are read when they leave, not in send(), so that a buffer that is reused too early is noticed. */
#ifndef GW_TRANSPORT_SIM_TRANSPORT_H
#define GW_TRANSPORT_SIM_TRANSPORT_H

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

/* Events besides frames: control messages of any content, and timers. */
typedef struct gw_sim_events {
    void *ctx;
    void (*message)(void *ctx, int from, int to, const void *bytes, size_t length);
    void (*hang_up)(void *ctx, int rank, int gone); /* rank sees that gone's process has ended */
    void (*timer)(void *ctx, int rank);
    void (*moved)(void *ctx, int rank); /* something happened at this rank: poll it */
    /* The results of gw_sim_dial; NULL where nobody dials. connected is called at both ends. */
    void (*connected)(void *ctx, int rank, int peer);
    void (*refused)(void *ctx, int rank, int peer); /* connection refused by the peer's host */
} gw_sim_events;

gw_status gw_sim_open(gw_sim_net **net, const gw_sim_config *config, const gw_sim_events *events, gw_error *error);
void gw_sim_close(gw_sim_net *net);
gw_transport *gw_sim_transport(gw_sim_net *net, int rank, gw_sink sink); /* owned by the network */

gw_time gw_sim_now(const gw_sim_net *net);
/* Runs the next event. False: there is none. */
bool gw_sim_step(gw_sim_net *net);

void gw_sim_message(gw_sim_net *net, int from, int to, const void *bytes, size_t length);
/* Dials a peer for control messages. Control messages need no connection in the simulator: the dial only shows whether
 * the peer can be reached. */
void gw_sim_dial(gw_sim_net *net, int from, int to);
/* From now on dials to this rank are refused. */
void gw_sim_shut(gw_sim_net *net, int rank);
uint64_t gw_sim_sent_bytes(const gw_sim_net *net, int from, int to); /* payloads of frames, without their headers */
void gw_sim_timer(gw_sim_net *net, int rank, gw_time at);
void gw_sim_kill(gw_sim_net *net, int rank);
bool gw_sim_alive(const gw_sim_net *net, int rank);
/* From now on nothing passes between ranks with different `side`. */
void gw_sim_partition(gw_sim_net *net, const bool *side);
/* Nothing passes between these two any more. */
void gw_sim_cut(gw_sim_net *net, int a, int b);
/* Frames that this rank sends take `factor` times as long. */
void gw_sim_slow(gw_sim_net *net, int rank, double factor);
/* The rank does nothing before `until`; its events wait. */
void gw_sim_pause(gw_sim_net *net, int rank, gw_time until);

#endif
