/* shm_coll_slots.c - operations of a few KiB of private memory: each member copies its data into its slot.
 *
 * Like inline, but a member arrives before it copies, and signals the end of the copy separately: the others check its
 * call while it copies. */
#include "shm/shm_coll_internal.h"

void gw_shm_coll_fill_slot(gw_shm_coll *coll, coll_entry *entry, uint8_t *data, const gw_shm_coll_op *op) {
    gw_shm_coll_fill(data, op, &coll->sides[coll->self].gives);
    coll_signal(coll, &entry->served, coll->published);
}

bool gw_shm_coll_work_slots(gw_shm_coll *coll) {
    if (!gw_shm_coll_all_served(coll)) return false;
    for (int m = 0; m < coll->members; m++) coll->src[m] = coll_data_of(coll, coll->finished, m);
    gw_shm_coll_finish_small(coll);
    return true;
}
