/* stepper_ps.c - the worker's side of parameter servers, and the letters of both. See stepper_ps.h. */
#include "engine/stepper_ps.h"

#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "engine/stepper_ps_internal.h"

int gw_ps_server_rank(const gw_ps *ps, int server) { return ps->placement.rank_of[server]; }

/* What came. */

static gw_parcel *parcel_of(gw_ps *ps, int from, const gw_letter *letter, gw_error *error) {
    gw_ps_letter kind = gw_letter_kind(letter);
    bool push = kind == GW_PS_PUSH, coded_answer = kind == GW_PS_CODED_ANSWER, copy = kind == GW_PS_COPY;
    bool answer = kind == GW_PS_ANSWER || coded_answer;
    gw_parcel *p = letter->parcel < (uint32_t)ps->parcel_count ? &ps->parcels[letter->parcel] : NULL;
    bool coded = p && p->coded && (push || coded_answer);
    if (p && (coded ? letter->bytes <= p->slot_bytes : letter->bytes == p->bytes && !coded_answer) &&
        ((push && p->server == ps->own) || (copy && p->server == ps->copy.server) ||
         (answer && gw_ps_server_rank(ps, p->server) == from && p->left > 0)))
        return p;
    int rank = gw_team_member(ps->stepper->config.team, from);
    gw_fail_rank(error, GW_PROTOCOL, rank,
                 "rank %d sent parcel %u of %llu bytes, which nobody expects: do all ranks commit the same tensors?",
                 rank, letter->parcel, (unsigned long long)letter->bytes);
    return NULL;
}

static void *landing(void *ctx, int from, const gw_letter *letter, gw_error *error) {
    gw_ps *ps = ctx;
    const gw_parcel *p = parcel_of(ps, from, letter, error);
    if (!p) return NULL;
    if (gw_letter_kind(letter) == GW_PS_COPY) return ps->copy_landing + p->at;
    if (letter->kind == GW_PS_PUSH) return ps->landing[from] + p->slot_at;
    return letter->kind == GW_PS_ANSWER ? p->to : gw_ps_codec_slot(p);
}

static void peer_ended(gw_ps *ps, int from) {
    if (--ps->ends_due[from] == 0) gw_mail_listen(ps->mail, from, false);
}

static void arrived(void *ctx, int from, const gw_letter *letter, gw_time now, gw_error *error) {
    gw_ps *ps = ctx;
    gw_letter over = {.kind = GW_PS_OVER}, closed = {.kind = GW_PS_CLOSED};
    switch (gw_letter_kind(letter)) {
    case GW_PS_PUSH:
        if (letter->bytes == 0) break;
        gw_ps_codec_note(ps, from, letter);
        gw_ps_pushed(ps, (int)letter->parcel, from, letter->round, letter->step, now, error);
        return;
    case GW_PS_ANSWER:
    case GW_PS_CODED_ANSWER:
        if (letter->bytes == 0) break;
        ps->answers_due[from]--;
        gw_ps_answered(ps, from, letter, now, error);
        return;
    case GW_PS_LEAVE:
        if (ps->own < 0 || ps->ends_due[from] == 0) break;
        gw_ps_left(ps, from, now, error);
        if (!error->status) gw_mail_send(ps->mail, from, &over, NULL, now, error);
        peer_ended(ps, from);
        return;
    case GW_PS_OVER:
        if (!ps->said_leave || ps->ends_due[from] == 0) break;
        peer_ended(ps, from);
        return;
    case GW_PS_COPY:
        if (letter->bytes == 0) break;
        gw_ps_copy_came(ps, from, letter, now, error);
        return;
    case GW_PS_COPIED:
        if (!gw_ps_copies(ps)) break;
        gw_ps_copied(ps, letter, now, error);
        return;
    case GW_PS_CLOSE:
        if (ps->copy.server < 0 || ps->ends_due[from] == 0) break;
        gw_mail_send(ps->mail, from, &closed, NULL, now, error);
        peer_ended(ps, from);
        return;
    case GW_PS_CLOSED:
        if (!ps->said_close || ps->ends_due[from] == 0) break;
        peer_ended(ps, from);
        return;
    case GW_PS_MADE:
        if (letter->parcel >= (uint32_t)ps->parcel_count || ps->parcels[letter->parcel].server != ps->own) break;
        gw_ps_made(ps, (int)letter->parcel, from, letter->step, now, error);
        return;
    }
    gw_fail_rank(error, GW_PROTOCOL, gw_team_member(ps->stepper->config.team, from),
                 "rank %d sent a letter of kind %u, which nobody expects",
                 gw_team_member(ps->stepper->config.team, from), letter->kind);
}

