/* active_message.c - see active_message.h. Cost: two engine messages for an active message with a payload, else one. */
#include "engine/active_message.h"

#include <stdlib.h>

/* Only as many bytes are admitted at a time as the queue of a link holds. Otherwise incast (several senders to one
 * host) overflows that queue, and TCP loses packets and slows down. */
#define SLICES_IN_FLIGHT 7
#define ANNOUNCED_BYTES ((size_t)2 << 20) /* limit of announced payloads of one kind to one peer */
#define INCOMING_MAX 65536                /* messages of one peer whose payload has not arrived */

/* A message in flight: its header (gw_am_message) and its payload, each moved by an operation. */
typedef struct transfer {
    struct transfer *next;
    gw_am_message message;
    int peer;
    bool incoming;                 /* this rank receives it, and its header has arrived */
    gw_op *header_op, *payload_op; /* NULL: not started, or over */
    const void *data;              /* outgoing: the payload */
    /* Incoming. */
    uint64_t number;             /* of the operation that receives the payload */
    uint64_t slices;             /* of the payload; 0: it is admitted as a whole */
    uint64_t admitted, received; /* slices so far */
} transfer;

typedef struct queue {
    transfer *first, *last; /* NULL: empty */
} queue;

/* Receives the headers of one peer. */
typedef struct listener {
    bool listens, expected;
    transfer *open; /* waits for the next header; NULL: none */
    int incoming;   /* messages whose header has arrived, and whose payload has not */
} listener;

/* Messages of one kind to and from one peer. */
typedef struct kind_queues {
    queue unsent;           /* outgoing, not announced yet */
    size_t announced;       /* outgoing: bytes of payloads announced and not sent yet */
    queue pending_requests; /* incoming, payload not admitted yet */
    transfer *admitting;    /* incoming, payload admitted in part; NULL: none */
} kind_queues;

struct gw_am {
    gw_core *core;
    gw_team *team;
    gw_am_events events;
    int size;
    listener *listeners; /* by team rank */
    kind_queues *kinds;  /* by team rank and kind */
    transfer *moving, *spare;
    uint64_t slices_in_flight; /* admitted and not received yet */
    int pending;               /* incoming messages whose payload is not admitted, or only in part */
    int turn;                  /* index into kinds: the queues that admit the next slice */
};

gw_status gw_am_open(gw_am **out, gw_core *core, gw_team *team, const gw_am_events *events, gw_error *error) {
    gw_am *am = calloc(1, sizeof *am);
    if (!am) return gw_fail(error, GW_MEMORY, "out of memory for active messages");
    *am = (gw_am){.core = core, .team = team, .events = *events, .size = gw_team_size(team)};
    am->listeners = calloc((size_t)am->size, sizeof *am->listeners);
    am->kinds = calloc((size_t)am->size * GW_AM_KINDS, sizeof *am->kinds);
    if (!am->listeners || !am->kinds) {
        gw_am_close(am);
        return gw_fail(error, GW_MEMORY, "out of memory for active messages between %d ranks", gw_team_size(team));
    }
    *out = am;
    return GW_OK;
}

static void free_transfers(transfer *t) {
    while (t) {
        transfer *next = t->next;
        if (t->header_op) gw_op_release(t->header_op); /* the engine has failed */
        if (t->payload_op) gw_op_release(t->payload_op);
        free(t);
        t = next;
    }
}

void gw_am_close(gw_am *am) {
    if (!am) return;
    for (int r = 0; am->listeners && r < am->size; r++) free_transfers(am->listeners[r].open);
    for (int b = 0; am->kinds && b < am->size * GW_AM_KINDS; b++) {
        free_transfers(am->kinds[b].unsent.first);
        free_transfers(am->kinds[b].pending_requests.first);
    }
    free_transfers(am->moving);
    free_transfers(am->spare);
    free(am->listeners);
    free(am->kinds);
    free(am);
}

static kind_queues *queues_of(gw_am *am, int peer, const gw_am_message *message) {
    return &am->kinds[peer * GW_AM_KINDS + (int)(message->kind % GW_AM_KINDS)];
}

static void put(queue *q, transfer *t) {
    t->next = NULL;
    if (q->last) q->last->next = t;
    else q->first = t;
    q->last = t;
}

static transfer *take(queue *q) {
    transfer *t = q->first;
    if (t) q->first = t->next;
    if (!q->first) q->last = NULL;
    return t;
}

