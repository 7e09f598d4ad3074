/* shm.c - the transport among ranks of one host: rings of frames in the receivers' harbours.
 *
 * For every peer a rank's harbour has a ring that only this peer writes and only the owner reads. A slot is ready when
 * its turn is (generation, position); the owner returns slots by counting them in `consumed`, with the generation, so
 * that a producer never writes into a ring whose owner has not yet come to the producer's generation, and a late
 * producer of an old generation is not heard. A frame with its small payload costs no system call and no lock.
 *
 * Memory that is lent (shown where it lies, or read across processes) has one of LOANS places for each peer; the
 * receiver returns it by setting the place's bit in the lender's harbour: never refused, never in the way of frames. A
 * staged chunk is returned by clearing its lease. Both carry generation or number, so that a return which comes after
 * reset() returns nothing. */
#include "transport/shm.h"

#include "transport/copy.h"

#include <stdlib.h>
#include <string.h>

#define SLOTS 128                  /* frames of one ring */
#define INLINE_RING (256 << 10)    /* bytes of small payloads of one ring */
#define LOANS 32                   /* payloads lent to one peer at a time */
#define CHUNKS 16                  /* of the staging area, for all peers together */
#define CHUNK_BYTES (64 << 10)
#define READ_BYTES_MIN (64 << 10) /* below, two copies through the cache are as fast as the system call */
#define POLL_BYTES ((size_t)1 << 20)   /* of large payloads from one peer in one poll */
#define SWEEP_POLLS 4096           /* polls between two looks for memory that peers have freed */

typedef enum carriage { INLINE, SHOWN, READ, STAGED } carriage;

typedef struct slot {
    alignas(GW_LINE) _Atomic uint64_t turn; /* generation << 32 | position + 1 */
    uint32_t carriage;
    uint32_t place;    /* INLINE: offset in the ring's bytes; SHOWN, READ: loan; STAGED: chunk */
    gw_shared where;   /* SHOWN */
    uint64_t address;  /* READ: in the sender; STAGED: the lease */
    uint64_t position; /* STAGED: of this chunk in the payload */
    gw_frame frame;
} slot;

typedef struct ring {
    alignas(GW_LINE) _Atomic uint64_t consumed; /* generation << 32 | slots; the owner's */
    _Atomic uint32_t reads;                     /* the owner may read the peer's memory across processes */
    alignas(GW_LINE) _Atomic uint64_t returned; /* generation << 32 | loans of the owner that the peer gives back */
    slot slots[SLOTS];
    alignas(GW_LINE) uint8_t bytes[INLINE_RING];
} ring;

/* What follows a harbour's page: the staging area, then a ring for each rank of the job (pages exist when used). */
typedef struct quay {
    struct {
        alignas(GW_LINE) _Atomic uint64_t lease; /* 0: free */
    } chunks[CHUNKS];
    alignas(4096) uint8_t staged[CHUNKS][CHUNK_BYTES];
    alignas(4096) ring rings[];
} quay;

typedef struct link {
    int rank;
    ring *out; /* in the peer's harbour */
    ring *in;  /* in ours */
    quay *peer_quay;

    gw_packet *head, *tail; /* to be sent, first in first out */
    uint32_t produced;      /* slots written */
    uint32_t bytes_at;      /* where the next inline payload may begin; runs on, modulo INLINE_RING */
    uint32_t bytes_after[SLOTS];
    gw_packet *lent[LOANS]; /* NULL: the place is free */

    uint32_t consumed;
    uint8_t *landing;        /* of the payload that is coming in pieces */
    uint64_t landed;         /* bytes of it */
    gw_mapping *seen[LOANS]; /* the peer's loans shown to the engine */
    bool broken;
} link;

typedef struct shm {
    gw_transport base;
    gw_harbour *harbour;
    quay *own;
    uint32_t generation;
    uint64_t leases; /* given out so far */
    const link *borrower[CHUNKS];
    uint32_t polls;
    int links_count;
    link **links;   /* those attached, in the order of attaching */
    link **by_rank; /* NULL: not attached */
} shm;