void gw_ps_parcel_gone(gw_ps *ps, int parcel) {
    int piece = ps->parcels[parcel].piece;
    if (ps->parcels[parcel].gone) return;
    ps->parcels[parcel].gone = true;
    if (--ps->piece_here[piece] == 0) gw_schedule_left(ps->stepper->schedule, piece);
}

static void sent(void *ctx, int to, const gw_letter *letter) {
    (void)to;
    gw_ps *ps = ctx;
    if (gw_letter_kind(letter) != GW_PS_PUSH) return;
    uint32_t rounds = ps->parcels[letter->parcel].rounds;
    if (letter->round % rounds + 1 == rounds) gw_ps_parcel_gone(ps, (int)letter->parcel);
    gw_ps_part_over(ps, (int)letter->parcel);
}

/* Set-up. */

static gw_status make_shares(gw_ps *ps, gw_error *error) {
    int count = ps->stepper->config.count;
    gw_share_tensor *described = calloc((size_t)count + 1, sizeof *described);
    if (!described) return gw_fail(error, GW_MEMORY, "out of memory for shares");
    for (int i = 0; i < count; i++) {
        const gw_step_tensor *t = &ps->stepper->tensors[i].what;
        size_t own = ps->stepper->tensors[i].factors ? 0 : t->count; /* factors do not go to servers */
        described[i] = (gw_share_tensor){.count = own, .element = gw_dtype_bytes(t->dtype), .kind = (int)t->dtype,
                                         .grain = gw_ps_codec_grain(ps, i, GW_PS_GRAIN)};
    }
    gw_status status = gw_shares_open(&ps->shares, described, count, ps->servers, error);
    free(described);
    for (int s = 0; !status && s < ps->servers; s++) {
        ps->space_at[s] = ps->staging_bytes;
        ps->staging_bytes += (ps->shares.space_bytes[s] + GW_PS_GRAIN - 1) / GW_PS_GRAIN * GW_PS_GRAIN;
    }
    return status;
}

static gw_status take_memory(gw_ps *ps, gw_error *error) {
    size_t pieces = (size_t)gw_schedule_pieces_max(ps->stepper->schedule) + 1;
    ps->space_at = calloc((size_t)ps->servers, sizeof *ps->space_at);
    ps->first_parcel = calloc(pieces, sizeof *ps->first_parcel);
    ps->piece_left = calloc(pieces, sizeof *ps->piece_left);
    ps->piece_here = calloc(pieces, sizeof *ps->piece_here);
    if (ps->space_at && ps->first_parcel && ps->piece_left && ps->piece_here) return GW_OK;
    return gw_fail(error, GW_MEMORY, "out of memory for %d servers", ps->servers);
}

/* Ends to come: LEAVE where this rank serves, OVER from servers; CLOSED from its replica, CLOSE where it is one. */
void gw_ps_listen(gw_ps *ps) {
    int copy = ps->own < 0 ? -1 : ps->placement.copy_of[ps->own];
    int original = ps->copy.server < 0 ? -1 : gw_ps_server_rank(ps, ps->copy.server);
    for (int r = 0; r < ps->world; r++) {
        bool serves = gw_placement_server(&ps->placement, r) >= 0;
        ps->ends_due[r] = r == ps->rank ? 0 : (ps->own >= 0) + serves + (r == copy) + (r == original);
        gw_mail_listen(ps->mail, r, ps->ends_due[r] > 0);
    }
}

