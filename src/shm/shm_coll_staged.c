/* shm_coll_staged.c - operations on memory that others cannot map, through the staging areas of the segment.
 *
 * Every member owns a part. A window is one chunk of each part. Windows follow each other through COLL_BUFFERS buffers,
 * and each member does three things to a window, each as soon as its condition holds:
 *
 *     fill    copy the other owners' chunks of the own input into the own staging area
 *             (when all owners have combined the window that used the buffer before)
 *     reduce  combine the own chunk of the own input and of the staged (or shared) inputs of all others into the own
 *             output, the shared outputs, and the staging area's result (when all have filled; and all have drained the
 *             window that used the buffer before)
 *     drain   copy the results of the other owners into the own output (when all have reduced)
 *
 * A member whose memory is shared skips fill and drain: others reach it.
 *
 * Reductions read no other process instead (process_vm_readv): that would save the copy-in, but was measured to be
 * slower at every size, by a quarter with a core for each rank and by half with fewer: the kernel looks up every page
 * it touches. Tasks that only move data may (shm_coll_pull.c). In a scatter and an all-to-all the second step copies
 * what the others have staged for this member, and there is no third. */
#include "base/copy.h"
#include "shm/shm_coll_internal.h"

size_t gw_shm_coll_chunk_bytes(int members) {
    size_t chunk = (size_t)COLL_WINDOW_BYTES / (size_t)members / 4096 * 4096;
    return chunk < 4096 ? 4096 : chunk;
}

/* Of one buffer of one member: a chunk for each owner, then its own result, which may be wide. */
static size_t buffer_bytes(int members) {
    return gw_shm_coll_chunk_bytes(members) * ((size_t)members + COLL_WIDEN_MAX);
}

size_t gw_shm_coll_stage_bytes(int members) { return COLL_BUFFERS * buffer_bytes(members); }

static uint8_t *buffer_of(gw_shm_coll *coll, int member, uint64_t window) {
    return coll->stage + (size_t)member * gw_shm_coll_stage_bytes(coll->members) +
           (size_t)(window % COLL_BUFFERS) * buffer_bytes(coll->members);
}

static uint8_t *staged_input(gw_shm_coll *coll, int member, uint64_t window, int owner) {
    return buffer_of(coll, member, window) + (size_t)owner * gw_shm_coll_chunk_bytes(coll->members);
}

static uint8_t *staged_result(gw_shm_coll *coll, int owner, uint64_t window) {
    return staged_input(coll, owner, window, coll->members);
}

/* The elements of an owner's part that belong to a window; returns their number, 0 if the part has ended. */
static size_t chunk_of(const gw_shm_coll *coll, uint64_t window, int owner, size_t *offset) {
    const coll_side *part = &coll->sides[owner];
    size_t begin = (size_t)(window - coll->first_window) * coll->chunk_elements;
    if (begin >= part->length) return 0;
    *offset = part->offset + begin;
    return coll_min(coll->chunk_elements, part->length - begin);
}

static bool all_reached(gw_shm_coll *coll, coll_counter which, uint64_t windows) {
    for (int m = 0; m < coll->members; m++)
        if (atomic_load(&coll->progress[m].windows[which]) < windows) return false;
    return true;
}

/* All members have passed the window that used this one's buffer before. */
static bool buffer_is_free(gw_shm_coll *coll, coll_counter which, uint64_t window) {
    return window < COLL_BUFFERS || all_reached(coll, which, window - COLL_BUFFERS + 1);
}

static void advance(gw_shm_coll *coll, coll_counter which, uint64_t windows) {
    coll->windows[which] = windows;
    coll_signal(coll, &coll->progress[coll->self].windows[which], windows);
    if (!coll->fixed) gw_shm_coll_wake(coll);
}

static void stage(gw_shm_coll *coll, uint64_t window, int owner, const uint8_t *from, size_t bytes) {
    uint8_t *at = staged_input(coll, coll->self, window, owner);
    gw_shm_coll_probe(coll, window, owner, at, from, bytes);
    if (gw_shm_coll_bypasses_cache(coll, window)) gw_copy_nontemporal(at, from, bytes);
    else gw_copy(at, from, bytes);
}

static size_t fill_window(gw_shm_coll *coll, uint64_t window) {
    const uint8_t *in = coll_head(coll)->in;
    size_t offset, copied = 0;
    for (int owner = 0; owner < coll->members; owner++) {
        size_t bytes = owner == coll->self ? 0 : chunk_of(coll, window, owner, &offset) * coll->element;
        if (bytes) stage(coll, window, owner, in + offset * coll->element, bytes);
        copied += bytes;
    }
    return copied;
}

/* What is staged for another member is read there from the staging area, even if this member's memory is shared: in an
 * all-to-all in place it is overwritten. */
static bool fills(const gw_shm_coll *coll) {
    const gw_shm_coll_op *op = coll_head(coll);
    if (coll_sends_apart(op)) return op->task == GW_SHM_TASK_ALLTOALL || op->root == coll->self;
    return coll_reduces(op) && coll->sides[coll->self].in_private;
}

