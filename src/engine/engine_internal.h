/* engine_internal.h - types and functions that the engine's files share. */
#ifndef GW_ENGINE_INTERNAL_H
#define GW_ENGINE_INTERNAL_H

#include "engine/engine.h"
#include "engine/tag_matching.h"
#include "shm/shm_coll.h"

#define GW_PAIR_OP (UINT64_C(1) << 63)   /* flag: a point-to-point operation, numbered per pair and direction */
#define GW_PAIR_DOWN (UINT64_C(1) << 62) /* flag beside it: from a higher rank to a lower one */
#define GW_TAGGED_OP (UINT64_C(1) << 61) /* flag beside GW_PAIR_OP: matched by tag, and numbered apart */
#define GW_OP_NUMBER(op) ((op) & (GW_TAGGED_OP - 1)) /* without flags */
#define GW_UNMATCHED_OP UINT64_MAX                   /* number of a tagged receive until a send matches it */
#define GW_HISTORY 64                                /* signatures of finished operations that a team remembers */

/* A slot of the unexpected queue: a message that came before its operation was started here. */
typedef struct gw_unexpected {
    bool used;
    bool complete;          /* the whole payload is here */
    gw_time begun, arrived; /* while recording: time of its first byte and of its last */
    gw_frame frame;
    uint8_t *bytes; /* `room` of them, allocated on first use */
    size_t room;
} gw_unexpected;

/* A grant for an operation that is not started here yet. */
typedef struct gw_early_grant {
    uint32_t comm, channel, tag;
    uint64_t op, granted;
    gw_signature signature;
} gw_early_grant;

typedef struct gw_peer {
    gw_transport *transport;
    bool lost;
    bool died; /* reported by the control plane */
    bool left; /* it called gw_finalize: messages that it sent before are still valid */
    gw_status lost_status;
    char why_lost[128]; /* the reason, as a clause */
    uint16_t credits;   /* messages that may be sent to it eagerly */
    uint16_t owed;      /* credits to return to it */
    int unexpected_used;
    gw_unexpected unexpected[GW_EAGER_SLOTS];
    gw_early_grant *early; /* grows to the number of the peer's pending operations */
    int early_count, early_capacity;
    gw_frame *requests; /* RTS frames of communicators that are not open here yet */
    int request_count, request_capacity;
    gw_packet credit_packet;
    bool credit_queued;
} gw_peer;

/* A posted receive: the buffer of one message. */
typedef struct gw_posted_recv {
    uint8_t *buffer;
    uint64_t bytes; /* exact length of the payload */
    bool taken;     /* a connection writes to it: no other may deliver this message */
    bool arrived;
    gw_time begun; /* while recording: time of the first byte; 0: not seen */
    bool acted;    /* reduced or copied from the transport's memory already, at least in part */
} gw_posted_recv;

/* Execution state of one stream of a plan. */
typedef struct gw_stream_state {
    gw_stream desc;
    int peer;          /* job rank, -1 for local streams */
    uint64_t posted;   /* receive: actions with a posted receive; send: messages handed to the transport */
    uint64_t done;     /* actions completed, in order */
    uint64_t granted;  /* messages granted: to the sender (receive), by the receiver (send) */
    uint64_t large_to; /* receive: one past the last posted action whose message is too large to be eager */
    gw_posted_recv recvs[GW_PIPELINE]; /* receive: by index modulo GW_PIPELINE */
    bool left[GW_PIPELINE];            /* send: the transport is done with the packet */
    bool signal_queued;                /* signal_packet is with the transport */
    bool coll_running;                 /* local: the shm collective runs action `done` */
    gw_native_task *native;            /* local: the library's task for action `done`; NULL: none */
    uint64_t coll_ticket;              /* local: its number among the team's shm tasks */
    gw_time coll_at;                   /* local, while recording: start of the shm task */
    gw_time refused_at;                /* send, while recording: since when the next message waits; 0: not waiting */
    uint8_t refusals;                  /* send, while recording: how often it was refused */
    /* The fields above are cleared when an operation starts; those below are set before each use. */
    gw_packet packet[GW_PIPELINE];    /* send: by index modulo GW_PIPELINE */
    gw_packet signal_packet;          /* receive: its grants; tagged send: its RTS */
    gw_time handed_at[GW_PIPELINE];   /* send, while recording: indexed as packet */
    uint32_t queued_for[GW_PIPELINE]; /* ns */
    uint8_t retries[GW_PIPELINE];
} gw_stream_state;

