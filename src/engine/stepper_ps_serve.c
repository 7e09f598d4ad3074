/* stepper_ps_serve.c - the server of a rank: pushes are added in worker order, updates applied, answers sent. See
 * stepper_ps.h. */
#include <stdlib.h>
#include <string.h>

#include "base/reduce.h"
#include "engine/stepper_ps_internal.h"

static size_t own_bytes(const gw_ps *ps) { return ps->own < 0 ? 0 : ps->shares.space_bytes[ps->own]; }

size_t gw_ps_serve_bytes(const gw_ps *ps) {
    size_t copied = ps->copy.server < 0 ? 0 : ps->shares.space_bytes[ps->copy.server];
    size_t copies = copied * (ps->weights_here ? 3 : 2), results = own_bytes(ps) * (ps->weights_here ? 2 : 1);
    size_t others = (size_t)ps->workers - !ps->placement.who[ps->rank].only;
    return copies + ps->moved_bytes + (ps->own < 0 ? 0 : results + ps->landing_bytes * others);
}

gw_status gw_shelf_open(gw_ps *ps, gw_shelf *shelf, int server, gw_error *error) {
    size_t bytes = ps->shares.space_bytes[server] + 1;
    *shelf = (gw_shelf){.server = server, .result = calloc(1, bytes)};
    if (ps->weights_here) shelf->weights = calloc(1, bytes);
    if (shelf->result && (shelf->weights || !ps->weights_here)) return GW_OK;
    return gw_fail(error, GW_MEMORY, "out of memory for a server that owns %zu bytes", bytes - 1);
}

void gw_shelf_close(gw_shelf *shelf) {
    gw_desk_close(shelf->desk);
    free(shelf->result);
    free(shelf->weights);
    *shelf = (gw_shelf){.server = -1};
}

void gw_ps_gather(const gw_ps *ps, int server, void *space) {
    for (int i = 0; i < ps->shares.first_of[ps->shares.tensors]; i++) {
        const gw_share *share = &ps->shares.list[i];
        gw_segment part = {share->tensor, share->first, share->count};
        if (share->server == server)
            memcpy((uint8_t *)space + share->at, gw_ps_tensor_at(ps, &part, true), gw_parcel_segment_bytes(ps, &part));
    }
}

/* The server begins with what its rank has. */
static void take_all_weights(gw_ps *ps) {
    if (!ps->weights_here || ps->placement.who[ps->rank].only) return;
    gw_ps_gather(ps, ps->shelf.server, ps->shelf.weights);
    if (ps->copy.weights) gw_ps_gather(ps, ps->copy.server, ps->copy.weights);
}

gw_status gw_ps_serve_open(gw_ps *ps, gw_error *error) {
    gw_status status = gw_ps_copy_open(ps, error);
    if (status || ps->own < 0) return status;
    status = gw_shelf_open(ps, &ps->shelf, ps->own, error);
    if (status) return status;
    size_t bytes = own_bytes(ps) + 1;
    ps->landing_bytes = own_bytes(ps);
    ps->landing = calloc((size_t)ps->world, sizeof *ps->landing);
    ps->sources = calloc((size_t)ps->world, sizeof *ps->sources);
    bool fits = ps->landing && ps->sources;
    for (int w = 0; w < ps->world && fits; w++)
        if (w != ps->rank && !ps->placement.who[w].only) fits = (ps->landing[w] = malloc(bytes)) != NULL;
    if (!fits)
        return gw_fail(error, GW_MEMORY, "out of memory for a server that owns %zu bytes of %d workers", own_bytes(ps),
                       ps->world);
    take_all_weights(ps);
    return GW_OK;
}

void gw_ps_serve_close(gw_ps *ps) {
    gw_ps_keep_close(ps);
    gw_ps_copy_close(ps);
    for (int w = 0; ps->landing && w < ps->world; w++) free(ps->landing[w]);
    free(ps->landing);
    free(ps->sources);
    ps->landing = NULL;
    ps->sources = NULL;
    gw_shelf_close(&ps->shelf);
}

/* Ranks that only serve make no pushes. */
static gw_status open_desk(gw_ps *ps, gw_shelf *shelf, gw_error *error) {
    gw_desk *desk = NULL;
    if (shelf->server < 0) return GW_OK;
    gw_status status = gw_desk_open(&desk, &ps->rule, ps->world, ps->parcel_count, error);
    if (status) return status;
    if (shelf->desk) gw_desk_adopt(desk, shelf->desk, 0); /* nobody waits: no clock is running */
    gw_desk_close(shelf->desk);
    shelf->desk = desk;
    for (int w = 0; w < ps->world; w++)
        if (ps->placement.who[w].only) gw_desk_leave(desk, w, 0);
    return GW_OK;
}

