/* rdma_memory.c - see rdma_memory.h. */
#include "transport/rdma/rdma_memory.h"

#include <openssl/rand.h>
#include <stdlib.h>

#define IDLE_MAX 4096 /* unused registrations kept */
#define KEY_TRIES 4   /* random keys collide once in 2^64 times; with keys of 4 bytes once in a few thousand */

void gw_rdma_cache_open(gw_rdma_cache *cache, gw_rdma_fabric *fabric) {
    *cache = (gw_rdma_cache){.fabric = fabric};
    TAILQ_INIT(&cache->idle);
}

static size_t bucket_of(const void *at, size_t bytes) {
    uint64_t mixed = ((uint64_t)(uintptr_t)at ^ (uint64_t)bytes << 20) * UINT64_C(0x9e3779b97f4a7c15);
    return (size_t)(mixed >> 54);
}

static void end(gw_rdma_memory *memory) {
    LIST_REMOVE(memory, chain);
    if (memory->region) fi_close(&memory->region->fid);
    free(memory);
}

/* A random key, unless the provider chooses keys. False: there are no random bytes. */
static bool draw_key(const gw_rdma_fabric *f, uint64_t *key) {
    size_t bytes = f->info->domain_attr->mr_key_size;
    *key = 0;
    return f->provider_keys || RAND_bytes((uint8_t *)key, (int)(bytes < 8 ? bytes : 8)) == 1;
}

static int enroll(gw_rdma_fabric *f, gw_rdma_memory *memory) {
    int result = -FI_ENOKEY;
    uint64_t key;
    for (int i = 0; i < KEY_TRIES && result == -FI_ENOKEY; i++)
        result = !draw_key(f, &key) ? -FI_EOTHER
                                    : fi_mr_reg(f->domain, memory->at, memory->bytes, memory->access, 0, key, 0,
                                                &memory->region, NULL);
    if (!result && f->bind_memory) {
        result = fi_mr_bind(memory->region, &f->endpoint->fid, 0);
        if (!result) result = fi_mr_enable(memory->region);
    }
    return result;
}

static gw_rdma_memory *find(gw_rdma_cache *cache, size_t bucket, const void *at, size_t bytes, uint64_t access) {
    gw_rdma_memory *memory;
    LIST_FOREACH(memory, &cache->buckets[bucket], chain)
    if (memory->at == at && memory->bytes == bytes && memory->access == access) return memory;
    return NULL;
}

static gw_rdma_memory *make(gw_rdma_cache *cache, size_t bucket, const void *at, size_t bytes, uint64_t access,
                            gw_error *error) {
    gw_rdma_fabric *f = cache->fabric;
    gw_rdma_memory *memory = calloc(1, sizeof *memory);
    if (!memory) {
        gw_fail(error, GW_MEMORY, "out of memory for a registration");
        return NULL;
    }
    *memory = (gw_rdma_memory){.at = at, .bytes = bytes, .access = access};
    LIST_INSERT_HEAD(&cache->buckets[bucket], memory, chain);
    int result = enroll(f, memory);
    if (result) {
        end(memory);
        gw_fail(error, GW_SYSTEM, "%zu bytes of memory cannot be registered: %s; see ulimit -l", bytes,
                f->library.strerror(-result));
        return NULL;
    }
    memory->address = f->virtual_addresses ? (uint64_t)(uintptr_t)at : 0;
    memory->key = fi_mr_key(memory->region);
    memory->descriptor = fi_mr_desc(memory->region);
    cache->registered++;
    return memory;
}

gw_rdma_memory *gw_rdma_memory_take(gw_rdma_cache *cache, const void *at, size_t bytes, uint64_t access,
                                    gw_error *error) {
    size_t bucket = bucket_of(at, bytes);
    gw_rdma_memory *memory = find(cache, bucket, at, bytes, access);
    if (!memory) memory = make(cache, bucket, at, bytes, access, error);
    else cache->reused++;
    if (!memory) return NULL;
    if (memory->users++ == 0 && memory->idle.tqe_prev) {
        TAILQ_REMOVE(&cache->idle, memory, idle);
        memory->idle.tqe_prev = NULL;
        cache->idle_count--;
    }
    return memory;
}

void gw_rdma_memory_give(gw_rdma_cache *cache, gw_rdma_memory *memory) {
    if (!memory || --memory->users > 0) return;
    if (cache->fabric->pinned) {
        end(memory);
        return;
    }
    TAILQ_INSERT_TAIL(&cache->idle, memory, idle);
    if (++cache->idle_count <= IDLE_MAX) return;
    gw_rdma_memory *longest = TAILQ_FIRST(&cache->idle);
    TAILQ_REMOVE(&cache->idle, longest, idle);
    cache->idle_count--;
    end(longest);
}

void gw_rdma_cache_empty(gw_rdma_cache *cache) {
    for (size_t i = 0; i < GW_RDMA_BUCKETS; i++)
        while (!LIST_EMPTY(&cache->buckets[i])) end(LIST_FIRST(&cache->buckets[i]));
    TAILQ_INIT(&cache->idle);
    cache->idle_count = 0;
}
