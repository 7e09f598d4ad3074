/* frame.c - see frame.h. On the wire:
 *
 *     0 magic    4 kind, flags, collective, dtype    8 redop, builder    10 credits
 *    12 comm    16 channel    20 root    24 op    32 index    40 count    48 length
 *    56 of a send: tag, 4 zeros; of others: scale
 *
 * By the magic a receiver that has lost the frame boundaries notices it at the next header. */
#include "transport/frame.h"
#include "base/dtype.h"

#include "base/little_endian.h"

#include <inttypes.h>

#define MAGIC UINT32_C(0x31465747) /* "GWF1" */
#define COLLECTIVE_LIMIT 16        /* room for kinds that do not exist yet */

enum { AT_MAGIC = 0, AT_KIND = 4, AT_FLAGS, AT_COLLECTIVE, AT_DTYPE, AT_REDOP, AT_BUILDER, AT_CREDITS = 10 };
enum { AT_COMM = 12, AT_CHANNEL = 16, AT_ROOT = 20, AT_OP = 24, AT_INDEX = 32, AT_COUNT = 40, AT_LENGTH = 48 };
enum { AT_TAG_OR_SCALE = 56 };

static bool is_send(uint8_t collective) { return collective == GW_COLL_SEND; }

void gw_frame_write(const gw_frame *frame, uint8_t bytes[GW_FRAME_BYTES]) {
    gw_le_put(bytes + AT_MAGIC, MAGIC, 4);
    bytes[AT_KIND] = frame->kind;
    bytes[AT_FLAGS] = frame->flags;
    bytes[AT_COLLECTIVE] = frame->collective;
    bytes[AT_DTYPE] = frame->dtype;
    bytes[AT_REDOP] = frame->redop;
    bytes[AT_BUILDER] = frame->builder;
    gw_le_put(bytes + AT_CREDITS, frame->credits, 2);
    gw_le_put(bytes + AT_COMM, frame->comm, 4);
    gw_le_put(bytes + AT_CHANNEL, frame->channel, 4);
    gw_le_put(bytes + AT_ROOT, (uint32_t)frame->root, 4);
    gw_le_put(bytes + AT_OP, frame->op, 8);
    gw_le_put(bytes + AT_INDEX, frame->index, 8);
    gw_le_put(bytes + AT_COUNT, frame->count, 8);
    gw_le_put(bytes + AT_LENGTH, frame->length, 8);
    gw_le_put(bytes + AT_TAG_OR_SCALE, is_send(frame->collective) ? frame->tag : frame->scale, 8);
}

static gw_status wrong(gw_error *error, const char *field, uint64_t value) {
    return gw_fail(error, GW_PROTOCOL, "a frame's %s is %" PRIu64 ", which no gradwire of this version sends", field,
                   value);
}

static gw_status check_signature(const gw_frame *frame, gw_error *error) {
    if (frame->collective >= COLLECTIVE_LIMIT) return wrong(error, "collective", frame->collective);
    if (frame->dtype >= GW_DTYPES) return wrong(error, "type", frame->dtype);
    if (frame->redop >= GW_REDOPS) return wrong(error, "operation", frame->redop);
    if (frame->root < -1) return wrong(error, "root", (uint32_t)frame->root);
    return GW_OK;
}

gw_status gw_frame_check(const gw_frame *frame, gw_error *error) {
    if (frame->kind < GW_FRAME_DATA || frame->kind > GW_FRAME_RTS) return wrong(error, "kind", frame->kind);
    bool data = frame->kind == GW_FRAME_DATA;
    if (frame->flags & ~(data ? GW_FRAME_EAGER : 0u)) return wrong(error, "flags", frame->flags);
    if (frame->length > (data ? GW_FRAME_PAYLOAD_MAX : 0)) return wrong(error, "length", frame->length);
    bool tagged = is_send(frame->collective) && frame->kind != GW_FRAME_CREDIT;
    if (frame->tag > (tagged ? (uint32_t)INT32_MAX : 0)) return wrong(error, "tag", frame->tag);
    if (frame->scale && (is_send(frame->collective) || frame->kind == GW_FRAME_CREDIT))
        return wrong(error, "scale", frame->scale);
    return check_signature(frame, error);
}

gw_status gw_frame_read(gw_frame *frame, const uint8_t bytes[GW_FRAME_BYTES], gw_error *error) {
    if (gw_le_get32(bytes + AT_MAGIC) != MAGIC) return wrong(error, "magic", gw_le_get32(bytes + AT_MAGIC));
    gw_frame read = {
        .kind = bytes[AT_KIND],
        .flags = bytes[AT_FLAGS],
        .collective = bytes[AT_COLLECTIVE],
        .dtype = bytes[AT_DTYPE],
        .redop = bytes[AT_REDOP],
        .builder = bytes[AT_BUILDER],
        .credits = gw_le_get16(bytes + AT_CREDITS),
        .comm = gw_le_get32(bytes + AT_COMM),
        .channel = gw_le_get32(bytes + AT_CHANNEL),
        .op = gw_le_get64(bytes + AT_OP),
        .index = gw_le_get64(bytes + AT_INDEX),
        .count = gw_le_get64(bytes + AT_COUNT),
        .root = (int32_t)gw_le_get32(bytes + AT_ROOT),
        .length = gw_le_get64(bytes + AT_LENGTH),
    };
    uint64_t last = gw_le_get64(bytes + AT_TAG_OR_SCALE);
    if (!is_send(read.collective)) read.scale = last;
    else if (last > INT32_MAX) return wrong(error, "tag", last);
    else read.tag = (uint32_t)last;
    gw_status status = gw_frame_check(&read, error);
    if (status == GW_OK) *frame = read;
    return status;
}
