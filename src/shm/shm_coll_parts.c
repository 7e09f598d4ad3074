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
    if (op->task == GW_SHM_TASK_ALLREDUCE) cut_lines(coll, op->count);
    if (op->task == GW_SHM_TASK_REDUCE_SCATTER || op->task == GW_SHM_TASK_ALLGATHER) cut_lanes(coll, op);
    if (op->task == GW_SHM_TASK_BROADCAST || op->task == GW_SHM_TASK_BARRIER) {
        for (int m = 0; m < coll->members; m++) coll->sides[m].offset = coll->sides[m].length = 0;
        coll->sides[op->task == GW_SHM_TASK_BROADCAST ? op->root : 0].length = op->count;
    }
}

size_t gw_shm_coll_out_bytes(const gw_shm_coll *coll) {
    const gw_shm_coll_op *op = &coll->ops[coll->finished % GW_SHM_COLL_DEPTH];
    return coll_only_owner_gets(op) && op->dst_wide ? coll->wide_element : coll->element;
}

void gw_shm_coll_combine(const gw_shm_coll_op *op, void *const *dst, int destinations, const void *const *src,
                         int sources, size_t count) {
    bool partial = op->task == GW_SHM_TASK_REDUCE_SCATTER && op->dst_wide;
    if (coll_reduces(op)) gw_reduce_push(op->reduction, dst, destinations, src, sources, count, !partial);
    else gw_copy_push(dst, destinations, src[0], count * gw_dtype_bytes(op->reduction.dtype));
}
