/* peer_map.h - a rank's shared page, and its mappings of the pages and memory of its peers on the host. A page is one
 * segment with the sleeping flag of a doorbell, a table of the memory that the rank shares, and room for the message
 * rings of the shm transport (shm_transport.c).
 *
 * Peers find a page by the 64-byte endpoint record that the rendezvous distributes: it names the process, its file
 * descriptors, a random cookie and the host (boot id, network and pid namespace, user). A peer that cannot open the
 * page cannot use shared memory with this rank, and gets the reason.
 *
 * Waking. A rank that is about to sleep stores sleeping = 1 and then polls once more everything it waits for. A rank
 * that publishes something stores it and then loads sleeping. All four accesses are sequentially consistent, so at
 * least one of the two sees the other's store, and no wake-up is lost. The doorbell is a pipe (an eventfd cannot be
 * opened through /proc). The rank that turns sleeping from 1 to 0 writes to it: at most once for each sleep.
 *
 * Sharing. Each allocation is a segment with its own entry in the owner's table; an entry's version is odd while it
 * lives. Peers map a segment on first use and keep the mapping. A mapping in use is pinned; one whose entry has changed
 * is unmapped when it is no longer pinned. One thread at a time uses a peer map and its memory functions.
 *
 * Trust. Peers may write anything into any page and segment, at any time. So what decides about memory is kept in
 * private memory, or copied out of the page once (gw_read_once), checked, and used from the copy. A peer that lies can
 * spoil values and delay an operation until its deadline, but reaches no memory that is not shared with it. */
#ifndef GW_SHM_PEER_MAP_H
#define GW_SHM_PEER_MAP_H

#include "shm/segment.h"

#include <stdalign.h>
#include <stdatomic.h>
#include <string.h>

#define GW_PEER_MAP_SEGMENTS 1024
#define GW_SHM_ENDPOINT_BYTES 64
#define GW_CACHE_LINE 64 /* bytes of a cache line */

typedef struct gw_peer_map_entry {
    alignas(GW_CACHE_LINE) _Atomic uint32_t version; /* odd: alive. Written last, so that a reader notices a change */
    _Atomic int32_t fd;
    _Atomic uint64_t inode, bytes, address;
    _Atomic uint64_t key; /* 0: memory of gw_shm_alloc; else the key under which the owner published it */
} gw_peer_map_entry;

/* What a rank says about the pages of its peers. */
typedef enum gw_peer_map_reach { GW_REACH_UNKNOWN, GW_REACH_ALL, GW_REACH_NOT_ALL } gw_peer_map_reach;
#define GW_REACH_WHY 256

/* The first bytes of a rank's shared page. Only its owner writes it, except sleeping. */
typedef struct gw_peer_map_page {
    uint8_t cookie[16];
    uint32_t rank, world;
    uint64_t address;       /* of this page in its owner's process */
    _Atomic uint32_t reach; /* gw_peer_map_reach; written once */
    char why[GW_REACH_WHY]; /* a sentence, written before reach: why not all */
    alignas(GW_CACHE_LINE) _Atomic uint32_t generation;
    _Atomic uint32_t entries; /* as in the owner's gw_peer_map */
    _Atomic uint32_t changes;
    alignas(GW_CACHE_LINE) _Atomic uint32_t sleeping;
    gw_peer_map_entry table[GW_PEER_MAP_SEGMENTS];
} gw_peer_map_page;

/* A location in some rank's shared memory. */
typedef struct gw_shm_ref {
    uint32_t id;      /* entry of the table */
    uint32_t version; /* of the entry; 0: not shared memory */
    uint64_t offset;
} gw_shm_ref;

/* A segment that this rank shares. Its entry in the page repeats this: peers can write the page, so the owner never
 * reads it there. */
typedef struct gw_shared_segment {
    gw_segment segment;
    uint32_t version; /* of the entry */
    uint64_t key;
    /* Addresses at which the caller has it: of the segment's first byte, and [from, to) of the caller's memory. It is
     * the mapping itself, or, if the memory is registered (registered_memory.h), another mapping of its whole pages. */
    uintptr_t origin, from, to, pages_from, pages_to;
} gw_shared_segment;

/* A peer's segment in this process. */
typedef struct gw_mapping {
    gw_segment segment;
    uint32_t id, version;
    uint32_t pins;           /* uses that forbid unmapping */
    struct gw_mapping *next; /* older ones of the same entry */
} gw_mapping;

typedef struct gw_peer_map_peer {
    gw_segment segment;     /* its page */
    gw_peer_map_page *page; /* NULL: not reached through shared memory */
    int pid;
    int bell;              /* its doorbell's writing end */
    uint32_t changes;      /* of its table, when mappings were last swept */
    gw_mapping **mappings; /* by entry */
} gw_peer_map_peer;

typedef struct gw_peer_map {
    gw_segment segment;
    gw_peer_map_page *page;
    int rank, world;
    int bell[2];             /* pipe: reading and writing end */
    gw_shared_segment *own;  /* by entry of the table */
    uint32_t entries;        /* those that were ever used */
    uint32_t changes;        /* entries that died or were replaced so far */
    uint32_t last_found;     /* entry that gw_peer_map_find found last */
    uint32_t unmapped;       /* counts unmapped segments of peers; a user of an unpinned mapping compares it */
    bool never_reads;        /* gw_peer_map_reads is always false, as where the system forbids it; for tests */
    gw_peer_map_peer *peers; /* by rank */
} gw_peer_map;