gw_status gw_ps_open_desks(gw_ps *ps, gw_error *error) {
    ps->own_parcels = 0;
    for (int i = 0; i < ps->parcel_count; i++) ps->own_parcels += ps->parcels[i].server == ps->own;
    gw_ps_copy_clear(ps);
    gw_status status = open_desk(ps, &ps->shelf, error);
    return status ? status : open_desk(ps, &ps->copy, error);
}

float *gw_ps_weights(const gw_ps *ps, int tensor, size_t *first, size_t *count) {
    for (int i = ps->shares.first_of[tensor]; ps->shelf.weights && i < ps->shares.first_of[tensor + 1]; i++) {
        if (ps->shares.list[i].server != ps->own) continue;
        *first = ps->shares.list[i].first;
        *count = ps->shares.list[i].count;
        return (float *)(void *)(ps->shelf.weights + ps->shares.list[i].at);
    }
    return NULL;
}

const uint8_t *gw_ps_pushed_by(const gw_ps *ps, const gw_parcel *p, int worker) {
    return worker == ps->rank ? p->from : ps->landing[worker] + p->slot_at;
}

double gw_ps_scale(const gw_ps *ps) { return ps->stepper->config.options.op == GW_AVG ? 1.0 / ps->workers : 1; }

/* Rounds are scaled by those who are in them, when they are complete. */
void gw_ps_take_difference(gw_ps *ps, const gw_parcel *p, uint64_t step) {
    const gw_step_options *options = &ps->stepper->config.options;
    for (int i = 0; i < p->segments; i++) {
        const gw_segment *part = &ps->segments[p->first + i];
        float *gradient = (float *)(void *)gw_ps_tensor_at(ps, part, false), *moved = (float *)(void *)ps->moved;
        const float *weights = (const float *)(const void *)gw_ps_tensor_at(ps, part, true);
        gw_step_update u = {.tensor = part->tensor, .first = part->first, .count = part->count, .weights = moved,
                            .gradient = gradient, .step = step, .scale = ps->rule.at_once ? gw_ps_scale(ps) : 1};
        memcpy(moved, weights, part->count * sizeof *moved);
        options->update(options->ctx, &u);
        for (size_t k = 0; k < part->count; k++) gradient[k] = moved[k] - weights[k];
    }
}

static void add_difference(gw_shelf *shelf, const gw_parcel *p, const uint8_t *difference, double scale) {
    float *weights = (float *)(void *)(shelf->weights + p->at);
    const float *by = (const float *)(const void *)difference;
    for (size_t i = 0; i < p->count; i++) weights[i] += (float)scale * by[i];
}

void gw_ps_update(gw_ps *ps, gw_shelf *shelf, const gw_parcel *p, const uint8_t *gradient, uint64_t step,
                  double scale) {
    const gw_step_options *options = &ps->stepper->config.options;
    size_t at = 0;
    if (ps->additive) {
        add_difference(shelf, p, gradient, scale);
        return;
    }
    if (ps->scratch && shelf == &ps->shelf) /* an update may overwrite it, and the replica is still to get it */
        gradient = memcpy(ps->scratch, gradient, p->bytes);
    for (int i = 0; i < p->segments; i++) {
        const gw_segment *part = &ps->segments[p->first + i];
        gw_step_update u = {.tensor = part->tensor, .first = part->first, .count = part->count,
                            .weights = shelf->weights + p->at + at, .gradient = gradient + at, .step = step,
                            .scale = scale};
        options->update(options->ctx, &u);
        at += gw_parcel_segment_bytes(ps, part);
    }
}

/* A round is complete. The result's memory is free: whoever got the last round's has pushed since, or was late, and
 * then was answered from its own landing. */
static void finish_round(gw_ps *ps, int parcel, gw_time now, gw_error *error) {
    const gw_parcel *p = &ps->parcels[parcel];
    uint64_t round = gw_desk_round(ps->shelf.desk, parcel), step = ps->base + round;
    int in = 0;
    for (int w = 0; w < ps->world; w++)
        if (gw_desk_in(ps->shelf.desk, parcel, w)) ps->sources[in++] = gw_ps_pushed_by(ps, p, w);
    gw_reduction sum = {.dtype = p->dtype, .op = ps->stepper->config.options.op, .world = in};
    if (!p->coded) gw_reduce_many(sum, ps->shelf.result + p->at, ps->sources, in, p->count);
    else if (gw_ps_codec_sum(ps, parcel, error)) return;
    double scale = p->coded && sum.op == GW_AVG ? 1.0 / in : 1;
    if (ps->weights_here) gw_ps_update(ps, &ps->shelf, p, ps->shelf.result + p->at, step, scale);
    gw_desk_next(ps->shelf.desk, parcel, now);
    gw_ps_copy_out(ps, parcel, -1, round, step, now, error);
    gw_ps_keep_used(ps);
}