bool gw_shm_coll_fill_staged(gw_shm_coll *coll, size_t *budget) {
    uint64_t end = coll->first_window + coll->window_count, window = coll->windows[COLL_FILLED];
    if (window == end) return false;
    if (!fills(coll)) {
        advance(coll, COLL_FILLED, end);
        return true;
    }
    if (!buffer_is_free(coll, COLL_REDUCED, window)) return false;
    *budget -= coll_min(*budget, fill_window(coll, window));
    advance(coll, COLL_FILLED, window + 1);
    return true;
}

/* Where a member's input for the own chunk can be read. */
static const uint8_t *source_of(gw_shm_coll *coll, int member, uint64_t window, size_t offset) {
    const coll_side *side = &coll->sides[member];
    if (side->in) return side->in + offset * coll->element;
    return staged_input(coll, member, window, coll->self);
}

/* The part of a window that another member has staged for this one, where each gets something else. */
static size_t take_window(gw_shm_coll *coll, uint64_t window) {
    const gw_shm_coll_op *op = coll_head(coll);
    size_t begin = (size_t)(window - coll->first_window) * coll->chunk_elements, copied = 0;
    for (int i = 0; i < coll->members; i++) {
        int from = (coll->self + i) % coll->members;
        coll_block block = gw_shm_coll_block(coll, from, coll->self);
        if (begin >= block.length) continue;
        size_t bytes = coll_min(coll->chunk_elements, block.length - begin) * coll->element;
        uint8_t *out = (uint8_t *)op->out + (block.out + begin) * coll->element;
        const uint8_t *source = from == coll->self ? (const uint8_t *)op->in + (block.in + begin) * coll->element
                                                   : staged_input(coll, from, window, coll->self);
        if (source != out) gw_copy(out, source, bytes);
        copied += bytes;
    }
    return copied;
}

static size_t reduce_window(gw_shm_coll *coll, uint64_t window) {
    const gw_shm_coll_op *op = coll_head(coll);
    if (coll_sends_apart(op)) return take_window(coll, window);
    size_t offset, count = chunk_of(coll, window, coll->self, &offset);
    if (count == 0) return 0;
    int sources = 0, destinations = 0;
    bool staged = false, kept = coll_gets(op, coll->self, coll->self);
    bool bypass = kept && gw_shm_coll_bypasses_cache(coll, window);
    for (int m = 0; m < coll->members; m++) {
        const coll_side *side = &coll->sides[m];
        if (coll_reduces(op)) coll->src[sources++] = source_of(coll, m, window, offset);
        if (!coll_gets(op, coll->self, m)) continue;
        if (side->out) coll->dst[destinations++] = side->out + offset * gw_shm_coll_out_bytes(coll);
        else staged = true;
    }
    const coll_side *own = &coll->sides[coll->self];
    if (!coll_reduces(op)) coll->src[sources++] = own->in + offset * coll->element;
    if (staged && !bypass) coll->dst[destinations++] = staged_result(coll, coll->self, window);
    gw_shm_coll_combine(op, coll->dst, destinations, coll->src, sources, count);
    if (staged && bypass) /* the own output holds it too */
        gw_copy_nontemporal(staged_result(coll, coll->self, window), own->out + offset * coll->element,
                            count * coll->element);
    return count * coll->element;
}

static size_t drain_window(gw_shm_coll *coll, uint64_t window) {
    const gw_shm_coll_op *op = coll_head(coll);
    size_t offset = 0, copied = 0;
    if (!coll->sides[coll->self].out_private || coll_sends_apart(op)) return 0;
    for (int i = 1; i < coll->members; i++) {
        int owner = (coll->self + i) % coll->members;
        if (!coll_gets(op, owner, coll->self)) continue;
        size_t bytes = chunk_of(coll, window, owner, &offset) * coll->element, at = offset * coll->element;
        if (bytes) gw_copy((uint8_t *)op->out + at, staged_result(coll, owner, window), bytes);
        copied += bytes;
    }
    return copied;
}

bool gw_shm_coll_work_staged(gw_shm_coll *coll, size_t *budget, bool *done) {
    uint64_t end = coll->first_window + coll->window_count;
    bool moved = false, more = true;
    while (more && *budget) {
        more = gw_shm_coll_fill_staged(coll, budget);
        uint64_t window = coll->windows[COLL_REDUCED];
        if (window < end && all_reached(coll, COLL_FILLED, window + 1) && buffer_is_free(coll, COLL_DRAINED, window)) {
            *budget -= coll_min(*budget, reduce_window(coll, window));
            advance(coll, COLL_REDUCED, window + 1);
            more = true;
        }
        window = coll->windows[COLL_DRAINED];
        if (window < end && all_reached(coll, COLL_REDUCED, window + 1)) {
            *budget -= coll_min(*budget, drain_window(coll, window));
            advance(coll, COLL_DRAINED, window + 1);
            more = true;
        }
        moved = moved || more;
    }
    *done = coll->windows[COLL_DRAINED] == end;
    return moved || *done;
}
