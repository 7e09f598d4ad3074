/* crossing.c - see crossing.h. Each sender has a ring of memory for its packets, in the order in which they left; one
 * heap holds what happens next to each. */
#include "lab/crossing.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/mman.h>

#define LARGEST_BYTES 65536.0 /* the largest packet that the kernel hands to a link (segmentation offload) */
#define SLACK_BYTES ((size_t)8 << 20)
#define RING_MAX ((size_t)1 << 30)
#define BYTES_PER_EVENT 512 /* of a ring: more and smaller packets are dropped */

typedef struct entry {
    uint32_t length;  /* of the packet */
    uint32_t wire;    /* bytes that it takes on the link */
    uint32_t stride;  /* to the next entry */
    uint8_t from, to; /* hosts */
    bool queued;      /* at the receiver's link; before, on its way there */
    bool over;        /* delivered or dropped; or no packet, but the unused end of the ring */
} entry;

typedef struct ring {
    uint8_t *memory;
    size_t size, head, tail; /* head: next free byte, tail: oldest entry; equal: empty */
} ring;

typedef struct link_state {
    gw_time ideal; /* when the bytes sent so far have left, at exactly the rate */
    double queued; /* bytes that wait */
} link_state;

typedef struct event {
    gw_time when;
    uint64_t order; /* of events at the same time */
    entry *entry;
} event;

struct gw_crossing {
    int hosts;
    double nanoseconds_per_byte, queue_bytes;
    gw_time burst; /* how far ahead of the rate a link may be */
    ring *rings;
    link_state *links;
    event *heap; /* the earliest first */
    size_t events, events_max;
    uint64_t order;
    entry *taken; /* by the last gw_crossing_take */
};

double gw_link_burst(double rate) {
    double burst = rate / 8 / 1000, least = LARGEST_BYTES + 16384;
    return burst > least ? burst : least;
}

double gw_link_queue(double rate) {
    double queue = rate / 8 / 200, least = 4 * gw_link_burst(rate);
    return queue > least ? queue : least;
}

/* ---- the heap ---- */

static bool before(const event *a, const event *b) {
    return a->when != b->when ? a->when < b->when : a->order < b->order;
}

static void push(gw_crossing *c, gw_time when, entry *e) {
    event new = {when, c->order++, e};
    size_t at = c->events++;
    for (; at > 0 && before(&new, &c->heap[(at - 1) / 2]); at = (at - 1) / 2) c->heap[at] = c->heap[(at - 1) / 2];
    c->heap[at] = new;
}

static entry *pop(gw_crossing *c) {
    entry *first = c->heap[0].entry;
    event last = c->heap[--c->events];
    size_t at = 0;
    for (size_t child = 1; child < c->events; child = 2 * at + 1) {
        if (child + 1 < c->events && before(&c->heap[child + 1], &c->heap[child])) child++;
        if (!before(&c->heap[child], &last)) break;
        c->heap[at] = c->heap[child];
        at = child;
    }
    c->heap[at] = last;
    return first;
}

/* ---- the rings ---- */

static size_t stride_of(size_t length) { return (sizeof(entry) + length + 63) / 64 * 64; }

static void reclaim(ring *r) {
    while (r->tail != r->head) {
        const entry *oldest = (const entry *)(void *)(r->memory + r->tail);
        if (!oldest->over) return;
        r->tail += oldest->stride;
        if (r->tail == r->size) r->tail = 0;
    }
    r->head = r->tail = 0;
}

/* Strides are multiples of 64 and so is the size: an entry for the unused end always fits. */
static bool make_contiguous(ring *r, size_t stride) {
    if (r->head < r->tail) return r->tail - r->head > stride;
    if (r->size - r->head > stride) return true;
    if (r->tail <= stride) return false;
    *(entry *)(void *)(r->memory + r->head) = (entry){.stride = (uint32_t)(r->size - r->head), .over = true};
    r->head = 0;
    return true;
}

uint8_t *gw_crossing_room(gw_crossing *c, int from, size_t length) {
    ring *r = &c->rings[from];
    if (c->events == c->events_max || !make_contiguous(r, stride_of(length))) return NULL;
    return r->memory + r->head + sizeof(entry);
}

