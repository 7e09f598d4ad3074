/* run_internal.h - what run.c (operations), run_lanes.c (steps) and run_wire.c (connections, boards) share. */
#ifndef GW_SIM_RUN_INTERNAL_H
#define GW_SIM_RUN_INTERNAL_H

#include "engine/engine.h"
#include "sim/run.h"

typedef struct lane lane;
typedef struct part part;

/* A lane that waits for `stream` to complete `steps` steps. */
typedef struct waiter {
    struct waiter *next;
    lane *who;
    uint64_t steps;
    bool waits;
} waiter;

/* A stream of a part as it is run. */
struct lane {
    part *of;
    lane *queued_next;
    waiter *waiters;  /* on this lane */
    waiter wait[2];   /* of this lane: before it posts or sends, before it acts */
    lane *other;      /* the other end */
    struct connection *connection; /* sends */
    uint64_t steps;
    uint64_t posted;  /* receives granted; messages handed over */
    uint64_t arrived; /* receives */
    uint64_t acted;   /* receives and local work begun */
    uint64_t done;
    double granted[GW_PIPELINE]; /* receives: when, by index modulo GW_PIPELINE */
    gw_event wake;               /* sends: a grant arrives */
    gw_path wake_path;
    uint32_t index;
    uint8_t flow;
    bool queued, on_board;
};

/* A rank's part of an operation. */
struct part {
    gw_run_op *op;
    gw_plan plan;
    lane *lanes;
    int rank;
    uint64_t left;       /* steps of all streams */
    uint64_t board_left; /* board steps not yet begun */
    bool started, has_board;
    part *next;          /* finished, or behind this one at the board */
};

struct gw_run_op {
    gw_run_op *next, *previous;
    gw_run_spec spec;
    part *parts;
    lane *lanes;
    int unfinished; /* ranks */
};

typedef struct message {
    gw_event arrival; /* first, so that the event is the message */
    struct message *next;
    lane *from;  /* NULL: outside any collective */
    int to, tag; /* of such a one */
    double bytes, posted, began;
    gw_path path;
} message;

/* From one rank to another. */
typedef struct connection {
    gw_net_flow flow; /* first, so that the flow is the connection */
    int from, to;
    double latency;
    message *first, *last; /* the first is on the wire */
} connection;

/* Sums and copies of a rank. */
typedef struct work {
    gw_event over; /* first */
    struct work *next;
    lane *of;
    gw_path path;
} work;

typedef struct rank_state {
    double busy_until;
    part *board_first, *board_last; /* parts that still have to begin board steps, in the order of starting */
    bool on_board;                  /* it has come to a task that is not over */
} rank_state;

typedef struct board {
    gw_net_flow flow; /* first */
    lane **lanes;     /* of the local ranks that have arrived */
    int arrived, locals;
    double bytes, began;
    gw_path path;
} board;

struct gw_run {
    gw_run_config config;
    gw_events events;
    gw_flow_net *net;
    gw_path path; /* of what happens now */
    int ranks, hosts;
    rank_state *rank;
    board *boards;
    lane **board_lanes;
    gw_run_op *ops;
    lane *queue_first, *queue_last;
    part *finished;
    message *spare_messages;
    work *spare_works;
    connection **connections; /* by (from, to): open addressing, size a power of two */
    size_t connection_room, connection_count;
    struct slab *slabs; /* memory of messages, works and connections */
    size_t slab_left;
    uint64_t messages;
    double bytes;
};

/* run.c */
void *gw_run_memory(gw_run *run, size_t bytes); /* NULL: none, and the run has failed */

/* run_lanes.c */
void gw_run_queue(gw_run *run, lane *l);
void gw_run_drain(gw_run *run);
void gw_run_arrived(gw_run *run, lane *l);
void gw_run_complete(gw_run *run, lane *l); /* one step */

/* run_wire.c */
connection *gw_run_connect(gw_run *run, int from, int to, gw_error *error);
void gw_run_send(gw_run *run, lane *l, double bytes);
gw_status gw_run_open_boards(gw_run *run, gw_error *error);
/* The lane's rank has come to a board step. */
void gw_run_board(gw_run *run, lane *l, const gw_action *step);

#endif