/* Only messages to other hosts pass a link, and its queue. */
static bool passes_link(const gw_am *am, int peer) {
    const gw_topology *where = gw_team_topology(am->team);
    return gw_topology_host(where, peer) != gw_topology_host(where, gw_team_rank(am->team));
}

static size_t slice_bytes(const gw_am *am, int peer) { return passes_link(am, peer) ? GW_AM_SLICE_BYTES : 0; }

static transfer *new_transfer(gw_am *am, int peer, gw_error *error) {
    transfer *t = am->spare;
    if (t) am->spare = t->next;
    else t = malloc(sizeof *t);
    if (t) *t = (transfer){.peer = peer};
    else gw_fail(error, GW_MEMORY, "out of memory for an active message");
    return t;
}

static gw_status start(gw_am *am, gw_op **op, gw_op_spec spec, gw_time now, gw_error *error) {
    spec.builder = &gw_plan_send_recv;
    spec.dtype = GW_U8;
    return gw_core_start(am->core, op, am->team, &spec, now, error);
}

static gw_status announce(gw_am *am, transfer *t, gw_time now, gw_error *error) {
    size_t bytes = t->message.bytes;
    t->next = am->moving;
    am->moving = t;
    queues_of(am, t->peer, &t->message)->announced += bytes;
    gw_op_spec header = {.collective = GW_COLL_SEND, .root = t->peer, .in = &t->message, .count = sizeof t->message};
    gw_op_spec payload = {.collective = GW_COLL_SEND, .root = t->peer, .in = t->data, .count = bytes,
                          .chunk_bytes = slice_bytes(am, t->peer)};
    gw_status status = start(am, &t->header_op, header, now, error);
    return status || !bytes ? status : start(am, &t->payload_op, payload, now, error);
}

static gw_status announce_unsent(gw_am *am, kind_queues *to, gw_time now, gw_error *error) {
    gw_status status = GW_OK;
    while (to->unsent.first && to->announced < ANNOUNCED_BYTES && !status)
        status = announce(am, take(&to->unsent), now, error);
    return status;
}

gw_status gw_am_send(gw_am *am, int to, const gw_am_message *message, const void *data, gw_time now, gw_error *error) {
    transfer *t = new_transfer(am, to, error);
    if (!t) return GW_MEMORY;
    t->message = *message;
    t->data = data;
    put(&queues_of(am, to, message)->unsent, t);
    return announce_unsent(am, queues_of(am, to, message), now, error);
}

void gw_am_listen(gw_am *am, int peer, bool listens) { am->listeners[peer].listens = listens; }

void gw_am_expect(gw_am *am, int peer, bool expected, gw_time now) {
    listener *from = &am->listeners[peer];
    if (from->expected == expected) return;
    from->expected = expected;
    if (from->open && from->open->header_op) gw_op_expect(from->open->header_op, expected, now);
}

/* True when the operation is over; *status then has its error, if any. */
static bool reap(gw_op **op, gw_status *status) {
    if (!*op) return true;
    if (!gw_op_done(*op)) return false;
    if (!*status) *status = gw_op_status(*op);
    gw_op_release(*op);
    *op = NULL;
    return true;
}

static void explain(gw_am *am, gw_status status, gw_error *error) {
    gw_engine_explain(gw_core_engine(am->core), status, error);
}

/* Starts the receive of a payload: admits its first slice, or all of it. */
static void receive_payload(gw_am *am, transfer *t, gw_time now, gw_error *error) {
    t->next = am->moving;
    am->moving = t;
    if (!t->message.bytes) return;
    void *to = am->events.recv_buffer(am->events.ctx, t->peer, &t->message, error);
    gw_op_spec payload = {.collective = GW_COLL_RECV, .root = t->peer, .out = to, .count = t->message.bytes,
                          .chunk_bytes = slice_bytes(am, t->peer), .number = t->number, .allowed = t->slices ? 1 : 0};
    if (to) start(am, &t->payload_op, payload, now, error);
}

/* Peers take turns, and so do the kinds of one peer. Otherwise ranks could deadlock: a peer's push to the server on
 * this rank waits for the reply of that peer's own server, or the reverse, and all ranks that push here wait for each
 * other. */
