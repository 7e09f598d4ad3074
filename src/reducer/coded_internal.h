/* coded_internal.h - what coded_open.c (checks, agreement, opening) and coded.c (runs, state) share: the calls of
 * gradwire/coded.h. */
#ifndef GW_REDUCER_CODED_INTERNAL_H
#define GW_REDUCER_CODED_INTERNAL_H

#include "arch/route.h"
#include "gradwire/coded.h"
#include "gradwire/reducer.h"
#include "reducer/coded_parts.h"
#include "runtime/comm.h"

/* What all ranks have to agree on, and a saved state must be of. */
typedef struct gw_coded_facts {
    uint64_t numbers[8]; /* of the options; counts are hashed */
    char text[448];      /* for sentences: collective, name, size, operation, strategy */
} gw_coded_facts;

struct gw_coded {
    gw_comm *given;           /* the caller's */
    gw_comm *comm;            /* its own; of an all-reduce, the reducer's */
    gw_coded_options options; /* strings and counts are not kept */
    gw_strategy strategy;
    gw_codec_setup codec;
    gw_coded_facts facts;
    gw_route route;
    gw_topology topology;       /* of comm, as far as parts go by it; its arrays are the team's */
    size_t *counts;             /* elements of each rank's part; of an all-reduce only the first */
    size_t in_count, out_count; /* elements of the buffers */
    /* An all-reduce is a reducer with one tensor. */
    gw_reducer *reducer;
    void *out; /* where that tensor is: the output of the last run */
    /* Others have a machine of their own, which the core polls. */
    gw_coded_parts *parts;
    gw_progress_callback callback;
    gw_comm *host, **lanes; /* in two levels: of the ranks of this host, of each lane of this rank */
    int lane_count;
    void *by_lane; /* from gw_alloc of host */
    /* Runs. */
    bool started;  /* and not waited for */
    uint64_t step; /* number of the next run */
};

#endif
