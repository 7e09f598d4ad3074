/* fabric.h - which links there are between hosts, and which of them a message passes.
 *
 *     switch                     all hosts on one switch
 *     fattree:hosts=16,up=4      leaves of 16 hosts with 4 links up, one to each spine (4:1 oversubscribed); the way up
 *                                is chosen by the destination (d-mod-k)
 *     ring                       hosts in a circle, each linked with the next; the shorter way round
 *     torus:8x8, torus:4x4x4     a grid whose edges meet; one dimension after the other
 *     sites:rate=1gbit,latency=5ms   two halves, each on a switch, and one thin link between them
 *
 * Every link is one in each direction. Host links and those between switches have the rate and half the latency that
 * were given: two hosts on one switch are one latency apart. Ranks of one host talk through its memory. */
#ifndef GW_SIM_FABRIC_H
#define GW_SIM_FABRIC_H

#include "base/status.h"
#include "sim/share.h"

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
    int sides[GW_TORUS_DIMENSIONS]; /* torus; 1 where there is no such dimension */
    double thin_rate, thin_latency; /* sites: bytes per second, seconds */
} gw_fabric_spec;

/* Reads the text above. */
gw_status gw_fabric_parse(const char *text, gw_fabric_spec *spec, gw_error *error);

/* One direction between two hosts of a switch that is slower than all others. */
typedef struct gw_fabric_pair {
    int from, to; /* hosts */
    double latency, rate;
} gw_fabric_pair;

typedef struct gw_fabric {
    gw_fabric_spec spec;
    int hosts;
    double rate, latency; /* of a link: bytes per second; seconds from host to host over one switch */
    double burst;         /* bytes that a link carries at once after it was idle; 0: it is no token bucket */
    double memory_rate, memory_latency;
    int links;
    const gw_fabric_pair *pairs; /* pair_count, the caller's */
    int pair_count;
    bool folded; /* one host stands for all of a switch (run.h): every way leads back to it */
} gw_fabric;

/* hosts must fit the spec (a torus has a fixed number). */
gw_status gw_fabric_make(gw_fabric *fabric, const gw_fabric_spec *spec, int hosts, gw_error *error);
/* Slow pairs of a switch; they stay the caller's, and outlive the fabric. */
void gw_fabric_set_pairs(gw_fabric *fabric, const gw_fabric_pair *pairs, int count);
double gw_fabric_link_rate(const gw_fabric *fabric, int link);
double gw_fabric_link_burst(const gw_fabric *fabric, int link);
/* The links between two hosts (the memory of one), and the latency. Returns their number, at most GW_WAY_MAX. */
int gw_fabric_way(const gw_fabric *fabric, int from, int to, int way[GW_WAY_MAX], double *latency);
/* The link that is a host's memory. */
int gw_fabric_memory(const gw_fabric *fabric, int host);

#endif
