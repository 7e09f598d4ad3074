/* shm_coll_pull.c - tasks that only move data: each member copies what it gets straight out of the memory of those who
 * give it, in one copy. Shared memory is mapped; private memory is read by process_vm_readv where every member can read
 * all others (peer_map_read.c).
 *
 * A member may leave when all who get something of it have it. Its address is used in nothing but a read of its own
 * process, so a member that publishes a wrong one spoils only values, or fails. */
#include "base/copy.h"
#include "shm/shm_coll_internal.h"

#define PULL_BYTES COLL_QUANTUM_BYTES /* of one read: 64 KiB take a sixth longer, to check the peer so often */

static gw_status pull(gw_shm_coll *coll, int from, const coll_block *block, size_t at, size_t bytes, gw_error *error) {
    const gw_shm_coll_op *op = coll_head(coll);
    const coll_side *side = &coll->sides[from];
    size_t in = block->in * coll->element + at;
    uint8_t *out = (uint8_t *)op->out + block->out * coll->element + at;
    if (!side->in)
        return gw_peer_map_read(coll->peer_map, coll->ranks[from], out, side->call.in.offset + in, bytes, error);
    if (side->in + in != out) gw_copy(out, side->in + in, bytes);
    return GW_OK;
}

/* Reads on in the block of one member; *whole: it has all of it. */
static gw_status pull_from(gw_shm_coll *coll, int from, size_t *budget, bool *whole, gw_error *error) {
    coll_block block = gw_shm_coll_block(coll, from, coll->self);
    size_t end = block.length * coll->element;
    gw_status status = GW_OK;
    while (coll->pulled_bytes < end && *budget && !status) {
        size_t bytes = coll_min(PULL_BYTES, end - coll->pulled_bytes);
        status = pull(coll, from, &block, coll->pulled_bytes, bytes, error);
        coll->pulled_bytes += bytes;
        *budget -= coll_min(*budget, bytes);
    }
    *whole = coll->pulled_bytes == end;
    return status;
}

/* All who get something of this member have it. */
static bool may_leave(gw_shm_coll *coll) {
    for (int m = 0; m < coll->members; m++) {
        if (m == coll->self || !gw_shm_coll_block(coll, coll->self, m).length) continue;
        if (atomic_load(&coll_entry_of(coll, coll->finished, m)->served) != coll->finished + 1) return false;
    }
    return true;
}

gw_status gw_shm_coll_work_pull(gw_shm_coll *coll, size_t *budget, bool *moved, bool *done, gw_error *error) {
    while (coll->pulled < coll->members && *budget) {
        bool whole = false;
        gw_status status = pull_from(coll, (coll->self + 1 + coll->pulled) % coll->members, budget, &whole, error);
        if (status) return status;
        *moved = true;
        if (!whole) return GW_OK;
        coll->pulled_bytes = 0;
        coll->pulled++;
        if (coll->pulled < coll->members - 1) continue;
        if (coll->pulled == coll->members - 1) /* the last is this member itself, which nobody waits for */
            coll_signal(coll, &coll_entry_of(coll, coll->finished, coll->self)->served, coll->finished + 1);
    }
    *done = coll->pulled == coll->members && may_leave(coll);
    return GW_OK;
}
