/* shm.c - the transport among ranks of one host: rings of frames in the receivers' harbours.
 *
 * For every peer a rank's harbour has a ring that only this peer writes and only the owner reads. A slot is ready when
 * its turn is (generation, position); the owner returns slots, and the bytes that belong to them, by counting them in
 * `consumed`, with the generation, so that a producer never writes into a ring whose owner has not yet come to the
 * producer's generation, and a late producer of an old generation is not heard. No message costs a system call or a
 * lock.
 *
 * A payload is copied into the ring in pieces, one slot each, and the receiver's engine adds them up from there. The
 * ring is written round and round, not at its beginning again as soon as that is free: lines that the other core still
 * has in its own cache are slower to take from there (5 to 12 GB/s where this was measured) than from the cache that
 * both share (26 to 49), to which they have gone by the time the ring comes round.
 *
 * Memory that is lent, to be shown where it lies, has one of LOANS places for each peer; the receiver returns it by
 * setting the place's bit in the lender's harbour: never refused, never in the way of frames. It carries the
 * generation, so that a return which comes after reset() returns nothing. */
#include "transport/shm_page.h"

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
    if (++self->polls % SWEEP_POLLS == 0) gw_harbour_sweep(self->harbour);
    return moved;
}

static int shm_wait_fd(gw_transport *transport) { return ((shm *)transport)->harbour->bell[0]; }

/* Something has come from this peer, or there is room again for what waits. */
static bool has_news(shm *self, shm_link *with) {
    if (with->broken) return false;
    if (atomic_load(&with->in->slots[with->consumed % SLOTS].turn) == tagged(self, with->consumed + 1)) return true;
    if ((uint32_t)atomic_load(&with->in->returned)) return true;
    return gw_shm_can_send(self, with);
}

static bool shm_arm(gw_transport *transport, bool sleeping) {
    shm *self = (shm *)transport;
    bool news = false;
    gw_harbour_arm(self->harbour, sleeping);
    for (int i = 0; i < self->links_count && !news; i++) news = has_news(self, self->links[i]);
    return news;
}

/* A peer that still looks at what was shown to it goes on seeing what it was: the memory is replaced under us. */
static void keep_contents(shm *self, const gw_packet *packet) {
    gw_shared where;
    if (gw_harbour_find(self->harbour, packet->data, packet->frame.length, &where))
        gw_harbour_renew(self->harbour, where.id, NULL);
}

static void start_anew(shm *self, shm_link *with) {
    for (int loan = 0; loan < LOANS; loan++) {
        if (with->lent[loan]) keep_contents(self, with->lent[loan]);
        gw_harbour_unpin(with->seen[loan]);
        with->seen[loan] = NULL;
        with->lent[loan] = NULL;
    }
    with->queue = (gw_packet_queue){0};
    with->produced = with->consumed = with->bytes_at = 0;
    with->partial = with->broken = false;
    atomic_store(&with->in->returned, tagged(self, 0));
    atomic_store(&with->in->consumed, tagged(self, 0));
    gw_harbour_ring(self->harbour, with->rank);
}

static void shm_reset(gw_transport *transport, uint32_t generation) {
    shm *self = (shm *)transport;
    self->generation = generation;
    atomic_store(&self->harbour->page->generation, generation);
    for (int i = 0; i < self->links_count; i++) start_anew(self, self->links[i]);
}

static void shm_close(gw_transport *transport) {
    shm *self = (shm *)transport;
    for (int i = 0; self->links && i < self->links_count; i++) free(self->links[i]);
    gw_harbour_close(self->harbour);
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
    if (!status) status = gw_harbour_open(&self->harbour, config->rank, config->world, room, error);
    if (status) {
        shm_close(&self->base);
        return status;
    }
    self->own = gw_harbour_room(self->harbour->page);
    atomic_store(&self->harbour->page->generation, config->generation);
    *transport = &self->base;
    return GW_OK;
}

void gw_shm_endpoint(const gw_transport *transport, uint8_t endpoint[GW_SHM_ENDPOINT_BYTES]) {
    gw_harbour_endpoint(((const shm *)transport)->harbour, endpoint);
}

gw_status gw_shm_attach(gw_transport *transport, int peer, const uint8_t endpoint[GW_SHM_ENDPOINT_BYTES],
                        gw_error *error) {
    shm *self = (shm *)transport;
    gw_status status = gw_harbour_attach(self->harbour, peer, endpoint, error);
    if (status) return status;
    shm_link *with = calloc(1, sizeof *with);
    if (!with) return gw_fail(error, GW_MEMORY, "no memory for the link to rank %d", peer);
    with->rank = peer;
    with->in = &self->own[peer];
    with->out = (ring *)gw_harbour_room(self->harbour->peers[peer].page) + self->harbour->rank;
    start_anew(self, with);
    self->links[self->links_count++] = with;
    self->by_rank[peer] = with;
    return GW_OK;
}

bool gw_shm_reaches(const gw_transport *transport, int peer) {
    return ((const shm *)transport)->by_rank[peer] != NULL;
}

void *gw_shm_alloc(gw_transport *transport, size_t bytes, gw_error *error) {
    return gw_harbour_share(((shm *)transport)->harbour, bytes, 0, true, error);
}

void gw_shm_free(gw_transport *transport, void *memory) {
    gw_harbour_unshare(((shm *)transport)->harbour, memory);
}

gw_harbour *gw_shm_harbour(gw_transport *transport) { return ((shm *)transport)->harbour; }