/* Everybody has just been started and works: nobody says otherwise. */
static gw_status place_all(gw_ps *ps, gw_error *error) {
    const gw_stepper_config *c = &ps->stepper->config;
    gw_attendant *who = calloc((size_t)ps->world, sizeof *who);
    if (!who) return gw_fail(error, GW_MEMORY, "out of memory for %d ranks", ps->world);
    for (int r = 0; r < ps->world; r++)
        who[r] = c->attendants ? c->attendants[r] : (gw_attendant){.seat = r, .serves = -1, .copies = -1, .fresh = 1};
    gw_status status = gw_placement_open(&ps->placement, who, ps->world, ps->servers, c->replicas, error);
    free(who);
    return status;
}

gw_status gw_ps_seat_all(gw_ps *ps, gw_error *error) {
    const gw_stepper_config *c = &ps->stepper->config;
    gw_mail_events events = {.ctx = ps, .landing = landing, .arrived = arrived, .sent = sent};
    ps->rank = gw_team_rank(c->team);
    ps->world = gw_team_size(c->team);
    gw_status status = place_all(ps, error);
    if (status) return status;
    ps->own = gw_placement_server(&ps->placement, ps->rank);
    ps->workers = gw_placement_workers(&ps->placement);
    ps->base = ps->placement.all_fresh ? c->options.first_step : gw_placement_first_step(&ps->placement);
    ps->answers_due = calloc((size_t)ps->world, sizeof *ps->answers_due);
    ps->ends_due = calloc((size_t)ps->world, sizeof *ps->ends_due);
    if (!ps->answers_due || !ps->ends_due) return gw_fail(error, GW_MEMORY, "out of memory for %d ranks", ps->world);
    status = gw_ps_codec_serve(ps, error);
    if (!status) status = gw_mail_open(&ps->mail, c->core, c->team, &events, error);
    if (!status) status = gw_ps_serve_open(ps, error);
    return status;
}

void gw_ps_unseat_all(gw_ps *ps) {
    gw_mail_close(ps->mail);
    gw_ps_serve_close(ps);
    gw_placement_close(&ps->placement);
    free(ps->answers_due);
    free(ps->ends_due);
    ps->mail = NULL;
    ps->answers_due = ps->ends_due = NULL;
    ps->leaving = ps->said_leave = ps->said_close = false;
}

static int servers_only(const gw_stepper_config *c, int world) {
    int count = 0;
    for (int r = 0; c->attendants && r < world; r++) count += c->attendants[r].only != 0;
    return count;
}

gw_status gw_ps_open(gw_ps **out, gw_stepper *stepper, gw_error *error) {
    const gw_stepper_config *c = &stepper->config;
    gw_ps *ps = calloc(1, sizeof *ps);
    if (!ps) return gw_fail(error, GW_MEMORY, "out of memory for servers");
    *ps = (gw_ps){.stepper = stepper, .rank = gw_team_rank(c->team), .world = gw_team_size(c->team),
                  .servers = c->servers, .own = -1, .shelf.server = -1, .copy.server = -1,
                  .kept = {{.server = -1}, {.server = -1}}, .weights_here = c->sync->rule != NULL};
    if (ps->weights_here) ps->rule = c->sync->rule(c->sync_values);
    ps->workers = ps->world - servers_only(c, ps->world);
    ps->additive = ps->weights_here && ps->workers < ps->world;
    gw_status status = take_memory(ps, error);
    if (!status) status = gw_ps_codec_open(ps, error);
    if (!status) ps->parcel_bytes = c->chunk_bytes ? c->chunk_bytes : gw_ps_codec_parcel(ps);
    if (!status) status = make_shares(ps, error);
    if (!status) status = gw_ps_seat_all(ps, error);
    if (!status) status = gw_ps_bind(ps, error);
    if (status) {
        gw_ps_close(ps);
        return status;
    }
    gw_ps_listen(ps);
    ps->repeats = ps->rule.spare && !ps->placement.all_fresh;
    *out = ps;
    return GW_OK;
}

void gw_ps_close(gw_ps *ps) {
    if (!ps) return;
    gw_ps_unseat_all(ps);
    gw_ps_forget(ps);
    gw_ps_codec_close(ps);
    gw_shares_close(&ps->shares);
    free(ps->space_at);
    free(ps->first_parcel);
    free(ps->piece_left);
    free(ps->piece_here);
    free(ps->parcels);
    free(ps->segments);
    free(ps->staging);
    free(ps->moved);
    free(ps);
}

