/* shm_transport.c - the transport among ranks of one host: rings of frames in the receivers' shared pages.
 *
 * For every peer, the shared page of a rank (its part of the peer map) has a ring that only this peer writes and only
 * the owner reads. A slot is ready when its `turn` is (generation, position). The owner returns slots, and their
 * payload bytes, by counting them in `consumed`, together with its generation. So a producer never writes into a ring
 * whose owner has not yet reached the producer's generation, and a late producer of an old generation is ignored. No
 * message costs a system call or a lock.
 *
 * A payload is copied into the ring in parts, one slot each, and the receiver's engine reduces them from there. The
 * sender writes the ring all the way round, and does not return to the beginning as soon as that is free. Cache lines
 * that the other core still holds in its private cache are slow to get: 5 to 12 GB/s where this was measured. After a
 * full round they have been evicted to the shared cache, which gives 26 to 49 GB/s.
 *
 * Memory that is lent for reading in place takes one of LOANS places per peer. The receiver returns it by setting the
 * place's bit in the lender's shared page: this needs no slot, so it cannot fail or delay frames. The bits carry the
 * generation, so that a return after reset() has no effect. */
#include "transport/shm/shm_transport_internal.h"
#include "transport/transport_registry.h"

#include <stdlib.h>

static bool shm_poll(gw_transport *transport, gw_time now) {
    shm *self = (shm *)transport;
    bool moved = false;
    (void)now;
    for (int i = 0; i < self->links_count; i++) {
        shm_link *with = self->links[i];
        moved = gw_shm_receive(self, with) || moved;
        moved = gw_shm_collect(self, with) || moved;
        if (with->queue.head) moved = gw_shm_pump(self, with) || moved;
    }
    if (++self->polls % SWEEP_POLLS == 0) gw_peer_map_sweep(self->peer_map);
    return moved;
}

static int shm_wait_fd(gw_transport *transport) { return ((shm *)transport)->peer_map->bell[0]; }

/* Something has arrived from this peer, or there is room again for queued packets. */
static bool has_news(shm *self, shm_link *with) {
    if (with->broken) return false;
    if (atomic_load(&with->in->slots[with->consumed % SLOTS].turn) == tagged(self, with->consumed + 1)) return true;
    if ((uint32_t)atomic_load(&with->in->returned)) return true;
    return gw_shm_can_send(self, with);
}

static bool shm_arm(gw_transport *transport, bool sleeping) {
    shm *self = (shm *)transport;
    bool news = false;
    gw_peer_map_set_sleeping(self->peer_map, sleeping);
    for (int i = 0; i < self->links_count && !news; i++) news = has_news(self, self->links[i]);
    return news;
}

/* A peer may still read a payload that was lent to it. The peer keeps the old memory; our mapping gets new pages with
 * the same content. */
static void keep_contents(shm *self, const gw_packet *packet) {
    gw_shm_ref where;
    if (gw_peer_map_find(self->peer_map, packet->data, packet->frame.length, &where))
        gw_peer_map_renew(self->peer_map, where.id, NULL);
}

static void restart_link(shm *self, shm_link *with) {
    for (int loan = 0; loan < LOANS; loan++) {
        if (with->lent[loan]) keep_contents(self, with->lent[loan]);
        gw_peer_map_unpin(with->seen[loan]);
        with->seen[loan] = NULL;
        with->lent[loan] = NULL;
    }
    with->queue = (gw_packet_queue){0};
    with->produced = with->consumed = with->bytes_at = 0;
    with->partial = with->broken = false;
    atomic_store(&with->in->returned, tagged(self, 0));
    atomic_store(&with->in->consumed, tagged(self, 0));
    gw_peer_map_wake(self->peer_map, with->rank);
}

static void shm_reset(gw_transport *transport, uint32_t generation) {
    shm *self = (shm *)transport;
    self->generation = generation;
    atomic_store(&self->peer_map->page->generation, generation);
    for (int i = 0; i < self->links_count; i++) restart_link(self, self->links[i]);
}

