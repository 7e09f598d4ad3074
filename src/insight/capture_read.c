/* capture_read.c - parses a capture into ranks, names and events. The file is not trusted: a block counts if its
 * checksum matches. Of a truncated block (a killed rank's last write, the end of a copied file) the complete entries
 * count. Everything else is skipped up to the next block. */
#include "insight/capture_read.h"

#include <stdlib.h>
#include <string.h>

#define NAME_NUMBER_MAX (UINT32_C(1) << 20) /* limit of a rank's name numbers */

/* ---- memory ---- */

static void *grow(gw_capture_reader *r, void *memory, size_t count, size_t size) {
    void *grown = count <= SIZE_MAX / 2 / size ? realloc(memory, count * size) : NULL;
    if (!grown) r->no_memory = true;
    return grown;
}

static bool reserve_rank(gw_capture_reader *r, uint32_t rank) {
    gw_insight *in = r->insight;
    int count = (int)rank + 1;
    if (rank >= GW_INSIGHT_RANKS_MAX) return false;
    if (count <= in->rank_count) return true;
    gw_insight_rank *ranks = grow(r, in->ranks, (size_t)count, sizeof *ranks);
    if (ranks) in->ranks = ranks;
    gw_capture_reader_rank *reading = ranks ? grow(r, r->ranks, (size_t)count, sizeof *reading) : NULL;
    if (!reading) return false;
    r->ranks = reading;
    memset(ranks + in->rank_count, 0, (size_t)(count - in->rank_count) * sizeof *ranks);
    memset(reading + in->rank_count, 0, (size_t)(count - in->rank_count) * sizeof *reading);
    in->rank_count = count;
    return true;
}

/* ---- names ---- */

static uint32_t hash(const char *text) {
    uint32_t sum = 2166136261u;
    for (; *text; text++) sum = (sum ^ (uint8_t)*text) * 16777619u;
    return sum;
}

static uint32_t *find_name(gw_capture_reader *r, const char *text) {
    uint32_t at = hash(text) & (r->table_size - 1);
    while (r->table[at] && strcmp(r->insight->names[r->table[at]], text) != 0) at = (at + 1) & (r->table_size - 1);
    return &r->table[at];
}

static bool reserve_name(gw_capture_reader *r) {
    gw_insight *in = r->insight;
    if (in->name_count < r->name_capacity) return true;
    uint32_t capacity = r->name_capacity ? 2 * r->name_capacity : 256;
    char **names = grow(r, in->names, capacity, sizeof *names);
    if (!names) return false;
    in->names = names;
    uint32_t *table = calloc((size_t)capacity * 4, sizeof *table);
    if (!table) {
        r->no_memory = true;
        return false;
    }
    free(r->table);
    r->table = table;
    r->table_size = capacity * 4;
    r->name_capacity = capacity;
    for (uint32_t i = 1; i < in->name_count; i++) *find_name(r, in->names[i]) = i;
    return true;
}

uint32_t gw_capture_reader_name(gw_capture_reader *r, const char *text) {
    gw_insight *in = r->insight;
    if (!reserve_name(r)) return 0;
    if (in->name_count == 0) {
        char *empty = strdup("");
        if (!empty) return 0;
        in->names[in->name_count++] = empty;
    }
    if (!*text) return 0;
    uint32_t *slot = find_name(r, text);
    if (*slot) return *slot;
    char *copy = strdup(text);
    if (!copy) {
        r->no_memory = true;
        return 0;
    }
    in->names[in->name_count] = copy;
    return *slot = in->name_count++;
}

static void keep_name(gw_capture_reader *r, gw_capture_reader_rank *rank, uint64_t number, const char *text) {
    if (number >= NAME_NUMBER_MAX) return;
    if (number >= rank->name_capacity) {
        uint32_t capacity = rank->name_capacity ? rank->name_capacity : 64;
        while (capacity <= number) capacity *= 2;
        uint32_t *names = grow(r, rank->names, capacity, sizeof *names);
        if (!names) return;
        memset(names + rank->name_capacity, 0, (capacity - rank->name_capacity) * sizeof *names);
        rank->names = names;
        rank->name_capacity = capacity;
    }
    rank->names[number] = gw_capture_reader_name(r, text);
}

static uint32_t common(const gw_capture_reader_rank *rank, uint32_t number) {
    return number < rank->name_capacity ? rank->names[number] : 0;
}

/* ---- payloads: each reads the complete entries ---- */

static void read_names(gw_capture_reader *r, uint32_t rank, gw_unpacker *from) {
    char text[GW_CAPTURE_TEXT_MAX + 1];
    while (from->at < from->end && !r->no_memory) {
        uint64_t number = gw_unpack(from);
        if (!gw_capture_get_text(from, text)) return;
        keep_name(r, &r->ranks[rank], number, text);
    }
}

