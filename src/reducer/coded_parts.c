/* coded_parts.c - one run of a reduce-scatter or an all-gather through a codec. See coded_parts.h. */
#include "reducer/coded_parts_internal.h"

#include <string.h>

#include "arch/choose_plan.h"
#include "base/dtype.h"
#include "engine/engine_trace.h"

#define RING_BYTES_MIN (64 * 1024) /* below, one round of messages is cheaper than p-1 */

static bool reduces(const gw_coded_parts *x) { return x->config.collective == GW_COLL_REDUCE_SCATTER; }

/* The recording in progress, which knows the data by their name; NULL: none. */
static gw_trace *tracing(gw_coded_parts *x) {
    gw_trace *trace = gw_engine_tracing(gw_core_engine(x->config.core));
    if (!trace || gw_trace_opened(trace) == x->labelled_in) return trace;
    x->label = gw_trace_name(trace, x->config.name);
    x->labelled_in = gw_trace_opened(trace);
    return trace;
}

static gw_time begin_phase(gw_coded_parts *x) {
    gw_trace *trace = tracing(x);
    return trace ? gw_trace_now(trace) : 0;
}

static void end_phase(gw_coded_parts *x, gw_trace_kind kind, gw_time begun) {
    if (begun) gw_engine_trace_phase(tracing(x), kind, x->coding.call.step, x->label, 0, begun);
}

/* Operations. */

static const gw_plan_builder *builder_of(const char *arch, const gw_op_spec *spec, gw_team *team, size_t element) {
    gw_plan_request request = {.collective = spec->collective, .topology = *gw_team_topology(team),
                               .rank = gw_team_rank(team), .counts = spec->counts, .root = -1, .chunk_count = 1,
                               .pipeline = GW_PIPELINE};
    return gw_arch_choose(arch, &request, element);
}

/* A mean of two levels is divided once, in the lanes. */
gw_op_spec gw_parts_lane_spec(const gw_coded_parts *x, const gw_parts_lane *lane, const void *in, void *out) {
    const gw_coded_parts_config *c = &x->config;
    gw_op_spec spec = {.collective = c->collective, .in = in, .out = out, .counts = lane->counts, .dtype = c->dtype,
                       .redop = c->redop, .root = -1, .chunk_bytes = c->chunk_bytes, .label = x->label};
    if (c->host_team && reduces(x) && c->redop == GW_AVG) {
        spec.redop = GW_SUM;
        spec.scale = gw_scale_of(1, 1.0 / x->world);
    }
    spec.builder = builder_of(c->host_team ? "auto" : c->arch, &spec, lane->team, x->element);
    return spec;
}

gw_op_spec gw_parts_host_spec(const gw_coded_parts *x) {
    uint8_t *data = x->config.by_lane, *own = data + x->host_place * x->element;
    gw_op_spec spec = {.collective = x->config.collective, .in = reduces(x) ? data : own,
                       .out = reduces(x) ? own : data,
                       .counts = x->host_counts, .dtype = x->config.dtype, .redop = GW_SUM, .root = -1,
                       .chunk_bytes = x->config.chunk_bytes, .label = x->label};
    spec.builder = builder_of("auto", &spec, x->config.host_team, x->element);
    return spec;
}

static gw_status start_host(gw_coded_parts *x, gw_time now, gw_error *error) {
    gw_op_spec spec = gw_parts_host_spec(x);
    x->phase = PARTS_IN_HOST;
    return gw_core_start(x->config.core, &x->op, x->config.host_team, &spec, now, error);
}

/* Payloads go straight to each member, or, where all get the same, around a ring. */
static const gw_plan_builder *payload_builder(const gw_coded_parts *x, size_t room) {
    const char *arch = x->config.arch;
    if (reduces(x) || strcmp(arch, "direct") == 0) return &gw_plan_pairwise;
    return strcmp(arch, "ring") == 0 || room > RING_BYTES_MIN ? &gw_plan_ring : &gw_plan_pairwise;
}

static gw_status start_payloads(gw_coded_parts *x, gw_parts_lane *lane, gw_time now, gw_error *error) {
    gw_op_spec spec = {.collective = reduces(x) ? GW_COLL_ALLTOALL : GW_COLL_ALLGATHER,
                       .builder = payload_builder(x, lane->room), .in = lane->out, .out = lane->in, .count = lane->room,
                       .dtype = GW_U8, .root = -1, .unit_bytes = 1, .in_lengths = reduces(x) ? lane->out_lengths : NULL,
                       .out_lengths = lane->in_lengths, .label = x->label};
    return gw_core_start(x->config.core, &lane->op, lane->team, &spec, now, error);
}

