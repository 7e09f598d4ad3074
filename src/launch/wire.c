/* wire.c - see wire.h. */
#include "launch/wire.h"

enum { HEADER_BYTES = 8 };

static void store_u32(unsigned char *p, uint32_t value) {
    for (int i = 0; i < 4; i++) p[i] = (unsigned char)(value >> (8 * i));
}

static uint32_t load_u32(const char *bytes) {
    const unsigned char *p = (const unsigned char *)bytes;
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

void gw_wire_put(gw_buffer *out, gw_wire_kind kind, int detail, int rank, const void *payload, uint32_t bytes) {
    unsigned char header[HEADER_BYTES];
    store_u32(header, bytes);
    header[4] = (unsigned char)kind;
    header[5] = (unsigned char)detail;
    header[6] = (unsigned char)rank;
    header[7] = (unsigned char)(rank >> 8);
    gw_buffer_add(out, header, sizeof header);
    gw_buffer_add(out, payload, bytes);
}

void gw_wire_put_numbers(gw_buffer *out, gw_wire_kind kind, int detail, int rank, uint32_t first, uint32_t second) {
    unsigned char payload[8];
    store_u32(payload, first);
    store_u32(payload + 4, second);
    gw_wire_put(out, kind, detail, rank, payload, sizeof payload);
}

uint32_t gw_wire_number(const gw_wire_frame *frame, int i) {
    return frame->bytes >= 4 * ((uint32_t)i + 1) ? load_u32(frame->payload + 4 * i) : 0;
}

gw_wire_state gw_wire_peek(const gw_buffer *in, gw_wire_frame *frame) {
    if (gw_buffer_size(in) < HEADER_BYTES) return GW_WIRE_PARTIAL;
    const char *header = gw_buffer_head(in);
    uint32_t bytes = load_u32(header);
    int kind = (unsigned char)header[4];
    if (bytes > GW_WIRE_MAX_PAYLOAD || kind < GW_WIRE_ORDER || kind > GW_WIRE_DONE) return GW_WIRE_BROKEN;
    if (gw_buffer_size(in) - HEADER_BYTES < bytes) return GW_WIRE_PARTIAL;
    *frame = (gw_wire_frame){
        .kind = (gw_wire_kind)kind,
        .detail = (unsigned char)header[5],
        .rank = (unsigned char)header[6] | (unsigned char)header[7] << 8,
        .payload = header + HEADER_BYTES,
        .bytes = bytes,
    };
    return GW_WIRE_FRAME;
}

void gw_wire_take(gw_buffer *in, const gw_wire_frame *frame) { gw_buffer_take(in, HEADER_BYTES + frame->bytes); }
