/* mail.c - see mail.h. Cost: two messages a letter with a payload, one without. */
#include "engine/mail.h"

#include <stdlib.h>

/* Payloads from another host are let in by slices, so many at a time: as much as the queue before a link holds, and no
 * more. Where several send to one host at once nobody then meets a full queue, in which TCP would lose packets and with
 * them its pace; and slices are small, so that all who send have some of theirs under way. */
#define SLICE_BYTES ((size_t)96 << 10)
#define COMING_SLICES 7
#define GOING_BYTES ((size_t)2 << 20) /* of payloads of one kind to one peer that are announced at a time */

/* A letter on its way, and its payload. */
typedef struct envelope {
    struct envelope *next;
    gw_letter letter;
    int peer;
    bool arrives;       /* it is one that comes, and its letter has been read */
    gw_op *head, *body; /* NULL: over */
    const void *data;   /* of one that goes: its payload */
    /* Of one that comes. */
    uint64_t number;    /* of the operation that will bring its payload */
    uint64_t slices;    /* of its payload; 0: it is let in as a whole */
    uint64_t let, came; /* of these: let in, and arrived */
} envelope;

typedef struct queue {
    envelope *first, *last; /* NULL: empty */
} queue;

/* What is heard from one peer. */
typedef struct ear {
    bool listens, expected;
    envelope *open; /* waits for the next letter */
} ear;

/* Letters of one kind to and from one peer. */
typedef struct box {
    queue waits;   /* that are to go, and are not announced yet */
    size_t going;  /* bytes of payloads that have been announced and have not left yet */
    queue knocks;  /* that have been read and whose payloads are not let in yet */
    envelope *enters; /* one that moves, and is let in in part; NULL: none */
} box;

struct gw_mail {
    gw_core *core;
    gw_team *team;
    gw_mail_events events;
    int size;
    ear *ears;     /* by team rank */
    box *boxes;    /* by team rank and kind */
    envelope *moving, *spare;
    uint64_t coming; /* slices that have been let in and are not here yet */
    int knocking;  /* letters whose payloads are not let in yet, or in part */
    int turn;      /* the box of which a slice is let in next */
};

gw_status gw_mail_open(gw_mail **out, gw_core *core, gw_team *team, const gw_mail_events *events, gw_error *error) {
    gw_mail *mail = calloc(1, sizeof *mail);
    if (!mail) return gw_fail(error, GW_MEMORY, "out of memory for mail");
    *mail = (gw_mail){.core = core, .team = team, .events = *events, .size = gw_team_size(team)};
    mail->ears = calloc((size_t)mail->size, sizeof *mail->ears);
    mail->boxes = calloc((size_t)mail->size * GW_MAIL_KINDS, sizeof *mail->boxes);
    if (!mail->ears || !mail->boxes) {
        gw_mail_close(mail);
        return gw_fail(error, GW_MEMORY, "out of memory for mail between %d ranks", gw_team_size(team));
    }
    *out = mail;
    return GW_OK;
}

static void free_envelopes(envelope *e) {
    while (e) {
        envelope *next = e->next;
        if (e->head) gw_op_release(e->head); /* the engine has failed */
        if (e->body) gw_op_release(e->body);
        free(e);
        e = next;
    }
}

void gw_mail_close(gw_mail *mail) {
    if (!mail) return;
    for (int r = 0; mail->ears && r < mail->size; r++) free_envelopes(mail->ears[r].open);
    for (int b = 0; mail->boxes && b < mail->size * GW_MAIL_KINDS; b++) {
        free_envelopes(mail->boxes[b].waits.first);
        free_envelopes(mail->boxes[b].knocks.first);
    }
    free_envelopes(mail->moving);
    free_envelopes(mail->spare);
    free(mail->ears);
    free(mail->boxes);
    free(mail);
}

static box *box_of(gw_mail *mail, int peer, const gw_letter *letter) {
    return &mail->boxes[peer * GW_MAIL_KINDS + (int)(letter->kind % GW_MAIL_KINDS)];
}

static void put(queue *q, envelope *e) {
    e->next = NULL;
    if (q->last) q->last->next = e;
    else q->first = e;
    q->last = e;
}

