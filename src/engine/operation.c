/* operation.c - starts operations: signature, plan, memory, number. Operations are pooled, so nothing is allocated in
 * the steady state. */
#include "engine/engine_internal.h"

#include <assert.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "engine/engine_trace.h"

static bool reserve(void **memory, size_t *have, size_t need, size_t size) {
    if (need <= *have) return true;
    void *grown = realloc(*memory, need * size);
    if (!grown) return false;
    *memory = grown;
    *have = need;
    return true;
}

/* Of an alltoallv 0: there each pair of ranks has a count of its own (gw_op_expects). */
static uint64_t signed_count(const gw_op_spec *spec, int world) {
    if (!spec->counts || spec->collective == GW_COLL_ALLTOALLV) return spec->counts ? 0 : spec->count;
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (int r = 0; r < world; r++) hash = (hash ^ spec->counts[r]) * UINT64_C(0x100000001b3);
    return hash;
}

static bool is_pair(const gw_op_spec *spec) {
    return spec->collective == GW_COLL_SEND || spec->collective == GW_COLL_RECV;
}

gw_signature gw_op_sign(const gw_team *team, const gw_op_spec *spec) {
    bool pair = is_pair(spec);
    return (gw_signature){.collective = (uint8_t)(pair ? GW_COLL_SEND : spec->collective),
                          .dtype = (uint8_t)spec->dtype,
                          .redop = (uint8_t)spec->redop,
                          .builder = gw_plan_id(spec->builder),
                          .root = pair ? -1 : spec->root,
                          .count = signed_count(spec, team->size),
                          .scale = gw_signature_scale(&spec->scale)};
}

gw_reduction gw_op_reduction(const gw_team *team, const gw_op_spec *spec) {
    assert(!spec->scale.set || (!spec->merge && !gw_scale_refuses(spec->dtype, spec->redop)));
    return (gw_reduction){.dtype = spec->dtype, .op = spec->redop, .world = team->size, .scale = spec->scale};
}

size_t gw_chunk_count(size_t asked, size_t unit) {
    size_t count = (asked ? asked : GW_CHUNK_BYTES) / unit;
    return count ? count : 1;
}

/* GW_PIPELINE messages of the usual size are 2 MiB, but a path of 100 Mbit/s and 100 ms each way holds 2.5 MB. So large
 * sends go in larger messages. Both sides compute the same, because their counts are equal. */
static size_t chunk_bytes(const gw_op_spec *spec, size_t unit) {
    size_t share = spec->count * unit / GW_PIPELINE / GW_EAGER_BYTES * GW_EAGER_BYTES;
    if (spec->chunk_bytes || !is_pair(spec) || share <= GW_CHUNK_BYTES) return spec->chunk_bytes;
    return share < GW_SEND_CHUNK_BYTES ? share : GW_SEND_CHUNK_BYTES;
}

/* A receive from any source has the same plan as from one of them. */
static int planned_root(const gw_team *team, const gw_op_spec *spec) {
    bool any = spec->collective == GW_COLL_RECV && spec->tagged && spec->root == GW_ANY_SOURCE;
    return any ? (team->rank + 1) % team->size : spec->root;
}

gw_plan_request gw_op_request(const gw_team *team, const gw_op_spec *spec, size_t wide) {
    gw_plan_request request = {.collective = spec->collective,
                               .topology = team->topology,
                               .rank = team->rank,
                               .count = spec->count,
                               .counts = spec->counts,
                               .root = planned_root(team, spec),
                               .pipeline = GW_PIPELINE,
                               .apart = spec->collective == GW_COLL_ALLTOALL && spec->in != spec->out};
    request.chunk_count = gw_chunk_count(chunk_bytes(spec, wide), wide);
    request.topology.coll = team->coll != NULL;
    request.topology.native =
        team->native && !spec->scale.set && team->native->ops->native->supports(spec->dtype, spec->redop);
    return request;
}

static uint64_t count_coll_actions(const gw_op *op, uint32_t stream) {
    uint64_t count = 0;
    for (uint64_t i = 0; i < op->streams[stream].desc.actions; i++) {
        gw_action action;
        gw_plan_action(&op->plan, stream, i, &action);
        count += action.kind == GW_ACTION_SHM;
    }
    return count;
}