static uint64_t tagged(const shm *self, uint32_t value) { return (uint64_t)self->generation << 32 | value; }

static void break_link(shm *self, link *to, const char *detail) {
    if (to->broken) return;
    to->broken = true;
    self->base.sink.lost(self->base.sink.ctx, to->rank, GW_PROTOCOL, detail);
}

/* Sending. */

/* The next slot, NULL if the ring is full or its owner is of another generation. */
static slot *next_slot(shm *self, link *to, uint32_t *free_from) {
    uint64_t consumed = atomic_load(&to->out->consumed);
    if (consumed >> 32 != self->generation || to->produced - (uint32_t)consumed >= SLOTS) return NULL;
    *free_from = (uint32_t)consumed ? to->bytes_after[((uint32_t)consumed - 1) % SLOTS] : 0;
    return &to->out->slots[to->produced % SLOTS];
}

static void post(shm *self, link *to, slot *at) {
    to->bytes_after[to->produced % SLOTS] = to->bytes_at;
    to->produced++;
    atomic_store(&at->turn, tagged(self, to->produced));
    gw_harbour_ring(self->harbour, to->rank);
}

static carriage choose(shm *self, link *to, const gw_packet *packet, gw_shared *where) {
    uint64_t length = packet->frame.length;
    if (length <= GW_SHM_INLINE_BYTES) return INLINE;
    if (packet->progress) return STAGED;
    if (gw_harbour_find(self->harbour, packet->data, length, where)) return SHOWN;
    return length >= READ_BYTES_MIN && atomic_load(&to->out->reads) ? READ : STAGED;
}

/* Payloads do not wrap: what is left at the end of the ring may stay unused. */
static uint32_t inline_begin(const link *to, uint32_t bytes) {
    uint32_t at = to->bytes_at % INLINE_RING;
    return at + bytes > INLINE_RING ? to->bytes_at + (INLINE_RING - at) : to->bytes_at;
}

/* A peer that returns nothing must not keep the staging area from the others. */
static uint32_t free_chunk(const shm *self, const link *to) {
    uint32_t found = CHUNKS, held = 0, most = CHUNKS / (uint32_t)self->links_count;
    for (uint32_t chunk = CHUNKS; chunk-- > 0;) {
        if (!atomic_load(&self->own->chunks[chunk].lease)) found = chunk;
        else held += self->borrower[chunk] == to;
    }
    return held < (most < 2 ? 2 : most) ? found : CHUNKS;
}

/* The place a payload would take: an offset, a loan, a chunk. False: none is free. */
static bool find_place(shm *self, link *to, carriage by, uint32_t free_from, const gw_packet *packet, uint32_t *place) {
    uint32_t bytes = (uint32_t)packet->frame.length;
    switch (by) {
    case INLINE: *place = inline_begin(to, bytes); return *place + bytes - free_from <= INLINE_RING;
    case STAGED: *place = free_chunk(self, to); return *place < CHUNKS;
    default:
        for (*place = 0; *place < LOANS && to->lent[*place];) (*place)++;
        return *place < LOANS;
    }
}

static void put_inline(link *to, slot *at, uint32_t begin, const gw_packet *packet) {
    uint32_t bytes = (uint32_t)packet->frame.length;
    at->place = begin % INLINE_RING;
    if (bytes) gw_copy(to->out->bytes + at->place, packet->data, bytes);
    to->bytes_at = (begin + bytes + 7) / 8 * 8;
}

static void put_staged(shm *self, link *to, slot *at, gw_packet *packet) {
    uint64_t left = packet->frame.length - packet->progress, bytes = left < CHUNK_BYTES ? left : CHUNK_BYTES;
    gw_copy(self->own->staged[at->place], (const uint8_t *)packet->data + packet->progress, bytes);
    at->address = ++self->leases;
    at->position = packet->progress;
    self->borrower[at->place] = to;
    atomic_store(&self->own->chunks[at->place].lease, at->address);
    packet->progress += bytes;
}

