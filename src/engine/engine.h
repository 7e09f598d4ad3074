/* engine.h - runs plans: one engine for each rank, one executor for every plan, over any transport.
 *
 * The engine is a polled state machine. It never blocks, sleeps or reads a clock; the driver (runtime/context.c in
 * production, sim/fault_sim.c in the simulator) passes the time in and polls it. One thread at a time may call it.
 *
 * Flow control. A message larger than GW_EAGER_BYTES waits for a grant (clear-to-send): the receiver sends one when the
 * receive buffer of the matching action is free. A smaller message is sent eagerly, without a grant, for one credit.
 * The receiver has GW_EAGER_SLOTS slots per peer, the unexpected queue, where such a message waits until its operation
 * is started. A blocking collective may send chunks of up to GW_EAGER_COLLECTIVE_BYTES eagerly. Training steps and
 * active messages (active_message.h) may not: there the receiver decides what comes first, and when it has room.
 * Credits return with the next frame. When all slots of a peer are in use, the receiver also grants small messages that
 * it is ready for, so operations started early can never block those that other ranks wait for.
 *
 * A tagged send announces itself: by its first message if that is eager or granted, else by a frame without payload
 * (GW_FRAME_RTS), which needs no credit. So unmatched sends never block those that the receiver waits for. A receive of
 * large messages from one rank does not wait for the announcement: it offers a grant to the next send of that rank.
 * The sender uses it if tag, count and type are the same, so a large message is as fast as one matched by number. */
#ifndef GW_ENGINE_H
#define GW_ENGINE_H

#include "base/clock.h"
#include "base/reduce.h"
#include "base/status.h"
#include "plan/plan.h"
#include "transport/transport.h"

#define GW_EAGER_BYTES (64 * 1024)
#define GW_EAGER_COLLECTIVE_BYTES (256 * 1024)
/* Half of the credits (5) or more return in a frame of their own. A call of four chunks owes only four, which return
 * with the frames of the next call. */
#define GW_EAGER_SLOTS 10
#define GW_PIPELINE 8                     /* messages of a stream in flight */
#define GW_CHUNK_BYTES (256 * 1024)       /* default limit of one message */
#define GW_SEND_CHUNK_BYTES (1024 * 1024) /* the same for a large send to one rank */
#define GW_TEXT_BYTES 160

typedef struct gw_engine gw_engine;
typedef struct gw_team gw_team;
typedef struct gw_op gw_op;
struct gw_trace;
struct gw_shm_coll;
struct gw_op_brief;

/* The largest message of a collective, in elements of unit bytes. asked: bytes, 0: GW_CHUNK_BYTES. */
size_t gw_chunk_count(size_t asked, size_t unit);

/* The request of an operation. The caller owns the pointers and keeps them valid until the operation is done. */
typedef struct gw_op_spec {
    gw_collective collective;
    const gw_plan_builder *builder;
    const void *in;
    void *out;
    size_t count;
    const size_t *counts; /* as in gw_plan_request; copied */
    gw_dtype dtype;
    gw_redop redop;
    gw_scale scale;     /* of a reduction, if gw_scale_refuses allows it; not with merge */
    int root;           /* team rank; the peer for send and recv, which may be GW_ANY_SOURCE; -1: none */
    size_t chunk_bytes; /* 0: GW_CHUNK_BYTES */
    /* Opaque elements, for payloads of codecs: unit_bytes each (0: elements of dtype), combined by merge. */
    size_t unit_bytes;
    void (*merge)(void *ctx, void *into, const void *from, size_t bytes);
    void *merge_ctx;
    uint32_t label; /* name of the data in a recording, from gw_trace_name; 0: none */
    /* Parts whose length is known only at run time: all-to-all and all-gather of bytes, not in place; count is then the
     * capacity of a part. in_lengths: bytes for each destination (all-to-all). out_lengths: bytes received from each
     * source; the caller fills in its own entry for an all-gather. NULL: parts are full. size entries each, lent until
     * the operation is done. */
    const uint64_t *in_lengths;
    uint64_t *out_lengths;
    uint64_t allowed; /* receive: messages to accept until gw_op_allow raises it; 0: all */
    uint64_t number;  /* receive: from gw_team_reserve; 0: the next number of that peer */
    uint8_t urgency;  /* its messages may overtake less urgent ones to the same peer; below GW_URGENT_SIGNAL */
    bool eager;       /* messages of up to GW_EAGER_COLLECTIVE_BYTES need no grant; the same on all ranks */
    bool patient;     /* nothing waits for it yet: its deadline starts with gw_op_expect */
    gw_time deadline; /* longest time without progress, ns; 0: the engine's */
    /* Point to point: matched by tag (tag_matching.h), not by number. Sends and receives of users are tagged; those of
     * this library on teams of its own are not. */
    bool tagged;
    int tag;     /* at least 0 */
    int *source; /* tagged receive: written with the sender's team rank once it has succeeded; NULL: not wanted */
} gw_op_spec;