static void keep_event(gw_capture_reader *r, uint32_t rank, gw_trace_event *event) {
    gw_insight *in = r->insight;
    if (in->event_count == r->event_capacity) {
        size_t capacity = r->event_capacity ? 2 * r->event_capacity : 1024;
        gw_insight_event *events = grow(r, in->events, capacity, sizeof *events);
        if (!events) return;
        in->events = events;
        r->event_capacity = capacity;
    }
    event->name = common(&r->ranks[rank], event->name);
    if (event->kind == GW_TRACE_OPERATION) event->index = common(&r->ranks[rank], event->index);
    in->events[in->event_count++] = (gw_insight_event){.is = *event, .rank = (int32_t)rank};
}

static void read_events(gw_capture_reader *r, uint32_t rank, gw_unpacker *from) {
    gw_trace_event event;
    gw_time before = 0;
    while (from->at < from->end && !r->no_memory && gw_capture_get_event(from, &event, &before))
        keep_event(r, rank, &event);
}

static void read_payload(gw_capture_reader *r, uint32_t kind, uint32_t rank, const uint8_t *at, const uint8_t *end) {
    gw_unpacker from = {.at = at, .end = end};
    gw_insight_rank *known = &r->insight->ranks[rank];
    gw_capture_rank about;
    if (kind == GW_CAPTURE_RANK && gw_capture_get_rank(&from, &about)) {
        known->about = about;
        known->introduced = true;
    } else if (kind == GW_CAPTURE_NAMES) {
        read_names(r, rank, &from);
    } else if (kind == GW_CAPTURE_EVENTS) {
        read_events(r, rank, &from);
    } else if (kind == GW_CAPTURE_STATE) {
        uint64_t dropped = gw_unpack(&from), ended = gw_unpack(&from);
        if (!from.short_of) known->dropped = dropped;
        if (!from.short_of) known->ended = ended == 1;
    }
}

/* ---- blocks ---- */

static const uint8_t *next_block(const uint8_t *at, const uint8_t *end) {
    const uint8_t *found = at < end ? memmem(at, (size_t)(end - at), GW_CAPTURE_MAGIC, 8) : NULL;
    return found ? found : end;
}

/* Reads the block that starts at `block`. Returns where to continue. */
static const uint8_t *read_block(gw_capture_reader *r, const uint8_t *block, const uint8_t *end) {
    size_t left = (size_t)(end - block);
    if (left < GW_CAPTURE_HEADER) {
        r->insight->cut_blocks++;
        return end;
    }
    uint32_t payload = gw_unpack_fixed(block + 8), rank = gw_unpack_fixed(block + 12);
    uint32_t kind = gw_unpack_fixed(block + 16);
    const uint8_t *from = block + GW_CAPTURE_HEADER;
    bool whole = payload <= left - GW_CAPTURE_HEADER;
    if (payload > GW_CAPTURE_PAYLOAD_MAX || !reserve_rank(r, rank)) {
        r->insight->damaged_bytes += 8;
        return block + 8;
    }
    if (whole && gw_capture_checksum(block, payload) == gw_unpack_fixed(block + 20)) {
        read_payload(r, kind, rank, from, from + payload);
        return from + payload;
    }
    const uint8_t *next = next_block(from, whole ? from + payload : end);
    if (whole && next == from + payload) { /* complete, but altered */
        r->insight->damaged_bytes += GW_CAPTURE_HEADER + payload;
        return next;
    }
    r->insight->cut_blocks++;
    read_payload(r, kind, rank, from, next);
    return next;
}

bool gw_capture_reader_first(const uint8_t *bytes, size_t size, gw_capture_rank *rank) {
    const uint8_t *end = bytes + size;
    const uint8_t *at = next_block(bytes, end);
    for (; (size_t)(end - at) >= GW_CAPTURE_HEADER; at = next_block(at + 8, end)) {
        uint32_t payload = gw_unpack_fixed(at + 8), kind = gw_unpack_fixed(at + 16);
        const uint8_t *from = at + GW_CAPTURE_HEADER;
        if (kind != GW_CAPTURE_RANK || payload > (size_t)(end - from)) continue;
        gw_unpacker unpacker = {.at = from, .end = from + payload};
        if (gw_capture_checksum(at, payload) == gw_unpack_fixed(at + 20) && gw_capture_get_rank(&unpacker, rank))
            return true;
    }
    return false;
}

bool gw_capture_reader_blocks(gw_capture_reader *r, const uint8_t *bytes, size_t size) {
    const uint8_t *at = bytes, *end = bytes + size;
    bool any = false;
    while (at < end && !r->no_memory) {
        const uint8_t *block = next_block(at, end);
        r->insight->damaged_bytes += (uint64_t)(block - at);
        at = block;
        if (at == end) break;
        any = true;
        at = read_block(r, at, end);
    }
    return any;
}

void gw_capture_reader_free(gw_capture_reader *r) {
    for (int i = 0; r->ranks && i < r->insight->rank_count; i++) free(r->ranks[i].names);
    free(r->ranks);
    free(r->table);
}