/* Coding. */

/* Nothing is sent for a part that belongs to another lane. */
static gw_status encode_part(gw_coded_parts *x, int rank, const float *values, uint8_t *payload, uint64_t *length,
                             gw_error *error) {
    uint8_t *at = payload;
    *length = 0;
    if (rank < 0) return GW_OK;
    gw_coded_tensor *t = &x->tensors[rank];
    gw_coding_prepare(&x->coding, t, values);
    gw_status status =
        gw_coding_encode(&x->coding, t, &x->coding.setup, &t->state, gw_codec_whole(&t->what), values, &at, error);
    gw_coding_guard(&x->coding, t);
    *length = (uint64_t)(at - payload);
    return status;
}

static gw_status encode_lane(gw_coded_parts *x, gw_parts_lane *lane, gw_error *error) {
    gw_status status = GW_OK;
    const float *data = (const float *)(const void *)x->source;
    for (int h = 0; reduces(x) && !status && h < x->config.lanes.hosts; h++)
        status = encode_part(x, lane->ranks[h], lane->ranks[h] < 0 ? NULL : data + x->places[lane->ranks[h]],
                             lane->out + (size_t)h * lane->room, &lane->out_lengths[h], error);
    if (!reduces(x)) {
        int own = x->config.lanes.host;
        memset(lane->in_lengths, 0, (size_t)x->config.lanes.hosts * sizeof *lane->in_lengths);
        status = encode_part(x, lane->ranks[own], x->in, lane->out, &lane->in_lengths[own], error);
    }
    return status;
}

/* Adds scale times the payload from a host to the part of a rank. */
static gw_status decode_part(gw_coded_parts *x, const gw_parts_lane *lane, int host, int rank, float scale, float *sum,
                             gw_error *error) {
    const gw_coded_tensor *t = &x->tensors[rank];
    const uint8_t *at = lane->in + (size_t)host * lane->room;
    int from = gw_team_member(lane->team, host);
    return gw_coding_decode_add(&x->coding, t, &x->coding.setup, gw_codec_whole(&t->what), from, &at,
                                at + lane->in_lengths[host], scale, sum, error);
}

/* The own part, from all hosts in their order. */
static gw_status add_own(gw_coded_parts *x, const gw_parts_lane *lane, gw_error *error) {
    float scale = x->config.redop == GW_AVG ? 1.0f / (float)x->world : 1.0f;
    gw_status status = GW_OK;
    if (lane->ranks[x->config.lanes.host] < 0) return GW_OK;
    memset(x->out, 0, x->config.counts[x->config.rank] * sizeof(float));
    for (int h = 0; !status && h < x->config.lanes.hosts; h++)
        status = decode_part(x, lane, h, x->config.rank, scale, x->out, error);
    return status;
}

static gw_status decode_lane(gw_coded_parts *x, const gw_parts_lane *lane, gw_error *error) {
    gw_status status = GW_OK;
    if (reduces(x)) return add_own(x, lane, error);
    for (int h = 0; !status && h < x->config.lanes.hosts; h++) {
        int rank = lane->ranks[h];
        if (rank < 0) continue;
        float *part = (float *)(void *)x->target + x->places[rank];
        memset(part, 0, x->config.counts[rank] * sizeof(float));
        status = decode_part(x, lane, h, rank, 1, part, error);
    }
    return status;
}

/* Lanes. */

static gw_status start_lane(gw_coded_parts *x, gw_parts_lane *lane, gw_time now, gw_error *error) {
    if (x->config.coded) {
        gw_time begun = begin_phase(x);
        gw_status status = encode_lane(x, lane, error);
        end_phase(x, GW_TRACE_ENCODED, begun);
        return status ? status : start_payloads(x, lane, now, error);
    }
    const void *in = reduces(x) ? x->source + lane->place * x->element : x->in;
    gw_op_spec spec = gw_parts_lane_spec(x, lane, in, reduces(x) ? x->out : x->target + lane->place * x->element);
    return gw_core_start(x->config.core, &lane->op, lane->team, &spec, now, error);
}

