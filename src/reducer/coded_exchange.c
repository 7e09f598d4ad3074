/* coded_exchange.c - one step of an exchange. Cost, p ranks, payload of n' bytes: two-pass 2 (p-1)/p n', one-pass (p-1)
 * n', in-flight as its plan. See coded_exchange.h.
 *
 * A payload message is a sequence of coded ranges (coded_payload.h), one for each tensor in order. A tensor's parts are
 * cut at the codec's blocks and dealt to ranks from one that its name decides, so that they do not move when tensors
 * are fused differently. */
#include "reducer/coded_exchange_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arch/choose_plan.h"
#include "engine/engine_trace.h"

/* The worker's pass: what one owner has of all parts, or the whole lane (owner -1). */
static gw_status encode_for(gw_coded_exchange *x, int owner, uint8_t *piece, uint64_t *length, gw_error *error) {
    uint8_t *at = piece;
    gw_status status = GW_OK;
    for (int i = 0; !status && i < x->count; i++) {
        gw_coded_tensor *t = x->parts[i].tensor;
        gw_coded_runs runs = gw_coded_runs_of(x, &x->parts[i], owner);
        gw_codec_report before = gw_coded_watch_before(x, i);
        if (gw_coded_watch_exact(x, i)) continue;
        while (!status && gw_coded_runs_next(&runs))
            status = gw_coding_encode(&x->coding, t, &x->coding.setup, &t->state, runs.range,
                                      x->gradient[i] + runs.offset, &at, error);
        gw_coded_watch_after(x, i, &before);
    }
    *length = (uint64_t)(at - piece);
    return status;
}

const float *gw_coded_exchange_gradient(const gw_coded_exchange *x, int i) {
    const gw_coded_part *part = &x->parts[i];
    return part->tensor->owners.lanes == 1 ? x->gradient[i] - part->first : NULL;
}

/* Operations. */

/* The architecture's plan for a reduction of payloads. */
static const gw_plan_builder *reducing_builder(const gw_coded_exchange *x, const gw_op_spec *spec, size_t unit) {
    gw_plan_request request = {.collective = spec->collective, .topology = *gw_team_topology(x->team), .rank = x->rank,
                               .count = spec->count, .counts = spec->counts, .root = -1, .chunk_count = 1,
                               .pipeline = GW_PIPELINE};
    return gw_arch_choose(x->arch, &request, unit);
}

static gw_status start_varying(gw_coded_exchange *x, gw_collective what, const void *in, void *out, gw_time now,
                               gw_error *error) {
    const gw_plan_builder *builder =
        what == GW_COLL_ALLTOALL ? &gw_plan_pairwise : gw_arch_choose_varying(x->arch, x->room);
    gw_op_spec spec = {.collective = what, .builder = builder, .in = in, .out = out,
                       .count = x->room, .dtype = GW_U8, .root = -1, .unit_bytes = 1, .label = x->label,
                       .urgency = x->urgency,
                       .out_lengths = x->in_lengths,
                       .in_lengths = what == GW_COLL_ALLTOALL ? x->out_lengths : NULL};
    return gw_core_start(x->core, &x->op, x->team, &spec, now, error);
}

static void merge_payloads(void *ctx, void *into, const void *from, size_t bytes) {
    gw_coded_exchange *x = ctx;
    gw_codec_merge(&x->coding.setup, &x->coding.call, into, from, bytes);
}

static uint8_t *round_payload(const gw_coded_exchange *x, uint32_t round) {
    return x->out + (round ? x->merged_bytes[0] : 0);
}

/* The merged payload of the round before, for a range; NULL: there was none. */
static void set_reduced(gw_coded_exchange *x, gw_codec_range range, const uint8_t *payload) {
    gw_codec_call before = x->coding.call;
    before.round--;
    x->coding.call.reduced = payload;
    x->coding.call.reduced_bytes = payload ? gw_codec_bound(&x->coding.setup, &before, range) : 0;
}