struct gw_op {
    gw_engine *engine;
    gw_team *team;
    gw_op *next; /* in the engine's list of active, or free, operations */
    uint64_t number;
    int pair_peer;        /* job rank of the peer; -1: a collective, or an unmatched receive from any rank */
    bool requested;       /* tagged send: announced by an RTS, so its first message waits for a grant */
    uint64_t offered;     /* unmatched receive: number of the send that may use its grant; GW_UNMATCHED_OP: none */
    gw_tag_recv tag_recv; /* of a tagged receive */
    gw_op_spec spec;
    size_t *counts; /* own copy, NULL: even */
    size_t counts_capacity;
    gw_signature signature;
    gw_reduction reduction;
    size_t raw, wide; /* bytes of an element */
    gw_plan plan;
    gw_stream_state *streams; /* plan.streams in use of stream_capacity */
    size_t stream_capacity;
    uint8_t *work;
    size_t work_capacity;                /* bytes */
    uint64_t coll_actions, coll_started; /* shm tasks of the plan on this rank; started so far */
    uint64_t coll_due;                   /* ticket of this operation's last shm task */
    uint64_t native_due;                 /* calls of the transport's library still to be made */
    bool dirty;                          /* something happened that may let an action run */
    bool active, done;
    gw_status status;
    gw_time progress_at; /* when an action last completed */
    gw_time started_at;  /* while recording; else 0 */
    bool warned;
};

/* A call that is tried without an operation (blocking_fast_path.c). */
typedef struct gw_fast_path {
    gw_op_spec of;  /* the last kind of call; its buffers are stale */
    bool made;      /* signature and task are for that kind */
    bool running;   /* the task runs, and no operation has taken it over */
    gw_error error; /* of the running task */
    gw_signature signature;
    gw_shm_coll_op task;
    size_t shift_in, shift_out; /* bytes; see gw_coll_shift */
    gw_native_task *native;     /* running task of the transport's library; NULL: none */
} gw_fast_path;

/* The ranks of a team; teams of the same ranks share it. */
typedef struct gw_team_table {
    int users;
    int numbers[]; /* members, then topology.host_of, order and rack_of: size entries each */
} gw_team_table;

struct gw_team {
    gw_engine *engine;
    gw_team *next;
    uint32_t id;
    int rank, size;
    gw_team_table *table;
    const int *members; /* team rank -> job rank; in the table */
    const int *host_of; /* topology.host_of */
    gw_topology topology;
    struct gw_shm_coll *coll; /* not owned */
    gw_transport *native;     /* its library may run this team's all-reduces; NULL: none */
    uint64_t coll_tickets;    /* shm tasks started so far */
    uint64_t coll_planned;    /* shm tasks of all operations started so far */
    uint64_t next_op;
    gw_fast_path fast;
    uint64_t *sent_to, *received_from; /* point-to-point operations without tag started so far, by team rank; NULL:
                                          it runs only collectives */
    gw_tag_matching *tags;             /* those with tags; NULL: none so far */
    gw_signature history[GW_HISTORY];  /* of finished collectives, by number modulo GW_HISTORY */
};

struct gw_engine {
    gw_engine_config config;
    gw_peer *peers;
    gw_transport *transports[4];
    int transport_count;
    gw_team *teams;
    gw_op *active, *spare;
    int pending;
    bool halted;    /* after an error nothing moves until the driver calls gw_engine_fail */
    gw_error error; /* OK: none yet */
    gw_time now;    /* time of the current poll or start */
    gw_engine_counters counters;
    bool coll_moved;                                   /* a shm collective made progress in this poll */
    int *awaited;                                      /* world entries, scratch of wait_diagnosis.c */
    const void **sources;                              /* world entries, scratch of fold actions */
    struct gw_trace *trace;                            /* where events are recorded; NULL: nowhere */
    uint32_t trace_names[GW_COLLECTIVES][GW_PLAN_IDS]; /* of kinds of operations; 0: not looked up yet */
};

