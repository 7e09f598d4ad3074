/* harbour.h - what a rank shows the other ranks of its host: one segment with a doorbell's sleeping flag, a table of
 * the memory it shares, and room for the transports of this folder (message rings, shm.c).
 *
 * Peers find a harbour by the 64-byte endpoint record that the rendezvous hands round: it names the process, its file
 * descriptors, a random cookie and the host (boot id, network and pid namespace, user). A peer that cannot open it
 * cannot use shared memory with this rank, and is told why.
 *
 * Waking. A rank that is about to sleep stores sleeping = 1 and then looks once more at everything it waits for; a rank
 * that publishes something stores it and then looks at sleeping. All four are sequentially consistent, so at least one
 * of the two sees the other's store, and no wake-up is lost. The doorbell is a pipe (an eventfd cannot be opened
 * through /proc) and is written by who turns sleeping from 1 to 0: at most once for each sleep.
 *
 * Sharing. Each allocation is a segment of its own in the owner's table; entry versions are odd while it lives. Peers
 * map a segment on first use and keep it; a mapping in use is pinned, one whose entry has changed is unmapped when no
 * longer pinned. A harbour and all its memory functions belong to one thread at a time. */
#ifndef GW_TRANSPORT_HARBOUR_H
#define GW_TRANSPORT_HARBOUR_H

#include "transport/segment.h"

#include <stdalign.h>
#include <stdatomic.h>

#define GW_HARBOUR_SEGMENTS 1024
#define GW_SHM_ENDPOINT_BYTES 64
#define GW_LINE 64 /* bytes that cores exchange at once */

typedef struct gw_harbour_entry {
    alignas(GW_LINE) _Atomic uint32_t version; /* odd: alive. Written last, so that a reader can tell a change */
    _Atomic int32_t fd;
    _Atomic uint64_t inode, bytes, address;
    _Atomic uint64_t key; /* 0: memory of gw_shm_alloc; else what the owner published it under */
} gw_harbour_entry;

/* The first bytes of a harbour. Written by its owner only, except sleeping. */
typedef struct gw_harbour_page {
    uint8_t cookie[16];
    uint32_t rank, world;
    uint64_t address; /* of this page in its owner */
    alignas(GW_LINE) _Atomic uint32_t generation;
    _Atomic uint32_t entries; /* of the table that were ever used */
    _Atomic uint32_t changes; /* entries that died or were replaced so far */
    alignas(GW_LINE) _Atomic uint32_t sleeping;
    gw_harbour_entry table[GW_HARBOUR_SEGMENTS];
} gw_harbour_page;

/* A place in some rank's shared memory. */
typedef struct gw_shared {
    uint32_t id;      /* entry of the table */
    uint32_t version; /* of the entry; 0: not shared memory */
    uint64_t offset;
} gw_shared;

/* A peer's segment in this process. */
typedef struct gw_mapping {
    gw_segment segment;
    uint32_t id, version;
    uint32_t pins;           /* uses that forbid unmapping */
    struct gw_mapping *next; /* older ones of the same entry */
} gw_mapping;

typedef struct gw_harbour_peer {
    gw_segment segment;    /* its harbour */
    gw_harbour_page *page; /* NULL: not reached through shared memory */
    int pid;
    int bell;               /* its doorbell's writing end */
    uint32_t changes;       /* of its table, when mappings were last swept */
    gw_mapping **mappings;  /* by entry */
} gw_harbour_peer;

typedef struct gw_harbour {
    gw_segment segment;
    gw_harbour_page *page;
    int rank, world;
    int bell[2]; /* pipe: reading and writing end */
    gw_segment *own;        /* the segments of the table, by entry */
    uint32_t last_found;    /* entry that gw_harbour_find found last */
    uint32_t unmapped;      /* mappings of peers' segments that are gone: who keeps one unpinned compares */
    gw_harbour_peer *peers; /* by rank */
} gw_harbour;

/* room: bytes behind the page for the caller's own use, sparse. */
gw_status gw_harbour_open(gw_harbour **harbour, int rank, int world, size_t room, gw_error *error);
void gw_harbour_close(gw_harbour *harbour);
void *gw_harbour_room(void *page);

void gw_harbour_endpoint(const gw_harbour *harbour, uint8_t endpoint[GW_SHM_ENDPOINT_BYTES]);
/* GW_UNSUPPORTED, and why, where this pair cannot use shared memory. */
gw_status gw_harbour_attach(gw_harbour *harbour, int peer, const uint8_t endpoint[GW_SHM_ENDPOINT_BYTES],
                            gw_error *error);

/* Between a store of news and the look at sleeping, where the store is not sequentially consistent itself. */
static inline void gw_harbour_fence(void) {
#if defined(__SANITIZE_THREAD__)
    static _Atomic int line; /* gcc's TSan does not know fences */
    atomic_exchange(&line, 0);
#else
    atomic_thread_fence(memory_order_seq_cst);
#endif
}

/* Wakes the owner of a page if it sleeps; after a sequentially consistent store of what there is to see. */
static inline bool gw_harbour_sleeps(gw_harbour_page *page) { return atomic_load(&page->sleeping) != 0; }
void gw_harbour_ring(gw_harbour *harbour, int peer);
void gw_harbour_arm(gw_harbour *harbour, bool sleeping);

/* Publishes bytes of new memory under key (0 for gw_shm_alloc) and gives its address, NULL on an error. */
void *gw_harbour_share(gw_harbour *harbour, size_t bytes, uint64_t key, bool commit, gw_error *error);
void gw_harbour_unshare(gw_harbour *harbour, void *memory);
/* Whether [memory, memory+bytes) lies in one shared segment of this rank, and where. */
bool gw_harbour_find(gw_harbour *harbour, const void *memory, size_t bytes, gw_shared *where);
/* Takes a shared segment out of reach of peers that have it mapped (its address and contents stay). */
gw_status gw_harbour_renew(gw_harbour *harbour, uint32_t id, gw_error *error);
/* What a peer (or this rank) publishes under key: version 0 if nothing. */
gw_shared gw_harbour_lookup(gw_harbour *harbour, int rank, uint64_t key, uint64_t *bytes);

/* A peer's segment, pinned until gw_harbour_unpin; NULL and why where it cannot be had. */
gw_mapping *gw_harbour_pin(gw_harbour *harbour, int peer, gw_shared where, gw_error *error);
void gw_harbour_unpin(gw_mapping *mapping);
/* Unmaps what peers have freed. */
void gw_harbour_sweep(gw_harbour *harbour);

/* Whether its process has ended: then nothing of it can be opened, which is no fault of what it sent. */
bool gw_harbour_ended(const gw_harbour_peer *peer);

#endif
