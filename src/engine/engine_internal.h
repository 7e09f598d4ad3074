/* engine_internal.h - what flow.c (peers, grants, credits) and executor.c (operations) share. */
#ifndef GW_ENGINE_INTERNAL_H
#define GW_ENGINE_INTERNAL_H

#include "engine/engine.h"
#include "transport/board.h"

#define GW_PAIR_OP (UINT64_C(1) << 63) /* point-to-point operations are numbered apart, by pair and direction */
#define GW_TRACED_BUILDERS 32          /* plans there may be; checked when recording begins */
#define GW_HISTORY 64                  /* signatures of finished operations that a team remembers */

/* A message that came before its operation was started here. */
typedef struct gw_stashed {
    bool used;
    bool complete; /* the payload is here */
    gw_time begun, arrived; /* while recording: its first byte and its last */
    gw_frame frame;
    uint8_t *bytes; /* GW_AHEAD_BYTES, allocated when it is first needed */
} gw_stashed;

typedef struct gw_early_grant {
    uint32_t comm, channel;
    uint64_t op, granted;
    gw_signature signature;
} gw_early_grant;

typedef struct gw_peer {
    gw_transport *transport;
    bool lost;
    bool died; /* so says the control plane */
    bool left; /* by gw_finalize: what it sent before is still good */
    gw_status lost_status;
    char why_lost[96]; /* a clause */
    uint16_t credits; /* small messages that may be sent without a grant */
    uint16_t owed;    /* credits to give back */
    int stash_used;
    gw_stashed stash[GW_EAGER_SLOTS];
    gw_early_grant *early; /* grants for operations not yet started here; grows to the peer's pending operations */
    int early_count, early_room;
    gw_packet credit_packet;
    bool credit_queued;
} gw_peer;

typedef struct gw_landing {
    uint8_t *at;       /* where the payload is put */
    uint64_t bytes;    /* its exact length */
    bool taken;        /* promised to a connection: no other may bring this message */
    bool arrived;
    gw_time begun;     /* while recording: its first byte; 0: not seen */
    bool acted;        /* already reduced or copied, in part at least, straight from where it came */
} gw_landing;

/* Execution state of one stream of a plan. */
typedef struct gw_lane {
    gw_stream stream;
    int peer;         /* job rank, -1 for local streams */
    uint64_t posted;  /* receive: steps with landing space; send: handed to the transport */
    uint64_t done;    /* steps complete, in order */
    uint64_t granted; /* receive: told to the sender; send: told by the receiver */
    uint64_t large_to; /* receive: one past the last posted step that is too large to come without a grant */
    gw_landing land[GW_PIPELINE]; /* receive: by index modulo GW_PIPELINE */
    bool left[GW_PIPELINE];       /* send: the packet's data has left */
    bool grant_queued;            /* receive */
    bool board_running;           /* local: the board works on step `done` */
    gw_native_task *native;       /* local: what the library under the transport does for step `done`; NULL: nothing */
    uint64_t board_ticket;        /* local: its number among the team's board tasks */
    gw_time board_at;             /* local, while recording: when the board began with it */
    gw_time refused_at;           /* send, while recording: since when the next message waits; 0: it does not */
    uint8_t refusals;             /* send, while recording: how often it was refused */
    /* Filled when used; what stands above is cleared when an operation starts. */
    gw_packet packet[GW_PIPELINE]; /* send: by index modulo GW_PIPELINE */
    gw_packet grant_packet;        /* receive */
    gw_time handed_at[GW_PIPELINE];    /* send, while recording: by index modulo GW_PIPELINE, as the packets */
    uint32_t queued_for[GW_PIPELINE];  /* ns */
    uint8_t retries[GW_PIPELINE];
} gw_lane;

struct gw_op {
    gw_engine *engine;
    gw_team *team;
    gw_op *next;      /* in the engine's list of active, or free, operations */
    uint64_t number;
    int pair_peer;    /* job rank of the other side, -1 for collectives */
    gw_op_spec spec;
    size_t *counts;   /* own copy, NULL: even */
    size_t counts_room;
    gw_signature signature;
    gw_reduction reduction;
    size_t raw, wide; /* bytes of an element */
    gw_plan plan;
    gw_lane *lanes;   /* plan.streams in use of lane_room */
    size_t lane_room;
    uint8_t *work;
    size_t work_room; /* bytes */
    uint64_t board_steps, board_started; /* of the plan on this rank */
    uint64_t board_due; /* the team's board tasks up to the last one of this operation */
    uint64_t native_due; /* calls of the library under the transport that are still to be made */
    bool dirty;       /* something happened that may let a step go on */
    bool active, done;
    gw_status status;
    gw_time progress_at; /* when a step last completed */
    gw_time started_at;  /* while recording; else 0 */
    bool warned;
};

/* A call that is tried without an operation (quick.c). */
typedef struct gw_quick {
    gw_op_spec of;    /* the last kind of call; its buffers mean nothing */
    bool made;        /* signature and task are for that kind */
    bool running;     /* the board, or the library, has the task, and no operation has taken it over */
    gw_error error;   /* of the running one */
    gw_signature signature;
    gw_board_op task;
    gw_native_task *native; /* what the library under the transport does; NULL: nothing */
} gw_quick;

