/* payload_pool.c - see payload_pool.h. First fit among the few leases that are held at a time. */
#include "reducer/payload_pool.h"

#include <assert.h>
#include <stdlib.h>

struct gw_payload_pool {
    uint8_t *memory;
    size_t bytes;
    gw_payload_lease *held, *waiting;
    int held_count, leases;
    uint64_t given;
};

gw_status gw_payload_pool_open(gw_payload_pool **out, size_t bytes, int leases, gw_error *error) {
    gw_payload_pool *pool = calloc(1, sizeof *pool);
    size_t rounded = (bytes + GW_PAYLOAD_ALIGNMENT) / GW_PAYLOAD_ALIGNMENT * GW_PAYLOAD_ALIGNMENT;
    if (pool) pool->memory = aligned_alloc(GW_PAYLOAD_ALIGNMENT, rounded);
    if (!pool || !pool->memory) {
        free(pool);
        return gw_fail(error, GW_MEMORY, "out of memory for %zu bytes of compressed gradients", bytes);
    }
    pool->bytes = bytes;
    pool->leases = leases;
    *out = pool;
    return GW_OK;
}

void gw_payload_pool_close(gw_payload_pool *pool) {
    if (!pool) return;
    free(pool->memory);
    free(pool);
}

size_t gw_payload_pool_bytes(const gw_payload_pool *pool) { return pool->bytes; }
uint64_t gw_payload_pool_given(const gw_payload_pool *pool) { return pool->given; }

static bool place(gw_payload_pool *pool, gw_payload_lease *lease) {
    gw_payload_lease **at = &pool->held;
    size_t offset = 0;
    if (pool->held_count == pool->leases) return false;
    for (; *at && (*at)->offset - offset < lease->bytes; at = &(*at)->next) offset = (*at)->offset + (*at)->bytes;
    if (pool->bytes - offset < lease->bytes) return false;
    lease->offset = offset;
    lease->held = true;
    lease->next = *at;
    *at = lease;
    pool->held_count++;
    return true;
}

static void give(gw_payload_pool *pool) {
    while (pool->waiting) {
        gw_payload_lease *first = pool->waiting, *next = first->next;
        if (!place(pool, first)) return;
        pool->waiting = next;
        pool->given++;
    }
}

void gw_payload_pool_ask(gw_payload_pool *pool, gw_payload_lease *lease, size_t bytes) {
    gw_payload_lease **end = &pool->waiting;
    assert(bytes <= pool->bytes && bytes % GW_PAYLOAD_ALIGNMENT == 0);
    while (*end) end = &(*end)->next;
    *end = lease;
    *lease = (gw_payload_lease){.bytes = bytes};
    give(pool);
}

uint8_t *gw_payload_pool_memory(const gw_payload_pool *pool, const gw_payload_lease *lease) {
    return lease->held ? pool->memory + lease->offset : NULL;
}

void gw_payload_pool_give_back(gw_payload_pool *pool, gw_payload_lease *lease) {
    gw_payload_lease **at = &pool->held;
    while (*at != lease) at = &(*at)->next;
    *at = lease->next;
    lease->held = false;
    pool->held_count--;
    give(pool);
}
