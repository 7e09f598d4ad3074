/* shm_coll_slots.c - operations of a few KiB of private memory: each member copies its data into its slot.
 *
 * Like inline, but a member arrives before it copies, and signals the end of the copy separately: the others check its
 * call while it copies. */
#include "shm/shm_coll_internal.h"

void gw_shm_coll_fill_slot(gw_shm_coll *coll, coll_entry *entry, uint8_t *data, const gw_shm_coll_op *op) {
    gw_shm_coll_fill(coll, data, op);
    coll_signal(coll, &entry->served, coll->published);
}

bool gw_shm_coll_work_slots(gw_shm_coll *coll, bool *done) {
    *done = gw_shm_coll_all_served(coll);
    if (*done) gw_shm_coll_finish_small(coll, coll_data_of);
    return *done;
}
