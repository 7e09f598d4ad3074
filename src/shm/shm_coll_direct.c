/* shm_coll_direct.c - operations on buffers that every member has mapped: each part is combined once, in place, and
 * pushed into all outputs.
 *
 * A part is cut into chunks, which members claim by an atomic counter. Members claim from their own part first (its
 * counter stays in their cache) and then from those of others. If parts are small and every member has a core, each
 * owner does its part alone: claims would move more cache lines than the data has. */
#include "shm/shm_coll_internal.h"

#define PREFETCH_BYTES 4096 /* as many lines as a core can have in flight, and a few more */

/* A member's bytes that this rank works on: those of its own that others cannot reach lie in private memory. */
static const uint8_t *in_at(const gw_shm_coll *coll, int member, size_t at, size_t bytes) {
    bool claimed_own = member == coll->self && coll->own_registered && !coll->fixed;
    return claimed_own ? gw_shm_coll_in_at(coll, at, bytes) : coll->sides[member].in + at;
}

static uint8_t *out_at(const gw_shm_coll *coll, int member, size_t at, size_t bytes) {
    bool claimed_own = member == coll->self && coll->own_registered && !coll->fixed;
    return claimed_own ? gw_shm_coll_out_at(coll, at, bytes) : coll->sides[member].out + at;
}

static void do_chunk(gw_shm_coll *coll, int owner, size_t offset, size_t count) {
    const gw_shm_coll_op *op = coll_head(coll);
    size_t at = offset * coll->element, bytes = count * coll->element;
    size_t wide = gw_shm_coll_out_bytes(coll), wide_at = offset * wide;
    int sources = 0, destinations = 0;
    for (int m = 0; m < coll->members; m++) {
        if (coll_reduces(op)) coll->src[sources++] = in_at(coll, m, at, bytes);
        if (coll_gets(op, owner, m)) coll->dst[destinations++] = out_at(coll, m, wide_at, count * wide);
    }
    if (!coll_reduces(op)) coll->src[sources++] = in_at(coll, owner, at, bytes);
    gw_shm_coll_combine(op, coll->dst, destinations, coll->src, sources, count);
}

static uint64_t chunks_of(const gw_shm_coll *coll, int owner) {
    return (coll->sides[owner].length + coll->chunk_elements - 1) / coll->chunk_elements;
}

/* Works on the chunks of one part until none is left to claim, or the budget is spent. */
static bool work_on_part(gw_shm_coll *coll, int owner, size_t *budget) {
    coll_entry *entry = coll_entry_of(coll, coll->finished, owner);
    const coll_side *part = &coll->sides[owner];
    uint64_t chunks = chunks_of(coll, owner);
    bool moved = false;
    while (*budget && atomic_load_explicit(&entry->next, memory_order_relaxed) < chunks) {
        uint64_t chunk = atomic_fetch_add_explicit(&entry->next, 1, memory_order_relaxed);
        if (chunk >= chunks) break;
        size_t begin = (size_t)chunk * coll->chunk_elements;
        size_t count = coll_min(coll->chunk_elements, part->length - begin);
        do_chunk(coll, owner, part->offset + begin, count);
        *budget -= coll_min(*budget, count * coll->element);
        moved = true;
        if (atomic_fetch_add(&entry->done, 1) + 1 == chunks) gw_shm_coll_wake(coll);
    }
    return moved;
}

/* Prefetches the own part of the others' buffers for writing, because it is read and then written: one coherence
 * transfer for each line. The buffers are those of the last operation, which this one is likely to use too; if not,
 * nothing is lost. The prefetch comes before the others are known to have arrived, so that the last to arrive does not
 * wait for their arrivals and then once more for the data (4 KiB between two: 0.34 us instead of 0.39). The first to
 * arrive may take lines that their owner is about to write, which costs the owner a transfer back for those few. */
void gw_shm_coll_prefetch_direct(gw_shm_coll *coll) {
    const coll_side *own = &coll->sides[coll->self];
    size_t begin = own->offset * coll->element, end = begin + coll_min(own->length * coll->element, PREFETCH_BYTES);
    if (coll->resolved_mode != COLL_DIRECT) return;
    for (int m = 0; m < coll->members; m++) __builtin_prefetch(&coll_entry_of(coll, coll->finished, m)->arrived);
    for (int m = 0; m < coll->members; m++) {
        const uint8_t *at = coll->sides[m].in;
        if (m == coll->self || !at || at != coll->sides[m].out) continue;
        for (size_t byte = begin; byte < end; byte += GW_CACHE_LINE) __builtin_prefetch(at + byte, 1);
    }
}

static bool do_own_part(gw_shm_coll *coll) {
    coll_entry *entry = coll_entry_of(coll, coll->finished, coll->self);
    const coll_side *part = &coll->sides[coll->self];
    uint64_t now = coll->finished + 1;
    if (atomic_load_explicit(&entry->served, memory_order_relaxed) == now) return false;
    if (part->length) do_chunk(coll, coll->self, part->offset, part->length);
    coll_signal(coll, &entry->served, now);
    return true;
}

bool gw_shm_coll_all_served(gw_shm_coll *coll) {
    for (int m = 0; m < coll->members; m++)
        if (atomic_load(&coll_entry_of(coll, coll->finished, m)->served) != coll->finished + 1) return false;
    return true;
}

bool gw_shm_coll_direct_done(gw_shm_coll *coll) {
    if (coll->fixed) return gw_shm_coll_all_served(coll);
    for (int m = 0; m < coll->members; m++)
        if (atomic_load(&coll_entry_of(coll, coll->finished, m)->done) < chunks_of(coll, m)) return false;
    return true;
}

bool gw_shm_coll_work_direct(gw_shm_coll *coll, size_t *budget, bool *done) {
    if (coll->over) return *done = true;
    bool moved = coll->fixed && do_own_part(coll);
    for (int i = 0; !coll->fixed && i < coll->members && *budget; i++)
        moved = work_on_part(coll, (coll->self + i) % coll->members, budget) || moved;
    *done = gw_shm_coll_direct_done(coll);
    return moved || *done;
}
