/* rdma_memory.h - memory registered with the fabric, and kept registered.
 *
 * Software providers register addresses: a registration stays right whatever is mapped there later, so it is kept until
 * others have been used since, and found again by address and length. Where a registration is of pages (`pinned`, the
 * providers that demand FI_MR_ALLOCATED) it is given back with its last user: only the provider can see a mapping
 * change, and those providers keep a cache of their own that does. */
#ifndef GW_TRANSPORT_RDMA_MEMORY_H
#define GW_TRANSPORT_RDMA_MEMORY_H

#include "transport/rdma_fabric.h"

#include <sys/queue.h>

typedef struct gw_rdma_memory {
    LIST_ENTRY(gw_rdma_memory) chain; /* of its bucket */
    TAILQ_ENTRY(gw_rdma_memory) idle; /* while nobody uses it, longest first */
    struct fid_mr *region;
    const void *at;
    size_t bytes;
    uint64_t access; /* FI_WRITE: to be sent; FI_REMOTE_WRITE: a landing */
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
/* Ends every registration, used or not: from now on nobody can write. */
void gw_rdma_cache_empty(gw_rdma_cache *cache);

#endif