/* True if both give the same plan. Uneven requests never compare equal. */
static inline bool gw_op_same_kind(const gw_op_spec *a, const gw_op_spec *b) {
    return a->collective == b->collective && a->count == b->count && a->dtype == b->dtype && a->redop == b->redop &&
           a->root == b->root && !a->counts && !b->counts && gw_scale_same(&a->scale, &b->scale);
}

/* Callbacks to the driver, made from within the engine's functions. */
typedef struct gw_engine_events {
    void *ctx;
    /* A local error; the engine has halted. The driver informs the other ranks, then calls gw_engine_fail. */
    void (*failed)(void *ctx, const gw_error *error);
    /* An operation has made no progress for a third of its deadline and waits for these job ranks. Called again when it
     * continues, with no ranks and an empty `what`. what: a clause about the first rank. */
    void (*waiting)(void *ctx, const int *awaited, int count, const char *what, gw_time deadline);
    /* The deadline passed. The driver finds the culprit, informs the other ranks and calls gw_engine_fail. */
    void (*overdue)(void *ctx, const int *awaited, int count, const char *what, gw_time deadline);
    /* Whether heartbeats of this job rank arrive here. NULL: it is not known. */
    bool (*heard)(void *ctx, int rank);
} gw_engine_events;

typedef struct gw_engine_config {
    int rank, world;  /* in the job */
    gw_time deadline; /* longest time that an operation may make no progress, ns */
    gw_engine_events events;
    const char *(*host_name)(void *ctx, int rank); /* for messages; ctx is events.ctx */
} gw_engine_config;

gw_status gw_engine_open(gw_engine **engine, const gw_engine_config *config, gw_error *error);
void gw_engine_close(gw_engine *engine);
/* The sink (receiver's callbacks) to open a transport with. */
gw_sink gw_engine_sink(gw_engine *engine);
/* Use this transport for this peer. The engine does not own it. */
void gw_engine_route(gw_engine *engine, int peer, gw_transport *transport);

/* A team is the engine's view of a communicator: an ordered set of ranks. members (topology->world entries, job ranks)
 * and the topology's arrays are copied; host_of must not be NULL. coll: the shm collective of this host; NULL: none. */
gw_status gw_team_open(gw_team **team, gw_engine *engine, uint32_t id, int rank, const int *members,
                       const gw_topology *topology, struct gw_shm_coll *coll, gw_error *error);
/* Another team of the same ranks, for operations that are started in an order of their own: only collectives, without
 * shm collectives. */
gw_status gw_team_open_same(gw_team **team, const gw_team *like, uint32_t id, gw_error *error);
/* Lets this team run all-reduces in the library under this transport (gw_plan_transport_allreduce). Only for one team,
 * which must hold all ranks of the job in job order: the library matches calls by their order alone. */
void gw_team_native(gw_team *team, gw_transport *transport);
/* All its operations must have been released. */
void gw_team_close(gw_team *team);
uint32_t gw_team_id(const gw_team *team);
int gw_team_rank(const gw_team *team);
int gw_team_size(const gw_team *team);
int gw_team_member(const gw_team *team, int rank); /* job rank */
const gw_topology *gw_team_topology(const gw_team *team);

/* Reserves the number of the next receive from that team rank, to start it later (spec.number), or never. */
uint64_t gw_team_reserve(gw_team *team, int peer);

/* Starts an operation. The caller owns *op until gw_op_release. Fails without side effects if the builder refuses the
 * request or the engine has failed. */