/* All of it, or one half: every rank has its part of the payload reduced, and then gets the others'. */
static gw_status start_merged(gw_coded_exchange *x, gw_collective what, gw_time now, gw_error *error) {
    size_t unit = x->coding.setup.codec->merge_unit, units = x->merged_bytes[x->coding.call.round] / unit;
    size_t offset = 0, own;
    uint8_t *payload = round_payload(x, x->coding.call.round);
    gw_op_spec spec = {.collective = what, .in = payload, .out = payload, .count = units,
                       .dtype = GW_U8, .root = -1, .unit_bytes = unit, .merge = merge_payloads, .merge_ctx = x,
                       .label = x->label, .urgency = x->urgency};
    if (what != GW_COLL_ALLREDUCE) {
        for (int r = 0; r < x->world; r++) gw_part(units, x->world, r, &offset, &x->unit_counts[r]);
        gw_part(units, x->world, x->rank, &offset, &own);
        spec.count = 0;
        spec.counts = x->unit_counts;
        if (what == GW_COLL_REDUCE_SCATTER) spec.out = payload + offset * unit;
        else spec.in = payload + offset * unit;
    }
    spec.builder = reducing_builder(x, &spec, unit);
    return gw_core_start(x->core, &x->op, x->team, &spec, now, error);
}

gw_status gw_coded_exchange_sum(gw_coded_exchange *x, gw_op **op, float *values, size_t count, gw_time now,
                                gw_error *error) {
    gw_op_spec spec = {.collective = GW_COLL_ALLREDUCE, .in = values, .out = values, .count = count,
                       .dtype = GW_F32, .redop = GW_SUM, .root = -1, .label = x->label, .urgency = x->urgency};
    spec.builder = reducing_builder(x, &spec, sizeof(float));
    return gw_core_start(x->core, op, x->team, &spec, now, error);
}

/* Tensors that a merging codec does not carry travel as they are, in one all-reduce. */
static gw_status start_exact(gw_coded_exchange *x, gw_time now, gw_error *error) {
    float *at = (float *)x->in;
    for (int i = 0; i < x->count; i++) {
        gw_coded_runs runs = gw_coded_runs_of(x, &x->parts[i], -1);
        for (; x->parts[i].tensor->exact && gw_coded_runs_next(&runs); at += runs.range.count)
            memcpy(at, x->gradient[i] + runs.offset, runs.range.count * sizeof *at);
    }
    return gw_coded_exchange_sum(x, &x->exact_op, (float *)(void *)x->in, x->exact_count, now, error);
}

/* Merged. */

/* One run of a part in a round. payload: its place in each round. */
static gw_status encode_run(gw_coded_exchange *x, gw_coded_tensor *t, gw_codec_range range, const float *values,
                            uint8_t *payload[GW_CODING_ROUNDS_MAX], gw_error *error) {
    gw_codec_call *call = &x->coding.call;
    const gw_codec_setup *setup = &x->coding.setup;
    uint32_t round = call->round;
    size_t bytes, room = gw_codec_bound(setup, call, range);
    call->clip = t->clip;
    set_reduced(x, range, round ? payload[round - 1] : NULL);
    gw_status status = gw_codec_encode(setup, call, range, gw_codec_stateful(setup) ? &t->state : NULL, values,
                                       payload[round], room, &bytes, &t->report, error);
    if (round) payload[round - 1] += call->reduced_bytes;
    payload[round] += room;
    return status;
}

static void find_payloads(const gw_coded_exchange *x, int i, uint8_t *payload[GW_CODING_ROUNDS_MAX]) {
    for (uint32_t r = 0; r < x->rounds; r++) payload[r] = round_payload(x, r) + x->places[i].at[r];
}