static bool admit_slices(gw_am *am, gw_time now, gw_error *error) {
    bool moved = false;
    while (am->pending && am->slices_in_flight < SLICES_IN_FLIGHT && !error->status) {
        kind_queues *from = &am->kinds[am->turn];
        am->turn = (am->turn + 1) % (am->size * GW_AM_KINDS);
        transfer *t = from->admitting ? from->admitting : take(&from->pending_requests);
        if (!t) continue;
        if (from->admitting) gw_op_allow(t->payload_op, t->admitted + 1);
        else receive_payload(am, t, now, error);
        am->slices_in_flight++;
        from->admitting = ++t->admitted < t->slices ? t : NULL;
        am->pending -= !from->admitting;
        moved = true;
    }
    return moved;
}

static void refuse(gw_am *am, transfer *t, gw_error *error) {
    int rank = gw_team_member(am->team, t->peer);
    t->next = am->spare;
    am->spare = t;
    gw_fail_rank(error, GW_PROTOCOL, rank, "rank %d announced %d messages whose payloads have not come", rank,
                 INCOMING_MAX);
}

static void header_arrived(gw_am *am, transfer *t, gw_time now, gw_error *error) {
    uint64_t bytes = t->message.bytes;
    t->incoming = true;
    if (++am->listeners[t->peer].incoming > INCOMING_MAX) {
        refuse(am, t, error);
        return;
    }
    if (bytes) t->number = gw_team_reserve(am->team, t->peer);
    if (bytes <= GW_EAGER_BYTES || !passes_link(am, t->peer)) {
        receive_payload(am, t, now, error);
        return;
    }
    t->slices = (bytes + GW_AM_SLICE_BYTES - 1) / GW_AM_SLICE_BYTES;
    put(&queues_of(am, t->peer, &t->message)->pending_requests, t);
    am->pending++;
}

static void count_slices(gw_am *am, transfer *t) {
    if (!t->slices || !t->payload_op) return;
    uint64_t received = gw_op_received(t->payload_op);
    am->slices_in_flight -= received - t->received;
    t->received = received;
}

static bool receive_headers(gw_am *am, int peer, gw_time now, gw_error *error) {
    listener *from = &am->listeners[peer];
    bool moved = false;
    while (!error->status && (from->listens || from->open)) {
        if (!from->open) {
            if (!(from->open = new_transfer(am, peer, error))) break;
            gw_op_spec header = {.collective = GW_COLL_RECV, .root = peer, .out = &from->open->message,
                                 .count = sizeof(gw_am_message), .patient = !from->expected};
            start(am, &from->open->header_op, header, now, error);
            if (error->status) break;
        }
        gw_status status = GW_OK;
        transfer *t = from->open;
        if (!reap(&t->header_op, &status)) break;
        explain(am, status, error);
        moved = true;
        from->open = NULL;
        header_arrived(am, t, now, error);
        /* A message without payload is often the last one: deliver it before posting the next receive. */
        if (!t->message.bytes) break;
    }
    return moved;
}

/* Takes a finished transfer out of the list before its callback, which may send more. */
static bool settle(gw_am *am, gw_time now, gw_error *error) {
    bool moved = false;
    for (transfer **at = &am->moving; *at && !error->status;) {
        transfer *t = *at;
        gw_status status = GW_OK;
        count_slices(am, t);
        bool header_over = reap(&t->header_op, &status), over = reap(&t->payload_op, &status) && header_over;
        explain(am, status, error);
        if (!over || status) {
            at = &t->next;
            continue;
        }
        *at = t->next;
        gw_am_message message = t->message;
        bool incoming = t->incoming;
        int peer = t->peer;
        kind_queues *of = queues_of(am, peer, &message);
        if (incoming) am->listeners[peer].incoming--;
        else of->announced -= message.bytes;
        t->next = am->spare;
        am->spare = t;
        moved = true;
        if (!incoming) announce_unsent(am, of, now, error);
        if (incoming) am->events.arrived(am->events.ctx, peer, &message, now, error);
        else am->events.sent(am->events.ctx, peer, &message);
        at = &am->moving; /* the list may have changed */
    }
    return moved;
}

bool gw_am_poll(gw_am *am, gw_time now, gw_error *error) {
    bool moved = settle(am, now, error);
    for (int r = 0; r < am->size && !error->status; r++) moved |= receive_headers(am, r, now, error);
    if (!error->status) moved |= admit_slices(am, now, error);
    if (moved && !error->status) settle(am, now, error);
    return moved;
}

bool gw_am_idle(const gw_am *am) {
    for (int r = 0; r < am->size; r++)
        if (am->listeners[r].listens || am->listeners[r].open) return false;
    return !am->moving && !am->pending; /* an unsent message waits only for a moving one of its kind */
}
