/* engine.h - runs plans: one engine for each rank, one executor for every plan, over any transport.
 *
 * The engine is a polled state machine. It never blocks, sleeps or reads a clock; the driver (engine/node.c in
 * production, sim/world.c in the simulator) gives it the time and polls it. All functions are called by one thread at
 * a time.
 *
 * Flow control. A message larger than GW_EAGER_BYTES is sent only when its receiver has granted it: a grant says that
 * the receiving step's landing space is free. Smaller ones may go ahead of the grant, one credit each; a receiver has
 * GW_EAGER_SLOTS places for each peer to keep such a message until its operation is started. A collective
 * that its caller waits for may send chunks of up to GW_AHEAD_BYTES in that way; of a training step the receiver knows
 * better what it needs first, and of messages between two when there is room for them (mail.h). Credits come back with
 * the next frame. When all places of a peer are taken the receiver grants explicitly even small messages that it is
 * ready for, so operations started early can never block those that others wait for. */
#ifndef GW_ENGINE_H
#define GW_ENGINE_H

#include "base/clock.h"
#include "base/reduce.h"
#include "base/status.h"
#include "plan/plan.h"
#include "transport/transport.h"

#define GW_EAGER_BYTES (64 * 1024)
#define GW_AHEAD_BYTES (256 * 1024)
#define GW_EAGER_SLOTS 10 /* credits go back by fives: for a call of four chunks they go with the next one */
#define GW_PIPELINE 8           /* messages of a stream in flight */
#define GW_CHUNK_BYTES (256 * 1024) /* of a message at most, if nobody asks for another size */
#define GW_TEXT_BYTES 160

typedef struct gw_engine gw_engine;
typedef struct gw_team gw_team;
typedef struct gw_op gw_op;
struct gw_trace;
struct gw_board;
struct gw_op_brief;

/* The largest message of a collective, in elements of unit bytes. asked: bytes, 0: the engine's choice. */
size_t gw_chunk_count(size_t asked, size_t unit);

/* What is asked of a team. The pointers stay the caller's and must stay valid until the operation is done. */
typedef struct gw_op_spec {
    gw_collective collective;
    const gw_plan_builder *builder;
    const void *in;
    void *out;
    size_t count;
    const size_t *counts; /* uneven all-gather and reduce-scatter: copied */
    gw_dtype dtype;
    gw_redop redop;
    int root;             /* team rank; the peer for send and recv; -1: none */
    size_t chunk_bytes;   /* 0: GW_CHUNK_BYTES */
    /* Opaque elements, for payloads of codecs: unit_bytes each (0: elements of dtype), combined by merge. */
    size_t unit_bytes;
    void (*merge)(void *ctx, void *into, const void *from, size_t bytes);
    void *merge_ctx;
    uint32_t label;       /* what a recording calls the data: of gw_trace_name; 0: nothing */
    /* Parts whose length is known only at run time: all-to-all and all-gather of bytes, not in place, where count is
     * the room of a part. in_lengths: bytes for each destination (all-to-all); out_lengths: what came, by source; an
     * all-gather's own entry is given by the caller. NULL: parts are full. size entries, the caller's until done. */
    const uint64_t *in_lengths;
    uint64_t *out_lengths;
    uint64_t allowed; /* of a receive: how many of its messages may come until gw_op_allow says more; 0: all */
    uint64_t number; /* of a receive: what gw_team_reserve gave; 0: the next from that peer */
    uint8_t urgency; /* its messages may overtake those to the same peer that have less; under GW_URGENT_SIGNAL */
    bool ahead; /* its messages of up to GW_AHEAD_BYTES need no grant; alike on all ranks */
    bool patient; /* nobody waits for it: its deadline runs only after gw_op_expect */
} gw_op_spec;

/* They differ in nothing that a plan is made by. Uneven ones are never said to. */
static inline bool gw_op_same_kind(const gw_op_spec *a, const gw_op_spec *b) {
    return a->collective == b->collective && a->count == b->count && a->dtype == b->dtype && a->redop == b->redop &&
           a->root == b->root && !a->counts && !b->counts;
}

/* What the engine tells its driver, from within its functions. */
typedef struct gw_engine_events {
    void *ctx;
    /* Something went wrong here and nothing moves any more: the driver is to spread the news and then call
     * gw_engine_fail. */
    void (*failed)(void *ctx, const gw_error *error);
    /* An operation has made no progress for a third of the deadline, and awaits these job ranks (and again when it goes
     * on: none, ""). what is a clause about the first of them. */
    void (*waiting)(void *ctx, const int *awaited, int count, const char *what);
    /* The deadline passed. The driver decides whom to blame, spreads the news and calls gw_engine_fail. */
    void (*overdue)(void *ctx, const int *awaited, int count, const char *what);
} gw_engine_events;

typedef struct gw_engine_config {
    int rank, world;     /* in the job */
    gw_time deadline;    /* longest time without progress of an operation, ns */
    gw_engine_events events;
    const char *(*host_name)(void *ctx, int rank); /* for messages; ctx is events.ctx */
} gw_engine_config;

gw_status gw_engine_open(gw_engine **engine, const gw_engine_config *config, gw_error *error);
void gw_engine_close(gw_engine *engine);
/* The sink to open a transport with. */
gw_sink gw_engine_sink(gw_engine *engine);
/* Frames to and from this peer go by this transport (which the engine does not own). */
void gw_engine_route(gw_engine *engine, int peer, gw_transport *transport);