/* Puts the first packet, or its next chunk, into a slot. *given: the packet's data is no longer needed. */
static bool send_one(shm *self, link *to, gw_packet *packet, bool *given, bool *whole) {
    uint32_t free_from, place;
    slot *at = next_slot(self, to, &free_from);
    if (!at) return false;
    carriage by = choose(self, to, packet, &at->where);
    if (!find_place(self, to, by, free_from, packet, &place)) return false;
    at->frame = packet->frame;
    at->carriage = by;
    at->place = place;
    *given = *whole = true;
    if (by == INLINE) {
        put_inline(to, at, place, packet);
    } else if (by == STAGED) {
        put_staged(self, to, at, packet);
        *given = *whole = packet->progress == packet->frame.length;
    } else {
        at->address = (uint64_t)(uintptr_t)packet->data;
        to->lent[place] = packet;
        *given = false;
    }
    post(self, to, at);
    return true;
}

static bool pump(shm *self, link *to) {
    bool moved = false, given, whole;
    while (to->head && !to->broken && send_one(self, to, to->head, &given, &whole)) {
        moved = true;
        if (!whole) continue;
        gw_packet *packet = to->head;
        to->head = packet->next;
        if (!to->head) to->tail = NULL;
        if (given) self->base.sink.sent(self->base.sink.ctx, to->rank, packet);
    }
    return moved;
}

static void shm_send(gw_transport *transport, int peer, gw_packet *packet) {
    shm *self = (shm *)transport;
    link *to = self->by_rank[peer];
    packet->next = NULL;
    packet->progress = 0;
    if (to->tail) to->tail->next = packet;
    else to->head = packet;
    to->tail = packet;
    if (to->head == packet) pump(self, to);
}

/* Loans that have come back. */
static bool collect(shm *self, link *to) {
    uint64_t returned = atomic_load(&to->in->returned);
    if ((uint32_t)returned == 0) return false;
    returned = atomic_fetch_and(&to->in->returned, ~(uint64_t)UINT32_MAX);
    if (returned >> 32 != self->generation) return false;
    for (uint32_t loan = 0; loan < LOANS; loan++) {
        gw_packet *packet = to->lent[loan];
        if (!(returned >> loan & 1) || !packet) continue;
        to->lent[loan] = NULL;
        self->base.sink.sent(self->base.sink.ctx, to->rank, packet);
    }
    return true;
}

/* Receiving. */

/* Sets the loan's bit in the lender's harbour, unless the lender has gone on to another generation. */
static void give_back(shm *self, link *from, uint32_t loan) {
    uint64_t was = atomic_load(&from->out->returned);
    do {
        if (was >> 32 != self->generation) return;
    } while (!atomic_compare_exchange_weak(&from->out->returned, &was, was | UINT64_C(1) << loan));
    gw_harbour_ring(self->harbour, from->rank);
}

static void shm_release(gw_transport *transport, int peer, uint64_t ticket) {
    shm *self = (shm *)transport;
    link *from = self->by_rank[peer];
    uint32_t loan = (uint32_t)(ticket - 1);
    if (ticket == 0 || ticket > LOANS || !from->seen[loan]) return;
    gw_harbour_unpin(from->seen[loan]);
    from->seen[loan] = NULL;
    give_back(self, from, loan);
}

static void arrived(shm *self, link *from, const gw_frame *frame, const void *data, uint64_t ticket) {
    self->base.sink.arrived(self->base.sink.ctx, from->rank, frame, data, ticket);
}

/* Where the payload is to go; asked once for each frame. */
static bool land(shm *self, link *from, const gw_frame *frame) {
    if (!from->landing) {
        from->landing = self->base.sink.landing(self->base.sink.ctx, from->rank, frame);
        from->landed = 0;
    }
    if (!from->landing) break_link(self, from, "it sent data for which there is no place");
    return from->landing != NULL;
}

static void landed(shm *self, link *from, const gw_frame *frame) {
    void *data = from->landing;
    from->landing = NULL;
    arrived(self, from, frame, data, 0);
}

