/* plan.h - collectives as data.
 *
 * A plan says what one rank does in one collective. It is a pure function: given a request (collective, world, rank,
 * count, ...) a builder lays out *streams*, and the i-th step of a stream can be asked for at any time; nothing is
 * stored per step, so a thousand ranks and a terabyte fit.
 *
 * A stream is a first-in first-out sequence of steps of one sort with one peer: messages sent to it, messages received
 * from it, or local work. The i-th message of a send stream (to peer q, channel c) meets the i-th step of q's receive
 * stream (from this rank, channel c). Streams run side by side; the only order between them is what a step's waits
 * say: "stream s has completed at least n steps".
 *
 * A message has landing space of its own: a receive step may be granted to its sender as soon as its `free` waits
 * hold, and the result is formed (reduced, copied) when its `ready` waits hold too. A plan must never need a message
 * to be received before an earlier one of the same stream.
 *
 * Units are elements of the user's type. Buffers: IN and OUT are the user's (they may be one and the same: a plan must
 * be right in place), WORK is scratch of `work_count` elements of the accumulator type (gw_accumulator), on every rank
 * its own. A slot in WORK is addressed in accumulator elements, whatever is stored there; what is stored raw begins
 * where the slot begins (but for the landing of RECV_REDUCE, whose place inside its slot is the executor's choice).
 *
 * Invariants that the tests check for every builder and world up to 17: sends and receives pair up one to one with the
 * same count and width; the graph of waits has no cycle; no two steps that may run at the same time write the same
 * place, nor one writes what the other reads; the result equals the reference; messages and bytes equal cost(). */
#ifndef GW_PLAN_H
#define GW_PLAN_H

#include "base/board_task.h"
#include "base/status.h"

typedef enum gw_collective {
    GW_COLL_ALLREDUCE,
    GW_COLL_REDUCE_SCATTER, /* uneven counts allowed */
    GW_COLL_ALLGATHER,      /* uneven counts allowed */
    GW_COLL_REDUCE,
    GW_COLL_BROADCAST,
    GW_COLL_GATHER,
    GW_COLL_SCATTER,
    GW_COLL_ALLTOALL,
    GW_COLL_BARRIER,
    GW_COLL_SEND, /* point to point: root is the peer */
    GW_COLL_RECV,
    GW_COLLECTIVES
} gw_collective;

const char *gw_collective_name(gw_collective collective);
bool gw_collective_parse(const char *name, gw_collective *collective);

/* What a message costs: alpha seconds, and beta for each byte of it. */
typedef struct gw_wire {
    double alpha, beta;
} gw_wire;

/* Which ranks share a host, and in which order rings go around. host_of[r] numbers the hosts 0, 1, ... in the order in
 * which they appear in `order`: rings of hosts go around by number. */
typedef struct gw_topology {
    int world;
    const int *host_of; /* world entries; NULL: every rank alone on its host */
    const int *order;   /* world entries: every rank once, those of a host together, its leaders first; NULL: by rank */
    gw_wire wire;       /* of the worst link from one host to the next in that order; beta 0: not measured */
    bool crowded;       /* somewhere ranks outnumber the cores of their machine */
    bool board;         /* the ranks of a host share memory (see GW_STEP_BOARD) */
    bool native;        /* the transport can carry out the whole of it (see GW_STEP_NATIVE) */
} gw_topology;

/* What is asked for. count: for allreduce, reduce, broadcast, send and recv the whole buffer; for the others the part
 * of one rank (gather, scatter, alltoall, even allgather and reduce-scatter). counts: world entries, only for uneven
 * all-gather and reduce-scatter (count is then 0), NULL otherwise; must outlive the plan. */
typedef struct gw_plan_request {
    gw_collective collective;
    gw_topology topology;
    int rank;
    size_t count;
    const size_t *counts;
    int root;           /* -1 where the collective has none */
    size_t chunk_count; /* the largest message, in elements; > 0 */
    int pipeline;       /* messages of a stream that may be in flight at once (landing slots); > 0 */
    bool apart;         /* on this rank IN and OUT do not overlap, so that messages may land in OUT before IN is read;
                           false is always right, and ranks need not agree */
} gw_plan_request;