/* A team is a communicator as the engine knows it: some ranks in an order. members (topology->world entries, job ranks)
 * and the topology's arrays (host_of must be given) are copied. board may be NULL, and says whether there is one. */
gw_status gw_team_open(gw_team **team, gw_engine *engine, uint32_t id, int rank, const int *members,
                       const gw_topology *topology, struct gw_board *board, gw_error *error);
/* Its all-reduces may be handed to the library under this transport (gw_plan_native). Only for one team with all ranks
 * of the job in their order: such operations are matched by nothing else. */
void gw_team_native(gw_team *team, gw_transport *transport);
/* All its operations must have been released. */
void gw_team_close(gw_team *team);
uint32_t gw_team_id(const gw_team *team);
int gw_team_rank(const gw_team *team);
int gw_team_size(const gw_team *team);
int gw_team_member(const gw_team *team, int rank); /* job rank */
const gw_topology *gw_team_topology(const gw_team *team);

/* The number of the next receive from that team rank, which is then started later than others, or not at all. */
uint64_t gw_team_reserve(gw_team *team, int peer);

/* Starts an operation. *op is the caller's until gw_op_release. Fails without side effects on a request that the
 * builder refuses, or when the engine has failed. */
gw_status gw_op_start(gw_op **op, gw_team *team, const gw_op_spec *spec, gw_time now, gw_error *error);
/* A blocking call may first be tried without an operation: false if it cannot be, and nothing has happened. Once true,
 * gw_quick_done is asked a few times: true ends the call; after that much patience the same spec is given to
 * gw_op_start, which takes over what is under way (and tells what went wrong). watch: a board is looked at for half a
 * microsecond each time, for who has a core. gw_quick_note: what the call under way is. */
bool gw_quick_start(gw_team *team, const gw_op_spec *spec);
void gw_quick_note(const gw_team *team, struct gw_op_brief *brief);
bool gw_quick_done(gw_team *team, bool watch);
/* The same for who shares a core, and has given it away since it started: if all others of that core have come as well,
 * it stays for some microseconds. To give it away again would only let each of them see that something is missing
 * still (eight ranks on two cores: 4 KiB in 11 us instead of 17). But not at once: who goes first is back first. */
bool gw_quick_done_here(gw_team *team);
/* From now on its deadline runs, or rests. */
void gw_op_expect(gw_op *op, bool expected, gw_time now);
/* Of a point-to-point receive that was started with spec.allowed: now so many may come; and how many have. */
void gw_op_allow(gw_op *op, uint64_t messages);
uint64_t gw_op_came(const gw_op *op);
bool gw_op_done(const gw_op *op);
gw_status gw_op_status(const gw_op *op); /* once done */
void gw_op_release(gw_op *op);           /* done, or the engine has failed */

/* What ranks must agree on. */
typedef struct gw_signature {
    uint8_t collective, dtype, redop, builder;
    int32_t root;
    uint64_t count;
} gw_signature;

/* Enough to name an operation after it is over. */
typedef struct gw_op_brief {
    gw_signature signature;
    uint64_t number;
    int pair_peer; /* -1: a collective */
    bool sends;
} gw_op_brief;

void gw_op_note(const gw_op *op, gw_op_brief *brief);
/* "collective #12, allreduce of 1024 x f32, sum, by ring" */
const char *gw_op_brief_text(const gw_op_brief *brief, char text[GW_TEXT_BYTES]);

/* Moves everything that can move, of all operations. True if anything did. */
bool gw_engine_poll(gw_engine *engine, gw_time now);
/* Operations not yet done. */
int gw_engine_pending(const gw_engine *engine);
/* Ends every operation with this error and refuses later ones, until gw_engine_renew. The driver resets transports. */
void gw_engine_fail(gw_engine *engine, const gw_error *error);
const gw_error *gw_engine_error(const gw_engine *engine);
/* Why an operation ended with that status: the failure of its generation, even if the next has begun since. What
 * *error holds already is kept; GW_OK changes nothing. */
void gw_engine_explain(const gw_engine *engine, gw_status status, gw_error *error);
/* A rank is gone (or left in order): operations that still need something of it fail. What it sent before is taken
 * first. */
void gw_engine_gone(gw_engine *engine, int rank, bool left, const char *detail);
/* It was thought to be gone, and is in the generation that begins. */
void gw_engine_returned(gw_engine *engine, int rank);
/* Forgets the failure: a new generation of teams begins, with links that the driver has reset at the failure. What has
 * come by them since then is kept. */
void gw_engine_renew(gw_engine *engine);

/* Records what happens from now on; NULL: no longer. The recording is the driver's. */
void gw_engine_trace(gw_engine *engine, struct gw_trace *trace);
struct gw_trace *gw_engine_tracing(const gw_engine *engine);

/* The process did not run for a while: that time does not count against the deadlines of its peers. */
void gw_engine_forgive(gw_engine *engine, gw_time gap);

typedef struct gw_engine_counters {
    uint64_t messages_sent, bytes_sent; /* DATA frames and their payload */
    uint64_t grants_sent, stashed;      /* stashed: messages that came before their operation was started */
} gw_engine_counters;

gw_engine_counters gw_engine_count(const gw_engine *engine);

#endif
