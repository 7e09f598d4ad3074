/* peer_map_table.c - the memory a rank shares: its own segments, and its mappings of its peers' segments. */
#include "shm/peer_map.h"

#include "shm/registered_memory.h"

#include <stdlib.h>
#include <string.h>

/* The fields are written while the version is even, which no reader accepts. */
static void publish(gw_peer_map *peer_map, uint32_t id) {
    gw_peer_map_entry *entry = &peer_map->page->table[id];
    gw_shared_segment *own = &peer_map->own[id];
    const gw_segment *segment = &own->segment;
    atomic_store(&entry->fd, segment->fd);
    atomic_store(&entry->inode, segment->inode);
    atomic_store(&entry->bytes, segment->bytes);
    atomic_store(&entry->address, (uint64_t)(uintptr_t)segment->base);
    atomic_store(&entry->key, own->key);
    atomic_store(&entry->version, ++own->version);
}

static void retract(gw_peer_map *peer_map, uint32_t id) {
    atomic_store(&peer_map->page->table[id].version, ++peer_map->own[id].version);
    atomic_store(&peer_map->page->changes, ++peer_map->changes);
}

/* Buffers that were private before may lie in the new segment: the count of changes makes collectives look again. */
gw_status gw_peer_map_add(gw_peer_map *peer_map, const gw_shared_segment *segment, gw_error *error) {
    uint32_t id = 0;
    while (id < GW_PEER_MAP_SEGMENTS && peer_map->own[id].segment.base) id++;
    if (id == GW_PEER_MAP_SEGMENTS)
        return gw_fail(error, GW_MEMORY,
                       "rank %d already shares %d pieces of memory; free some or allocate larger ones", peer_map->rank,
                       GW_PEER_MAP_SEGMENTS);
    uint32_t version = peer_map->own[id].version;
    peer_map->own[id] = *segment;
    peer_map->own[id].version = version;
    publish(peer_map, id);
    if (id >= peer_map->entries) atomic_store(&peer_map->page->entries, peer_map->entries = id + 1);
    peer_map->changes++;
    return GW_OK;
}

gw_shared_segment gw_peer_map_take(gw_peer_map *peer_map, uint32_t id) {
    gw_shared_segment *own = &peer_map->own[id], taken = *own;
    retract(peer_map, id);
    *own = (gw_shared_segment){.segment = {.fd = -1}, .version = own->version};
    return taken;
}

void *gw_peer_map_share(gw_peer_map *peer_map, size_t bytes, uint64_t key, bool commit, gw_error *error) {
    gw_shared_segment made = {.key = key};
    if (gw_segment_create(&made.segment, bytes, commit, error)) return NULL;
    made.origin = made.from = made.pages_from = (uintptr_t)made.segment.base;
    made.to = made.pages_to = made.from + made.segment.bytes;
    if (gw_peer_map_add(peer_map, &made, error)) {
        gw_segment_close(&made.segment);
        return NULL;
    }
    return made.segment.base;
}

static bool owns(const gw_shared_segment *own, const void *memory, size_t bytes) {
    uintptr_t at = (uintptr_t)memory;
    return own->segment.base && at >= own->from && at <= own->to && bytes <= own->to - at;
}

bool gw_peer_map_registered(const gw_peer_map *peer_map, const void *memory, uint32_t *id) {
    for (*id = 0; *id < peer_map->entries; ++*id) {
        const gw_shared_segment *own = &peer_map->own[*id];
        if (own->segment.base && own->from == (uintptr_t)memory && gw_is_registered(own)) return true;
    }
    return false;
}

bool gw_peer_map_find(gw_peer_map *peer_map, const void *memory, size_t bytes, gw_shm_ref *where) {
    uint32_t id = peer_map->last_found, entries = peer_map->entries;
    if (!owns(&peer_map->own[id], memory, bytes))
        for (id = 0; id < entries && !owns(&peer_map->own[id], memory, bytes);) id++;
    *where = (gw_shm_ref){0};
    if (id >= entries) return false;
    peer_map->last_found = id;
    *where = (gw_shm_ref){.id = id,
                          .version = peer_map->own[id].version,
                          .offset = (uint64_t)((uintptr_t)memory - peer_map->own[id].origin)};
    return true;
}

void gw_peer_map_unshare(gw_peer_map *peer_map, void *memory) {
    gw_shm_ref where;
    if (!memory || !gw_peer_map_find(peer_map, memory, 1, &where)) return;
    if (gw_is_registered(&peer_map->own[where.id])) return; /* not from gw_shm_alloc */
    gw_shared_segment taken = gw_peer_map_take(peer_map, where.id);
    gw_segment_close(&taken.segment);
}

