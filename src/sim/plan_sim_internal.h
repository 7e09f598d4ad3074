/* plan_sim_internal.h - shared by plan_sim.c (operations), plan_sim_streams.c (steps) and plan_sim_wire.c (connections,
 * host-local collectives). */
#ifndef GW_SIM_PLAN_SIM_INTERNAL_H
#define GW_SIM_PLAN_SIM_INTERNAL_H

#include "engine/engine.h"
#include "sim/plan_sim.h"
#include "transport/transport.h"

typedef struct sim_stream sim_stream;
typedef struct part part;

/* `who` waits until the stream that holds this waiter has completed `steps` steps. */
typedef struct waiter {
    struct waiter *next;
    sim_stream *who;
    uint64_t steps;
    bool waits;
} waiter;

/* State of a stream of a part. */
struct sim_stream {
    part *of;
    sim_stream *queued_next;
    waiter *waiters;               /* streams that wait for this one */
    waiter wait[2];                /* of this stream: before it posts or sends, before it acts */
    sim_stream *other;             /* the matching stream of the peer */
    struct connection *connection; /* that carries a send stream's messages, or a receive stream's grants */
    uint64_t steps;
    uint64_t large_to; /* receive: the last large message, counted from 1; 0: none */
    uint64_t posted;   /* receive: posted receives; send: messages handed to the connection */
    uint64_t granted;  /* receive: large messages granted; send: grants that have arrived */
    bool granting;     /* a grant waits to be sent */
    bool announced;    /* receive: the header has arrived */
    uint64_t arrived;  /* receive: messages */
    uint64_t acted;    /* receive and local: steps begun */
    uint64_t done;     /* steps completed */
    uint32_t index;
    uint8_t flow;
    bool queued, on_coll;
};

/* A rank's part of an operation. */
struct part {
    gw_plan_sim_op *op;
    gw_plan plan;
    sim_stream *streams;
    int rank;           /* of the run */
    uint64_t left;      /* steps of all streams */
    uint64_t coll_left; /* host-local collectives not yet begun */
    bool started, has_coll;
    part *next; /* in the list of finished parts, or in the rank's queue of host-local collectives */
};

struct gw_plan_sim_op {
    gw_plan_sim_op *next, *previous;
    gw_plan_sim_spec spec;
    part *parts; /* of the simulated members */
    int members; /* simulated */
    sim_stream *streams;
    int unfinished; /* members that have not completed it, plus grants in flight */
};

typedef struct message {
    gw_event arrival; /* first member: a pointer to it is one to the message */
    struct message *next;
    sim_stream *from;  /* its send stream; NULL: not data of a collective */
    sim_stream *grant; /* the receive stream that grants; NULL: not a grant */
    uint64_t granted;  /* of a grant: the last message that it grants */
    uint8_t urgency;   /* as in gw_packet */
    sim_stream *head;  /* the receive stream of a header; NULL: not a header */
    int to, tag;       /* of a message outside any collective */
    double bytes, posted, began;
    double behind; /* seconds in queues of links */
    gw_time_breakdown path;
} message;

/* From one rank to another. */
typedef struct connection {
    gw_net_flow flow; /* first member: a pointer to it is one to the connection */
    int from, to;
    double latency;
    double arrived;        /* arrival time of the last message sent */
    message *first, *last; /* the first is being sent */
} connection;

/* A reduction or copy of a rank. */
typedef struct work {
    gw_event over; /* first */
    struct work *next;
    sim_stream *of;
    gw_time_breakdown path;
} work;

typedef struct rank_state {
    double busy_until;
    part *coll_first, *coll_last; /* parts with host-local collectives to begin, in start order */
    bool on_coll;                 /* the rank takes part in a host-local collective that has not ended */
} rank_state;

/* Host-local collectives of a host, one at a time. */
typedef struct coll {
    gw_net_flow flow;     /* first */
    sim_stream **streams; /* of the local ranks that have arrived */
    int arrived, locals;
    double bytes, began;
    gw_time_breakdown path;
} coll;

struct gw_plan_sim {
    gw_plan_sim_config config;
    gw_events events;
    gw_flow_net *net;
    gw_time_breakdown path; /* of the current event */
    int ranks, hosts;
    rank_state *rank;
    coll *colls;
    sim_stream **coll_streams;
    gw_plan_sim_op *ops;
    sim_stream *queue_first, *queue_last;
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

/* plan_sim.c */
void *gw_plan_sim_memory(gw_plan_sim *sim, size_t bytes); /* NULL: out of memory, the run fails */

/* plan_sim_streams.c */
void gw_plan_sim_queue(gw_plan_sim *sim, sim_stream *l);
void gw_plan_sim_drain(gw_plan_sim *sim);
void gw_plan_sim_arrived(gw_plan_sim *sim, sim_stream *l);
void gw_plan_sim_complete(gw_plan_sim *sim, sim_stream *l);     /* one step */
void gw_plan_sim_release(gw_plan_sim *sim, gw_plan_sim_op *op); /* decrements `unfinished`; frees it at 0 */

/* plan_sim_wire.c */
connection *gw_plan_sim_connect(gw_plan_sim *sim, int from, int to, gw_error *error);
void gw_plan_sim_send(gw_plan_sim *sim, sim_stream *l, double bytes);
void gw_plan_sim_grant(gw_plan_sim *sim, sim_stream *l); /* up to l->granted */
void gw_plan_sim_announce(gw_plan_sim *sim, sim_stream *l);
gw_status gw_plan_sim_open_colls(gw_plan_sim *sim, gw_error *error);
/* The stream's rank arrives at a host-local collective. */
void gw_plan_sim_coll(gw_plan_sim *sim, sim_stream *l, const gw_action *step);

#endif
