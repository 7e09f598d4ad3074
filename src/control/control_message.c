/* control_message.c - the wire form of control messages: 48 bytes of fields, then text. Little-endian.
 *
 *     0 magic "GWCT"   4 kind   5 status   8 origin   12 subject   16 generation   20 lineage
 *     24 serial   32 ballot   40 accepted   48 text */
#include "control/control.h"

#include <string.h>

_Static_assert(GW_CONTROL_TEXT == GW_MEMBERS_BYTES, "a set of ranks fills the text");

static const uint8_t magic[4] = {'G', 'W', 'C', 'T'};

static void put(uint8_t *at, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++) at[i] = (uint8_t)(value >> (8 * i));
}

static uint64_t get(const uint8_t *at, int bytes) {
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++) value |= (uint64_t)at[i] << (8 * i);
    return value;
}

void gw_control_write(const gw_control_message *message, uint8_t bytes[GW_CONTROL_BYTES]) {
    memset(bytes, 0, 48);
    memcpy(bytes, magic, sizeof magic);
    bytes[4] = message->kind;
    bytes[5] = message->status;
    put(bytes + 8, (uint32_t)message->origin, 4);
    put(bytes + 12, (uint32_t)message->subject, 4);
    put(bytes + 16, message->generation, 4);
    put(bytes + 20, message->lineage, 4);
    put(bytes + 24, message->serial, 8);
    put(bytes + 32, message->ballot, 8);
    put(bytes + 40, message->accepted, 8);
    memcpy(bytes + 48, message->text, GW_CONTROL_TEXT);
}

/* A sentence that goes to logs: printable, and terminated. */
static void clean_text(char *text) {
    text[GW_CONTROL_TEXT - 1] = 0;
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < ' ') *c = '?';
}

gw_status gw_control_read(gw_control_message *message, const uint8_t bytes[GW_CONTROL_BYTES], int world,
                          gw_error *error) {
    gw_control_message read = {.kind = bytes[4], .status = bytes[5], .origin = (int32_t)get(bytes + 8, 4),
                               .subject = (int32_t)get(bytes + 12, 4), .generation = (uint32_t)get(bytes + 16, 4),
                               .lineage = (uint32_t)get(bytes + 20, 4), .serial = get(bytes + 24, 8),
                               .ballot = get(bytes + 32, 8), .accepted = get(bytes + 40, 8)};
    memcpy(read.text, bytes + 48, GW_CONTROL_TEXT);
    if (memcmp(bytes, magic, sizeof magic) != 0) return gw_fail(error, GW_PROTOCOL, "not a control message");
    if (read.kind < GW_CONTROL_BEAT || read.kind > GW_CONTROL_MEMBERS)
        return gw_fail(error, GW_PROTOCOL, "unknown control message %d", read.kind);
    bool needs_status = read.kind == GW_CONTROL_ABORT;
    if (read.status > GW_ABORTED || (needs_status && read.status == GW_OK))
        return gw_fail(error, GW_PROTOCOL, "control message with status %d", read.status);
    if (read.origin < 0 || read.origin >= world || read.subject < -1 || read.subject >= world)
        return gw_fail(error, GW_PROTOCOL, "control message of rank %d about rank %d in a world of %d", read.origin,
                       read.subject, world);
    bool needs_subject = read.kind == GW_CONTROL_LOST;
    if (needs_subject && read.subject < 0) return gw_fail(error, GW_PROTOCOL, "control message about nobody");
    if (read.kind < GW_CONTROL_SHRINK) clean_text(read.text);
    bool needs_text = read.kind == GW_CONTROL_ABORT || read.kind == GW_CONTROL_LOST;
    if (needs_text && !read.text[0]) return gw_fail(error, GW_PROTOCOL, "control message without a reason");
    *message = read;
    return GW_OK;
}
