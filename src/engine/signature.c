/* signature.c - the signature of a call: in frames, in shm collectives, as text, and in mismatch errors. */
#include "engine/engine_internal.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/dtype.h"
#include "base/half_bits.h"

/* Prescale and postscale as f32, so that both fit a frame. The bits of 1 are taken out of each: no scale is 0. */

static uint64_t factor_code(double factor) { return gw_float_bits((float)factor) ^ gw_float_bits(1); }
static double factor_of(uint64_t code) { return (double)gw_bits_float((uint32_t)code ^ gw_float_bits(1)); }

uint64_t gw_signature_scale(const gw_scale *scale) {
    return scale->set ? factor_code(scale->prescale) | factor_code(scale->postscale) << 32 : 0;
}

gw_signature gw_signature_of_frame(const gw_frame *frame) {
    return (gw_signature){.collective = frame->collective, .dtype = frame->dtype, .redop = frame->redop,
                          .builder = frame->builder, .root = frame->root, .count = frame->count,
                          .scale = frame->scale};
}

gw_signature gw_op_expects(gw_op *op, int peer, const gw_frame *frame) {
    gw_signature expected = op->signature;
    if (expected.collective != GW_COLL_ALLTOALLV) return expected;
    gw_stream_kind kind = frame->kind == GW_FRAME_GRANT ? GW_STREAM_SEND : GW_STREAM_RECV;
    const gw_stream_state *stream = gw_op_stream(op, kind, peer, 0);
    expected.count = stream ? stream->desc.count : 0;
    return expected;
}

bool gw_signature_equal(const gw_signature *a, const gw_signature *b) {
    return a->collective == b->collective && a->dtype == b->dtype && a->redop == b->redop && a->builder == b->builder &&
           a->root == b->root && a->count == b->count && a->scale == b->scale;
}

void gw_signature_pack(const gw_signature *s, uint64_t packed[GW_SHM_COLL_SIGNATURE]) {
    packed[0] = (uint64_t)s->collective << 24 | (uint64_t)s->dtype << 16 | (uint64_t)s->redop << 8 | s->builder |
                (uint64_t)(uint32_t)s->root << 32 | (s->scale ? GW_SHM_COLL_THREE_WORDS : 0);
    packed[1] = s->count;
    packed[2] = s->scale;
}

gw_signature gw_signature_unpack(const uint64_t packed[GW_SHM_COLL_SIGNATURE]) {
    uint64_t first = packed[0] & ~GW_SHM_COLL_THREE_WORDS;
    return (gw_signature){.collective = (uint8_t)(first >> 24), .dtype = (uint8_t)(first >> 16),
                          .redop = (uint8_t)(first >> 8), .builder = (uint8_t)first,
                          .root = (int32_t)(first >> 32), .count = packed[1], .scale = packed[2]};
}

void gw_signature_text(const gw_signature *s, char text[GW_TEXT_BYTES]) {
    const gw_plan_builder *builder = gw_plan_by_id(s->builder);
    const char *name = s->collective < GW_COLLECTIVES ? gw_collective_name((gw_collective)s->collective) : "unknown";
    const char *dtype = s->dtype < GW_DTYPES ? gw_dtype_name((gw_dtype)s->dtype) : "unknown type";
    const char *redop = s->redop < GW_REDOPS ? gw_redop_name((gw_redop)s->redop) : "unknown operation";
    bool reduces = s->collective == GW_COLL_ALLREDUCE || s->collective == GW_COLL_REDUCE ||
                   s->collective == GW_COLL_REDUCE_SCATTER;
    int used = snprintf(text, GW_TEXT_BYTES, "%s of %" PRIu64 " x %s", name, s->count, dtype);
    if (reduces && used < GW_TEXT_BYTES) used += snprintf(text + used, GW_TEXT_BYTES - (size_t)used, ", %s", redop);
    if (s->scale && used < GW_TEXT_BYTES)
        used += snprintf(text + used, GW_TEXT_BYTES - (size_t)used, ", prescale %.6g, postscale %.6g",
                         factor_of(s->scale), factor_of(s->scale >> 32));
    if (s->root >= 0 && s->collective < GW_COLL_SEND && used < GW_TEXT_BYTES)
        used += snprintf(text + used, GW_TEXT_BYTES - (size_t)used, ", root %d", s->root);
    if (used < GW_TEXT_BYTES)
        snprintf(text + used, GW_TEXT_BYTES - (size_t)used, ", by %s",
                 builder ? builder->technique.name : "unknown plan");
}

/* "5 x f32" */
const char *gw_signature_message(const gw_signature *s, char text[GW_TEXT_BYTES]) {
    const char *dtype = s->dtype < GW_DTYPES ? gw_dtype_name((gw_dtype)s->dtype) : "unknown type";
    snprintf(text, GW_TEXT_BYTES, "%" PRIu64 " x %s", s->count, dtype);
    return text;
}

/* Ranks that disagree. */

static const char *host(gw_engine *engine, int rank) {
    return engine->config.host_name(engine->config.events.ctx, rank);
}

void gw_engine_mismatch(gw_engine *engine, int peer, uint32_t comm, uint64_t op, const gw_signature *theirs,
                        const gw_signature *mine) {
    char our_text[GW_TEXT_BYTES], their_text[GW_TEXT_BYTES];
    gw_signature_text(mine, our_text);
    gw_signature_text(theirs, their_text);
    gw_engine_report(engine, GW_MISMATCH, peer,
                     "ranks disagree about collective #%" PRIu64 " of communicator %u: rank %d on %s called %s; "
                     "rank %d on %s called %s; every rank must make the same calls in the same order",
                     GW_OP_NUMBER(op), comm, engine->config.rank, host(engine, engine->config.rank), our_text, peer,
                     host(engine, peer), their_text);
}

void gw_engine_tag_mismatch(const gw_op *op, const gw_signature *theirs) {
    gw_engine *engine = op->engine;
    char our_text[GW_TEXT_BYTES], their_text[GW_TEXT_BYTES];
    gw_engine_report(engine, GW_MISMATCH, op->pair_peer,
                     "ranks disagree about a message with tag %d on communicator %u: rank %d on %s receives %s; "
                     "rank %d on %s sends %s; both sides must have the same count and type",
                     op->spec.tag, op->team->id, engine->config.rank, host(engine, engine->config.rank),
                     gw_signature_message(&op->signature, our_text), op->pair_peer, host(engine, op->pair_peer),
                     gw_signature_message(theirs, their_text));
}

void gw_engine_frame_mismatch(gw_engine *engine, int peer, const gw_frame *frame, const gw_signature *mine) {
    gw_signature theirs = gw_signature_of_frame(frame);
    gw_engine_mismatch(engine, peer, frame->comm, frame->op, &theirs, mine);
}

/* The shm collective names the rank that differs from most; on that rank itself, show another rank's call. */
void gw_flow_shm_mismatch(gw_op *op, int rank, const uint64_t packed[GW_SHM_COLL_SIGNATURE]) {
    gw_signature theirs = gw_signature_unpack(packed);
    gw_engine_mismatch(op->engine, rank, op->team->id, op->number, &theirs, &op->signature);
}
