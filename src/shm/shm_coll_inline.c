/* shm_coll_inline.c - operations of a few KiB: the data of all members lies in the segment, and each member combines
 * all of it.
 *
 * One arrival is the only synchronization: nobody writes what another member reads, and a slot is reused only when all
 * members have finished its operation. A member that gets nothing from others does not wait for them. */
#include "base/copy.h"
#include "shm/shm_coll_internal.h"

static coll_range part_of(const gw_shm_coll_op *op, int member) {
    size_t lanes = (size_t)op->lanes, l = (size_t)member, rest = op->count % lanes;
    coll_range part = {op->count / lanes * l + coll_min(l, rest), op->count / lanes + (l < rest)};
    if (!op->counts) return part;
    part = (coll_range){.length = op->counts[l]};
    for (size_t m = 0; m < l; m++) part.at += op->counts[m];
    return part;
}

/* part: what the member owns of the operation, if parts are moved. */
static coll_range given(const gw_shm_coll_op *op, int member, coll_range part) {
    switch (op->task) {
    case GW_SHM_TASK_BARRIER: return (coll_range){0};
    case GW_SHM_TASK_BROADCAST:
    case GW_SHM_TASK_SCATTER: return (coll_range){0, op->root == member ? op->count : 0};
    case GW_SHM_TASK_ALLGATHER:
    case GW_SHM_TASK_GATHER: return part;
    default: return (coll_range){0, op->count};
    }
}

static coll_range in_bytes(coll_range range, size_t element) {
    return (coll_range){range.at * element, range.length * element};
}

void gw_shm_coll_plan_small(gw_shm_coll *coll) {
    const gw_shm_coll_op *op = coll_head(coll);
    for (int m = 0; m < coll->members; m++) {
        coll_side *side = &coll->sides[m];
        coll_block block = gw_shm_coll_block(coll, m, coll->self);
        coll_range part = {side->offset, side->length};
        side->gives = in_bytes(given(op, m, part), coll->element);
        side->takes = (coll_block){block.in * coll->element, block.out * coll->element, block.length * coll->element};
    }
}

/* Parts are cut for the head alone, and this may be a later operation. */
static coll_range own_range(const gw_shm_coll *coll, const gw_shm_coll_op *op) {
    if (op == coll_head(coll)) return coll->sides[coll->self].gives;
    coll_range part = coll->self < op->lanes ? part_of(op, coll->self) : (coll_range){0};
    return in_bytes(given(op, coll->self, part), gw_dtype_bytes(op->reduction.dtype));
}

void gw_shm_coll_fill(uint8_t *data, const gw_shm_coll_op *op, const coll_range *range) {
    if (range->length) gw_copy(data + range->at, (const uint8_t *)op->in + range->at, range->length);
}

void gw_shm_coll_fill_inline(gw_shm_coll *coll, uint64_t index) {
    const gw_shm_coll_op *op = &coll->ops[index % GW_SHM_COLL_DEPTH];
    coll_range range = own_range(coll, op);
    gw_shm_coll_fill(coll_inline_of(coll, index, coll->self, &range), op, &range);
}

static void combine(gw_shm_coll *coll, size_t offset, size_t count) {
    const gw_shm_coll_op *op = coll_head(coll);
    for (int m = 0; m < coll->members; m++) coll->src[m] = (const uint8_t *)coll->src[m] + offset * coll->element;
    coll->dst[0] = (uint8_t *)op->out + offset * gw_shm_coll_out_bytes(coll);
    if (count) gw_shm_coll_combine(op, coll->dst, 1, coll->src, coll->members, count);
}

static void take(const gw_shm_coll *coll, int from) {
    const coll_block *block = &coll->sides[from].takes;
    if (!block->length) return;
    const uint8_t *in = (const uint8_t *)coll->src[from] + block->in;
    uint8_t *out = (uint8_t *)coll_head(coll)->out + block->out;
    if (in != out) gw_copy(out, in, block->length);
}

void gw_shm_coll_finish_small(gw_shm_coll *coll) {
    const gw_shm_coll_op *op = coll_head(coll);
    const coll_side *own = &coll->sides[coll->self];
    coll->src[coll->self] = op->in;
    switch (op->task) {
    case GW_SHM_TASK_BARRIER: break;
    case GW_SHM_TASK_REDUCE_SCATTER: combine(coll, own->offset, own->length); break;
    case GW_SHM_TASK_REDUCE:
        if (op->root != coll->self) break; /* fall through */
    case GW_SHM_TASK_ALLREDUCE: combine(coll, 0, op->count); break;
    default:
        for (int m = 0; m < coll->members; m++) take(coll, m);
    }
}

void gw_shm_coll_work_inline(gw_shm_coll *coll) {
    for (int m = 0; m < coll->members; m++)
        coll->src[m] = coll_inline_of(coll, coll->finished, m, &coll->sides[m].gives);
    gw_shm_coll_finish_small(coll);
}