gw_status gw_op_start(gw_op **op, gw_team *team, const gw_op_spec *spec, gw_time now, gw_error *error);
/* Fast path: tries a blocking call without an operation. False: not possible, and nothing has happened. If true, call
 * gw_fast_path_done a few times: true ends the call. Else pass the same spec to gw_op_start, which takes over the
 * running task and reports its errors. watch: poll the shm collective for half a microsecond each time; for ranks with
 * a core of their own. gw_fast_path_note describes the running call. */
bool gw_fast_path_start(gw_team *team, const gw_op_spec *spec);
void gw_fast_path_note(const gw_team *team, struct gw_op_brief *brief);
bool gw_fast_path_done(gw_team *team, bool watch);
/* The same for a rank that shares its core and has yielded since the start: if all other ranks of that core wait too,
 * it polls for a few microseconds. Another yield would only let each of them find the data still missing (eight ranks
 * on two cores: 4 KiB in 11 us instead of 17). Do not call it before the first yield: the rank that yields first is
 * also the first to run again. */
bool gw_fast_path_done_shared_core(gw_team *team);
/* Starts the operation's deadline, or suspends it. */
void gw_op_expect(gw_op *op, bool expected, gw_time now);
/* For a point-to-point receive with spec.allowed. allow: raises the limit. received: counts the messages received so
 * far. */
void gw_op_allow(gw_op *op, uint64_t messages);
uint64_t gw_op_received(const gw_op *op);
bool gw_op_done(const gw_op *op);
gw_status gw_op_status(const gw_op *op); /* once done */
void gw_op_release(gw_op *op);           /* done, or the engine has failed */

/* The arguments that all ranks of a call must agree on. */
typedef struct gw_signature {
    uint8_t collective, dtype, redop, builder; /* builder: gw_plan_id */
    int32_t root;
    uint64_t count;
    uint64_t scale; /* both factors, compared as f32: see signature.c; 0: none */
} gw_signature;

/* Enough to name an operation after it is over. */
typedef struct gw_op_brief {
    gw_signature signature;
    uint64_t number;
    int pair_peer; /* -1: a collective, or a receive from any rank that no send has matched */
    bool sends;
    int tag; /* -1: none */
} gw_op_brief;

void gw_op_note(const gw_op *op, gw_op_brief *brief);
/* "collective #12, allreduce of 1024 x f32, sum, by ring" */
const char *gw_op_brief_text(const gw_op_brief *brief, char text[GW_TEXT_BYTES]);

/* Advances all operations as far as possible. True if anything moved. */
bool gw_engine_poll(gw_engine *engine, gw_time now);
/* Operations not yet done. */
int gw_engine_pending(const gw_engine *engine);
/* Ends every operation with this error; new ones fail until gw_engine_renew. The driver resets the transports. */
void gw_engine_fail(gw_engine *engine, const gw_error *error);
const gw_error *gw_engine_error(const gw_engine *engine);
/* Sets *error to the reason why an operation ended with this status: the failure of its generation, even if the next
 * one has begun. An error already in *error stays; GW_OK changes nothing. */
void gw_engine_explain(const gw_engine *engine, gw_status status, gw_error *error);
/* A rank died, or left in order (gw_finalize). Messages it sent before are received first; operations that need more of
 * it fail. */
void gw_engine_peer_gone(gw_engine *engine, int rank, bool left, const char *detail);
/* A rank that was reported gone is a member of the generation that begins. */
void gw_engine_peer_returned(gw_engine *engine, int rank);
/* Clears the failure: a new generation of teams begins, over links that the driver reset at the failure. Messages that
 * arrived since then are kept. */
void gw_engine_renew(gw_engine *engine);

/* Records events from now on; NULL: stops. The driver owns the recording. */
void gw_engine_trace(gw_engine *engine, struct gw_trace *trace);
struct gw_trace *gw_engine_tracing(const gw_engine *engine);

/* This process was stopped for gap ns: excludes that time from all deadlines. */
void gw_engine_forgive(gw_engine *engine, gw_time gap);

typedef struct gw_engine_counters {
    uint64_t messages_sent, bytes_sent; /* DATA frames and their payload */
    uint64_t grants_sent, unexpected;   /* unexpected: messages that went through the unexpected queue */
} gw_engine_counters;

gw_engine_counters gw_engine_count(const gw_engine *engine);

#endif
