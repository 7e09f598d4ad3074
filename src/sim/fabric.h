/* fabric.h - network topologies: the links between hosts, and the route of a message.
 *
 *     switch                     all hosts on one switch
 *     fattree:hosts=16,up=4      leaves of 16 hosts with 4 uplinks, one to each spine (4:1 oversubscribed); the
 *                                destination selects the uplink (d-mod-k)
 *     ring                       hosts in a circle, each linked with the next; messages take the shorter direction
 *     torus:8x8, torus:4x4x4     a grid whose edges wrap around; routed dimension by dimension
 *     sites:rate=1gbit,latency=5ms   two halves, each on a switch, and one slow link between them
 *
 * Links are directed, one each way. Links of hosts and between switches have the given rate and half the given latency,
 * so two hosts on one switch are one latency apart. Ranks of one host communicate through its memory. */
#ifndef GW_SIM_FABRIC_H
#define GW_SIM_FABRIC_H

#include "base/status.h"
#include "sim/bandwidth_sharing.h"

typedef enum gw_fabric_kind {
    GW_FABRIC_SWITCH,
    GW_FABRIC_FATTREE,
    GW_FABRIC_RING,
    GW_FABRIC_TORUS,
    GW_FABRIC_SITES
} gw_fabric_kind;

#define GW_TORUS_DIMENSIONS 3

typedef struct gw_fabric_spec {
    gw_fabric_kind kind;
    int leaf_hosts, leaf_up;        /* fat-tree */
    int sides[GW_TORUS_DIMENSIONS]; /* torus; 1: no such dimension */
    double thin_rate, thin_latency; /* sites: bytes per second, seconds */
} gw_fabric_spec;

/* Parses a line of the list above. */
gw_status gw_fabric_parse(const char *text, gw_fabric_spec *spec, gw_error *error);

/* A slow pair of hosts on a switch: this direction between them is slower than the other links. */
typedef struct gw_fabric_pair {
    int from, to; /* hosts */
    double latency, rate;
} gw_fabric_pair;

typedef struct gw_fabric {
    gw_fabric_spec spec;
    int hosts;
    double rate, latency; /* of a link: bytes per second; seconds from host to host over one switch */
    double burst;         /* token bucket of a host's links, bytes; 0: none */
    double memory_rate, memory_latency;
    int links;
    const gw_fabric_pair *pairs; /* pair_count, the caller's */
    int pair_count;
    bool folded; /* one host represents all hosts of a switch (plan_sim.h): every route leads back to it */
} gw_fabric;

/* hosts must match the spec: a torus has a fixed number. */
gw_status gw_fabric_make(gw_fabric *fabric, const gw_fabric_spec *spec, int hosts, gw_error *error);
/* Slow pairs of a switch; the caller owns them, and they outlive the fabric. */
void gw_fabric_set_pairs(gw_fabric *fabric, const gw_fabric_pair *pairs, int count);
double gw_fabric_link_rate(const gw_fabric *fabric, int link);
double gw_fabric_link_burst(const gw_fabric *fabric, int link);
/* The links from one host to another (if both are the same host: its memory), and the latency. Returns the number of
 * links, at most GW_ROUTE_LINKS_MAX. */
int gw_fabric_route(const gw_fabric *fabric, int from, int to, int route[GW_ROUTE_LINKS_MAX], double *latency);
/* The link that represents a host's memory. */
int gw_fabric_memory(const gw_fabric *fabric, int host);

#endif