struct gw_team {
    gw_engine *engine;
    gw_team *next;
    uint32_t id;
    int rank, size;
    int *members;      /* team rank -> job rank */
    int *host_of;      /* and behind it the order: what topology points to */
    gw_topology topology;
    struct gw_board *board; /* not owned */
    gw_transport *native;   /* whose library may carry out this team's all-reduces; NULL: none */
    uint64_t board_tickets; /* board tasks started so far */
    uint64_t board_planned; /* those of all operations started so far */
    uint64_t next_op;
    gw_quick quick;
    const void **sources; /* size entries, scratch of fold steps */
    uint64_t *sent_to, *received_from; /* point-to-point operations started so far, by team rank */
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
    bool halted;         /* something went wrong: nothing moves until the driver has called gw_engine_fail */
    gw_error error;      /* OK: none yet */
    gw_time now;         /* of the poll or start under way */
    gw_engine_counters counters;
    bool board_moved;    /* a board did something in this poll */
    int *awaited;        /* world entries, scratch of waiting.c */
    struct gw_trace *trace; /* where events are recorded; NULL: nowhere */
    uint32_t trace_names[GW_COLLECTIVES][GW_TRACED_BUILDERS]; /* of kinds of operations; 0: not asked for yet */
};

/* flow.c */
gw_op *gw_engine_find(gw_engine *engine, int peer, const gw_frame *frame);
uint64_t gw_flow_eager_bytes(const gw_op *op, int peer); /* a larger message needs a grant of this job rank's */
void gw_flow_claim_early(gw_op *op);                   /* a started operation takes over early grants */
uint64_t gw_flow_stashed(const gw_op *op, const gw_lane *lane); /* early messages of a receiving lane */
bool gw_flow_unstash(gw_op *op, gw_lane *lane, uint64_t index); /* an early message, if there is one, lands */
void gw_flow_grant(gw_op *op, gw_lane *lane);          /* tells the sender what may come, where it needs to know */
void gw_flow_grant_all(gw_op *op, gw_lane *lane);      /* tells it in any case */
bool gw_flow_send(gw_op *op, gw_lane *lane, const void *data, uint64_t bytes); /* false: no grant and no credit yet */
void gw_flow_settle(gw_engine *engine);                /* at the end of a poll: credits that peers may need */
void gw_flow_discard(gw_engine *engine);               /* after a failure: empties stashes, credits anew */
void gw_signature_text(const gw_signature *signature, char text[GW_TEXT_BYTES]);
void gw_signature_pack(const gw_signature *signature, uint64_t packed[2]);
gw_signature gw_signature_unpack(const uint64_t packed[2]);
gw_signature gw_signature_of_frame(const gw_frame *frame);
bool gw_signature_equal(const gw_signature *a, const gw_signature *b);
/* That job rank called something else: reports both. */
void gw_engine_mismatch(gw_engine *engine, int peer, uint32_t comm, uint64_t op, const gw_signature *theirs,
                        const gw_signature *mine);
void gw_engine_frame_mismatch(gw_engine *engine, int peer, const gw_frame *frame, const gw_signature *mine);
void gw_flow_board_mismatch(gw_op *op, int rank, const uint64_t packed[2]);

/* executor.c */
/* A message for a posted step; bytes: what came, less than the landing has room for only where parts vary. */
void gw_op_arrived(gw_op *op, gw_lane *lane, uint64_t index, const void *data, uint64_t bytes);
/* Reduces from a part of a message for a posted step: false if the step's turn has not come, or needs all of it. */
bool gw_op_piece(gw_op *op, gw_lane *lane, uint64_t index, uint64_t at, const void *data, uint64_t bytes);
bool gw_team_pair_over(const gw_team *team, int peer, uint64_t number); /* a point-to-point send to job rank peer */
bool gw_op_holds(const gw_op *op, const gw_waits waits[GW_STEP_WAITS]);
const char *gw_op_text(const gw_op *op, char text[GW_TEXT_BYTES]);
bool gw_op_advance(gw_op *op); /* does all that can be done; true if anything was */
void gw_op_mark(gw_op *op);
gw_lane *gw_op_lane(gw_op *op, gw_flow flow, int peer, uint32_t channel);
void gw_op_sent(gw_op *op, gw_packet *packet);

void gw_op_board_begun(gw_op *op, gw_lane *lane); /* the board has this lane's task */
gw_board_op gw_op_board_task(const gw_action *step, const gw_signature *signature, gw_reduction reduction);
void gw_op_report_board(gw_op *op, const gw_error *error);

/* Messages of a receiving lane that may come for now. */
static inline uint64_t gw_op_allowed(const gw_op *op, const gw_lane *lane) {
    uint64_t allowed = op->spec.allowed;
    return allowed && allowed < lane->stream.steps ? allowed : lane->stream.steps;
}

/* operation.c */
gw_signature gw_op_sign(const gw_team *team, const gw_op_spec *spec);
gw_plan_request gw_op_request(const gw_team *team, const gw_op_spec *spec, size_t wide); /* wide: accumulator bytes */

/* quick.c */
void gw_quick_hand_over(gw_op *op); /* the operation, just started, takes over its team's running task */

/* waiting.c */
void gw_op_check_deadline(gw_op *oldest);

/* engine.c */
void gw_engine_report(gw_engine *engine, gw_status status, int rank, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