static gw_status encode_round(gw_coded_exchange *x, gw_error *error) {
    gw_status status = GW_OK;
    for (int i = 0; !status && i < x->count; i++) {
        gw_coded_tensor *t = x->parts[i].tensor;
        gw_coded_runs runs = gw_coded_runs_of(x, &x->parts[i], -1);
        uint8_t *payload[GW_CODING_ROUNDS_MAX];
        uint32_t round = x->coding.call.round;
        if (t->exact) continue;
        find_payloads(x, i, payload);
        if (gw_coded_watch_exact(x, i)) { /* its place is merged like the others */
            memset(payload[round], 0, x->places[i].bytes[round]);
            continue;
        }
        gw_coded_watch_prepare(x, i);
        gw_codec_report before = gw_coded_watch_before(x, i);
        while (!status && gw_coded_runs_next(&runs))
            status = encode_run(x, t, runs.range, x->gradient[i] + runs.offset, payload, error);
        gw_coded_watch_after(x, i, &before);
    }
    return status;
}

static gw_status decode_run(gw_coded_exchange *x, gw_coded_tensor *t, gw_codec_range range, float *result,
                            uint8_t *payload[GW_CODING_ROUNDS_MAX], gw_error *error) {
    gw_codec_call *call = &x->coding.call;
    const gw_codec_setup *setup = &x->coding.setup;
    uint32_t last = x->rounds - 1;
    size_t bytes = gw_codec_bound(setup, call, range);
    set_reduced(x, range, last ? payload[last - 1] : NULL);
    memset(result, 0, range.count * sizeof(float));
    gw_status status = gw_codec_decode_add(setup, call, range, payload[last], bytes, x->scale, result, error);
    if (!status)
        status = gw_codec_settle(setup, call, range, gw_codec_stateful(setup) ? &t->state : NULL, payload[last], bytes,
                                 error);
    if (last) payload[last - 1] += call->reduced_bytes;
    payload[last] += bytes;
    return status;
}

static void finish_exact(gw_coded_exchange *x) {
    const float *exact = (const float *)(void *)x->in;
    for (int i = 0; i < x->count; i++) {
        gw_coded_runs runs = gw_coded_runs_of(x, &x->parts[i], -1);
        while (x->parts[i].tensor->exact && gw_coded_runs_next(&runs))
            for (uint64_t e = 0; e < runs.range.count; e++) x->result[i][runs.offset + e] = x->scale * *exact++;
    }
}

static gw_status finish_merged(gw_coded_exchange *x, gw_error *error) {
    gw_status status = GW_OK;
    for (int i = 0; !status && i < x->count; i++) {
        gw_coded_tensor *t = x->parts[i].tensor;
        gw_coded_runs runs = gw_coded_runs_of(x, &x->parts[i], -1);
        uint8_t *payload[GW_CODING_ROUNDS_MAX];
        find_payloads(x, i, payload);
        if (gw_coded_watch_exact(x, i)) continue;
        while (!status && !t->exact && gw_coded_runs_next(&runs))
            status = decode_run(x, t, runs.range, x->result[i] + runs.offset, payload, error);
    }
    return status;
}

/* Owned and gathered. */

static gw_status encode_all(gw_coded_exchange *x, gw_error *error) {
    gw_status status = GW_OK;
    for (int i = 0; i < x->count; i++) gw_coded_watch_prepare(x, i);
    if (x->form == GW_FORM_ONE_PASS) {
        status = encode_for(x, -1, x->out, &x->in_lengths[x->rank], error);
        for (int r = 0; r < x->world; r++)
            if (r != x->rank) x->in_lengths[r] = 0;
        return status;
    }
    for (int r = 0; !status && r < x->world; r++)
        status = encode_for(x, r, x->out + (size_t)r * x->room, &x->out_lengths[r], error);
    return status;
}

/* Adds what all members sent for the own stripes, in their order, where the result will be: the gradient has been
 * encoded. */
