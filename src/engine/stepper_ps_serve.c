/* stepper_ps_serve.c - the server of a rank: pushes are added in worker order, updates applied, answers sent. See
 * stepper_ps.h. */
#include <stdlib.h>
#include <string.h>

#include "base/reduce.h"
#include "engine/stepper_ps_internal.h"

static size_t own_bytes(const gw_ps *ps) { return ps->own < 0 ? 0 : ps->shares.space_bytes[ps->own]; }

size_t gw_ps_serve_bytes(const gw_ps *ps) {
    size_t results = own_bytes(ps) * (ps->weights_here ? 2 : 1);
    return ps->own < 0 ? 0 : results + ps->landing_bytes * ((size_t)ps->world - 1);
}

/* The server begins with what its rank has. */
static void take_weights(gw_ps *ps) {
    for (int i = 0; ps->weights && i < ps->shares.first_of[ps->shares.tensors]; i++) {
        const gw_share *share = &ps->shares.list[i];
        gw_segment part = {share->tensor, share->first, share->count};
        if (share->server == ps->own)
            memcpy(ps->weights + share->at, gw_ps_tensor_at(ps, &part, true), gw_parcel_segment_bytes(ps, &part));
    }
}

gw_status gw_ps_serve_open(gw_ps *ps, gw_error *error) {
    if (ps->own < 0) return GW_OK;
    size_t bytes = own_bytes(ps) + 1;
    ps->landing_bytes = own_bytes(ps);
    ps->landing = calloc((size_t)ps->world, sizeof *ps->landing);
    ps->result = malloc(bytes);
    ps->sources = calloc((size_t)ps->world, sizeof *ps->sources);
    bool fits = ps->landing && ps->result && ps->sources;
    for (int w = 0; w < ps->world && fits; w++)
        if (w != ps->rank) fits = (ps->landing[w] = malloc(bytes)) != NULL;
    if (fits && ps->weights_here) fits = (ps->weights = malloc(bytes)) != NULL;
    if (!fits)
        return gw_fail(error, GW_MEMORY, "out of memory for a server that owns %zu bytes of %d workers", own_bytes(ps),
                       ps->world);
    take_weights(ps);
    return GW_OK;
}

void gw_ps_serve_close(gw_ps *ps) {
    gw_desk_close(ps->desk);
    for (int w = 0; ps->landing && w < ps->world; w++) free(ps->landing[w]);
    free(ps->landing);
    free(ps->result);
    free(ps->weights);
    free(ps->sources);
}

float *gw_ps_weights(const gw_ps *ps, int tensor, size_t *count) {
    for (int i = ps->shares.first_of[tensor]; ps->weights && i < ps->shares.first_of[tensor + 1]; i++) {
        if (ps->shares.list[i].server != ps->own) continue;
        *count = ps->shares.list[i].count;
        return (float *)(void *)(ps->weights + ps->shares.list[i].at);
    }
    return NULL;
}

static const uint8_t *pushed_by(const gw_ps *ps, const gw_parcel *p, int worker) {
    return worker == ps->rank ? p->from : ps->landing[worker] + p->slot_at;
}

/* The caller's optimiser, on the server's weights. */
static void update(gw_ps *ps, const gw_parcel *p, const uint8_t *gradient, uint64_t step, double scale) {
    const gw_step_options *options = &ps->stepper->config.options;
    size_t at = 0;
    for (int i = 0; i < p->segments; i++) {
        const gw_segment *part = &ps->segments[p->first + i];
        gw_step_update u = {.tensor = part->tensor, .first = part->first, .count = part->count,
                            .weights = ps->weights + p->at + at, .gradient = gradient + at, .step = step,
                            .scale = scale};
        options->update(options->ctx, &u);
        at += gw_parcel_segment_bytes(ps, part);
    }
}

/* A round is complete. The result's memory is free: whoever got the last round's has pushed since, or was late, and
 * then was answered from its own landing. */
static void finish_round(gw_ps *ps, int parcel, gw_time now, gw_error *error) {
    const gw_parcel *p = &ps->parcels[parcel];
    bool mean = ps->stepper->config.options.op == GW_AVG;
    int in = 0;
    for (int w = 0; w < ps->world; w++)
        if (gw_desk_in(ps->desk, parcel, w)) ps->sources[in++] = pushed_by(ps, p, w);
    gw_reduction sum = {.dtype = p->dtype, .op = ps->stepper->config.options.op, .world = in};
    if (!p->coded) gw_reduce_many(sum, ps->result + p->at, ps->sources, in, p->count);
    else if (gw_ps_codec_sum(ps, parcel, error)) return;
    if (ps->weights_here)
        update(ps, p, ps->result + p->at, gw_stepper_step(ps->stepper, gw_desk_round(ps->desk, parcel)),
               p->coded && mean ? 1.0 / in : 1);
    gw_desk_next(ps->desk, parcel, now);
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
    const uint8_t *what = (ps->weights_here ? ps->weights : ps->result) + p->at;
    gw_letter letter = {.kind = GW_PS_ANSWER, .parcel = (uint32_t)parcel, .round = gw_desk_round(ps->desk, parcel),
                        .bytes = p->bytes};
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

static void answer_due(gw_ps *ps, int parcel, gw_time now, gw_error *error) {
    int worker;
    while (!error->status && (worker = gw_desk_due(ps->desk, parcel, now)) >= 0)
        answer(ps, parcel, worker, now, error);
}

void gw_ps_pushed(gw_ps *ps, int parcel, int worker, uint64_t round, uint64_t step, gw_time now, gw_error *error) {
    const gw_parcel *p = &ps->parcels[parcel];
    bool mean = ps->stepper->config.options.op == GW_AVG;
    switch (gw_desk_push(ps->desk, parcel, worker, round, now)) {
    case GW_PUSH_LAST: finish_round(ps, parcel, now, error); break;
    case GW_PUSH_APPLY: /* what all workers push in one step adds up to one step of the mean */
        if (p->coded && gw_ps_codec_decode(ps, parcel, worker, error)) break;
        update(ps, p, p->coded ? ps->result + p->at : pushed_by(ps, p, worker), step, mean ? 1.0 / ps->world : 1);
        break;
    case GW_PUSH_KEPT:
    case GW_PUSH_LATE: break;
    case GW_PUSH_WRONG:
        gw_fail_rank(error, GW_PROTOCOL, gw_team_member(ps->stepper->config.team, worker),
                     "rank %d pushed parcel %d twice, or of a round that has not begun",
                     gw_team_member(ps->stepper->config.team, worker), parcel);
        return;
    }
    answer_due(ps, parcel, now, error);
}

void gw_ps_left(gw_ps *ps, int worker, gw_time now, gw_error *error) {
    bool all_needed = !ps->rule.at_once && !ps->rule.spare;
    if (all_needed && !gw_desk_idle(ps->desk)) {
        int rank = gw_team_member(ps->stepper->config.team, worker);
        gw_fail_rank(error, GW_MISMATCH, rank,
                     "rank %d closed its step while others wait for its gradients: under sync=%s every rank makes the "
                     "same number of steps",
                     rank, ps->stepper->config.sync->technique.name);
        return;
    }
    gw_desk_leave(ps->desk, worker, now);
    for (int i = 0; i < ps->parcel_count && !error->status; i++) {
        if (ps->parcels[i].server != ps->own) continue;
        if (gw_desk_complete(ps->desk, i)) finish_round(ps, i, now, error);
        answer_due(ps, i, now, error);
    }
}