typedef enum gw_space { GW_SPACE_NONE, GW_SPACE_IN, GW_SPACE_OUT, GW_SPACE_WORK } gw_space;

typedef struct gw_slot {
    gw_space space;
    size_t offset; /* elements (of the accumulator type in WORK) */
    size_t count;  /* elements; what travels may be shorter, never longer */
} gw_slot;

typedef enum gw_action_kind {
    GW_STEP_SEND,        /* send src */
    GW_STEP_RECV,        /* receive into dst; land is the same slot */
    GW_STEP_RECV_REDUCE, /* receive into land (in WORK), then dst = src op landed; dst may be the same slot as land */
    GW_STEP_COPY,        /* dst = src, raw */
    GW_STEP_FOLD,  /* dst = finish(op over ranks 0..world-1 in rank order); rank q's part is at src for q = own rank
                      (IN), else raw in WORK at fold_base + fold_index(q) * fold_stride, where fold_index counts
                      the other ranks in rank order */
    GW_STEP_BOARD, /* the part of the collective inside one host, by shared memory: see gw_board_task */
    GW_STEP_NATIVE, /* an all-reduce of src into dst by the library under the transport; started in the same order on
                       all ranks, each when the one before it is done */
} gw_action_kind;

/* At least `steps` steps of each of the streams first .. first+streams-1 are complete. streams 0: nothing. */
typedef struct gw_waits {
    uint32_t first, streams;
    uint64_t steps;
} gw_waits;

#define GW_STEP_WAITS 3

typedef struct gw_action {
    gw_action_kind kind;
    gw_slot src, dst;
    gw_slot land;      /* receives: where the message lands; its count is what travels */
    bool wide;         /* what travels is of the accumulator type (SEND from WORK; RECV_REDUCE of a partial result) */
    bool src_wide;     /* RECV_REDUCE: src is of the accumulator type */
    bool landed_first; /* RECV_REDUCE: dst = landed op src, so that operands stand in rank order. Shows only in the bits
                          of zeros and NaNs; where raw lands in a wider slot the operands may stay exchanged. */
    bool finish;       /* RECV_REDUCE: the result is final: averages are divided, and it is stored raw */
    bool dst_wide;     /* BOARD reduce-scatter: the result is partial: not finished, of the accumulator type, in WORK */
    size_t fold_base, fold_stride; /* FOLD: accumulator elements */
    gw_board_task task;            /* BOARD: on src (IN) and dst (OUT) */
    int lanes;                     /* BOARD: local ranks 0..lanes-1 own a part each */
    int board_root;                /* BOARD broadcast: local rank */
    gw_waits free[GW_STEP_WAITS];  /* receives: before landing space may be granted */
    gw_waits ready[GW_STEP_WAITS]; /* before the step may act */
} gw_action;

typedef enum gw_flow { GW_FLOW_SEND, GW_FLOW_RECV, GW_FLOW_LOCAL } gw_flow;

typedef struct gw_stream {
    gw_flow flow;
    int peer;         /* -1 for local streams */
    uint32_t channel; /* tells streams with the same peer and direction apart; the same number on both sides */
    uint64_t steps;   /* how many; may be 0 */
} gw_stream;

typedef struct gw_plan_builder gw_plan_builder;

typedef struct gw_plan {
    const gw_plan_builder *builder;
    gw_plan_request request;
    uint32_t streams;
    size_t work_count; /* accumulator elements of WORK */
    uint64_t own[16];  /* the builder's own numbers, computed once in lay_out */
} gw_plan;

/* What a collective costs all ranks together over the network, headers aside (a chunked message counts once for each
 * chunk), and the longest chain of messages that follow each other when every message is one chunk. */
typedef struct gw_cost {
    uint64_t messages;
    uint64_t elements;       /* sent raw, summed over ranks */
    uint64_t wide_elements;  /* sent in the accumulator type */
    uint64_t start_ups;      /* messages on the critical path */
    uint64_t board_elements; /* read or written by BOARD steps, summed over ranks */
} gw_cost;

