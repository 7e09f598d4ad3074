/* plan.h - collectives as data.
 *
 * A plan says what one rank does in one collective. It is a pure function: given a request (collective, world, rank,
 * count, ...) a builder lays out *streams*, and computes the i-th step of a stream (gw_action) whenever it is asked
 * for. Nothing is stored per step, so a plan for a thousand ranks and a terabyte needs little memory. In this folder a
 * step is one action of a stream, not a training step.
 *
 * A stream is a first-in first-out sequence of steps of one sort with one peer: messages sent to it, messages received
 * from it, or local work. The i-th message of a send stream (to peer q, channel c) is for the i-th step of q's receive
 * stream (from this rank, channel c). Streams run side by side; the only order between them is what a step's waits
 * say: "stream s has completed at least n steps".
 *
 * Every message has its own receive buffer (`land`). The receiver grants it to the sender (clear to send) as soon as
 * the `free` waits of the step hold; the result is reduced or copied when its `ready` waits hold too. A plan must never
 * need a message to be received before an earlier one of the same stream.
 *
 * Units are elements of the user's type. Buffers: IN and OUT are the user's (they may be one and the same: a plan must
 * be correct in place), WORK is scratch of `work_count` elements of the accumulator type (gw_accumulator), private to
 * each rank. A slot in WORK is addressed in accumulator elements, whatever its content. Raw content (elements of the
 * user's type) begins where the slot begins. Only the message of a RECV_REDUCE may land anywhere inside its slot: the
 * executor chooses.
 *
 * Invariants that the tests check for every builder and world up to 17: sends and receives pair up one to one with the
 * same count and width; the graph of waits has no cycle; of two steps that may run at the same time, neither writes an
 * element that the other reads or writes; the result equals the reference; messages and bytes equal cost(). */
#ifndef GW_PLAN_H
#define GW_PLAN_H

#include "base/shm_task.h"
#include "base/status.h"
#include "base/technique.h"
#include "plan/plan_table.h"

#define GW_COLLECTIVE_COUNT(name, value, text) +1
#define GW_COLLECTIVES (0 GW_COLLECTIVE_LIST(GW_COLLECTIVE_COUNT)) /* values are 0 to GW_COLLECTIVES - 1 */

const char *gw_collective_name(gw_collective collective);
bool gw_collective_parse(const char *name, gw_collective *collective);

/* The cost of a message: alpha seconds, and beta seconds for each of its bytes. */
typedef struct gw_link_cost {
    double alpha, beta;
} gw_link_cost;

/* Which ranks share a host, and the order of the ranks in rings. host_of[r] numbers the hosts 0, 1, ... in the order in
 * which they appear in `order`: rings of hosts go around by number. */
typedef struct gw_topology {
    int world;
    const int *host_of; /* world entries; NULL: every rank alone on its host */
    const int *rack_of; /* world entries: racks (or sites) 0, 1, ... of several hosts; NULL: none are known */
    const int *order;   /* world entries: every rank once, those of a host together, its leaders first; NULL: by rank */
    gw_link_cost wire;  /* of the worst link from one host to the next in that order; beta 0: not measured */
    bool oversubscribed; /* on some host ranks outnumber the cores */
    bool coll;           /* the ranks of a host share memory (see GW_ACTION_SHM) */
    bool native;         /* the transport runs the whole collective (see GW_ACTION_NATIVE) */
} gw_topology;

/* The collective that a plan is for. count: for allreduce, reduce, broadcast, send and recv the whole buffer; for the
 * others the part of one rank (alltoall, even gather, scatter, allgather and reduce-scatter). counts: world entries,
 * only for uneven gather, scatter, all-gather and reduce-scatter (count is then 0); for alltoallv the four arrays of
 * gw_alltoallv_part, world entries each, one behind the other; NULL otherwise. Must outlive the plan. */
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
                           false is always correct, and ranks may differ */
} gw_plan_request;

/* What a rank sends to each rank, where that is in IN; what it receives from each, where that goes in OUT. */
typedef enum gw_alltoallv_part {
    GW_ALLTOALLV_IN_COUNTS,
    GW_ALLTOALLV_IN_OFFSETS,
    GW_ALLTOALLV_OUT_COUNTS,
    GW_ALLTOALLV_OUT_OFFSETS,
    GW_ALLTOALLV_ARRAYS
} gw_alltoallv_part;

static inline const size_t *gw_alltoallv_array(const gw_plan_request *request, gw_alltoallv_part array) {
    return request->counts + (size_t)array * (size_t)request->topology.world;
}
/* Entries of gw_plan_request.counts in a world of this size. */
static inline size_t gw_counts_entries(gw_collective collective, int world) {
    return (size_t)world * (collective == GW_COLL_ALLTOALLV ? GW_ALLTOALLV_ARRAYS : 1);
}

typedef enum gw_space { GW_SPACE_NONE, GW_SPACE_IN, GW_SPACE_OUT, GW_SPACE_WORK } gw_space;

