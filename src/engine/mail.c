/* mail.c - see mail.h. Cost: two messages a letter with a payload, one without. */
#include "engine/mail.h"

#include <stdlib.h>

#define COMING_BYTES ((size_t)3 << 20) /* of payloads that are let in at a time */

/* A letter on its way, and its payload. */
typedef struct envelope {
    struct envelope *next;
    gw_letter letter;
    int peer;
    bool arrives;      /* it is one that comes, and its letter has been read */
    gw_op *head, *body; /* NULL: over */
} envelope;

/* What is heard from one peer. */
typedef struct ear {
    bool listens, expected;
    envelope *open; /* waits for the next letter */
    envelope *knocks; /* its letter has been read, its payload is not let in yet; NULL: none. The next letter waits */
} ear;

struct gw_mail {
    gw_core *core;
    gw_team *team;
    gw_mail_events events;
    int size;
    ear *ears;             /* by team rank */
    envelope *moving, *spare;
    size_t coming;         /* bytes of payloads that have been let in and are not here yet */
    int turn;              /* the peer whose payload is let in next */
};

gw_status gw_mail_open(gw_mail **out, gw_core *core, gw_team *team, const gw_mail_events *events, gw_error *error) {
    gw_mail *mail = calloc(1, sizeof *mail);
    if (!mail) return gw_fail(error, GW_MEMORY, "out of memory for mail");
    *mail = (gw_mail){.core = core, .team = team, .events = *events, .size = gw_team_size(team)};
    mail->ears = calloc((size_t)mail->size, sizeof *mail->ears);
    if (!mail->ears) {
        free(mail);
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
    for (int r = 0; r < mail->size; r++) {
        free_envelopes(mail->ears[r].open);
        free_envelopes(mail->ears[r].knocks);
    }
    free_envelopes(mail->moving);
    free_envelopes(mail->spare);
    free(mail->ears);
    free(mail);
}

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

gw_status gw_mail_send(gw_mail *mail, int to, const gw_letter *letter, const void *data, bool ahead, gw_time now,
                       gw_error *error) {
    envelope *e = take_envelope(mail, to, error);
    if (!e) return GW_MEMORY;
    e->letter = *letter;
    e->next = mail->moving;
    mail->moving = e;
    gw_op_spec head = {.collective = GW_COLL_SEND, .root = to, .in = &e->letter, .count = sizeof e->letter};
    gw_op_spec body = {.collective = GW_COLL_SEND, .root = to, .in = data, .count = letter->bytes, .urgency = ahead};
    gw_status status = start(mail, &e->head, head, now, error);
    if (!status && letter->bytes) status = start(mail, &e->body, body, now, error);
    return status;
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
    if (status && !error->status) *error = *gw_engine_error(gw_core_engine(mail->core));
}

static void let_in(gw_mail *mail, envelope *e, gw_time now, gw_error *error) {
    e->next = mail->moving;
    mail->moving = e;
    mail->coming += e->letter.bytes;
    if (!e->letter.bytes) return;
    void *to = mail->events.landing(mail->events.ctx, e->peer, &e->letter, error);
    gw_op_spec body = {.collective = GW_COLL_RECV, .root = e->peer, .out = to, .count = e->letter.bytes};
    if (to) start(mail, &e->body, body, now, error);
}

/* Peers take turns, so that nobody runs ahead of those he would have to wait for, and few send at once: many that send
 * to one at the same time overflow the queues before its link, and none of them gets its share. */
static bool let_in_some(gw_mail *mail, gw_time now, gw_error *error) {
    bool moved = false;
    for (int passed = 0; passed < mail->size && mail->coming < COMING_BYTES && !error->status; passed++) {
        ear *from = &mail->ears[mail->turn];
        mail->turn = (mail->turn + 1) % mail->size;
        envelope *e = from->knocks;
        if (!e) continue;
        from->knocks = NULL;
        let_in(mail, e, now, error);
        moved = true;
        passed = -1;
    }
    return moved;
}

static void take_letter(gw_mail *mail, envelope *e, gw_time now, gw_error *error) {
    e->arrives = true;
    e->next = NULL;
    if (e->letter.bytes <= GW_EAGER_BYTES) let_in(mail, e, now, error);
    else mail->ears[e->peer].knocks = e;
}

static bool hear(gw_mail *mail, int peer, gw_time now, gw_error *error) {
    ear *from = &mail->ears[peer];
    bool moved = false;
    while (!error->status && (from->listens || from->open) && !from->knocks) {
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
        bool head_over = reap(&e->head, &status), over = reap(&e->body, &status) && head_over;
        failed(mail, status, error);
        if (!over || status) {
            at = &e->next;
            continue;
        }
        *at = e->next;
        gw_letter letter = e->letter;
        bool arrives = e->arrives;
        if (arrives) mail->coming -= letter.bytes;
        int peer = e->peer;
        e->next = mail->spare;
        mail->spare = e;
        moved = true;
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
        if (mail->ears[r].listens || mail->ears[r].open || mail->ears[r].knocks) return false;
    return !mail->moving;
}
