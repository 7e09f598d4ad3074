/* coded_parts.h - a reduce-scatter or an all-gather by itself, in which a codec encodes what crosses a link: one part
 * of the data for each rank (gradwire/coded.h).
 *
 * Flat, there is one lane of all ranks (arch/owners.h). Reduce-scatter: every rank encodes each part for the rank that
 * gets it (all-to-all), which adds what it decodes, in the order of the ranks. All-gather: every rank encodes its part
 * and decodes all. In two levels a lane has one rank of each host. A part belongs to the first lane of its rank, and
 * travels encoded in the lane, between hosts. Inside a host it travels as it is: a reduce-scatter before the lanes, or
 * an all-gather after them. Without a codec the lanes run the architecture's plan.
 *
 * Cost, p ranks on h hosts, a part of n' encoded bytes: flat (p-1) n' a rank; in two levels (h-1) n' between hosts.
 *
 * A polled state machine as coded_exchange.h. Memory is taken when it is opened. One thread at a time. */
#ifndef GW_REDUCER_CODED_PARTS_H
#define GW_REDUCER_CODED_PARTS_H

#include "arch/owners.h"
#include "compress/compress.h"
#include "engine/rank_core.h"

typedef struct gw_coded_parts gw_coded_parts;

typedef struct gw_coded_parts_config {
    gw_collective collective; /* GW_COLL_REDUCE_SCATTER or GW_COLL_ALLGATHER */
    const size_t *counts;     /* elements of each rank's part; copied */
    size_t columns;           /* of a matrix, a divisor of each count; 0: no matrix */
    gw_dtype dtype;           /* f32 with a codec; f32 or f64 in two levels */
    gw_redop redop;           /* GW_SUM or GW_AVG */
    const char *name;         /* copied */
    const char *arch;         /* of the strategy line, outlives it: chooses plans */
    size_t chunk_bytes;
    bool coded; /* else the setup is not used */
    gw_codec_setup setup;
    uint64_t seed;
    gw_core *core;
    int rank;                    /* of all */
    const gw_topology *topology; /* of all; read only by open */
    gw_lanes lanes;              /* of this rank; flat: one lane */
    gw_team *const *lane_teams;  /* one for each lane of this rank, its ranks in the order of hosts; copied */
    gw_team *host_team;          /* the ranks of this host; NULL: flat */
    void *by_lane;               /* memory for gw_coded_parts_by_lane_bytes, lent; NULL: flat */
} gw_coded_parts_config;

/* In two levels: bytes of all parts. */
size_t gw_coded_parts_by_lane_bytes(const gw_coded_parts_config *config);

gw_status gw_coded_parts_open(gw_coded_parts **parts, const gw_coded_parts_config *config, gw_error *error);
void gw_coded_parts_close(gw_coded_parts *parts);

size_t gw_coded_parts_sent_bytes(const gw_coded_parts *parts);   /* by this rank in a run, at most */
size_t gw_coded_parts_memory_bytes(const gw_coded_parts *parts); /* payloads, and by_lane */
/* Parts that this rank would encode; those of them that are sent exact. */
int gw_coded_parts_encoded(const gw_coded_parts *parts, int *exact);

/* Begins run number `step`. The buffers stay the caller's; they are as in the plain call, in-place forms included. */
void gw_coded_parts_begin(gw_coded_parts *parts, uint64_t step, const void *in, void *out);
/* Does what can be done, and starts the next operations. True if anything moved. */
bool gw_coded_parts_poll(gw_coded_parts *parts, gw_time now);
bool gw_coded_parts_over(const gw_coded_parts *parts);
const gw_error *gw_coded_parts_error(const gw_coded_parts *parts); /* of the last run, once it is over; GW_OK: none */

/* While none is in progress: the codec's state, bit by bit. restore: GW_MISMATCH if it does not fit, and then some of
 * it may be restored. */
size_t gw_coded_parts_state_bytes(const gw_coded_parts *parts);
void gw_coded_parts_state_save(const gw_coded_parts *parts, void *memory);
gw_status gw_coded_parts_state_restore(gw_coded_parts *parts, const void *memory, size_t bytes, gw_error *error);

#endif
