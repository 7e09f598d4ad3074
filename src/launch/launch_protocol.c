/* launch_protocol.c - see launch_protocol.h. */
#include "launch/launch_protocol.h"

enum { HEADER_BYTES = 8 };

static void store_u32(unsigned char *p, uint32_t value) {
    for (int i = 0; i < 4; i++) p[i] = (unsigned char)(value >> (8 * i));
}

static uint32_t load_u32(const char *bytes) {
    const unsigned char *p = (const unsigned char *)bytes;
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

void gw_launch_put(gw_buffer *out, gw_launch_kind kind, int detail, int rank, const void *payload, uint32_t bytes) {
    unsigned char header[HEADER_BYTES];
    store_u32(header, bytes);
    header[4] = (unsigned char)kind;
    header[5] = (unsigned char)detail;
    header[6] = (unsigned char)rank;
    header[7] = (unsigned char)(rank >> 8);
    gw_buffer_add(out, header, sizeof header);
    gw_buffer_add(out, payload, bytes);
}

void gw_launch_put_numbers(gw_buffer *out, gw_launch_kind kind, int detail, int rank, uint32_t first, uint32_t second) {
    unsigned char payload[8];
    store_u32(payload, first);
    store_u32(payload + 4, second);
    gw_launch_put(out, kind, detail, rank, payload, sizeof payload);
}

uint32_t gw_launch_number(const gw_launch_frame *frame, int i) {
    return frame->bytes >= 4 * ((uint32_t)i + 1) ? load_u32(frame->payload + 4 * i) : 0;
}

gw_launch_state gw_launch_peek(const gw_buffer *in, gw_launch_frame *frame) {
    if (gw_buffer_size(in) < HEADER_BYTES) return GW_LAUNCH_PARTIAL;
    const char *header = gw_buffer_head(in);
    uint32_t bytes = load_u32(header);
    int kind = (unsigned char)header[4];
    if (bytes > GW_LAUNCH_MAX_PAYLOAD || kind < GW_LAUNCH_HOST_SPEC || kind > GW_LAUNCH_DONE) return GW_LAUNCH_BROKEN;
    if (gw_buffer_size(in) - HEADER_BYTES < bytes) return GW_LAUNCH_PARTIAL;
    *frame = (gw_launch_frame){
        .kind = (gw_launch_kind)kind,
        .detail = (unsigned char)header[5],
        .rank = (unsigned char)header[6] | (unsigned char)header[7] << 8,
        .payload = header + HEADER_BYTES,
        .bytes = bytes,
    };
    return GW_LAUNCH_FRAME;
}

void gw_launch_take(gw_buffer *in, const gw_launch_frame *frame) { gw_buffer_take(in, HEADER_BYTES + frame->bytes); }
