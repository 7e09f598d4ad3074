/* mail.c - see mail.h. Cost: two messages a letter with a payload, one without. */
#include "engine/mail.h"

#include <stdlib.h>

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
} ear;

struct gw_mail {
    gw_core *core;
    gw_team *team;
    gw_mail_events events;
    int size;
    ear *ears;             /* by team rank */
    envelope *moving, *spare;
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
    for (int r = 0; r < mail->size; r++) free_envelopes(mail->ears[r].open);
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

static gw_status start(gw_mail *mail, gw_op **op, gw_collective what, int peer, const void *in, void *out, size_t bytes,
                       bool patient, gw_time now, gw_error *error) {
    gw_op_spec spec = {.collective = what, .builder = &gw_plan_pair, .in = in, .out = out, .count = bytes,
                       .dtype = GW_U8, .root = peer, .patient = patient};
    return gw_core_start(mail->core, op, mail->team, &spec, now, error);
}

gw_status gw_mail_send(gw_mail *mail, int to, const gw_letter *letter, const void *data, gw_time now,
                       gw_error *error) {
    envelope *e = take_envelope(mail, to, error);
    if (!e) return GW_MEMORY;
    e->letter = *letter;
    e->next = mail->moving;
    mail->moving = e;
    gw_status status = start(mail, &e->head, GW_COLL_SEND, to, &e->letter, NULL, sizeof e->letter, false, now, error);
    if (!status && letter->bytes)
        status = start(mail, &e->body, GW_COLL_SEND, to, data, NULL, letter->bytes, false, now, error);
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

static void take_letter(gw_mail *mail, envelope *e, gw_time now, gw_error *error) {
    e->arrives = true;
    e->next = mail->moving;
    mail->moving = e;
    if (!e->letter.bytes) return;
    void *to = mail->events.landing(mail->events.ctx, e->peer, &e->letter, error);
    if (to) start(mail, &e->body, GW_COLL_RECV, e->peer, NULL, to, e->letter.bytes, false, now, error);
}

static bool hear(gw_mail *mail, int peer, gw_time now, gw_error *error) {
    ear *from = &mail->ears[peer];
    bool moved = false;
    while (!error->status && (from->listens || from->open)) {
        if (!from->open) {
            if (!(from->open = take_envelope(mail, peer, error))) break;
            start(mail, &from->open->head, GW_COLL_RECV, peer, NULL, &from->open->letter, sizeof(gw_letter),
                  !from->expected, now, error);
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
    if (moved && !error->status) settle(mail, now, error);
    return moved;
}

bool gw_mail_quiet(const gw_mail *mail) {
    for (int r = 0; r < mail->size; r++)
        if (mail->ears[r].listens || mail->ears[r].open) return false;
    return !mail->moving;
}