static gw_status add_own(gw_coded_exchange *x, gw_error *error) {
    gw_status status = GW_OK;
    for (int r = 0; !status && r < x->world; r++) {
        const uint8_t *at = x->in + (size_t)r * x->room, *end = at + x->in_lengths[r];
        for (int i = 0; !status && i < x->count; i++) {
            gw_coded_runs runs = gw_coded_runs_of(x, &x->parts[i], x->rank);
            if (gw_coded_watch_exact(x, i)) continue;
            while (!status && gw_coded_runs_next(&runs)) {
                float *sum = x->result[i] + runs.offset;
                if (r == 0) memset(sum, 0, runs.range.count * sizeof *sum);
                status = gw_coding_decode_add(&x->coding, x->parts[i].tensor, &x->coding.setup, runs.range, r, &at, end,
                                              1, sum, error);
            }
        }
    }
    return status;
}

/* The owner's part: adds, and encodes the sum again. */
static gw_status sum_own_shares(gw_coded_exchange *x, gw_error *error) {
    gw_status status = add_own(x, error);
    uint8_t *at = x->out;
    x->coding.call.pass = 1;
    for (int i = 0; !status && i < x->count; i++) {
        gw_coded_tensor *t = x->parts[i].tensor;
        gw_coded_runs runs = gw_coded_runs_of(x, &x->parts[i], x->rank);
        gw_codec_report before = gw_coded_watch_before(x, i);
        if (gw_coded_watch_exact(x, i)) continue;
        while (!status && gw_coded_runs_next(&runs))
            status = gw_coding_encode(&x->coding, t, &x->coding.second, &t->second, runs.range,
                                      x->result[i] + runs.offset, &at, error);
        gw_coded_watch_after(x, i, &before);
    }
    for (int r = 0; r < x->world; r++) x->in_lengths[r] = 0;
    x->in_lengths[x->rank] = (uint64_t)(at - x->out);
    return status;
}

/* What came from every member: sums of what it owns (owned), or its own gradient (gathered). */
static gw_status decode_all(gw_coded_exchange *x, gw_error *error) {
    bool gathered = x->form == GW_FORM_ONE_PASS;
    gw_status status = GW_OK;
    for (int r = 0; !status && r < x->world; r++) {
        const uint8_t *at = x->in + (size_t)r * x->room, *end = at + x->in_lengths[r];
        for (int i = 0; !status && i < x->count; i++) {
            gw_coded_runs runs = gw_coded_runs_of(x, &x->parts[i], gathered ? -1 : r);
            if (gw_coded_watch_exact(x, i)) continue;
            while (!status && gw_coded_runs_next(&runs)) {
                float *result = x->result[i] + runs.offset;
                if (!gathered || r == 0) memset(result, 0, runs.range.count * sizeof *result);
                status = gw_coding_decode_add(&x->coding, x->parts[i].tensor,
                                              gathered ? &x->coding.setup : &x->coding.second, runs.range, r, &at, end,
                                              x->scale, result, error);
            }
        }
    }
    return status;
}

/* What a recording is told. */

/* The recording under way; NULL: none. */
static gw_trace *tracing(gw_coded_exchange *x) {
    gw_trace *trace = gw_engine_tracing(gw_core_engine(x->core));
    if (!trace || gw_trace_opened(trace) == x->named_in) return trace;
    x->error_name = gw_trace_name(trace, "compression error");
    x->named_in = gw_trace_opened(trace);
    return trace;
}

static gw_time begin_phase(gw_coded_exchange *x) {
    gw_trace *trace = tracing(x);
    return trace ? gw_trace_now(trace) : 0;
}

static void end_phase(gw_coded_exchange *x, gw_trace_kind kind, gw_time begun) {
    gw_engine_trace_phase(tracing(x), kind, x->coding.call.step, x->label, 0, begun);
}

/* Of all tensors together: how much of the gradient's norm this step's encoding lost. */
static void trace_error(gw_coded_exchange *x) {
    gw_trace *trace = tracing(x);
    double input = 0, lost = 0;
    for (int i = 0; trace && i < x->count; i++) {
        input += x->parts[i].tensor->report.input;
        lost += x->parts[i].tensor->report.error;
    }
    if (trace && input > 0) gw_trace_value(trace, x->coding.call.step, x->error_name, sqrt(lost / input));
}