/* flow_control.c */
gw_op *gw_engine_find(gw_engine *engine, int peer, const gw_frame *frame);
gw_team *gw_engine_team(gw_engine *engine, uint32_t id); /* NULL: not open here */
uint64_t gw_flow_eager_bytes(const gw_op *op, int peer); /* larger messages to this job rank need a grant */
void gw_flow_claim_early(gw_op *op);                     /* gives a started operation its early grants */
uint64_t gw_flow_unexpected(const gw_op *op, const gw_stream_state *stream); /* count of its unexpected messages */
bool gw_flow_take_unexpected(gw_op *op, gw_stream_state *stream,
                             uint64_t index);           /* copies an unexpected message into its receive buffer */
void gw_flow_grant(gw_op *op, gw_stream_state *stream); /* grants posted receives where the sender needs it */
void gw_flow_grant_all(gw_op *op, gw_stream_state *stream, uint64_t number); /* grants all posted receives to a send */
bool gw_flow_send(gw_op *op, gw_stream_state *stream, const void *data,
                  uint64_t bytes);       /* false: no grant and no credit yet */
void gw_flow_settle(gw_engine *engine);  /* at the end of a poll: returns credits that peers may need */
void gw_flow_discard(gw_engine *engine); /* after a failure: empties unexpected queues, resets credits */
void gw_signature_text(const gw_signature *signature, char text[GW_TEXT_BYTES]);
const char *gw_signature_message(const gw_signature *signature, char text[GW_TEXT_BYTES]);
uint64_t gw_signature_scale(const gw_scale *scale); /* of gw_signature */
void gw_signature_pack(const gw_signature *signature, uint64_t packed[GW_SHM_COLL_SIGNATURE]);
gw_signature gw_signature_unpack(const uint64_t packed[GW_SHM_COLL_SIGNATURE]);
gw_signature gw_signature_of_frame(const gw_frame *frame);
/* The signature that a frame of this peer must have for the operation. In an alltoallv each pair of ranks has a count
 * of its own, that of the stream; the operation's is 0. */
gw_signature gw_op_expects(gw_op *op, int peer, const gw_frame *frame);
bool gw_signature_equal(const gw_signature *a, const gw_signature *b);
/* Reports that this job rank made another call: names both calls. */
void gw_engine_mismatch(gw_engine *engine, int peer, uint32_t comm, uint64_t op, const gw_signature *theirs,
                        const gw_signature *mine);
void gw_engine_frame_mismatch(gw_engine *engine, int peer, const gw_frame *frame, const gw_signature *mine);
/* The sender of a message and this rank, which receives it, disagree about it. */
void gw_engine_tag_mismatch(const gw_op *op, const gw_signature *theirs);
void gw_flow_shm_mismatch(gw_op *op, int rank, const uint64_t packed[GW_SHM_COLL_SIGNATURE]);

/* early_grants.c */
void gw_early_grants_keep(gw_engine *engine, int from, const gw_frame *frame);
void gw_early_grants_claim(gw_op *op, int job_rank); /* gives a started operation the early grants of this peer */

/* executor.c */
/* A message for a posted action arrived. bytes: its length; shorter than the buffer only where parts vary. */
void gw_op_arrived(gw_op *op, gw_stream_state *stream, uint64_t index, const void *data, uint64_t bytes);
/* Reduces from a part of a message for a posted action. False: it is not that action's turn, or it needs the whole
 * message. */
bool gw_op_reduce_part(gw_op *op, gw_stream_state *stream, uint64_t index, uint64_t at, const void *data,
                       uint64_t bytes);