typedef struct gw_slot {
    gw_space space;
    size_t offset; /* elements (of the accumulator type in WORK) */
    size_t count;  /* elements; the message may be shorter, never longer */
} gw_slot;

typedef enum gw_action_kind {
    GW_ACTION_SEND,        /* send src */
    GW_ACTION_RECV,        /* receive into dst; land is the same slot */
    GW_ACTION_RECV_REDUCE, /* receive into land (in WORK), then dst = src op landed; dst may be the same slot as land */
    GW_ACTION_COPY,        /* dst = src, raw */
    GW_ACTION_FOLD,   /* dst = finish(op over ranks 0..world-1 in rank order); rank q's part is at src for q = own rank
                       (IN), else raw in WORK at fold_base + fold_index(q) * fold_stride, where fold_index counts
                       the other ranks in rank order */
    GW_ACTION_SHM,    /* the part of the collective inside one host, by shared memory: see gw_shm_task */
    GW_ACTION_NATIVE, /* an all-reduce of src into dst by the library under the transport; started in the same order on
                       all ranks, each when the one before it is done */
} gw_action_kind;

/* A wait until each of the streams first .. first+streams-1 has completed at least `steps` steps. streams 0: no
 * wait. */
typedef struct gw_waits {
    uint32_t first, streams;
    uint64_t actions;
} gw_waits;

#define GW_ACTION_WAITS 3

typedef struct gw_action {
    gw_action_kind kind;
    gw_slot src, dst;
    gw_slot land;      /* receives: where the message lands; its count is the length of the message */
    bool wide;         /* the message is of the accumulator type (SEND from WORK; RECV_REDUCE of a partial result) */
    bool src_wide;     /* RECV_REDUCE: src is of the accumulator type */
    bool landed_first; /* RECV_REDUCE: dst = landed op src, so that operands are in rank order. Affects only the bits of
                          zeros and NaNs; may be ignored for a raw message in a wider slot. */
    bool finish;       /* RECV_REDUCE: the result is final: averages are divided, and it is stored raw */
    bool dst_wide;     /* SHM reduce-scatter: the result is partial: not finished, of the accumulator type, in WORK */
    bool by_counts;    /* SHM: the parts are the request's counts; else they are even */
    size_t fold_base, fold_stride;   /* FOLD: accumulator elements */
    gw_shm_task task;                /* SHM: on src (IN) and dst (OUT) */
    int lanes;                       /* SHM: local ranks 0..lanes-1 own a part each */
    int coll_root;                   /* SHM broadcast: local rank */
    gw_waits free[GW_ACTION_WAITS];  /* receives: before landing space may be granted */
    gw_waits ready[GW_ACTION_WAITS]; /* before the step may act */
} gw_action;

typedef enum gw_stream_kind { GW_STREAM_SEND, GW_STREAM_RECV, GW_STREAM_LOCAL } gw_stream_kind;

typedef struct gw_stream {
    gw_stream_kind kind;
    int peer;         /* -1 for local streams */
    uint32_t channel; /* tells streams with the same peer and direction apart; the same number on both sides */
    uint64_t actions; /* how many; may be 0 */
    uint64_t count;   /* alltoallv: elements of all its messages together; else 0 */
} gw_stream;

typedef struct gw_plan_builder gw_plan_builder;

typedef struct gw_plan {
    const gw_plan_builder *builder;
    gw_plan_request request;
    uint32_t streams;
    size_t work_count; /* accumulator elements of WORK */
    uint64_t own[16];  /* the builder's own numbers, computed once in lay_out */
} gw_plan;

/* The network cost of a collective, summed over all ranks, without headers; a chunked message counts once for each
 * chunk. start_ups is the longest chain of messages that follow each other when every message is one chunk. */
typedef struct gw_cost {
    uint64_t messages;
    uint64_t elements;      /* sent raw, summed over ranks */
    uint64_t wide_elements; /* sent in the accumulator type */
    uint64_t start_ups;     /* messages on the critical path */
    uint64_t coll_elements; /* read or written by SHM steps, summed over ranks */
} gw_cost;

/* The inputs of the closed-form cost of a plan. */
typedef struct gw_cost_inputs {
    gw_collective collective;
    int ranks, hosts;
    int per_host;   /* ranks of the largest host */
    double bytes;   /* of the whole collective: the buffer, or all parts together */
    double message; /* seconds of a rank's time for one message */
    gw_link_cost wire;
} gw_cost_inputs;

/* The cost of a plan in closed form (Hockney 1994; Thakur, Rabenseifner and Gropp 2005), of the busiest rank. */
typedef struct gw_cost_terms {
    double rounds;   /* messages that follow each other; < 0: not known */
    double bytes;    /* sent or received */
    double messages; /* handled */
    double reduced;  /* bytes added up */
    double crowd;    /* factor by which sharing slows the bytes: the ranks of a host share a wire, and many senders
                        share one receiver */
    int preference;  /* among plans whose costs differ by less than 3 % "auto" takes the one with the lowest preference:
                        it congests less. < 0: "auto" does not take the plan here */
} gw_cost_terms;