static envelope *take(queue *q) {
    envelope *e = q->first;
    if (e) q->first = e->next;
    if (!q->first) q->last = NULL;
    return e;
}

/* What passes no link meets no queue. */
static bool passes_link(const gw_mail *mail, int peer) {
    const gw_topology *where = gw_team_topology(mail->team);
    return gw_topology_host(where, peer) != gw_topology_host(where, gw_team_rank(mail->team));
}

static size_t slice_bytes(const gw_mail *mail, int peer) { return passes_link(mail, peer) ? SLICE_BYTES : 0; }

static envelope *take_envelope(gw_mail *mail, int peer, gw_error *error) {
    envelope *e = mail->spare;
    if (e) mail->spare = e->next;
    else e = malloc(sizeof *e);
    if (e) *e = (envelope){.peer = peer};
    else gw_fail(error, GW_MEMORY, "out of memory for a letter");
    return e;
}

static gw_status start(gw_mail *mail, gw_op **op, gw_op_spec spec, gw_time now, gw_error *error) {
    spec.builder = &gw_plan_pair;
    spec.dtype = GW_U8;
    return gw_core_start(mail->core, op, mail->team, &spec, now, error);
}

static gw_status announce(gw_mail *mail, envelope *e, gw_time now, gw_error *error) {
    size_t bytes = e->letter.bytes;
    e->next = mail->moving;
    mail->moving = e;
    box_of(mail, e->peer, &e->letter)->going += bytes;
    gw_op_spec head = {.collective = GW_COLL_SEND, .root = e->peer, .in = &e->letter, .count = sizeof e->letter};
    gw_op_spec body = {.collective = GW_COLL_SEND, .root = e->peer, .in = e->data, .count = bytes,
                       .chunk_bytes = slice_bytes(mail, e->peer)};
    gw_status status = start(mail, &e->head, head, now, error);
    return status || !bytes ? status : start(mail, &e->body, body, now, error);
}

static gw_status announce_some(gw_mail *mail, box *to, gw_time now, gw_error *error) {
    gw_status status = GW_OK;
    while (to->waits.first && to->going < GOING_BYTES && !status)
        status = announce(mail, take(&to->waits), now, error);
    return status;
}

gw_status gw_mail_send(gw_mail *mail, int to, const gw_letter *letter, const void *data, gw_time now,
                       gw_error *error) {
    envelope *e = take_envelope(mail, to, error);
    if (!e) return GW_MEMORY;
    e->letter = *letter;
    e->data = data;
    put(&box_of(mail, to, letter)->waits, e);
    return announce_some(mail, box_of(mail, to, letter), now, error);
}

void gw_mail_listen(gw_mail *mail, int peer, bool listens) { mail->ears[peer].listens = listens; }

void gw_mail_expect(gw_mail *mail, int peer, bool expected, gw_time now) {
    ear *e = &mail->ears[peer];
    if (e->expected == expected) return;
    e->expected = expected;
    if (e->open && e->open->head) gw_op_expect(e->open->head, expected, now);
}

/* True when it is over; its status then stands in *status. */
static bool reap(gw_op **op, gw_status *status) {
    if (!*op) return true;
    if (!gw_op_done(*op)) return false;
    if (!*status) *status = gw_op_status(*op);
    gw_op_release(*op);
    *op = NULL;
    return true;
}

static void failed(gw_mail *mail, gw_status status, gw_error *error) {
    gw_engine_explain(gw_core_engine(mail->core), status, error);
}

/* The first slice of a payload, or all of it. */
static void open_door(gw_mail *mail, envelope *e, gw_time now, gw_error *error) {
    e->next = mail->moving;
    mail->moving = e;
    if (!e->letter.bytes) return;
    void *to = mail->events.landing(mail->events.ctx, e->peer, &e->letter, error);
    gw_op_spec body = {.collective = GW_COLL_RECV, .root = e->peer, .out = to, .count = e->letter.bytes,
                       .chunk_bytes = slice_bytes(mail, e->peer), .number = e->number, .allowed = e->slices ? 1 : 0};
    if (to) start(mail, &e->body, body, now, error);
}

/* Peers take turns, and so do kinds of one peer: what it pushes to a server here would otherwise wait for what its own
 * server answers, or the other way round, and all who push here wait for each other. */