static bool take_inline(shm *self, link *from, const slot *at) {
    uint64_t length = at->frame.length;
    if (length > GW_SHM_INLINE_BYTES || at->place > INLINE_RING - length) {
        break_link(self, from, "it sent a small payload that lies outside its ring");
        return false;
    }
    if (length == 0) {
        arrived(self, from, &at->frame, NULL, 0);
        return true;
    }
    if (!land(self, from, &at->frame)) return false;
    gw_copy(from->landing, from->in->bytes + at->place, length);
    landed(self, from, &at->frame);
    return true;
}

static bool take_shown(shm *self, link *from, const slot *at) {
    gw_error error = {.status = GW_OK};
    gw_mapping *mapping = gw_harbour_pin(self->harbour, from->rank, at->where, &error);
    if (!mapping || at->place >= LOANS || from->seen[at->place] || at->where.offset > mapping->segment.bytes ||
        at->frame.length > mapping->segment.bytes - at->where.offset) {
        gw_harbour_unpin(mapping);
        break_link(self, from, mapping ? "it sent a reference to memory that it does not share" : error.text);
        return false;
    }
    from->seen[at->place] = mapping;
    arrived(self, from, &at->frame, (uint8_t *)mapping->segment.base + at->where.offset, at->place + 1);
    return true;
}

/* At most POLL_BYTES at once; true when all of it is here. */
static bool take_read(shm *self, link *from, const slot *at) {
    if (!land(self, from, &at->frame)) return false;
    uint64_t left = at->frame.length - from->landed, bytes = left < POLL_BYTES ? left : POLL_BYTES;
    gw_harbour_peer *peer = &self->harbour->peers[from->rank];
    bool got = at->place < LOANS &&
               gw_harbour_read(peer, from->landing + from->landed, at->address + from->landed, bytes);
    /* A sender that has started anew may have written there before it was read. */
    if (atomic_load(&peer->page->generation) != self->generation) return false;
    if (!got) {
        break_link(self, from, "its memory can no longer be read");
        return false;
    }
    from->landed += bytes;
    if (from->landed < at->frame.length) return false;
    uint32_t loan = at->place;
    landed(self, from, &at->frame);
    give_back(self, from, loan);
    return true;
}

static bool take_staged(shm *self, link *from, const slot *at) {
    if (!land(self, from, &at->frame)) return false;
    uint64_t left = at->frame.length - from->landed, bytes = left < CHUNK_BYTES ? left : CHUNK_BYTES;
    if (at->place >= CHUNKS || at->position != from->landed) {
        break_link(self, from, "it staged a payload out of order");
        return false;
    }
    gw_copy(from->landing + from->landed, from->peer_quay->staged[at->place], bytes);
    uint64_t lease = at->address;
    if (!atomic_compare_exchange_strong(&from->peer_quay->chunks[at->place].lease, &lease, 0)) return false;
    gw_harbour_ring(self->harbour, from->rank);
    from->landed += bytes;
    if (from->landed == at->frame.length) landed(self, from, &at->frame);
    return true;
}

static bool take(shm *self, link *from, const slot *at) {
    if (at->frame.kind < GW_FRAME_DATA || at->frame.kind > GW_FRAME_CREDIT ||
        at->frame.length > GW_FRAME_PAYLOAD_MAX) {
        break_link(self, from, "it sent a frame of an unknown kind");
        return false;
    }
    switch (at->carriage) {
    case INLINE: return take_inline(self, from, at);
    case SHOWN: return take_shown(self, from, at);
    case READ: return take_read(self, from, at);
    case STAGED: return take_staged(self, from, at);
    }
    break_link(self, from, "it sent a payload by an unknown way");
    return false;
}

/* A slot is returned when its frame is delivered; a large payload that is not yet whole stays where it is. */
static bool receive(shm *self, link *from) {
    uint32_t before = from->consumed, generation = self->generation;
    size_t spent = 0;
    bool moved = false;
    while (!from->broken && spent < POLL_BYTES) {
        slot *at = &from->in->slots[from->consumed % SLOTS];
        if (atomic_load(&at->turn) != tagged(self, from->consumed + 1)) break;
        moved = true;
        spent += at->carriage == STAGED ? CHUNK_BYTES : at->carriage == READ ? POLL_BYTES : GW_SHM_INLINE_BYTES / 8;
        if (!take(self, from, at) || self->generation != generation) break;
        from->consumed++;
        if (from->consumed - before < SLOTS / 4) continue;
        before = from->consumed;
        atomic_store(&from->in->consumed, tagged(self, from->consumed));
        gw_harbour_ring(self->harbour, from->rank);
    }
    if (from->consumed != before && self->generation == generation) {
        atomic_store(&from->in->consumed, tagged(self, from->consumed));
        gw_harbour_ring(self->harbour, from->rank);
    }
    return moved;
}

