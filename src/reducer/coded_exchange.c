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

#include "engine/engine_trace.h"

/* Pieces. */

/* The worker's pass: pieces for one owner, or for all. */
static gw_status encode_for(gw_coded_exchange *x, int owner, uint8_t *part, uint64_t *length, gw_error *error) {
    uint8_t *at = part;
    gw_status status = GW_OK;
    for (int i = 0; !status && i < x->count; i++) {
        gw_coded_tensor *t = &x->tensors[i];
        gw_codec_range range = owner < 0 ? gw_codec_whole(&t->what) : gw_coded_share(x, t, owner);
        status = gw_coding_encode(&x->coding, t, &x->coding.setup, &t->state, range, x->gradient[i] + range.first, &at,
                                  error);
    }
    *length = (uint64_t)(at - part);
    return status;
}

/* Operations. */

static gw_status start_varying(gw_coded_exchange *x, gw_collective what, const void *in, void *out, gw_time now,
                               gw_error *error) {
    const gw_plan_builder *builder =
        what == GW_COLL_ALLGATHER && x->room > 64 * 1024 ? &gw_plan_ring : &gw_plan_pairwise;
    gw_op_spec spec = {.collective = what, .builder = builder, .in = in, .out = out, .count = x->room, .dtype = GW_U8,
                       .root = -1, .unit_bytes = 1, .label = x->label, .urgency = x->urgency,
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

/* All of it, or one half: every rank has its part of the payload reduced, and then gets the others'. */
static gw_status start_merged(gw_coded_exchange *x, gw_collective what, gw_time now, gw_error *error) {
    size_t unit = x->coding.setup.codec->merge_unit, units = x->merged_bytes[x->coding.call.round] / unit;
    size_t offset = 0, own;
    uint8_t *payload = round_payload(x, x->coding.call.round);
    gw_op_spec spec = {.collective = what, .builder = &gw_plan_ring, .in = payload, .out = payload, .count = units,
                       .dtype = GW_U8, .root = -1, .unit_bytes = unit, .merge = merge_payloads, .merge_ctx = x,
                       .label = x->label, .urgency = x->urgency};
    if (what != GW_COLL_ALLREDUCE) {
        for (int r = 0; r < x->world; r++) gw_part(units, x->world, r, &offset, &x->parts[r]);
        gw_part(units, x->world, x->rank, &offset, &own);
        spec.count = 0;
        spec.counts = x->parts;
        if (what == GW_COLL_REDUCE_SCATTER) spec.out = payload + offset * unit;
        else spec.in = payload + offset * unit;
    }
    return gw_core_start(x->core, &x->op, x->team, &spec, now, error);
}

/* Tensors that a merging codec does not carry travel as they are, in one all-reduce. */
static gw_status start_exact(gw_coded_exchange *x, gw_time now, gw_error *error) {
    float *at = (float *)x->in;
    for (int i = 0; i < x->count; i++) {
        if (!x->tensors[i].exact) continue;
        memcpy(at, x->gradient[i], x->tensors[i].what.count * sizeof *at);
        at += x->tensors[i].what.count;
    }
    gw_op_spec spec = {.collective = GW_COLL_ALLREDUCE, .builder = &gw_plan_ring, .in = x->in, .out = x->in,
                       .count = x->exact_count, .dtype = GW_F32, .redop = GW_SUM, .root = -1, .label = x->label,
                       .urgency = x->urgency};
    return gw_core_start(x->core, &x->exact_op, x->team, &spec, now, error);
}

/* Merged. */

static gw_status encode_round(gw_coded_exchange *x, gw_error *error) {
    gw_codec_call *call = &x->coding.call;
    const gw_codec_setup *setup = &x->coding.setup;
    uint32_t round = call->round;
    gw_status status = GW_OK;
    for (int i = 0; !status && i < x->count; i++) {
        gw_coded_tensor *t = &x->tensors[i];
        const gw_coded_exchange_place *place = &x->places[i];
        if (t->exact) continue;
        if (round == 0) gw_coding_prepare(&x->coding, t, x->gradient[i]);
        call->clip = t->clip;
        call->reduced = round ? round_payload(x, round - 1) + place->at[round - 1] : NULL;
        call->reduced_bytes = round ? place->bytes[round - 1] : 0;
        size_t bytes;
        status = gw_codec_encode(setup, call, gw_codec_whole(&t->what), gw_codec_stateful(setup) ? &t->state : NULL,
                                 x->gradient[i], round_payload(x, round) + place->at[round], place->bytes[round],
                                 &bytes, &t->report, error);
    }
    return status;
}

static gw_status finish_merged(gw_coded_exchange *x, gw_error *error) {
    uint32_t last = x->rounds - 1;
    gw_codec_call *call = &x->coding.call;
    const gw_codec_setup *setup = &x->coding.setup;
    const float *exact = (const float *)x->in;
    gw_status status = GW_OK;
    for (int i = 0; !status && i < x->count; i++) {
        gw_coded_tensor *t = &x->tensors[i];
        const gw_coded_exchange_place *place = &x->places[i];
        gw_codec_range whole = gw_codec_whole(&t->what);
        if (t->exact) {
            for (uint64_t e = 0; e < t->what.count; e++) x->result[i][e] = x->scale * exact[e];
            exact += t->what.count;
            continue;
        }
        call->reduced = last ? round_payload(x, last - 1) + place->at[last - 1] : NULL;
        call->reduced_bytes = last ? place->bytes[last - 1] : 0;
        const uint8_t *payload = round_payload(x, last) + place->at[last];
        memset(x->result[i], 0, t->what.count * sizeof(float));
        status = gw_codec_decode_add(setup, call, whole, payload, place->bytes[last], x->scale, x->result[i], error);
        if (!status)
            status = gw_codec_settle(setup, call, whole, gw_codec_stateful(setup) ? &t->state : NULL, payload,
                                     place->bytes[last], error);
    }
    return status;
}

/* Owned and gathered. */

static gw_status encode_all(gw_coded_exchange *x, gw_error *error) {
    gw_status status = GW_OK;
    for (int i = 0; i < x->count; i++) gw_coding_prepare(&x->coding, &x->tensors[i], x->gradient[i]);
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

/* The owner's part: adds what all ranks sent for the own shares, in rank order, and encodes the sum again. */
static gw_status sum_own_shares(gw_coded_exchange *x, gw_error *error) {
    gw_status status = GW_OK;
    memset(x->sum, 0, x->sum_count * sizeof(float));
    for (int r = 0; !status && r < x->world; r++) {
        const uint8_t *at = x->in + (size_t)r * x->room, *end = at + x->in_lengths[r];
        float *sum = x->sum;
        for (int i = 0; !status && i < x->count; i++) {
            gw_codec_range own = gw_coded_share(x, &x->tensors[i], x->rank);
            status =
                gw_coding_decode_add(&x->coding, &x->tensors[i], &x->coding.setup, own, r, &at, end, 1, sum, error);
            sum += own.count;
        }
    }
    uint8_t *at = x->out;
    const float *sum = x->sum;
    x->coding.call.pass = 1;
    for (int i = 0; !status && i < x->count; i++) {
        gw_codec_range own = gw_coded_share(x, &x->tensors[i], x->rank);
        gw_coded_tensor *t = &x->tensors[i];
        status = gw_coding_encode(&x->coding, t, &x->coding.second, &t->second, own, sum, &at, error);
        sum += own.count;
    }
    for (int r = 0; r < x->world; r++) x->in_lengths[r] = 0;
    x->in_lengths[x->rank] = (uint64_t)(at - x->out);
    return status;
}

/* What came from every rank: sums of its shares (owned), or its own gradient (gathered). */
static gw_status decode_all(gw_coded_exchange *x, gw_error *error) {
    bool gathered = x->form == GW_FORM_ONE_PASS;
    gw_status status = GW_OK;
    for (int i = 0; i < x->count; i++) memset(x->result[i], 0, x->tensors[i].what.count * sizeof(float));
    for (int r = 0; !status && r < x->world; r++) {
        const uint8_t *at = x->in + (size_t)r * x->room, *end = at + x->in_lengths[r];
        for (int i = 0; !status && i < x->count; i++) {
            const gw_coded_tensor *t = &x->tensors[i];
            gw_codec_range range = gathered ? gw_codec_whole(&t->what) : gw_coded_share(x, t, r);
            status = gw_coding_decode_add(&x->coding, t, gathered ? &x->coding.setup : &x->coding.second, range, r, &at,
                                          end, x->scale, x->result[i] + range.first, error);
        }
    }
    return status;
}

/* What a recording is told. */

/* The recording under way, which knows the exchange by its first tensor; NULL: none. */
static gw_trace *tracing(gw_coded_exchange *x) {
    gw_trace *trace = gw_engine_tracing(gw_core_engine(x->core));
    if (!trace || gw_trace_opened(trace) == x->named_in) return trace;
    char text[GW_TEXT_BYTES];
    snprintf(text, sizeof text, x->count > 1 ? "%.100s and %d more" : "%.100s", x->tensors[0].what.name, x->count - 1);
    x->label = gw_trace_name(trace, text);
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
        input += x->tensors[i].report.input;
        lost += x->tensors[i].report.error;
    }
    if (trace && input > 0) gw_trace_value(trace, x->coding.call.step, x->error_name, sqrt(lost / input));
}

/* The machine. */

void gw_coded_exchange_urgency(gw_coded_exchange *x, uint8_t urgency) { x->urgency = urgency; }

void gw_coded_exchange_rate_growth(gw_coded_exchange *x, float growth) { x->coding.call.rate_growth = growth; }

void gw_coded_exchange_begin(gw_coded_exchange *x, uint64_t step, const float *const *gradient, float *const *result,
                             bool average) {
    x->gradient = gradient;
    x->result = result;
    x->scale = average ? 1.0f / (float)x->world : 1.0f;
    x->coding.call.step = step;
    x->coding.call.round = x->coding.call.pass = 0;
    x->phase = PHASE_ENCODE;
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

void gw_coded_exchange_go_on(gw_coded_exchange *x) { x->phase = PHASE_RESUMED; }

/* One phase, its operation being done. */
static gw_status advance(gw_coded_exchange *x, gw_time now, gw_error *error) {
    gw_status status = GW_OK;
    gw_time begun = begin_phase(x);
    switch (x->phase) {
    case PHASE_ENCODE: return encode_and_start(x, now, error);
    case PHASE_REDUCED:
        if (++x->coding.call.round < x->rounds) return encode_and_start(x, now, error);
        x->coding.call.round--;
        if (x->halves) {
            x->phase = PHASE_HALFWAY;
            return GW_OK;
        }
        status = finish_merged(x, error);
        break;
    case PHASE_SUM:
        status = sum_own_shares(x, error);
        end_phase(x, GW_TRACE_REDUCED, begun);
        x->phase = x->halves ? PHASE_HALFWAY : PHASE_SPREAD;
        return status || x->halves ? status : start_spread(x, now, error);
    case PHASE_RESUMED: x->phase = PHASE_SPREAD; return start_spread(x, now, error);
    case PHASE_SPREAD: status = x->form == GW_FORM_IN_FLIGHT ? finish_merged(x, error) : decode_all(x, error); break;
    case PHASE_HALFWAY:
    case PHASE_OVER: return GW_OK;
    }
    end_phase(x, GW_TRACE_DECODED, begun);
    trace_error(x);
    for (int i = 0; i < x->count; i++) gw_coding_guard(&x->coding, &x->tensors[i]);
    x->phase = PHASE_OVER;
    return status;
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
