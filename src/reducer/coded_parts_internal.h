/* coded_parts_internal.h - what coded_parts_open.c (places of parts, memory, state) and coded_parts.c (a run) share. */
#ifndef GW_REDUCER_CODED_PARTS_INTERNAL_H
#define GW_REDUCER_CODED_PARTS_INTERNAL_H

#include "reducer/coded_parts.h"
#include "reducer/coded_payload.h"

typedef enum gw_coded_parts_phase {
    PARTS_BEGUN,
    PARTS_IN_HOST, /* operations in the host are in progress */
    PARTS_IN_LANES,
    PARTS_OVER
} gw_coded_parts_phase;

/* One lane of this rank. Arrays have an entry for each host. */
typedef struct gw_parts_lane {
    gw_team *team;
    int *ranks;        /* whose part belongs to this lane; -1: that host's rank has its part in another lane */
    size_t *counts;    /* elements of these parts; 0: none */
    size_t place;      /* where they begin in the data by lanes, in elements */
    size_t room;       /* coded: bytes of one payload at most */
    uint8_t *out, *in; /* coded: payloads; all-gather: one in out */
    uint64_t *out_lengths, *in_lengths;
    gw_op *op;
} gw_parts_lane;

struct gw_coded_parts {
    gw_coded_parts_config config; /* counts and name are owned, topology is NULL */
    int world;
    size_t element;      /* bytes */
    size_t *places;      /* of each rank's part in the data by lanes, in elements; flat: in rank order */
    size_t total;        /* elements */
    size_t *host_counts; /* elements of the lanes of each rank of this host */
    size_t host_place;   /* where this rank's begin, in elements */
    gw_coding coding;
    gw_coded_tensor *tensors; /* the part of each rank; of parts in other lanes without name. NULL: not coded */
    gw_parts_lane *lanes;     /* of this rank: config.lanes.first to last - 1 */
    size_t memory;
    gw_coded_parts_phase phase;
    gw_op *op;             /* in the host */
    const uint8_t *source; /* of the current run: the data by lanes that are sent (reduce-scatter) */
    uint8_t *target;       /* or received (all-gather) */
    const void *in;
    void *out;
    gw_error error;
    uint32_t label; /* its name in the recording that was opened at labelled_in */
    gw_time labelled_in;
};

static inline int gw_parts_lane_count(const gw_coded_parts *parts) {
    return parts->config.lanes.last - parts->config.lanes.first;
}

/* The operations of this rank: in a lane without a codec, and in the host. */
gw_op_spec gw_parts_lane_spec(const gw_coded_parts *parts, const gw_parts_lane *lane, const void *in, void *out);
gw_op_spec gw_parts_host_spec(const gw_coded_parts *parts);

#endif
