/* shm_coll_inline.c - operations of a few KiB: the data of all members lies in the segment, and each member combines
 * all of it.
 *
 * One arrival is the only synchronization: nobody writes what another member reads, and a slot is reused only when all
 * members have finished its operation. */
#include "base/copy.h"
#include "shm/shm_coll_internal.h"

void gw_shm_coll_fill_inline(gw_shm_coll *coll, uint8_t *data, const gw_shm_coll_op *op) {
    size_t element = gw_dtype_bytes(op->reduction.dtype);
    if (op->task == GW_SHM_TASK_BARRIER || op->count == 0) return;
    if (coll_reduces(op)) gw_copy(data, op->in, op->count * element);
    if (op->task == GW_SHM_TASK_BROADCAST && op->root == coll->self) gw_copy(data, op->in, op->count * element);
    if (op->task != GW_SHM_TASK_ALLGATHER || coll->self >= op->lanes) return;
    size_t at = 0, length = op->count / (size_t)op->lanes;
    for (int m = 0; m < coll->self; m++)
        at += op->counts ? op->counts[m] : length + ((size_t)m < op->count % (size_t)op->lanes);
    length = op->counts ? op->counts[coll->self] : length + ((size_t)coll->self < op->count % (size_t)op->lanes);
    gw_copy(data + at * element, (const uint8_t *)op->out + at * element, length * element);
}

static void copy_part(gw_shm_coll *coll, const gw_shm_coll_op *op, int owner) {
    const coll_side *part = &coll->sides[owner];
    if (part->length == 0) return;
    const uint8_t *from = coll_inline_of(coll, coll->finished, owner);
    size_t at = part->offset * coll->element;
    gw_copy((uint8_t *)op->out + at, from + at, part->length * coll->element);
}

static void combine_range(gw_shm_coll *coll, const gw_shm_coll_op *op, size_t offset, size_t count) {
    if (count == 0) return;
    for (int m = 0; m < coll->members; m++)
        coll->src[m] = coll_inline_of(coll, coll->finished, m) + offset * coll->element;
    coll->dst[0] = (uint8_t *)op->out + offset * gw_shm_coll_out_bytes(coll);
    gw_shm_coll_combine(op, coll->dst, 1, coll->src, coll->members, count);
}

bool gw_shm_coll_work_inline(gw_shm_coll *coll, bool *done) {
    const gw_shm_coll_op *op = coll_head(coll);
    const coll_side *own = &coll->sides[coll->self];
    switch (op->task) {
    case GW_SHM_TASK_ALLREDUCE: combine_range(coll, op, 0, op->count); break;
    case GW_SHM_TASK_REDUCE_SCATTER: combine_range(coll, op, own->offset, own->length); break;
    case GW_SHM_TASK_BROADCAST: copy_part(coll, op, op->root); break;
    case GW_SHM_TASK_ALLGATHER:
        for (int m = 0; m < op->lanes; m++)
            if (m != coll->self) copy_part(coll, op, m);
        break;
    case GW_SHM_TASK_BARRIER: break;
    }
    *done = true;
    return true;
}