static bool let_in_some(gw_mail *mail, gw_time now, gw_error *error) {
    bool moved = false;
    while (mail->knocking && mail->coming < COMING_SLICES && !error->status) {
        box *from = &mail->boxes[mail->turn];
        mail->turn = (mail->turn + 1) % (mail->size * GW_MAIL_KINDS);
        envelope *e = from->enters ? from->enters : take(&from->knocks);
        if (!e) continue;
        if (from->enters) gw_op_allow(e->body, e->let + 1);
        else open_door(mail, e, now, error);
        mail->coming++;
        from->enters = ++e->let < e->slices ? e : NULL;
        mail->knocking -= !from->enters;
        moved = true;
    }
    return moved;
}

static void take_letter(gw_mail *mail, envelope *e, gw_time now, gw_error *error) {
    uint64_t bytes = e->letter.bytes;
    e->arrives = true;
    if (bytes) e->number = gw_team_reserve(mail->team, e->peer);
    if (bytes <= GW_EAGER_BYTES || !passes_link(mail, e->peer)) {
        open_door(mail, e, now, error);
        return;
    }
    e->slices = (bytes + SLICE_BYTES - 1) / SLICE_BYTES;
    put(&box_of(mail, e->peer, &e->letter)->knocks, e);
    mail->knocking++;
}

static void count_slices(gw_mail *mail, envelope *e) {
    if (!e->slices || !e->body) return;
    uint64_t came = gw_op_came(e->body);
    mail->coming -= came - e->came;
    e->came = came;
}

static bool hear(gw_mail *mail, int peer, gw_time now, gw_error *error) {
    ear *from = &mail->ears[peer];
    bool moved = false;
    while (!error->status && (from->listens || from->open)) {
        if (!from->open) {
            if (!(from->open = take_envelope(mail, peer, error))) break;
            gw_op_spec head = {.collective = GW_COLL_RECV, .root = peer, .out = &from->open->letter,
                               .count = sizeof(gw_letter), .patient = !from->expected};
            start(mail, &from->open->head, head, now, error);
            if (error->status) break;
        }
        gw_status status = GW_OK;
        envelope *e = from->open;
        if (!reap(&e->head, &status)) break;
        failed(mail, status, error);
        moved = true;
        from->open = NULL;
        take_letter(mail, e, now, error);
        /* A letter without payload is the last of its kind as often as not: it is told before another is awaited. */
        if (!e->letter.bytes) break;
    }
    return moved;
}

/* What is over is taken out first, since what is told of it may send more. */
static bool settle(gw_mail *mail, gw_time now, gw_error *error) {
    bool moved = false;
    for (envelope **at = &mail->moving; *at && !error->status;) {
        envelope *e = *at;
        gw_status status = GW_OK;
        count_slices(mail, e);
        bool head_over = reap(&e->head, &status), over = reap(&e->body, &status) && head_over;
        failed(mail, status, error);
        if (!over || status) {
            at = &e->next;
            continue;
        }
        *at = e->next;
        gw_letter letter = e->letter;
        bool arrives = e->arrives;
        int peer = e->peer;
        box *of = box_of(mail, peer, &letter);
        if (!arrives) of->going -= letter.bytes;
        e->next = mail->spare;
        mail->spare = e;
        moved = true;
        if (!arrives) announce_some(mail, of, now, error);
        if (arrives) mail->events.arrived(mail->events.ctx, peer, &letter, now, error);
        else mail->events.sent(mail->events.ctx, peer, &letter);
        at = &mail->moving; /* the list may have changed */
    }
    return moved;
}

bool gw_mail_poll(gw_mail *mail, gw_time now, gw_error *error) {
    bool moved = settle(mail, now, error);
    for (int r = 0; r < mail->size && !error->status; r++) moved |= hear(mail, r, now, error);
    if (!error->status) moved |= let_in_some(mail, now, error);
    if (moved && !error->status) settle(mail, now, error);
    return moved;
}

bool gw_mail_quiet(const gw_mail *mail) {
    for (int r = 0; r < mail->size; r++)
        if (mail->ears[r].listens || mail->ears[r].open) return false;
    return !mail->moving && !mail->knocking; /* while any waits to go, others of its box are moving */
}
