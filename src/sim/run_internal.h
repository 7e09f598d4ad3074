/* run_internal.h - what run.c (operations), run_lanes.c (steps) and run_wire.c (connections, boards) share. */
#ifndef GW_SIM_RUN_INTERNAL_H
#define GW_SIM_RUN_INTERNAL_H

#include "engine/engine.h"
#include "sim/run.h"
#include "transport/transport.h"

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
    struct connection *connection; /* sends: that they go over; receives: the way of grants */
    uint64_t steps;
    uint64_t large_to; /* receives: the last large message, counted from 1; 0: none */
    uint64_t posted;   /* receives with landing space; messages handed over */
    uint64_t granted;  /* receives: large messages may be sent up to here; sends: as it is known */
    bool granting;     /* a grant waits to leave */
    bool told;         /* receives: of what is announced, that it comes */
    uint64_t arrived; /* receives */
    uint64_t acted;   /* receives and local work begun */
    uint64_t done;
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
    int unfinished; /* ranks, and grants on their way */
};

typedef struct message {
    gw_event arrival; /* first, so that the event is the message */
    struct message *next;
    lane *from;       /* that sends it; NULL: it is none of a collective's */
    lane *grant;      /* receives that are granted; NULL: it is no grant */
    uint64_t granted; /* up to here */
    uint8_t urgency;  /* as in gw_packet */
    lane *head;       /* receives that are announced; NULL: it is no announcement */
    int to, tag;      /* of what is outside any collective */
    double bytes, posted, began;
    double behind; /* seconds, in queues */
    gw_path path;
} message;

/* From one rank to another. */
typedef struct connection {
    gw_net_flow flow; /* first, so that the flow is the connection */
    int from, to;
    double latency;
    double arrived;        /* when the last one does */
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
void gw_run_release(gw_run *run, gw_run_op *op); /* one of its unfinished is over */

/* run_wire.c */
connection *gw_run_connect(gw_run *run, int from, int to, gw_error *error);
void gw_run_send(gw_run *run, lane *l, double bytes);
void gw_run_grant(gw_run *run, lane *l); /* up to l->granted */
void gw_run_announce(gw_run *run, lane *l);
gw_status gw_run_open_boards(gw_run *run, gw_error *error);
/* The lane's rank has come to a board step. */
void gw_run_board(gw_run *run, lane *l, const gw_action *step);

#endif