/* room: bytes behind the page for the caller's own use, sparse. */
gw_status gw_peer_map_open(gw_peer_map **peer_map, int rank, int world, size_t room, gw_error *error);
void gw_peer_map_close(gw_peer_map *peer_map);
void *gw_peer_map_user_area(void *page);

void gw_peer_map_endpoint(const gw_peer_map *peer_map, uint8_t endpoint[GW_SHM_ENDPOINT_BYTES]);
/* The endpoint of a rank that has no page. why: up to its first comma. */
void gw_peer_map_no_endpoint(const char *why, uint8_t endpoint[GW_SHM_ENDPOINT_BYTES]);
/* Whether the endpoints alone forbid these two to share memory, and why. All ranks that ask get the same answer. */
bool gw_peer_map_apart(const uint8_t mine[GW_SHM_ENDPOINT_BYTES], const uint8_t theirs[GW_SHM_ENDPOINT_BYTES],
                       char why[GW_REACH_WHY]);
/* peer_map_reach.c: ranks that the endpoints do not forbid to share memory may still be kept from it on one side only
 * (a process that is not dumpable opens the pages of others, but they do not open its own). So each says in its page
 * whether it has attached to all of them, and shared memory is used only where all say yes. why: NULL if it has. */
void gw_peer_map_say(gw_peer_map *peer_map, const char *why);
/* What an attached peer has said; why: if it is GW_REACH_NOT_ALL. */
gw_peer_map_reach gw_peer_map_said(gw_peer_map *peer_map, int peer, char why[GW_REACH_WHY]);
/* GW_UNSUPPORTED and the reason if this pair cannot use shared memory. */
gw_status gw_peer_map_attach(gw_peer_map *peer_map, int peer, const uint8_t endpoint[GW_SHM_ENDPOINT_BYTES],
                             gw_error *error);

/* Copies what a peer may change at any moment. The compiler cannot read it a second time after a check. */
static inline void gw_read_once(void *to, const void *from, size_t bytes) {
    memcpy(to, from, bytes);
    atomic_signal_fence(memory_order_seq_cst);
}

/* Call it between a store of something new and the load of sleeping, if the store itself is not sequentially
 * consistent. */
static inline void gw_peer_map_fence(void) {
#if defined(__SANITIZE_THREAD__)
    static _Atomic int line; /* gcc's TSan does not know fences */
    atomic_exchange(&line, 0);
#else
    atomic_thread_fence(memory_order_seq_cst);
#endif
}

/* gw_peer_map_wake wakes a peer if it sleeps; call it after a sequentially consistent store of the data that the peer
 * must see. */
static inline bool gw_peer_map_sleeps(gw_peer_map_page *page) { return atomic_load(&page->sleeping) != 0; }
void gw_peer_map_wake(gw_peer_map *peer_map, int peer);
/* Sets the own sleeping flag; false also empties the doorbell. */
void gw_peer_map_set_sleeping(gw_peer_map *peer_map, bool sleeping);

/* Allocates shared memory, publishes it under key (0 for gw_shm_alloc) and returns its address; NULL on an error. */
void *gw_peer_map_share(gw_peer_map *peer_map, size_t bytes, uint64_t key, bool commit, gw_error *error);
void gw_peer_map_unshare(gw_peer_map *peer_map, void *memory);
/* Shares a segment of the caller's. GW_MEMORY: the table is full. */
gw_status gw_peer_map_add(gw_peer_map *peer_map, const gw_shared_segment *segment, gw_error *error);
/* No longer shares a segment: it is the caller's again, and still open. */
gw_shared_segment gw_peer_map_take(gw_peer_map *peer_map, uint32_t id);
/* The registered memory that begins at this address; false: there is none. */
bool gw_peer_map_registered(const gw_peer_map *peer_map, const void *memory, uint32_t *id);
/* Whether [memory, memory+bytes) lies in one shared segment of this rank, and where. */
bool gw_peer_map_find(gw_peer_map *peer_map, const void *memory, size_t bytes, gw_shm_ref *where);
/* Replaces the memory behind a shared segment, so that peers that have it mapped no longer reach it. Its address and
 * contents stay. */
gw_status gw_peer_map_renew(gw_peer_map *peer_map, uint32_t id, gw_error *error);
/* What a peer (or this rank) publishes under key: version 0 if nothing. */
gw_shm_ref gw_peer_map_lookup(gw_peer_map *peer_map, int rank, uint64_t key, uint64_t *bytes);

/* A peer's segment, mapped and pinned until gw_peer_map_unpin; NULL and the reason on failure. */
gw_mapping *gw_peer_map_pin(gw_peer_map *peer_map, int peer, gw_shm_ref where, gw_error *error);
void gw_peer_map_unpin(gw_mapping *mapping);
/* Unmaps the segments that peers have freed. */
void gw_peer_map_sweep(gw_peer_map *peer_map);

/* peer_map_read.c: whether this process may read the memory of an attached peer's process; asked once. It reads the
 * cookie of the peer's page at the address that the page names: so a pid is that of the process with the page. */
bool gw_peer_map_reads(gw_peer_map *peer_map, int peer);
/* Reads memory that the peer has not shared. `from` is an address in the peer's process, and is used for nothing else:
 * a wrong one gives wrong data or an error. */
gw_status gw_peer_map_read(gw_peer_map *peer_map, int peer, void *to, uint64_t from, size_t bytes, gw_error *error);

/* Whether the peer's process has ended: its memory then cannot be opened, which is not a protocol error. */
bool gw_peer_map_ended(const gw_peer_map_peer *peer);

#endif
