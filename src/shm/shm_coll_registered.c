/* shm_coll_registered.c - buffers of this rank in registered memory (registered_memory.h): before it arrives, peers get
 * what lies on private pages; when the operation is over, this rank gets what they wrote there. */
#include "shm/registered_memory.h"
#include "shm/shm_coll_internal.h"

static bool is_registered(const gw_shm_coll *coll, gw_shm_ref where) {
    return where.version % 2 && gw_is_registered(&coll->peer_map->own[where.id]);
}

bool gw_shm_coll_find_registered(const gw_shm_coll *coll) {
    return is_registered(coll, coll->own_in) || is_registered(coll, coll->own_out);
}

/* What peers may read of `in`. In a reduction the own part is this rank's alone, unless parts are claimed: it uses that
 * where the caller has it. Data that is only moved may be pulled by its receivers. */
static void show_in(gw_shm_coll *coll, const gw_shm_coll_op *op, size_t offset, size_t bytes) {
    const coll_side *own = &coll->sides[coll->self];
    size_t from = own->offset * coll->element, to = from + own->length * coll->element;
    if (!coll_reduces(op) || !coll->fixed) from = to = offset;
    gw_registered_show(coll->peer_map, coll->own_in, offset, from - offset);
    gw_registered_show(coll->peer_map, coll->own_in, to, offset + bytes - to);
}

bool gw_shm_coll_lend(gw_shm_coll *coll, const gw_shm_coll_op *op) {
    gw_peer_map *map = coll->peer_map;
    gw_shm_ref in = coll->own_in, out = coll->own_out;
    size_t offset, bytes;
    bool writes = is_registered(coll, out) && gw_shm_coll_needs_out(coll, op, coll->self, &offset, &bytes);
    if (writes && !gw_registered_lend(map, out, offset, bytes, true)) return false;
    if (!is_registered(coll, in) || !gw_shm_coll_needs_in(coll, op, coll->self, &offset, &bytes)) return true;
    if ((!writes || !coll_same_place(&in, &out)) && !gw_registered_lend(map, in, offset, bytes, false)) return false;
    show_in(coll, op, offset, bytes);
    return true;
}

/* Whether peers write into this rank's output: in a pull, and where each member takes what is staged for it, they do
 * not. */
static bool peers_wrote(const gw_shm_coll *coll, const gw_shm_coll_op *op) {
    return coll->mode == COLL_DIRECT || (coll->mode == COLL_STAGED && !coll_sends_apart(op));
}

void gw_shm_coll_take_back(gw_shm_coll *coll) {
    const gw_shm_coll_op *op = coll_head(coll);
    const coll_side *own = &coll->sides[coll->self];
    size_t offset, bytes, element = gw_shm_coll_out_bytes(coll);
    size_t from = own->offset * element, to = from + own->length * element;
    if (!peers_wrote(coll, op) || !is_registered(coll, coll->own_out)) return;
    if (!gw_shm_coll_needs_out(coll, op, coll->self, &offset, &bytes)) return;
    if (!coll->fixed && coll->mode == COLL_DIRECT) from = to;
    if (from > offset) gw_registered_take_back(coll->peer_map, coll->own_out, offset, from - offset);
    if (offset + bytes > to) gw_registered_take_back(coll->peer_map, coll->own_out, to, offset + bytes - to);
}

const uint8_t *gw_shm_coll_in_at(const gw_shm_coll *coll, size_t at, size_t bytes) {
    const uint8_t *in = coll->sides[coll->self].in + at;
    return is_registered(coll, coll->own_in) ? gw_registered_at(coll->peer_map, coll->own_in, at, bytes, in) : in;
}

uint8_t *gw_shm_coll_out_at(const gw_shm_coll *coll, size_t at, size_t bytes) {
    uint8_t *out = coll->sides[coll->self].out + at;
    return is_registered(coll, coll->own_out) ? gw_registered_at(coll->peer_map, coll->own_out, at, bytes, out) : out;
}