/* The machine. */

void gw_coded_exchange_label(gw_coded_exchange *x, uint32_t label) { x->label = label; }

void gw_coded_exchange_urgency(gw_coded_exchange *x, uint8_t urgency) { x->urgency = urgency; }

void gw_coded_exchange_rate_growth(gw_coded_exchange *x, float growth) { x->coding.call.rate_growth = growth; }

void gw_coded_exchange_begin(gw_coded_exchange *x, uint64_t step, const float *const *gradient, float *const *result,
                             bool average) {
    x->gradient = gradient;
    x->result = result;
    x->scale = average ? 1.0f / (float)x->ranks : 1.0f;
    x->coding.call.step = step;
    x->coding.call.mean = average;
    x->coding.call.round = x->coding.call.pass = 0;
    x->next = 0;
    x->samples = x->watches && x->begun++ % GW_CODEC_WATCH_EVERY == 0;
    x->phase = PHASE_EXACT;
}

static gw_status encode_and_start(gw_coded_exchange *x, gw_time now, gw_error *error) {
    gw_time begun = begin_phase(x);
    if (x->form == GW_FORM_IN_FLIGHT) {
        gw_status status = encode_round(x, error);
        end_phase(x, GW_TRACE_ENCODED, begun);
        if (!status && x->coding.call.round == 0 && x->exact_count) status = start_exact(x, now, error);
        x->phase = PHASE_REDUCED;
        bool half = x->halves && x->coding.call.round + 1 == x->rounds;
        return status ? status : start_merged(x, half ? GW_COLL_REDUCE_SCATTER : GW_COLL_ALLREDUCE, now, error);
    }
    gw_status status = encode_all(x, error);
    end_phase(x, GW_TRACE_ENCODED, begun);
    bool gathered = x->form == GW_FORM_ONE_PASS;
    x->phase = gathered ? PHASE_SPREAD : PHASE_SUM;
    return status ? status
                  : start_varying(x, gathered ? GW_COLL_ALLGATHER : GW_COLL_ALLTOALL, x->out, x->in, now, error);
}

static gw_status start_spread(gw_coded_exchange *x, gw_time now, gw_error *error) {
    if (x->form == GW_FORM_IN_FLIGHT) return start_merged(x, GW_COLL_ALLGATHER, now, error);
    return start_varying(x, GW_COLL_ALLGATHER, x->out, x->in, now, error);
}

static void copy(uint8_t *memory, uint8_t *kept, size_t bytes, bool back) {
    if (back) memcpy(memory, kept, bytes);
    else memcpy(kept, memory, bytes);
}

/* Between the halves the payload memory is not ours. */
static void keep(gw_coded_exchange *x, bool back) {
    if (x->form == GW_FORM_ONE_PASS) return; /* it has no second half */
    if (x->form == GW_FORM_TWO_PASS) {
        if (back) memset(x->in_lengths, 0, (size_t)x->world * sizeof *x->in_lengths);
        copy((uint8_t *)&x->in_lengths[x->rank], (uint8_t *)&x->kept_length, sizeof x->kept_length, back);
        copy(x->out, x->kept, x->kept_length, back);
        return;
    }
    size_t unit = x->coding.setup.codec->merge_unit, earlier = x->rounds > 1 ? x->merged_bytes[0] : 0, offset, own;
    gw_part(x->merged_bytes[x->rounds - 1] / unit, x->world, x->rank, &offset, &own);
    copy(x->out, x->kept, earlier, back);
    copy(round_payload(x, x->rounds - 1) + offset * unit, x->kept + earlier, own * unit, back);
}

static gw_status stop_halfway(gw_coded_exchange *x) {
    keep(x, false);
    x->phase = PHASE_HALFWAY;
    return GW_OK;
}