struct gw_plan_builder {
    gw_technique technique; /* its name; it is a technique of the arch axis if plan_table.h says ARCH */
    /* NULL if this builder supports the request, else why not, as the end of a sentence ("supports only ..."). */
    const char *(*refuses)(const gw_plan_request *request);
    /* Fills plan->streams, work_count and own. Never fails for a request it does not refuse. */
    void (*lay_out)(gw_plan *plan);
    void (*stream)(const gw_plan *plan, uint32_t index, gw_stream *out);
    void (*action)(const gw_plan *plan, uint32_t stream, uint64_t index, gw_action *out);
    gw_cost (*cost)(const gw_plan_request *request); /* request->rank is ignored */

    /* For "auto" and the simulator. */
    gw_cost_terms (*work)(const gw_cost_inputs *scene); /* constant time; NULL: "auto" takes it only if `preferred` */
    bool preferred;                  /* "auto" takes it for every request that it supports, whatever others cost */
    bool local;                      /* its steps inside a host go through shared memory */
    bool by_hosts;                   /* the ranks of a host combine among themselves first */
    bool rooted;                     /* sums go to one rank, and results come from it */
    bool symmetric;                  /* hosts of equal size all do the same, so a simulation runs one of them for all */
    const gw_plan_builder *small;    /* gives the same bits in fewer rounds, for little data; NULL: none */
    const gw_plan_builder *fallback; /* gives the same bits; tried if this one refuses; NULL: none */
};

/* The parameter of every plan that a strategy may ask for. */
#define GW_PARAM_CHUNK                                                                                                 \
    {                                                                                                                  \
        .name = "chunk", .kind = GW_PARAM_BYTES, .automatic = true, .lowest = 64, .highest = 1024.0 * 1024 * 1024,     \
        .about = "the largest message"                                                                                 \
    }

#define GW_PLAN_DECLARE(name, id) extern const gw_plan_builder gw_plan_##name;
GW_PLANS(GW_PLAN_DECLARE, GW_PLAN_DECLARE)
extern const gw_plan_builder
    gw_plan_single_rank; /* not in the table: world 1, whatever was asked for; IN is copied to OUT */

#define GW_PLAN_IDS 64                              /* ids are 1 to 63 */
uint8_t gw_plan_id(const gw_plan_builder *builder); /* 0: not in the table */
const gw_plan_builder *gw_plan_by_id(uint8_t id);   /* NULL: none, as from a peer that has other plans */

/* All builders in the order of the table, NULL at the end. */
extern const gw_plan_builder *const gw_plan_builders[];
const gw_plan_builder *gw_plan_find(const char *name);

/* Checks the request (world, rank, root, counts) and lays the plan out. In a world of one plan->builder becomes
 * gw_plan_single_rank. The request's arrays (host_of, counts) must outlive the plan. */
gw_status gw_plan_make(gw_plan *plan, const gw_plan_builder *builder, const gw_plan_request *request, gw_error *error);
void gw_plan_stream(const gw_plan *plan, uint32_t index, gw_stream *out);
void gw_plan_action(const gw_plan *plan, uint32_t stream, uint64_t index, gw_action *out);

/* The request's cost, zero in a world of one. */
gw_cost gw_plan_cost(const gw_plan_builder *builder, const gw_plan_request *request);

/* Elements of IN and OUT that the request's rank has. */
size_t gw_plan_in_count(const gw_plan_request *request);
size_t gw_plan_out_count(const gw_plan_request *request);

/* Part `index` of count elements cut into `parts` nearly equal parts (the first count % parts have one more). */
void gw_part(size_t count, int parts, int index, size_t *offset, size_t *length);

/* The rank at a place of the ring around all ranks, and the place of a rank. */
int gw_topology_at(const gw_topology *topology, int place);
int gw_topology_place(const gw_topology *topology, int rank);
/* A rank's host, and its number among the ranks there, in the topology's order. */
int gw_topology_host(const gw_topology *topology, int rank);
int gw_topology_hosts(const gw_topology *topology);
int gw_topology_local_rank(const gw_topology *topology, int rank);
int gw_topology_local_size(const gw_topology *topology, int host);
/* Ranks of the smallest and of the largest host. Takes linear time if the ranks of each host are adjacent. */
void gw_topology_local_sizes(const gw_topology *topology, int *least, int *most);
int gw_topology_rank(const gw_topology *topology, int host, int local_rank);
/* Numbers the racks of its ranks 0, 1, ... and gives them to the topology, which keeps rack_of (world entries, any
 * numbers from 0 on). NULL, what the topology then has, if they are of no use: all hosts in one, or each in its own, or
 * hosts of different sizes, whose ranks do not pair up between the hosts of a rack. */
void gw_topology_take_racks(gw_topology *topology, int *rack_of);
int gw_topology_racks(const gw_topology *topology);
/* The hosts of a rack, and the one at a place among them. */
int gw_topology_rack_size(const gw_topology *topology, int rack);
int gw_topology_rack_host(const gw_topology *topology, int rack, int place);

#endif
