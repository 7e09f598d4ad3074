/* capture.c - see capture.h. */
#include "trace/capture.h"

#include <limits.h>

static uint32_t crc_step(uint32_t crc, const uint8_t *bytes, size_t count) {
    static const uint32_t nibble[16] = {0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4,
                                        0x4db26158, 0x5005713c, 0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c,
                                        0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c};
    for (size_t i = 0; i < count; i++) {
        crc = nibble[(crc ^ bytes[i]) & 15] ^ crc >> 4;
        crc = nibble[(crc ^ bytes[i] >> 4) & 15] ^ crc >> 4;
    }
    return crc;
}

uint32_t gw_capture_checksum(const uint8_t *block, size_t payload) {
    uint32_t crc = crc_step(UINT32_MAX, block, GW_CAPTURE_HEADER - 4);
    return ~crc_step(crc, block + GW_CAPTURE_HEADER, payload);
}

void gw_capture_seal(uint8_t *block, gw_capture_block kind, uint32_t rank, size_t payload) {
    memcpy(block, GW_CAPTURE_MAGIC, 8);
    gw_pack_fixed(block + 8, (uint32_t)payload);
    gw_pack_fixed(block + 12, rank);
    gw_pack_fixed(block + 16, (uint32_t)kind);
    gw_pack_fixed(block + 20, gw_capture_checksum(block, payload));
}

uint8_t *gw_capture_put_text(uint8_t *at, const char *text) {
    size_t length = strnlen(text, GW_CAPTURE_TEXT_MAX);
    at = gw_pack(at, length);
    memcpy(at, text, length);
    return at + length;
}

uint8_t *gw_capture_put_rank(uint8_t *at, const gw_capture_rank *rank) {
    at = gw_pack(at, GW_CAPTURE_VERSION);
    at = gw_pack(at, (uint64_t)rank->world);
    at = gw_pack(at, (uint64_t)rank->host_number);
    at = gw_pack(at, gw_zigzag(rank->offset));
    at = gw_pack(at, rank->uncertainty);
    at = gw_pack(at, rank->origin);
    at = gw_pack(at, rank->wall);
    at = gw_capture_put_text(at, rank->host);
    return gw_capture_put_text(at, rank->strategy);
}

uint8_t *gw_capture_put_event(uint8_t *at, const gw_trace_event *e, gw_time *before) {
    *at++ = e->kind;
    at = gw_pack(at, gw_zigzag((int64_t)(e->begin - *before)));
    at = gw_pack(at, e->end - e->begin);
    at = gw_pack(at, e->name);
    at = gw_pack(at, e->number);
    at = gw_pack(at, e->bytes);
    at = gw_pack(at, e->comm);
    at = gw_pack(at, (uint64_t)(e->peer + 1));
    at = gw_pack(at, e->index);
    at = gw_pack(at, e->queued);
    at = gw_pack(at, e->channel);
    at = gw_pack(at, e->retries);
    *before = e->begin;
    return at;
}

void gw_capture_clean(char *text) {
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f || strchr("\"\\<>&", *text)) *text = '?';
}

bool gw_capture_get_text(gw_unpacker *from, char text[GW_CAPTURE_TEXT_MAX + 1]) {
    uint64_t length = gw_unpack(from);
    if (length > GW_CAPTURE_TEXT_MAX || length > (uint64_t)(from->end - from->at)) from->short_of = true;
    if (from->short_of) return false;
    memcpy(text, from->at, length);
    text[length] = 0;
    from->at += length;
    gw_capture_clean(text);
    return true;
}

/* A number of at most `highest`; sets short_of if it is larger. */
static uint64_t bounded(gw_unpacker *from, uint64_t highest) {
    uint64_t value = gw_unpack(from);
    if (value > highest) from->short_of = true;
    return from->short_of ? 0 : value;
}

bool gw_capture_get_rank(gw_unpacker *from, gw_capture_rank *rank) {
    uint64_t version = gw_unpack(from);
    rank->world = (int)bounded(from, INT_MAX);
    rank->host_number = (int)bounded(from, INT_MAX);
    rank->offset = gw_unzigzag(gw_unpack(from));
    rank->uncertainty = gw_unpack(from);
    rank->origin = gw_unpack(from);
    rank->wall = gw_unpack(from);
    return version == GW_CAPTURE_VERSION && gw_capture_get_text(from, rank->host) &&
           gw_capture_get_text(from, rank->strategy);
}

bool gw_capture_get_event(gw_unpacker *from, gw_trace_event *e, gw_time *before) {
    *e = (gw_trace_event){.kind = GW_TRACE_KINDS};
    if (from->at < from->end) e->kind = *from->at++;
    e->begin = *before + (uint64_t)gw_unzigzag(gw_unpack(from));
    e->end = e->begin + gw_unpack(from);
    e->name = (uint32_t)bounded(from, UINT32_MAX);
    e->number = gw_unpack(from);
    e->bytes = gw_unpack(from);
    e->comm = (uint32_t)bounded(from, UINT32_MAX);
    e->peer = (int32_t)bounded(from, INT32_MAX) - 1;
    e->index = (uint32_t)bounded(from, UINT32_MAX);
    e->queued = (uint32_t)bounded(from, UINT32_MAX);
    e->channel = (uint16_t)bounded(from, UINT16_MAX);
    e->retries = (uint8_t)bounded(from, UINT8_MAX);
    *before = e->begin;
    if (e->kind >= GW_TRACE_KINDS || e->end < e->begin) from->short_of = true;
    return !from->short_of;
}

const char *gw_trace_kind_name(gw_trace_kind kind) {
    static const char *const names[] = {
#define NAME(name, number, text) [number] = text,
        GW_TRACE_KIND_LIST(NAME)
#undef NAME
    };
    return (unsigned)kind < GW_TRACE_KINDS ? names[kind] : "unknown";
}
