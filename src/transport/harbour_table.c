/* harbour_table.c - the memory a rank shares: its own segments, and the mappings of those of its peers. */
#include "transport/harbour.h"

#include <stdlib.h>
#include <string.h>

/* Every field is written between two versions that no reader accepts. */
static void publish(gw_harbour *harbour, uint32_t id, uint64_t key) {
    gw_harbour_entry *entry = &harbour->page->table[id];
    const gw_segment *segment = &harbour->own[id];
    atomic_store(&entry->fd, segment->fd);
    atomic_store(&entry->inode, segment->inode);
    atomic_store(&entry->bytes, segment->bytes);
    atomic_store(&entry->address, (uint64_t)(uintptr_t)segment->base);
    atomic_store(&entry->key, key);
    atomic_fetch_add(&entry->version, 1);
}

static void retract(gw_harbour *harbour, uint32_t id) {
    atomic_fetch_add(&harbour->page->table[id].version, 1);
    atomic_fetch_add(&harbour->page->changes, 1);
}

void *gw_harbour_share(gw_harbour *harbour, size_t bytes, uint64_t key, bool commit, gw_error *error) {
    uint32_t id = 0;
    while (id < GW_HARBOUR_SEGMENTS && harbour->own[id].base) id++;
    if (id == GW_HARBOUR_SEGMENTS) {
        gw_fail(error, GW_MEMORY, "rank %d already shares %d pieces of memory; free some or allocate larger ones",
                harbour->rank, GW_HARBOUR_SEGMENTS);
        return NULL;
    }
    if (gw_segment_create(&harbour->own[id], bytes, commit, error)) return NULL;
    publish(harbour, id, key);
    if (id >= atomic_load(&harbour->page->entries)) atomic_store(&harbour->page->entries, id + 1);
    return harbour->own[id].base;
}

static bool owns(const gw_segment *segment, const void *memory, size_t bytes) {
    uintptr_t from = (uintptr_t)segment->base, at = (uintptr_t)memory;
    return from && at >= from && at - from <= segment->bytes && bytes <= segment->bytes - (at - from);
}

bool gw_harbour_find(gw_harbour *harbour, const void *memory, size_t bytes, gw_shared *where) {
    uint32_t id = harbour->last_found, entries = atomic_load_explicit(&harbour->page->entries, memory_order_relaxed);
    if (!owns(&harbour->own[id], memory, bytes))
        for (id = 0; id < entries && !owns(&harbour->own[id], memory, bytes);) id++;
    *where = (gw_shared){0};
    if (id >= entries) return false;
    harbour->last_found = id;
    *where = (gw_shared){.id = id,
                         .version = atomic_load_explicit(&harbour->page->table[id].version, memory_order_relaxed),
                         .offset = (uint64_t)((uintptr_t)memory - (uintptr_t)harbour->own[id].base)};
    return true;
}

void gw_harbour_unshare(gw_harbour *harbour, void *memory) {
    gw_shared where;
    if (!memory || !gw_harbour_find(harbour, memory, 1, &where)) return;
    retract(harbour, where.id);
    gw_segment_close(&harbour->own[where.id]);
}

gw_status gw_harbour_renew(gw_harbour *harbour, uint32_t id, gw_error *error) {
    uint64_t key = atomic_load(&harbour->page->table[id].key);
    retract(harbour, id);
    gw_status status = gw_segment_renew(&harbour->own[id], error);
    publish(harbour, id, key);
    return status;
}

/* A consistent copy of an entry, or version 0. */
static gw_segment_name read_entry(gw_harbour_entry *entry, uint32_t *version, uint64_t *key) {
    *version = atomic_load(&entry->version);
    gw_segment_name name = {.fd = atomic_load(&entry->fd),
                            .inode = atomic_load(&entry->inode),
                            .bytes = atomic_load(&entry->bytes),
                            .address = atomic_load(&entry->address)};
    *key = atomic_load(&entry->key);
    if (*version % 2 == 0 || atomic_load(&entry->version) != *version) *version = 0;
    return name;
}