gw_status gw_ps_bind(gw_ps *ps, gw_error *error) {
    gw_status status = gw_ps_cut(ps, error);
    return status ? status : gw_ps_open_desks(ps, error);
}

/* A piece on its way. */

static void pack(const gw_ps *ps, const gw_parcel *p) {
    uint8_t *at = p->from;
    for (int i = 0; i < p->segments; i++) {
        const gw_segment *part = &ps->segments[p->first + i];
        size_t bytes = gw_parcel_segment_bytes(ps, part);
        memcpy(at, gw_ps_tensor_at(ps, part, false), bytes);
        at += bytes;
    }
}

static void unpack(const gw_ps *ps, const gw_parcel *p) {
    const uint8_t *at = p->to;
    for (int i = 0; i < p->segments; i++) {
        const gw_segment *part = &ps->segments[p->first + i];
        size_t bytes = gw_parcel_segment_bytes(ps, part);
        memcpy(gw_ps_tensor_at(ps, part, ps->weights_here), at, bytes);
        at += bytes;
    }
}

void gw_ps_part_over(gw_ps *ps, int parcel) {
    gw_parcel *p = &ps->parcels[parcel];
    if (--p->left == 0) ps->piece_left[p->piece]--;
}

static void push(gw_ps *ps, int parcel, gw_time now, gw_error *error) {
    gw_parcel *p = &ps->parcels[parcel];
    const uint8_t *data = p->coded ? gw_ps_codec_slot(p) : p->from;
    size_t bytes = p->bytes;
    if (p->coded && gw_ps_codec_encode(ps, p, p->step, &bytes, error)) return;
    if (p->packs && !p->coded) pack(ps, p);
    p->answered = false;
    gw_letter letter = {.kind = GW_PS_PUSH, .parcel = (uint32_t)parcel, .round = p->round, .step = p->step,
                        .bytes = bytes, .growth = p->coded ? gw_carry_rate_growth(ps->stepper, p->step) : 0};
    if (p->server == ps->own) {
        if (p->round % p->rounds + 1 == p->rounds) gw_ps_parcel_gone(ps, parcel);
        gw_ps_codec_note(ps, ps->rank, &letter);
        gw_ps_pushed(ps, parcel, ps->rank, p->round, p->step, now, error);
        return;
    }
    ps->answers_due[gw_ps_server_rank(ps, p->server)]++;
    gw_mail_send(ps->mail, gw_ps_server_rank(ps, p->server), &letter, data, now, error);
}

void gw_ps_answered(gw_ps *ps, int from, const gw_letter *letter, gw_time now, gw_error *error) {
    gw_parcel *p = &ps->parcels[letter->parcel];
    bool more = letter->kind == GW_PS_CODED_ANSWER && p->round % p->rounds + 1 < p->rounds;
    if (letter->kind == GW_PS_ANSWER && p->unpacks) unpack(ps, p);
    if (letter->kind == GW_PS_CODED_ANSWER && !more)
        gw_ps_codec_answered(ps, p, from, letter->bytes, letter->step, error);
    p->round = letter->round;
    p->answered = !more;
    gw_ps_part_over(ps, (int)letter->parcel);
    if (more && !error->status) push(ps, (int)letter->parcel, now, error);
}

void gw_ps_start(gw_ps *ps, int piece, uint64_t step, gw_time now, gw_error *error) {
    int first = ps->first_parcel[piece], count = ps->first_parcel[piece + 1] - first;
    ps->piece_left[piece] = ps->piece_here[piece] = count;
    for (int i = first; ps->additive && i < first + count; i++) gw_ps_take_difference(ps, &ps->parcels[i], step);
    gw_ps_codec_begin(ps, piece, step);
    for (int i = first; i < first + count && !error->status; i++) {
        gw_parcel *p = &ps->parcels[i];
        p->step = step;
        p->gone = p->answered = false;
        p->left = (int)p->rounds * (p->server == ps->own ? 1 : 2); /* answers, and that pushes have left */
        push(ps, i, now, error);
    }
    gw_ps_codec_begun(ps, piece);
}