static void finish(gw_crossing *c, entry *e) {
    e->over = true;
    reclaim(&c->rings[e->from]);
}

/* ---- the way of a packet ---- */

void gw_crossing_send(gw_crossing *c, int from, int to, size_t length, size_t wire, gw_time arrival) {
    ring *r = &c->rings[from];
    entry *e = (entry *)(void *)(r->memory + r->head);
    *e = (entry){.length = (uint32_t)length, .wire = (uint32_t)wire, .stride = (uint32_t)stride_of(length),
                 .from = (uint8_t)from, .to = (uint8_t)to};
    r->head += e->stride;
    push(c, arrival, e);
}

/* It arrives at the link of its receiver: queued, or dropped because the queue is full. */
static void arrive(gw_crossing *c, entry *e, gw_time now) {
    link_state *l = &c->links[e->to];
    if (l->queued + e->wire > c->queue_bytes) {
        finish(c, e);
        return;
    }
    if (l->ideal < now) l->ideal = now;
    l->ideal += (gw_time)(e->wire * c->nanoseconds_per_byte);
    l->queued += e->wire;
    e->queued = true;
    push(c, l->ideal > now + c->burst ? l->ideal - c->burst : now, e);
}

bool gw_crossing_take(gw_crossing *c, gw_time now, gw_crossed *packet) {
    if (c->taken) finish(c, c->taken);
    c->taken = NULL;
    while (c->events > 0 && c->heap[0].when <= now) {
        gw_time when = c->heap[0].when;
        entry *e = pop(c);
        if (!e->queued) {
            arrive(c, e, when);
            continue;
        }
        c->links[e->to].queued -= e->wire;
        c->taken = e;
        *packet = (gw_crossed){e->from, e->to, (uint8_t *)(e + 1), e->length};
        return true;
    }
    return false;
}

gw_time gw_crossing_next(const gw_crossing *c) { return c->events > 0 ? c->heap[0].when : UINT64_MAX; }

/* ---- life ---- */

/* Pages are given by the kernel when they are first used. */
static void *reserve(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

/* What a link sends in the longest delay, twice for duplicates, and what waits at the receivers. */
static size_t ring_bytes(int hosts, double rate, gw_time delay_max) {
    double bytes = 2 * rate / 8 * (double)delay_max / 1e9 + hosts * gw_link_queue(rate) + (double)SLACK_BYTES;
    return bytes > (double)RING_MAX ? RING_MAX : (size_t)bytes / 4096 * 4096;
}

gw_status gw_crossing_open(gw_crossing **out, int hosts, double rate, gw_time delay_max, gw_error *error) {
    gw_crossing *c = calloc(1, sizeof *c);
    size_t bytes = ring_bytes(hosts, rate, delay_max);
    *out = NULL;
    if (!c) return gw_fail(error, GW_MEMORY, "no memory for a lab");
    *c = (gw_crossing){.hosts = hosts, .nanoseconds_per_byte = 8e9 / rate, .queue_bytes = gw_link_queue(rate),
                       .burst = (gw_time)(gw_link_burst(rate) * 8e9 / rate)};
    c->events_max = (size_t)hosts * (bytes / BYTES_PER_EVENT);
    c->heap = reserve((c->events_max + 1) * sizeof *c->heap);
    c->rings = calloc((size_t)hosts, sizeof *c->rings);
    c->links = calloc((size_t)hosts, sizeof *c->links);
    bool fits = c->heap && c->rings && c->links;
    for (int i = 0; fits && i < hosts; i++) {
        c->rings[i] = (ring){.memory = reserve(bytes), .size = bytes};
        fits = c->rings[i].memory != NULL;
    }
    if (!fits) {
        gw_crossing_close(c);
        return gw_fail(error, GW_MEMORY, "no memory for the packets of a lab of %d hosts: %zu bytes each", hosts,
                       bytes);
    }
    *out = c;
    return GW_OK;
}

void gw_crossing_close(gw_crossing *c) {
    if (!c) return;
    for (int i = 0; c->rings && i < c->hosts; i++)
        if (c->rings[i].memory) munmap(c->rings[i].memory, c->rings[i].size);
    if (c->heap) munmap(c->heap, (c->events_max + 1) * sizeof *c->heap);
    free(c->rings);
    free(c->links);
    free(c);
}
