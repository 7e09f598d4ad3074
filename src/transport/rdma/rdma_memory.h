/* rdma_memory.h - a cache of memory registrations.
 *
 * Software providers register addresses: a registration stays valid whatever is mapped there later. So it stays in the
 * cache, found by address and length, until it is evicted as the least recently used. Where a registration pins pages
 * (`pinned`: providers that require FI_MR_ALLOCATED) it ends with its last user: only the provider can see that a
 * mapping changes, and these providers have a cache of their own that sees it. */
#ifndef GW_TRANSPORT_RDMA_RDMA_MEMORY_H
#define GW_TRANSPORT_RDMA_RDMA_MEMORY_H

#include "transport/rdma/rdma_fabric.h"

#include <sys/queue.h>

typedef struct gw_rdma_memory {
    LIST_ENTRY(gw_rdma_memory) chain; /* of its bucket */
    TAILQ_ENTRY(gw_rdma_memory) idle; /* while unused, least recently used first */
    struct fid_mr *region;
    const void *at;
    size_t bytes;
    uint64_t access;       /* FI_WRITE: a source; FI_REMOTE_WRITE: a receive buffer */
    uint64_t address, key; /* for the peer that writes here */
    void *descriptor;      /* for this rank's own transfers */
    int users;
} gw_rdma_memory;

#define GW_RDMA_BUCKETS 1024

typedef struct gw_rdma_cache {
    gw_rdma_fabric *fabric;
    LIST_HEAD(, gw_rdma_memory) buckets[GW_RDMA_BUCKETS];
    TAILQ_HEAD(gw_rdma_idle, gw_rdma_memory) idle;
    int idle_count;
    uint64_t registered, reused; /* so far */
} gw_rdma_cache;

void gw_rdma_cache_open(gw_rdma_cache *cache, gw_rdma_fabric *fabric);
/* NULL: it cannot be registered, error says why. */
gw_rdma_memory *gw_rdma_memory_take(gw_rdma_cache *cache, const void *at, size_t bytes, uint64_t access,
                                    gw_error *error);
void gw_rdma_memory_give(gw_rdma_cache *cache, gw_rdma_memory *memory); /* NULL is fine */
/* Ends every registration, used or not: peers can no longer write. */
void gw_rdma_cache_empty(gw_rdma_cache *cache);

#endif