struct gw_plan_builder {
    const char *name;
    const char *about; /* one line for `gradwire list` */
    /* NULL if this builder can carry the request, else why not, as the end of a sentence ("carries only ..."). */
    const char *(*refuses)(const gw_plan_request *request);
    /* Fills plan->streams, work_count and own. Never fails for a request it does not refuse. */
    void (*lay_out)(gw_plan *plan);
    void (*stream)(const gw_plan *plan, uint32_t index, gw_stream *out);
    void (*step)(const gw_plan *plan, uint32_t stream, uint64_t index, gw_action *out);
    gw_cost (*cost)(const gw_plan_request *request); /* request->rank is ignored */
};

extern const gw_plan_builder gw_plan_ring;          /* allreduce, reduce_scatter, allgather */
extern const gw_plan_builder gw_plan_halving;       /* allreduce, reduce_scatter, allgather */
extern const gw_plan_builder gw_plan_doubling;      /* the same bits in half the rounds: allreduce */
extern const gw_plan_builder gw_plan_tree;          /* allreduce, reduce, broadcast */
extern const gw_plan_builder gw_plan_direct;        /* one host with a board: allreduce, even reduce_scatter and
                                                       allgather, broadcast, barrier */
extern const gw_plan_builder gw_plan_exchange;      /* direct by messages, same bits: allreduce, reduce_scatter,
                                                       allgather, alltoall, gather, scatter, reduce, broadcast */
extern const gw_plan_builder gw_plan_oneshot;       /* the same bits in one round: allreduce */
extern const gw_plan_builder gw_plan_hierarchical;  /* allreduce */
extern const gw_plan_builder gw_plan_dissemination; /* barrier */
extern const gw_plan_builder gw_plan_pair;          /* send, recv */
extern const gw_plan_builder gw_plan_native;        /* allreduce, where the transport can: "mpi" */
extern const gw_plan_builder gw_plan_alone;         /* world 1, whatever was asked for: IN is copied to OUT */

/* All of them, NULL at the end: the one table. */
extern const gw_plan_builder *const gw_plan_builders[];
const gw_plan_builder *gw_plan_find(const char *name);

/* Checks the request (world, rank, root, counts) and lays the plan out. In a world of one plan->builder becomes
 * gw_plan_alone. The request's arrays (host_of, counts) must outlive the plan. */
gw_status gw_plan_make(gw_plan *plan, const gw_plan_builder *builder, const gw_plan_request *request, gw_error *error);
void gw_plan_stream(const gw_plan *plan, uint32_t index, gw_stream *out);
void gw_plan_step(const gw_plan *plan, uint32_t stream, uint64_t index, gw_action *out);

/* The request's cost, zero in a world of one. */
gw_cost gw_plan_cost(const gw_plan_builder *builder, const gw_plan_request *request);

/* Elements of IN and OUT that the request's rank has. */
size_t gw_plan_in_count(const gw_plan_request *request);
size_t gw_plan_out_count(const gw_plan_request *request);

/* Part `index` of count elements cut into `parts` nearly equal parts (the first count % parts have one more). */
void gw_part(size_t count, int parts, int index, size_t *offset, size_t *length);

/* The rank at a place of a ring around all ranks, and where a rank is. */
int gw_topology_at(const gw_topology *topology, int place);
int gw_topology_place(const gw_topology *topology, int rank);
/* A rank's host, and its number among the ranks there, in the topology's order. */
int gw_topology_host(const gw_topology *topology, int rank);
int gw_topology_hosts(const gw_topology *topology);
int gw_topology_local_rank(const gw_topology *topology, int rank);
int gw_topology_local_size(const gw_topology *topology, int host);
/* Ranks of the smallest and of the largest host. Linear where the ranks of a host follow each other. */
void gw_topology_local_sizes(const gw_topology *topology, int *least, int *most);
int gw_topology_rank(const gw_topology *topology, int host, int local_rank);

#endif