/* The own worker's answer needs no message. */
static void answer_self(gw_ps *ps, gw_letter *letter, const uint8_t *what, gw_time now, gw_error *error) {
    gw_parcel *p = &ps->parcels[letter->parcel];
    memcpy(letter->kind == GW_PS_CODED_ANSWER ? gw_ps_codec_slot(p) : p->to, what, letter->bytes);
    gw_ps_answered(ps, ps->rank, letter, now, error);
}

/* Weights change while answers are on their way: each worker gets a copy, in the landing of the push it answers. */
static void answer(gw_ps *ps, int parcel, int worker, gw_time now, gw_error *error) {
    gw_parcel *p = &ps->parcels[parcel];
    const uint8_t *what = (ps->weights_here ? ps->shelf.weights : ps->shelf.result) + p->at;
    gw_letter letter = {.kind = GW_PS_ANSWER, .parcel = (uint32_t)parcel, .bytes = p->bytes,
                        .round = gw_desk_number(ps->shelf.desk, parcel, worker)};
    bool coded = gw_ps_codec_answers(ps, p, worker);
    if (coded) what = gw_ps_codec_answer(ps, parcel, worker, &letter, error);
    if (error->status) return;
    if (worker == ps->rank) {
        answer_self(ps, &letter, what, now, error);
        return;
    }
    if (ps->weights_here && !coded) what = memcpy(ps->landing[worker] + p->slot_at, what, p->bytes);
    gw_mail_send(ps->mail, worker, &letter, what, now, error);
}

void gw_ps_answer_due(gw_ps *ps, int parcel, gw_time now, gw_error *error) {
    int worker;
    while (!error->status && (worker = gw_desk_due(ps->shelf.desk, parcel, now)) >= 0)
        answer(ps, parcel, worker, now, error);
}

void gw_ps_pushed(gw_ps *ps, int parcel, int worker, uint64_t round, uint64_t step, gw_time now, gw_error *error) {
    const gw_parcel *p = &ps->parcels[parcel];
    switch (gw_desk_push(ps->shelf.desk, parcel, worker, round, step, now)) {
    case GW_PUSH_LAST: finish_round(ps, parcel, now, error); break;
    case GW_PUSH_APPLY:
        if (p->coded && gw_ps_codec_decode(ps, parcel, worker, error)) break;
        gw_ps_update(ps, &ps->shelf, p, p->coded ? ps->shelf.result + p->at : gw_ps_pushed_by(ps, p, worker), step,
                     ps->additive ? 1 : gw_ps_scale(ps));
        gw_ps_copy_out(ps, parcel, worker, round, step, now, error);
        gw_ps_keep_used(ps);
        break;
    case GW_PUSH_KEPT:
    case GW_PUSH_LATE:
    case GW_PUSH_AGAIN: break;
    case GW_PUSH_WRONG:
        gw_fail_rank(error, GW_PROTOCOL, gw_team_member(ps->stepper->config.team, worker),
                     "rank %d pushed parcel %d twice, or of a round that has not begun",
                     gw_team_member(ps->stepper->config.team, worker), parcel);
        return;
    }
    gw_ps_keep_heard(ps);
    gw_ps_answer_due(ps, parcel, now, error);
}

void gw_ps_made(gw_ps *ps, int parcel, int worker, uint64_t next, gw_time now, gw_error *error) {
    gw_desk_made(ps->shelf.desk, parcel, worker, next, now);
    gw_ps_answer_due(ps, parcel, now, error);
}

void gw_ps_left(gw_ps *ps, int worker, gw_time now, gw_error *error) {
    bool all_needed = !ps->rule.at_once && !ps->rule.spare && !ps->placement.who[worker].only;
    if (all_needed && !gw_desk_idle(ps->shelf.desk)) {
        int rank = gw_team_member(ps->stepper->config.team, worker);
        gw_fail_rank(error, GW_MISMATCH, rank,
                     "rank %d closed its step while others wait for its gradients: under sync=%s every rank makes the "
                     "same number of steps",
                     rank, ps->stepper->config.sync->technique.name);
        return;
    }
    gw_desk_leave(ps->shelf.desk, worker, now);
    for (int i = 0; i < ps->parcel_count && !error->status; i++) {
        if (ps->parcels[i].server != ps->own) continue;
        if (gw_desk_complete(ps->shelf.desk, i)) finish_round(ps, i, now, error);
        gw_ps_answer_due(ps, i, now, error);
    }
}