static gw_status start_lanes(gw_coded_parts *x, gw_time now, gw_error *error) {
    gw_status status = GW_OK;
    x->phase = PARTS_IN_LANES;
    for (int l = 0; !status && l < gw_parts_lane_count(x); l++) status = start_lane(x, &x->lanes[l], now, error);
    return status;
}

/* Moves parts between the caller's order, by ranks, and that of lanes. */
static void pack(gw_coded_parts *x, bool back) {
    uint8_t *data = x->config.by_lane, *whole = back ? x->out : (uint8_t *)(uintptr_t)x->in;
    for (int r = 0; r < x->world; r++) {
        size_t bytes = x->config.counts[r] * x->element;
        uint8_t *part = data + x->places[r] * x->element;
        memcpy(back ? whole : part, back ? part : whole, bytes);
        whole += bytes;
    }
}

/* The machine. */

void gw_coded_parts_begin(gw_coded_parts *x, uint64_t step, const void *in, void *out) {
    x->in = in;
    x->out = out;
    x->source = x->config.host_team ? x->config.by_lane : in;
    x->target = x->config.host_team ? x->config.by_lane : out;
    x->coding.call.step = step;
    x->error = (gw_error){.rank = -1};
    x->phase = PARTS_BEGUN;
}

static gw_status begin(gw_coded_parts *x, gw_time now, gw_error *error) {
    tracing(x); /* names its operations */
    if (x->world == 1) {
        if (x->total && x->in != x->out) memmove(x->out, x->in, x->total * x->element);
        x->phase = PARTS_OVER;
        return GW_OK;
    }
    if (!x->config.host_team || !reduces(x)) return start_lanes(x, now, error);
    pack(x, false);
    return start_host(x, now, error);
}

static gw_status after_lanes(gw_coded_parts *x, gw_time now, gw_error *error) {
    gw_status status = GW_OK;
    gw_time begun = x->config.coded ? begin_phase(x) : 0;
    for (int l = 0; x->config.coded && !status && l < gw_parts_lane_count(x); l++)
        status = decode_lane(x, &x->lanes[l], error);
    end_phase(x, GW_TRACE_DECODED, begun);
    x->phase = PARTS_OVER;
    return !status && x->config.host_team && !reduces(x) ? start_host(x, now, error) : status;
}

/* One phase, its operations being done. */
static gw_status advance(gw_coded_parts *x, gw_time now, gw_error *error) {
    switch (x->phase) {
    case PARTS_BEGUN: return begin(x, now, error);
    case PARTS_IN_HOST:
        if (reduces(x)) return start_lanes(x, now, error);
        pack(x, true);
        x->phase = PARTS_OVER;
        return GW_OK;
    case PARTS_IN_LANES: return after_lanes(x, now, error);
    case PARTS_OVER: break;
    }
    return GW_OK;
}

static bool in_progress(const gw_coded_parts *x) {
    bool any = x->op && !gw_op_done(x->op);
    for (int l = 0; !any && l < gw_parts_lane_count(x); l++) any = x->lanes[l].op && !gw_op_done(x->lanes[l].op);
    return any;
}

static void reap(gw_op **op, gw_status *status) {
    if (!*op) return;
    if (!*status) *status = gw_op_status(*op);
    gw_op_release(*op);
    *op = NULL;
}

static void end_operations(gw_coded_parts *x) {
    gw_status status = GW_OK;
    reap(&x->op, &status);
    for (int l = 0; l < gw_parts_lane_count(x); l++) reap(&x->lanes[l].op, &status);
    gw_engine_explain(gw_core_engine(x->config.core), status, &x->error);
}

bool gw_coded_parts_poll(gw_coded_parts *x, gw_time now) {
    bool moved = false;
    for (; x->phase != PARTS_OVER && !in_progress(x); moved = true) {
        gw_error why = {.rank = -1};
        end_operations(x);
        if (!x->error.status && advance(x, now, &why)) {
            gw_core_abort(x->config.core, &why, now); /* the others wait for what will not come */
            x->error = why;
        }
        if (x->error.status) x->phase = PARTS_OVER;
    }
    return moved;
}

bool gw_coded_parts_over(const gw_coded_parts *x) { return x->phase == PARTS_OVER; }
const gw_error *gw_coded_parts_error(const gw_coded_parts *x) { return &x->error; }