void gw_op_post_receives(gw_op *op, gw_stream_state *stream); /* without granting them */
bool gw_op_holds(const gw_op *op, const gw_waits waits[GW_ACTION_WAITS]);
const char *gw_op_text(const gw_op *op, char text[GW_TEXT_BYTES]);
bool gw_op_advance(gw_op *op); /* runs all actions that can run; true if any moved */
/* Something has arrived for it; or it never gets events, as in a shm collective or in the transport's library. */
bool gw_op_needs_poll(const gw_op *op);
void gw_op_mark(gw_op *op);
void gw_op_progress(gw_op *op); /* it has moved: its deadline starts again */
gw_stream_state *gw_op_stream(gw_op *op, gw_stream_kind kind, int peer, uint32_t channel);
void gw_op_sent(gw_op *op, gw_packet *packet);

/* A shm collective lays out both buffers like the whole that it cuts, but a plan has only this rank's part of one of
 * them. So the pointer to that one is moved back by these elements. */
typedef struct gw_coll_shift {
    size_t in, out;
} gw_coll_shift;
gw_coll_shift gw_op_coll_shift(const gw_team *team, const gw_action *action, const size_t *counts);
static inline void *gw_shifted(const void *buffer, size_t bytes) {
    return buffer ? (void *)((uintptr_t)buffer - bytes) : NULL;
}

void gw_op_coll_begun(gw_op *op, gw_stream_state *stream); /* the shm collective has started its task */
gw_shm_coll_op gw_op_coll_task(const gw_action *action, const gw_signature *signature, gw_reduction reduction);
void gw_op_report_coll(gw_op *op, const gw_error *error);

/* Messages that a receive stream accepts for now. */
static inline uint64_t gw_op_allowed(const gw_op *op, const gw_stream_state *stream) {
    uint64_t allowed = op->spec.allowed;
    return allowed && allowed < stream->desc.actions ? allowed : stream->desc.actions;
}

/* point_to_point.c */
gw_status gw_pair_number(gw_op *op, gw_error *error); /* gives a new send or receive its peer and number */
void gw_pair_match(gw_op *op);                        /* looks for the send of a new tagged receive */
void gw_pair_offer(gw_op *op);                        /* grants to the next send of its source, if that helps */
/* A frame that announces a tagged send has arrived, or its payload has begun to arrive: may match a receive. */
void gw_pair_announced(gw_engine *engine, int peer, const gw_frame *frame);
void gw_pair_claim_early(gw_team *team);  /* gives a new team the announcements that came before it was opened */
int gw_pair_lost_source(const gw_op *op); /* the lost job rank that an unmatched receive needs; -1: none */
void gw_pair_discard(gw_engine *engine);  /* after a failure: forgets all announcements and tagged receives */
/* Of a send that is not in progress: true if it is over, false if it is not started yet. */
bool gw_pair_over(const gw_team *team, int peer, uint64_t number);

static inline bool gw_op_unmatched(const gw_op *op) { return op->number == GW_UNMATCHED_OP; }

static inline bool gw_op_has_tag(const gw_op *op, uint32_t tag) {
    return !op->spec.tagged || (uint32_t)op->spec.tag == tag;
}

static inline bool gw_frame_is_tagged(const gw_frame *frame) {
    return (frame->op & (GW_PAIR_OP | GW_TAGGED_OP)) == (GW_PAIR_OP | GW_TAGGED_OP);
}

/* operation.c */
gw_signature gw_op_sign(const gw_team *team, const gw_op_spec *spec);
gw_reduction gw_op_reduction(const gw_team *team, const gw_op_spec *spec);
gw_plan_request gw_op_request(const gw_team *team, const gw_op_spec *spec, size_t wide); /* wide: accumulator bytes */

/* blocking_fast_path.c */
void gw_fast_path_hand_over(gw_op *op); /* the new operation takes over its team's running task */

/* wait_diagnosis.c */
void gw_op_check_deadlines(gw_engine *engine);

/* engine.c */
void gw_engine_report(gw_engine *engine, gw_status status, int rank, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
