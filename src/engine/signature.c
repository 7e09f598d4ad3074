/* signature.c - what a rank has called: as it stands in frames, on boards, and in sentences. */
#include "engine/engine_internal.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/dtype.h"

gw_signature gw_signature_of_frame(const gw_frame *frame) {
    return (gw_signature){.collective = frame->collective, .dtype = frame->dtype, .redop = frame->redop,
                          .builder = frame->builder, .root = frame->root, .count = frame->count};
}

bool gw_signature_equal(const gw_signature *a, const gw_signature *b) {
    return a->collective == b->collective && a->dtype == b->dtype && a->redop == b->redop && a->builder == b->builder &&
           a->root == b->root && a->count == b->count;
}

void gw_signature_pack(const gw_signature *s, uint64_t packed[2]) {
    packed[0] = (uint64_t)s->collective << 24 | (uint64_t)s->dtype << 16 | (uint64_t)s->redop << 8 | s->builder |
                (uint64_t)(uint32_t)s->root << 32;
    packed[1] = s->count;
}

gw_signature gw_signature_unpack(const uint64_t packed[2]) {
    return (gw_signature){.collective = (uint8_t)(packed[0] >> 24), .dtype = (uint8_t)(packed[0] >> 16),
                          .redop = (uint8_t)(packed[0] >> 8), .builder = (uint8_t)packed[0],
                          .root = (int32_t)(packed[0] >> 32), .count = packed[1]};
}

void gw_signature_text(const gw_signature *s, char text[GW_TEXT_BYTES]) {
    int builders = 0;
    while (gw_plan_builders[builders]) builders++;
    const char *builder = s->builder < builders ? gw_plan_builders[s->builder]->name : "unknown plan";
    const char *name = s->collective < GW_COLLECTIVES ? gw_collective_name((gw_collective)s->collective) : "unknown";
    const char *dtype = s->dtype < GW_DTYPES ? gw_dtype_name((gw_dtype)s->dtype) : "unknown type";
    const char *redop = s->redop < GW_REDOPS ? gw_redop_name((gw_redop)s->redop) : "unknown operation";
    bool reduces = s->collective == GW_COLL_ALLREDUCE || s->collective == GW_COLL_REDUCE ||
                   s->collective == GW_COLL_REDUCE_SCATTER;
    int used = snprintf(text, GW_TEXT_BYTES, "%s of %" PRIu64 " x %s", name, s->count, dtype);
    if (reduces && used < GW_TEXT_BYTES)
        used += snprintf(text + used, GW_TEXT_BYTES - (size_t)used, ", %s", redop);
    if (s->root >= 0 && s->collective < GW_COLL_SEND && used < GW_TEXT_BYTES)
        used += snprintf(text + used, GW_TEXT_BYTES - (size_t)used, ", root %d", s->root);
    if (used < GW_TEXT_BYTES) snprintf(text + used, GW_TEXT_BYTES - (size_t)used, ", by %s", builder);
}