gw_status gw_peer_map_renew(gw_peer_map *peer_map, uint32_t id, gw_error *error) {
    gw_shared_segment *own = &peer_map->own[id];
    uint64_t inode = own->segment.inode;
    retract(peer_map, id);
    gw_status status = gw_segment_renew(&own->segment, error);
    if (!status && gw_is_registered(own)) status = gw_registered_renew(own, inode, error);
    publish(peer_map, id);
    return status;
}

/* A consistent copy of an entry, or version 0. */
static gw_segment_name read_entry(gw_peer_map_entry *entry, uint32_t *version, uint64_t *key) {
    *version = atomic_load(&entry->version);
    gw_segment_name name = {.fd = atomic_load(&entry->fd),
                            .inode = atomic_load(&entry->inode),
                            .bytes = atomic_load(&entry->bytes),
                            .address = atomic_load(&entry->address)};
    *key = atomic_load(&entry->key);
    if (*version % 2 == 0 || atomic_load(&entry->version) != *version) *version = 0;
    return name;
}

gw_shm_ref gw_peer_map_lookup(gw_peer_map *peer_map, int rank, uint64_t key, uint64_t *bytes) {
    gw_peer_map_page *page = rank == peer_map->rank ? peer_map->page : peer_map->peers[rank].page;
    uint32_t entries = page ? atomic_load(&page->entries) : 0;
    for (uint32_t id = 0; id < entries && id < GW_PEER_MAP_SEGMENTS; id++) {
        uint32_t version;
        uint64_t found;
        gw_segment_name name = read_entry(&page->table[id], &version, &found);
        if (!version || found != key) continue;
        *bytes = name.bytes;
        return (gw_shm_ref){.id = id, .version = version};
    }
    return (gw_shm_ref){0};
}

/* True if no outdated mapping is left. */
static bool sweep_entry(gw_peer_map *peer_map, gw_peer_map_peer *peer, uint32_t id) {
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
        peer_map->unmapped++;
        gw_segment_close(&mapping->segment);
        free(mapping);
    }
    return clean;
}

/* Older mappings of the entry go first, so that a peer that renames its memory again and again fills no address space.
 */
static gw_mapping *map_segment(gw_peer_map *peer_map, int rank, gw_shm_ref where, gw_error *error) {
    gw_peer_map_peer *peer = &peer_map->peers[rank];
    uint32_t version;
    uint64_t key;
    gw_segment_name name = read_entry(&peer->page->table[where.id], &version, &key);
    if (version != where.version) {
        gw_fail_rank(error, GW_PROTOCOL, rank, "rank %d freed memory that a collective or message still uses", rank);
        return NULL;
    }
    name.pid = peer->pid;
    sweep_entry(peer_map, peer, where.id);
    gw_mapping *mapping = calloc(1, sizeof *mapping);
    if (!mapping) {
        gw_fail(error, GW_MEMORY, "no memory to map what rank %d shares", rank);
        return NULL;
    }
    gw_error cause = {.status = GW_OK};
    if (gw_segment_open(&mapping->segment, &name, key == 0, &cause)) {
        gw_fail_rank(error, gw_peer_map_ended(peer) ? GW_PEER_LOST : cause.status, rank, "%s", cause.text);
        free(mapping);
        return NULL;
    }
    mapping->id = where.id;
    mapping->version = version;
    mapping->next = peer->mappings[where.id];
    peer->mappings[where.id] = mapping;
    return mapping;
}

gw_mapping *gw_peer_map_pin(gw_peer_map *peer_map, int rank, gw_shm_ref where, gw_error *error) {
    gw_peer_map_peer *peer = &peer_map->peers[rank];
    if (!peer->page || where.id >= GW_PEER_MAP_SEGMENTS) {
        gw_fail_rank(error, GW_PROTOCOL, rank, "rank %d refers to shared memory that is out of reach", rank);
        return NULL;
    }
    gw_mapping *mapping = peer->mappings[where.id];
    if (!mapping || mapping->version != where.version) mapping = map_segment(peer_map, rank, where, error);
    if (mapping) mapping->pins++;
    return mapping;
}

void gw_peer_map_unpin(gw_mapping *mapping) {
    if (mapping) mapping->pins--;
}

void gw_peer_map_sweep(gw_peer_map *peer_map) {
    for (int rank = 0; rank < peer_map->world; rank++) {
        gw_peer_map_peer *peer = &peer_map->peers[rank];
        if (!peer->page) continue;
        uint32_t changes = atomic_load(&peer->page->changes);
        if (changes == peer->changes) continue;
        bool clean = true;
        for (uint32_t id = 0; id < GW_PEER_MAP_SEGMENTS; id++)
            if (peer->mappings[id]) clean = sweep_entry(peer_map, peer, id) && clean;
        if (clean) peer->changes = changes;
    }
}