bool gw_ps_over(const gw_ps *ps, int piece) { return ps->piece_left[piece] == 0; }
bool gw_ps_moves_weights(const gw_ps *ps) { return ps->additive; }

/* Whom somebody waits for: a server that owes this worker answers, a worker that holds others back. */
static void expect(gw_ps *ps, gw_time now) {
    for (int r = 0; r < ps->world; r++)
        if (r != ps->rank) {
            bool holds_up = ps->shelf.desk && gw_desk_awaits(ps->shelf.desk, r);
            gw_mail_expect(ps->mail, r, ps->answers_due[r] > 0 || holds_up, now);
        }
}

static void say_leave(gw_ps *ps, gw_time now, gw_error *error) {
    gw_letter letter = {.kind = GW_PS_LEAVE};
    ps->said_leave = true;
    if (ps->own >= 0) gw_ps_left(ps, ps->rank, now, error);
    for (int s = 0; s < ps->servers && !error->status; s++)
        if (s != ps->own) gw_mail_send(ps->mail, gw_ps_server_rank(ps, s), &letter, NULL, now, error);
}

/* Servers that let go who is left behind have to know how far everybody is: the step that he pushes next. */
static void tell_made(gw_ps *ps, int parcel, gw_time now, gw_error *error) {
    const gw_parcel *p = &ps->parcels[parcel];
    uint64_t next = p->answered ? p->step + 1 : ps->stepper->config.options.first_step;
    gw_letter letter = {.kind = GW_PS_MADE, .parcel = (uint32_t)parcel, .step = next};
    if (!ps->rule.spare || ps->stepper->config.serves_only) return;
    if (p->server == ps->own) gw_ps_made(ps, parcel, ps->rank, next, now, error);
    else gw_mail_send(ps->mail, gw_ps_server_rank(ps, p->server), &letter, NULL, now, error);
}

/* What was not answered when the others were lost. */
static void push_again(gw_ps *ps, gw_time now, gw_error *error) {
    for (int i = 0; ps->repeats && i < ps->parcel_count && !error->status; i++) {
        if (!ps->parcels[i].again) {
            tell_made(ps, i, now, error);
            continue;
        }
        ps->parcels[i].again = false;
        ps->parcels[i].left = ps->parcels[i].server == ps->own ? 1 : 2;
        push(ps, i, now, error);
    }
    ps->repeats = false;
}

bool gw_ps_poll(gw_ps *ps, gw_time now, gw_error *error) {
    push_again(ps, now, error);
    bool moved = gw_mail_poll(ps->mail, now, error);
    if (ps->leaving && !ps->said_leave && !error->status) {
        say_leave(ps, now, error);
        moved = true;
    }
    if (!error->status) moved |= gw_ps_copy_end(ps, now, error);
    expect(ps, now);
    return moved;
}

void gw_ps_leave(gw_ps *ps) { ps->leaving = true; }
bool gw_ps_quiet(const gw_ps *ps) {
    return ps->said_leave && gw_mail_quiet(ps->mail) && (!gw_ps_copies(ps) || ps->said_close);
}

size_t gw_ps_sent_bytes(const gw_ps *ps) {
    size_t bytes = 0;
    for (int i = 0; i < ps->parcel_count; i++) {
        const gw_parcel *p = &ps->parcels[i];
        if (p->server != ps->own && !ps->stepper->config.serves_only) bytes += p->push_bytes;
        for (int w = 0; p->server == ps->own && w < ps->world; w++)
            if (w != ps->rank && !ps->placement.who[w].only)
                bytes += gw_ps_codec_answers(ps, p, w) ? p->answer_bytes : p->bytes;
    }
    return bytes;
}

size_t gw_ps_memory_bytes(const gw_ps *ps) {
    return gw_ps_serve_bytes(ps) + (ps->staging ? ps->staging_bytes : 0) + gw_ps_codec_memory(ps);
}

gw_desk_times gw_ps_times(const gw_ps *ps, int worker, gw_time now) {
    return ps->shelf.desk ? gw_desk_timed(ps->shelf.desk, worker, now) : (gw_desk_times){0};
}