static void shm_close(gw_transport *transport) {
    shm *self = (shm *)transport;
    for (int i = 0; self->links && i < self->links_count; i++) free(self->links[i]);
    gw_peer_map_close(self->peer_map);
    free(self->by_rank);
    free(self->links);
    free(self);
}

static const gw_transport_ops shm_ops = {
    .name = "shm",
    .ordered = true,
    .send = gw_shm_send,
    .release = gw_shm_release,
    .poll = shm_poll,
    .wait_fd = shm_wait_fd,
    .arm = shm_arm,
    .reset = shm_reset,
    .close = shm_close,
};

gw_status gw_shm_open(gw_transport **transport, const gw_shm_config *config, gw_error *error) {
    shm *self = calloc(1, sizeof *self);
    if (!self) return gw_fail(error, GW_MEMORY, "no memory for shared memory transport");
    *self = (shm){.base = {.ops = &shm_ops, .sink = config->sink}, .generation = config->generation};
    gw_status status = GW_OK;
    self->links = calloc((size_t)config->world, sizeof(shm_link *));
    self->by_rank = calloc((size_t)config->world, sizeof(shm_link *));
    if (!self->links || !self->by_rank) status = gw_fail(error, GW_MEMORY, "no memory for %d links", config->world);
    size_t room = (size_t)config->world * sizeof(ring);
    if (!status) status = gw_peer_map_open(&self->peer_map, config->rank, config->world, room, error);
    if (status) {
        shm_close(&self->base);
        return status;
    }
    self->own = gw_peer_map_user_area(self->peer_map->page);
    atomic_store(&self->peer_map->page->generation, config->generation);
    *transport = &self->base;
    return GW_OK;
}

void gw_shm_endpoint(const gw_transport *transport, uint8_t endpoint[GW_SHM_ENDPOINT_BYTES]) {
    gw_peer_map_endpoint(((const shm *)transport)->peer_map, endpoint);
}

gw_status gw_shm_attach(gw_transport *transport, int peer, const uint8_t endpoint[GW_SHM_ENDPOINT_BYTES],
                        gw_error *error) {
    shm *self = (shm *)transport;
    gw_status status = gw_peer_map_attach(self->peer_map, peer, endpoint, error);
    if (status) return status;
    shm_link *with = calloc(1, sizeof *with);
    if (!with) return gw_fail(error, GW_MEMORY, "no memory for the link to rank %d", peer);
    with->rank = peer;
    with->in = &self->own[peer];
    with->out = (ring *)gw_peer_map_user_area(self->peer_map->peers[peer].page) + self->peer_map->rank;
    restart_link(self, with);
    self->links[self->links_count++] = with;
    self->by_rank[peer] = with;
    return GW_OK;
}

void *gw_shm_alloc(gw_transport *transport, size_t bytes, gw_error *error) {
    return gw_peer_map_share(((shm *)transport)->peer_map, bytes, 0, true, error);
}

void gw_shm_free(gw_transport *transport, void *memory) { gw_peer_map_unshare(((shm *)transport)->peer_map, memory); }

gw_peer_map *gw_shm_peer_map(gw_transport *transport) { return ((shm *)transport)->peer_map; }

/* ---- the table's entry ---- */

static gw_status listen_by_table(gw_transport **out, const gw_transport_options *o,
                                 uint8_t endpoint[GW_ENDPOINT_TRANSPORT_BYTES], gw_error *error) {
    gw_shm_config config = {.rank = o->rank, .world = o->world, .sink = o->sink};
    gw_status status = gw_shm_open(out, &config, error);
    if (!status) gw_shm_endpoint(*out, endpoint);
    return status;
}

static gw_status attach_by_table(gw_transport *transport, int peer, const gw_address *address,
                                 const uint8_t endpoint[GW_ENDPOINT_TRANSPORT_BYTES], gw_error *error) {
    (void)address;
    return gw_shm_attach(transport, peer, endpoint, error);
}

const gw_transport_type gw_transport_shm = {
    .technique = {.name = "shm", .about = "shared memory; only where all ranks are on one host"},
    .single_host = true,
    .within_host = &gw_transport_shm,
    .listen = listen_by_table,
    .attach = attach_by_table,
};