static bool shm_poll(gw_transport *transport, gw_time now) {
    shm *self = (shm *)transport;
    bool moved = false;
    (void)now;
    for (int i = 0; i < self->links_count; i++) {
        link *with = self->links[i];
        moved = receive(self, with) || moved;
        moved = collect(self, with) || moved;
        if (with->head) moved = pump(self, with) || moved;
    }
    if (++self->polls % SWEEP_POLLS == 0) gw_harbour_sweep(self->harbour);
    return moved;
}

/* Waiting, and starting anew. */

static int shm_wait_fd(gw_transport *transport) { return ((shm *)transport)->harbour->bell[0]; }

/* Something has come from this peer, or there is room again for what waits. */
static bool has_news(shm *self, link *with) {
    uint32_t free_from, place;
    gw_shared where;
    if (with->broken) return false;
    if (atomic_load(&with->in->slots[with->consumed % SLOTS].turn) == tagged(self, with->consumed + 1)) return true;
    if ((uint32_t)atomic_load(&with->in->returned)) return true;
    return with->head && next_slot(self, with, &free_from) &&
           find_place(self, with, choose(self, with, with->head, &where), free_from, with->head, &place);
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

static void start_anew(shm *self, link *with) {
    for (int loan = 0; loan < LOANS; loan++) {
        if (with->lent[loan]) keep_contents(self, with->lent[loan]);
        gw_harbour_unpin(with->seen[loan]);
        with->seen[loan] = NULL;
        with->lent[loan] = NULL;
    }
    with->head = with->tail = NULL;
    with->produced = with->consumed = with->bytes_at = 0;
    with->landing = NULL;
    with->broken = false;
    atomic_store(&with->in->reads, self->harbour->peers[with->rank].readable);
    atomic_store(&with->in->returned, tagged(self, 0));
    atomic_store(&with->in->consumed, tagged(self, 0));
    gw_harbour_ring(self->harbour, with->rank);
}

static void shm_reset(gw_transport *transport, uint32_t generation) {
    shm *self = (shm *)transport;
    self->generation = generation;
    atomic_store(&self->harbour->page->generation, generation);
    for (int chunk = 0; chunk < CHUNKS; chunk++) atomic_store(&self->own->chunks[chunk].lease, 0);
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
    .send = shm_send,
    .release = shm_release,
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
    self->links = calloc((size_t)config->world, sizeof(link *));
    self->by_rank = calloc((size_t)config->world, sizeof(link *));
    if (!self->links || !self->by_rank) status = gw_fail(error, GW_MEMORY, "no memory for %d links", config->world);
    size_t room = sizeof(quay) + (size_t)config->world * sizeof(ring);
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

void gw_shm_endpoint(const gw_transport *transport, uint8_t endpoint[GW_ENDPOINT_BYTES]) {
    gw_harbour_endpoint(((const shm *)transport)->harbour, endpoint);
}

gw_status gw_shm_attach(gw_transport *transport, int peer, const uint8_t endpoint[GW_ENDPOINT_BYTES],
                        gw_error *error) {
    shm *self = (shm *)transport;
    gw_status status = gw_harbour_attach(self->harbour, peer, endpoint, error);
    if (status) return status;
    link *with = calloc(1, sizeof *with);
    if (!with) return gw_fail(error, GW_MEMORY, "no memory for the link to rank %d", peer);
    with->rank = peer;
    with->peer_quay = gw_harbour_room(self->harbour->peers[peer].page);
    with->in = &self->own->rings[peer];
    with->out = &with->peer_quay->rings[self->harbour->rank];
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