void gw_coded_exchange_go_on(gw_coded_exchange *x) {
    keep(x, true);
    x->phase = PHASE_RESUMED;
}

/* The guard judges a tensor when all of it has been sent. */
static void part_over(const gw_coded_exchange *x, gw_coded_tensor *t) {
    if (++t->parts_over < t->parts) return;
    t->parts_over = 0;
    gw_coding_guard(&x->coding, t);
}

static gw_status end_step(gw_coded_exchange *x) {
    for (int i = 0; i < x->count; i++) part_over(x, x->parts[i].tensor);
    x->phase = x->form == GW_FORM_ONE_PASS && x->halves ? PHASE_HALFWAY : PHASE_OVER;
    return GW_OK;
}

/* One phase, its operation being done. */
static gw_status advance(gw_coded_exchange *x, gw_time now, gw_error *error) {
    gw_status status = GW_OK;
    gw_time begun = begin_phase(x);
    switch (x->phase) {
    case PHASE_EXACT:
        if (gw_coded_watch_send_exact(x, now, &status, error)) return status;
        x->phase = PHASE_ENCODE;
        return GW_OK;
    case PHASE_ENCODE: return encode_and_start(x, now, error);
    case PHASE_REDUCED:
        if (++x->coding.call.round < x->rounds) return encode_and_start(x, now, error);
        x->coding.call.round--;
        finish_exact(x);
        if (x->halves) return stop_halfway(x);
        status = finish_merged(x, error);
        break;
    case PHASE_SUM:
        status = sum_own_shares(x, error);
        end_phase(x, GW_TRACE_REDUCED, begun);
        if (!status && x->halves) return stop_halfway(x);
        x->phase = PHASE_SPREAD;
        return status ? status : start_spread(x, now, error);
    case PHASE_RESUMED:
        x->phase = x->form == GW_FORM_ONE_PASS ? PHASE_OVER : PHASE_SPREAD; /* one pass has all results already */
        return x->phase == PHASE_OVER ? GW_OK : start_spread(x, now, error);
    case PHASE_SPREAD: status = x->form == GW_FORM_IN_FLIGHT ? finish_merged(x, error) : decode_all(x, error); break;
    case PHASE_WATCH: gw_coded_watch_judge(x); return end_step(x);
    case PHASE_HALFWAY:
    case PHASE_OVER: return GW_OK;
    }
    end_phase(x, GW_TRACE_DECODED, begun);
    trace_error(x);
    if (status || !x->samples) return status ? status : end_step(x);
    x->phase = PHASE_WATCH;
    return gw_coded_watch_start(x, now, error);
}

static gw_status reap(gw_op **op) {
    if (!*op) return GW_OK;
    gw_status status = gw_op_status(*op);
    gw_op_release(*op);
    *op = NULL;
    return status;
}

bool gw_coded_exchange_next(gw_coded_exchange *x, gw_time now, gw_op **op, gw_status *status, gw_error *error) {
    for (;;) {
        gw_op *awaited = x->op && !gw_op_done(x->op) ? x->op : NULL;
        bool last = x->phase == PHASE_REDUCED && x->coding.call.round + 1 == x->rounds;
        if (!awaited && last && x->exact_op && !gw_op_done(x->exact_op)) awaited = x->exact_op;
        *op = awaited;
        if (awaited) return false;
        *status = reap(&x->op);
        if (!*status && last) *status = reap(&x->exact_op);
        gw_engine_explain(gw_core_engine(x->core), *status, error);
        gw_error why = {.rank = -1};
        if (!*status && (*status = advance(x, now, &why)) != GW_OK) {
            gw_core_abort(x->core, &why, now); /* the others wait for what will not come */
            if (!error->status) *error = why;
        }
        if (!*status && x->phase == PHASE_HALFWAY) return true;
        if (*status || x->phase == PHASE_OVER) {
            reap(&x->exact_op);
            x->phase = PHASE_OVER;
            return true;
        }
    }
}
