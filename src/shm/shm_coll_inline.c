/* shm_coll_inline.c - operations of a few KiB: the data of all members lies in the segment, and each member combines
 * all of it.
 *
 * One arrival is the only synchronization: nobody writes what another member reads, and a slot is reused only when all
 * members have finished its operation. A member that gets nothing from others does not wait for them. */
#include "base/copy.h"
#include "shm/shm_coll_internal.h"

/* Parts are cut for the head alone, and this may be a later operation. */
static void own_part(const gw_shm_coll *coll, const gw_shm_coll_op *op, size_t *at, size_t *length) {
    size_t lanes = (size_t)op->lanes, self = (size_t)coll->self, rest = op->count % lanes;
    *at = op->count / lanes * self + coll_min(self, rest);
    *length = op->count / lanes + (self < rest);
    if (!op->counts) return;
    *at = 0;
    for (size_t m = 0; m < self; m++) *at += op->counts[m];
    *length = op->counts[self];
}

/* The range of in that this member gives; false: nothing. */
static bool gives(const gw_shm_coll *coll, const gw_shm_coll_op *op, size_t *at, size_t *length) {
    *at = 0;
    *length = op->count;
    switch (op->task) {
    case GW_SHM_TASK_BARRIER: return false;
    case GW_SHM_TASK_BROADCAST:
    case GW_SHM_TASK_SCATTER: return op->root == coll->self && op->count;
    case GW_SHM_TASK_ALLGATHER:
    case GW_SHM_TASK_GATHER:
        if (coll->self >= op->lanes) return false;
        own_part(coll, op, at, length);
        return *length != 0;
    default: return op->count != 0;
    }
}

void gw_shm_coll_fill(gw_shm_coll *coll, uint8_t *data, const gw_shm_coll_op *op) {
    size_t element = gw_dtype_bytes(op->reduction.dtype), at, length;
    if (gives(coll, op, &at, &length))
        gw_copy(data + at * element, (const uint8_t *)op->in + at * element, length * element);
}

static void combine(gw_shm_coll *coll, size_t offset, size_t count) {
    const gw_shm_coll_op *op = coll_head(coll);
    for (int m = 0; m < coll->members; m++) coll->src[m] = (const uint8_t *)coll->src[m] + offset * coll->element;
    coll->dst[0] = (uint8_t *)op->out + offset * gw_shm_coll_out_bytes(coll);
    if (count) gw_shm_coll_combine(op, coll->dst, 1, coll->src, coll->members, count);
}

void gw_shm_coll_finish_small(gw_shm_coll *coll, uint8_t *(*data_of)(const gw_shm_coll *, uint64_t, int)) {
    const gw_shm_coll_op *op = coll_head(coll);
    const coll_side *own = &coll->sides[coll->self];
    for (int m = 0; m < coll->members; m++) coll->src[m] = data_of(coll, coll->finished, m);
    coll->src[coll->self] = op->in;
    switch (op->task) {
    case GW_SHM_TASK_BARRIER: break;
    case GW_SHM_TASK_REDUCE_SCATTER: combine(coll, own->offset, own->length); break;
    case GW_SHM_TASK_REDUCE:
        if (op->root != coll->self) break; /* fall through */
    case GW_SHM_TASK_ALLREDUCE: combine(coll, 0, op->count); break;
    default:
        for (int m = 0; m < coll->members; m++) gw_shm_coll_take(coll, m, coll->src[m]);
    }
}

bool gw_shm_coll_work_inline(gw_shm_coll *coll, bool *done) {
    gw_shm_coll_finish_small(coll, coll_inline_of);
    *done = true;
    return true;
}
