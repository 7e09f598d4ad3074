/* shm_coll_slots.c - all-reduce of a few KiB of private memory: each member copies its data into its slot.
 *
 * Like inline, but a member arrives before it copies, and signals the end of the copy separately: the others check its
 * call while it copies. */
#include "base/copy.h"
#include "shm/shm_coll_internal.h"

void gw_shm_coll_fill_slot(gw_shm_coll *coll, coll_entry *entry, uint8_t *data, const gw_shm_coll_op *op) {
    gw_copy(data, op->in, op->count * coll->element);
    coll_signal(coll, &entry->served, coll->published);
}

bool gw_shm_coll_work_slots(gw_shm_coll *coll, bool *done) {
    const gw_shm_coll_op *op = coll_head(coll);
    *done = gw_shm_coll_all_served(coll);
    if (!*done) return false;
    for (int m = 0; m < coll->members; m++) coll->src[m] = coll_data_of(coll, coll->finished, m);
    coll->src[coll->self] = op->in;
    coll->dst[0] = op->out;
    gw_shm_coll_combine(op, coll->dst, 1, coll->src, coll->members, op->count);
    return true;
}
