/* shm_coll_parts.c - cuts an operation into parts, and combines or copies a range of elements. */
#include "base/copy.h"
#include "base/dtype.h"
#include "shm/shm_coll_internal.h"

/* Parts of an all-reduce may be cut anywhere, so they begin at a cache line. A claimed part must not be too small, or
 * the claim takes longer than the work (eight members on two cores: 8 KiB in 15.7 us instead of 17.1). */
static void cut_lines(gw_shm_coll *coll, size_t count) {
    size_t line = GW_CACHE_LINE / coll->element, lines = (count + line - 1) / line;
    size_t part = (lines + (size_t)coll->members - 1) / (size_t)coll->members * line, at = 0;
    size_t least = coll->oversubscribed ? COLL_PART_BYTES / coll->element : 0;
    if (part < least) part = least;
    for (int m = 0; m < coll->members; m++) {
        size_t length = coll_min(part, count - at);
        coll->sides[m].offset = at;
        coll->sides[m].length = length;
        at += length;
    }
}

static void cut_lanes(gw_shm_coll *coll, const gw_shm_coll_op *op) {
    size_t at = 0;
    for (int m = 0; m < coll->members; m++) {
        size_t length = 0;
        if (m < op->lanes && op->counts) length = op->counts[m];
        else if (m < op->lanes) length = op->count / (size_t)op->lanes + ((size_t)m < op->count % (size_t)op->lanes);
        coll->sides[m].offset = at;
        coll->sides[m].length = length;
        at += length;
    }
}

void gw_shm_coll_cut(gw_shm_coll *coll) {
    const gw_shm_coll_op *op = coll_head(coll);
    coll->element = gw_dtype_bytes(op->reduction.dtype);
    coll->wide_element = gw_dtype_bytes(gw_accumulator(op->reduction.dtype, op->reduction.op));
    switch (op->task) {
    case GW_SHM_TASK_ALLREDUCE:
    case GW_SHM_TASK_REDUCE: cut_lines(coll, op->count); break;
    case GW_SHM_TASK_BROADCAST:
    case GW_SHM_TASK_BARRIER:
        for (int m = 0; m < coll->members; m++) coll->sides[m].offset = coll->sides[m].length = 0;
        coll->sides[op->task == GW_SHM_TASK_BROADCAST ? op->root : 0].length = op->count;
        break;
    default: cut_lanes(coll, op);
    }
}

coll_block gw_shm_coll_block(const gw_shm_coll *coll, int from, int to) {
    const gw_shm_coll_op *op = coll_head(coll);
    const coll_side *a = &coll->sides[from], *b = &coll->sides[to];
    switch (op->task) {
    case GW_SHM_TASK_GATHER:
        if (to != op->root) break;
        return (coll_block){a->offset, a->offset, a->length};
    case GW_SHM_TASK_ALLGATHER: return (coll_block){a->offset, a->offset, a->length};
    case GW_SHM_TASK_BROADCAST: return (coll_block){0, 0, from == op->root ? op->count : 0};
    case GW_SHM_TASK_SCATTER: return (coll_block){b->offset, b->offset, from == op->root ? b->length : 0};
    case GW_SHM_TASK_ALLTOALL: return (coll_block){b->offset, a->offset, coll_min(a->length, b->length)};
    default: break;
    }
    return (coll_block){0};
}

size_t gw_shm_coll_out_bytes(const gw_shm_coll *coll) {
    const gw_shm_coll_op *op = coll_head(coll);
    return op->task == GW_SHM_TASK_REDUCE_SCATTER && op->dst_wide ? coll->wide_element : coll->element;
}

void gw_shm_coll_combine(const gw_shm_coll_op *op, void *const *dst, int destinations, const void *const *src,
                         int sources, size_t count) {
    bool partial = op->task == GW_SHM_TASK_REDUCE_SCATTER && op->dst_wide;
    if (coll_reduces(op)) gw_reduce_push(op->reduction, dst, destinations, src, sources, count, !partial);
    else gw_copy_push(dst, destinations, src[0], count * gw_dtype_bytes(op->reduction.dtype));
}