gw_shared gw_harbour_lookup(gw_harbour *harbour, int rank, uint64_t key, uint64_t *bytes) {
    gw_harbour_page *page = rank == harbour->rank ? harbour->page : harbour->peers[rank].page;
    uint32_t entries = page ? atomic_load(&page->entries) : 0;
    for (uint32_t id = 0; id < entries && id < GW_HARBOUR_SEGMENTS; id++) {
        uint32_t version;
        uint64_t found;
        gw_segment_name name = read_entry(&page->table[id], &version, &found);
        if (!version || found != key) continue;
        *bytes = name.bytes;
        return (gw_shared){.id = id, .version = version};
    }
    return (gw_shared){0};
}

static gw_mapping *map_segment(gw_harbour_peer *peer, int rank, gw_shared where, gw_error *error) {
    uint32_t version;
    uint64_t key;
    gw_segment_name name = read_entry(&peer->page->table[where.id], &version, &key);
    if (version != where.version) {
        gw_fail_rank(error, GW_PROTOCOL, rank, "rank %d freed memory that a collective or message still uses", rank);
        return NULL;
    }
    name.pid = peer->pid;
    gw_mapping *mapping = calloc(1, sizeof *mapping);
    if (!mapping) {
        gw_fail(error, GW_MEMORY, "no memory to map what rank %d shares", rank);
        return NULL;
    }
    gw_error cause = {.status = GW_OK};
    if (gw_segment_open(&mapping->segment, &name, key == 0, &cause)) {
        gw_fail_rank(error, gw_harbour_ended(peer) ? GW_PEER_LOST : cause.status, rank, "%s", cause.text);
        free(mapping);
        return NULL;
    }
    mapping->id = where.id;
    mapping->version = version;
    mapping->next = peer->mappings[where.id];
    peer->mappings[where.id] = mapping;
    return mapping;
}

gw_mapping *gw_harbour_pin(gw_harbour *harbour, int rank, gw_shared where, gw_error *error) {
    gw_harbour_peer *peer = &harbour->peers[rank];
    if (!peer->page || where.id >= GW_HARBOUR_SEGMENTS) {
        gw_fail_rank(error, GW_PROTOCOL, rank, "rank %d refers to shared memory that is out of reach", rank);
        return NULL;
    }
    gw_mapping *mapping = peer->mappings[where.id];
    if (!mapping || mapping->version != where.version) mapping = map_segment(peer, rank, where, error);
    if (mapping) mapping->pins++;
    return mapping;
}

void gw_harbour_unpin(gw_mapping *mapping) {
    if (mapping) mapping->pins--;
}

/* True if none is left that should go. */
static bool sweep_entry(gw_harbour *harbour, gw_harbour_peer *peer, uint32_t id) {
    uint32_t version = atomic_load(&peer->page->table[id].version);
    bool clean = true;
    for (gw_mapping **link = &peer->mappings[id]; *link;) {
        gw_mapping *mapping = *link;
        if (mapping->pins || mapping->version == version) {
            clean = clean && mapping->version == version;
            link = &mapping->next;
            continue;
        }
        *link = mapping->next;
        harbour->unmapped++;
        gw_segment_close(&mapping->segment);
        free(mapping);
    }
    return clean;
}

void gw_harbour_sweep(gw_harbour *harbour) {
    for (int rank = 0; rank < harbour->world; rank++) {
        gw_harbour_peer *peer = &harbour->peers[rank];
        if (!peer->page) continue;
        uint32_t changes = atomic_load(&peer->page->changes);
        if (changes == peer->changes) continue;
        bool clean = true;
        for (uint32_t id = 0; id < GW_HARBOUR_SEGMENTS; id++)
            if (peer->mappings[id]) clean = sweep_entry(harbour, peer, id) && clean;
        if (clean) peer->changes = changes;
    }
}