static gw_status lay_out(gw_op *op, const gw_op_spec *spec, gw_error *error) {
    gw_team *team = op->team;
    op->spec = *spec;
    op->spec.counts = NULL;
    op->coll_actions = op->coll_started = 0;
    op->reduction = gw_op_reduction(team, spec);
    op->raw = spec->unit_bytes ? spec->unit_bytes : gw_dtype_bytes(spec->dtype);
    op->wide = spec->unit_bytes ? spec->unit_bytes : gw_dtype_bytes(gw_accumulator(spec->dtype, spec->redop));
    if (spec->out_lengths && spec->in_lengths) {
        for (int r = 0; r < team->size; r++) spec->out_lengths[r] = 0;
        spec->out_lengths[team->rank] = spec->in_lengths[team->rank];
    }
    op->signature = gw_op_sign(team, spec);
    if (spec->counts) {
        size_t entries = gw_counts_entries(spec->collective, team->size);
        if (!reserve((void **)&op->counts, &op->counts_capacity, entries, sizeof *op->counts)) goto memory;
        memcpy(op->counts, spec->counts, entries * sizeof *op->counts);
        op->spec.counts = op->counts;
    }
    gw_plan_request request = gw_op_request(team, &op->spec, op->wide);
    gw_status status = gw_plan_make(&op->plan, spec->builder, &request, error);
    if (status) return status;
    if (!reserve((void **)&op->streams, &op->stream_capacity, op->plan.streams, sizeof *op->streams)) goto memory;
    if (!reserve((void **)&op->work, &op->work_capacity, op->plan.work_count * op->wide, 1)) goto memory;
    for (uint32_t s = 0; s < op->plan.streams; s++) {
        gw_stream_state *stream = &op->streams[s];
        memset(stream, 0, offsetof(gw_stream_state, packet));
        gw_plan_stream(&op->plan, s, &stream->desc);
        stream->peer = stream->desc.peer < 0 ? -1 : team->members[stream->desc.peer];
        if (team->coll && stream->desc.kind == GW_STREAM_LOCAL) op->coll_actions += count_coll_actions(op, s);
    }
    op->coll_due = team->coll_planned += op->coll_actions;
    op->native_due = op->plan.builder == &gw_plan_transport_allreduce ? op->streams[0].desc.actions : 0;
    return GW_OK;
memory:
    return gw_fail(error, GW_MEMORY, "out of memory for %s of %zu elements", gw_collective_name(spec->collective),
                   spec->count);
}

static gw_status number_op(gw_op *op, gw_error *error) {
    op->requested = false;
    if (op->spec.collective == GW_COLL_SEND || op->spec.collective == GW_COLL_RECV) return gw_pair_number(op, error);
    op->pair_peer = -1;
    op->number = op->team->next_op++;
    return GW_OK;
}

gw_status gw_op_start(gw_op **out, gw_team *team, const gw_op_spec *spec, gw_time now, gw_error *error) {
    gw_engine *engine = team->engine;
    if (engine->error.status) {
        if (error && error->status == GW_OK) *error = engine->error;
        return engine->error.status;
    }
    gw_op *op = engine->spare;
    if (op) engine->spare = op->next;
    else op = calloc(1, sizeof *op);
    if (!op) return gw_fail(error, GW_MEMORY, "out of memory for an operation");
    op->engine = engine;
    op->team = team;
    gw_status status = lay_out(op, spec, error);
    if (!status) status = number_op(op, error);
    if (status) {
        op->next = engine->spare;
        engine->spare = op;
        return status;
    }
    op->done = op->warned = false;
    op->active = true;
    op->next = NULL;
    gw_op **tail = &engine->active;
    while (*tail) tail = &(*tail)->next;
    *tail = op;
    engine->pending++;
    engine->now = op->progress_at = now;
    op->started_at = 0;
    if (engine->trace) gw_engine_trace_started(op);
    if (gw_op_unmatched(op)) gw_pair_match(op);
    else gw_flow_claim_early(op);
    if (team->fast.running) gw_fast_path_hand_over(op);
    if (!engine->halted) gw_op_advance(op);
    *out = op;
    return GW_OK;
}

void gw_op_allow(gw_op *op, uint64_t messages) {
    op->spec.allowed = messages;
    gw_op_mark(op);
}

uint64_t gw_op_received(const gw_op *op) { return op->streams[0].done; }
bool gw_op_done(const gw_op *op) { return op->done; }
gw_status gw_op_status(const gw_op *op) { return op->status; }

void gw_op_release(gw_op *op) {
    op->next = op->engine->spare;
    op->engine->spare = op;
}

void gw_op_note(const gw_op *op, gw_op_brief *brief) {
    *brief = (gw_op_brief){.signature = op->signature,
                           .number = op->number,
                           .pair_peer = op->pair_peer,
                           .sends = op->spec.collective == GW_COLL_SEND,
                           .tag = op->spec.tagged ? op->spec.tag : -1};
}

const char *gw_op_brief_text(const gw_op_brief *brief, char text[GW_TEXT_BYTES]) {
    char signature[GW_TEXT_BYTES], peer[32] = "from any rank", tag[32] = "";
    gw_signature_text(&brief->signature, signature);
    if (brief->pair_peer >= 0)
        snprintf(peer, sizeof peer, "%s rank %d", brief->sends ? "to" : "from", brief->pair_peer);
    if (brief->tag >= 0) snprintf(tag, sizeof tag, " with tag %d", brief->tag);
    if (brief->pair_peer >= 0 || brief->tag >= 0) snprintf(text, GW_TEXT_BYTES, "%.90s %s%s", signature, peer, tag);
    else snprintf(text, GW_TEXT_BYTES, "collective #%" PRIu64 ", %.120s", brief->number, signature);
    return text;
}

const char *gw_op_text(const gw_op *op, char text[GW_TEXT_BYTES]) {
    gw_op_brief brief;
    gw_op_note(op, &brief);
    return gw_op_brief_text(&brief, text);
}
