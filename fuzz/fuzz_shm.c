/* fuzz_shm.c - shared memory of a liar: rank 0 runs the shm transport and a host-local collective, while rank 1 writes
 * anything into the pages, rings and segments that both have mapped. Nothing is read or written outside of what is
 * shared, every poll returns, and every error has a sentence.
 *
 * The input is a list of records: what happens, two operands, a value. Half of the kinds are what an honest rank 1
 * would do, so that the code behind the checks is reached. */
#include "base/dtype.h"
#include "shm/shm_coll_internal.h"
#include "transport/shm/shm_transport_internal.h"

#include <stdlib.h>
#include <string.h>

enum { RECORDS_MAX = 96, BUFFERS_MAX = 512, RECV_BYTES_MAX = 1 << 20, SHARED_BYTES = 1 << 19, KEY = 9 };

typedef struct record {
    uint8_t what, a;
    uint16_t b;
    uint32_t reserved;
    uint64_t value;
} record;

typedef struct state {
    shm *ranks[2]; /* rank 1 only lends its pages */
    gw_shm_coll *coll, *liars;
    void *buffers[BUFFERS_MAX]; /* freed at the end */
    int count;
    uint8_t *shared, *theirs; /* memory that rank 0 and rank 1 share; SHARED_BYTES each */
    uint64_t tickets[LOANS];
    int held;
    bool lost;
    volatile uint8_t sum;
} state;

static void demand(bool condition) {
    if (!condition) abort();
}

static void *buffer(state *s, size_t bytes) {
    if (s->count == BUFFERS_MAX) return NULL;
    return s->buffers[s->count++] = calloc(1, bytes ? bytes : 1);
}

/* The engine of rank 0. */

static void touch(state *s, const void *data, uint64_t bytes) {
    for (uint64_t i = 0; i < bytes; i += 61) s->sum += ((const uint8_t *)data)[i];
    if (bytes) s->sum += ((const uint8_t *)data)[bytes - 1];
}

static void *on_recv_buffer(void *ctx, int peer, const gw_frame *frame) {
    demand(peer == 1);
    return frame->length > RECV_BYTES_MAX ? NULL : buffer(ctx, (size_t)frame->length);
}

static bool on_part(void *ctx, int peer, const gw_frame *frame, uint64_t at, const void *data, uint64_t bytes) {
    demand(peer == 1 && at + bytes <= frame->length);
    if (frame->op & 1) touch(ctx, data, bytes);
    return frame->op & 1;
}

static void on_arrived(void *ctx, int peer, const gw_frame *frame, const void *data, uint64_t ticket) {
    state *s = ctx;
    gw_error error = {0};
    demand(peer == 1 && gw_frame_check(frame, &error) == GW_OK);
    if (data) touch(s, data, frame->length);
    if (!ticket) return;
    if (frame->op & 2 && s->held < LOANS) s->tickets[s->held++] = ticket;
    else gw_shm_release(&s->ranks[0]->base, 1, ticket);
}

static void on_sent(void *ctx, int peer, gw_packet *packet) {
    (void)ctx;
    demand(peer == 1);
    free(packet);
}

static void on_lost(void *ctx, int peer, gw_status status, const char *detail) {
    state *s = ctx;
    demand(peer == 1 && status != GW_OK && *detail);
    s->lost = true;
}

/* What happens. */

static void open_all(state *s) {
    const int members[2] = {0, 1};
    gw_error error = {0};
    bool attached = false, ignored;
    for (int r = 0; r < 2; r++) {
        gw_shm_config config = {.rank = r, .world = 2, .generation = 1,
                                .sink = {.ctx = s, .recv_buffer = on_recv_buffer, .part = on_part,
                                         .arrived = on_arrived, .sent = on_sent, .lost = on_lost}};
        demand(gw_shm_open((gw_transport **)&s->ranks[r], &config, &error) == GW_OK);
    }
    for (int r = 0; r < 2; r++) {
        uint8_t endpoint[GW_SHM_ENDPOINT_BYTES];
        gw_shm_endpoint(&s->ranks[1 - r]->base, endpoint);
        demand(gw_shm_attach(&s->ranks[r]->base, 1 - r, endpoint, &error) == GW_OK);
    }
    demand(gw_shm_coll_open(&s->coll, s->ranks[0]->peer_map, members, 2, 0, KEY, &error) == GW_OK);
    demand(gw_shm_coll_open(&s->liars, s->ranks[1]->peer_map, members, 2, 1, KEY, &error) == GW_OK);
    gw_shm_coll_attach(s->coll, &ignored, &error);
    gw_shm_coll_attach(s->liars, &ignored, &error);
    demand(gw_shm_coll_attach(s->coll, &attached, &error) == GW_OK && attached);
    s->shared = gw_peer_map_share(s->ranks[0]->peer_map, SHARED_BYTES, 0, true, &error);
    s->theirs = gw_peer_map_share(s->ranks[1]->peer_map, SHARED_BYTES, 0, true, &error);
    demand(s->shared && s->theirs);
}

static void close_all(state *s) {
    gw_shm_coll_close(s->coll);
    gw_shm_coll_close(s->liars);
    shm_link *to = s->ranks[0]->by_rank[1];
    for (gw_packet *p = to->queue.head, *next; p; p = next) {
        next = p->next;
        free(p);
    }
    for (int loan = 0; loan < LOANS; loan++) free(to->lent[loan]);
    for (int r = 0; r < 2; r++) s->ranks[r]->base.ops->close(&s->ranks[r]->base);
    for (int i = 0; i < s->count; i++) free(s->buffers[i]);
}

static void poll_coll(state *s) {
    gw_error error = {.rank = -1};
    uint64_t completed;
    if (!s->coll) return;
    if (gw_shm_coll_poll(s->coll, &completed, NULL, &error) == GW_OK) return;
    demand(error.text[0] && strlen(error.text) < sizeof error.text && error.rank < 2);
    gw_shm_coll_close(s->coll);
    s->coll = NULL;
}

static void start_op(state *s, const record *r) {
    static const size_t counts[] = {0, 1, 7, 8, 500, 513, 4096, 5000, 40000, 100000};
    static const gw_dtype types[] = {GW_F32, GW_U8, GW_F16, GW_F64};
    gw_shm_coll_op op = {.task = (gw_shm_task)(r->a % (GW_SHM_TASK_BARRIER + 1)), .number = 1, .lanes = 2,
                         .root = r->b >> 12 & 1, .count = counts[r->b % 10], .signature = {r->value, r->b},
                         .reduction = {.dtype = types[r->b >> 8 & 3], .op = GW_SUM, .world = 2}};
    size_t bytes = op.count * gw_dtype_bytes(op.reduction.dtype);
    if (!s->coll || !gw_shm_coll_can_start(s->coll)) return;
    if (bytes > SHARED_BYTES) op.count = SHARED_BYTES / 8;
    bytes = op.count * gw_dtype_bytes(op.reduction.dtype);
    op.dst_wide = op.task == GW_SHM_TASK_REDUCE_SCATTER && r->b >> 13 & 1;
    op.in = r->a & 64 ? s->shared : buffer(s, bytes);
    op.out = op.dst_wide ? buffer(s, 4 * bytes) : r->a & 128 ? s->shared : buffer(s, bytes);
    if (op.in && op.out) gw_shm_coll_start(s->coll, &op);
}

static gw_shm_ref some_ref(state *s, const record *r, unsigned choice) {
    gw_shm_ref ref = {0};
    switch (choice % 6) {
    case 0: return ref;
    case 1: return (gw_shm_ref){.version = COLL_NOT_NEEDED};
    case 2: return (gw_shm_ref){.id = COLL_FITS_SLOTS};
    case 3: gw_peer_map_find(s->ranks[1]->peer_map, s->theirs, 1, &ref); return ref;
    case 4: gw_peer_map_find(s->ranks[1]->peer_map, s->theirs, 1, &ref); break;
    case 5: ref = (gw_shm_ref){.id = r->b % 8, .version = (uint32_t)(r->value >> 60)}; break;
    }
    ref.offset = r->value % 3 ? r->value : r->value % (2 * SHARED_BYTES);
    return ref;
}

/* As an honest member would, but for its buffers. */
static void arrive(state *s, const record *r) {
    if (!s->coll) return;
    uint64_t index = s->coll->finished;
    coll_entry *entry = coll_entry_of(s->coll, index, 1);
    memcpy(entry->call.signature, coll_head(s->coll)->signature, sizeof entry->call.signature);
    entry->third_word = coll_head(s->coll)->signature[2];
    entry->finished = index;
    entry->call.in = some_ref(s, r, r->a);
    entry->call.out = some_ref(s, r, r->a / 8);
    atomic_store(&entry->arrived, index + 1);
}

static void advance_counters(state *s, const record *r) {
    if (!s->coll) return;
    uint64_t index = s->coll->finished;
    coll_entry *entry = coll_entry_of(s->coll, index, 1);
    coll_progress *progress = &s->coll->progress[1];
    if (r->a & 1) atomic_store(&entry->served, index + 1);
    if (r->a & 2) atomic_store(&progress->finished, index + 1);
    for (int w = 0; w < 3; w++)
        if (r->a & 4 << w) atomic_store(&progress->windows[w], s->coll->windows[w] + r->b % 16);
    if (r->a & 32) atomic_store(&entry->done, r->b);
}

static void write_word(void *region, size_t bytes, const record *r) {
    size_t width = (size_t)1 << (r->a >> 6), at = (size_t)r->b * 4 % (bytes - 8);
    memcpy((uint8_t *)region + at, &r->value, width);
}

static ring *ring_of_liar(state *s) { return s->ranks[0]->by_rank[1]->in; }

/* A frame that an honest rank could send, but for its place. */
static void post_frame(state *s, const record *r) {
    static const uint64_t lengths[] = {1, 100, 4096, PART_BYTES, PART_BYTES + 1, 3 * PART_BYTES, 1 << 20, 1 << 21};
    shm_link *from = s->ranks[0]->by_rank[1];
    slot *at = &ring_of_liar(s)->slots[from->consumed % SLOTS];
    bool data = r->a % 8 != 7;
    at->what = (slot_content){.transfer = r->a % 3 == 1 ? IN_PLACE : COPIED,
                              .place = (uint32_t)(r->a & 16 ? r->value : r->value % LOANS),
                              .where = some_ref(s, r, r->a >> 5),
                              .position = from->partial ? from->arrived_bytes : 0,
                              .frame = {.kind = data ? GW_FRAME_DATA : GW_FRAME_GRANT, .op = r->b,
                                        .length = data ? lengths[r->b >> 4 & 7] : 0}};
    atomic_store(&at->turn, tagged(s->ranks[0], from->consumed + 1));
}

static void change_frame(state *s, const record *r) {
    slot *at = &ring_of_liar(s)->slots[s->ranks[0]->by_rank[1]->consumed % SLOTS];
    write_word(&at->what, sizeof at->what, r);
    if (r->a & 1) atomic_store(&at->turn, tagged(s->ranks[0], s->ranks[0]->by_rank[1]->consumed + 1));
}

static void send_frame(state *s, const record *r) {
    static const uint64_t lengths[] = {0, 1, 4096, LENT_BYTES_MIN, PART_BYTES + 5, SHARED_BYTES};
    if (s->lost) return;
    gw_packet *packet = calloc(1, sizeof *packet);
    uint64_t length = lengths[r->b % 6];
    packet->frame = (gw_frame){.kind = length ? GW_FRAME_DATA : GW_FRAME_GRANT, .length = length};
    packet->data = r->a & 1 ? s->shared : buffer(s, SHARED_BYTES);
    if (packet->data) gw_shm_send(&s->ranks[0]->base, 1, packet);
    else free(packet);
}

static void answer_frames(state *s, const record *r) {
    shm_link *to = s->ranks[0]->by_rank[1];
    uint64_t value = r->a & 1 ? tagged(s->ranks[0], r->a & 2 ? to->produced : (uint32_t)r->value) : r->value;
    if (r->a & 4) atomic_store(&to->out->consumed, value);
    else atomic_store(&to->in->returned, value);
}

static void poll_all(state *s) {
    s->ranks[0]->base.ops->poll(&s->ranks[0]->base, 0);
    poll_coll(s);
}

static void sleep_and_wake(state *s, const record *r) {
    s->ranks[0]->base.ops->arm(&s->ranks[0]->base, true);
    if (r->a & 1) gw_peer_map_wake(s->ranks[1]->peer_map, 0);
    s->ranks[0]->base.ops->arm(&s->ranks[0]->base, false);
    if (r->a & 2) gw_peer_map_sweep(s->ranks[0]->peer_map);
    while (s->held && r->a & 4) gw_shm_release(&s->ranks[0]->base, 1, s->tickets[--s->held]);
}

static void act(state *s, const record *r) {
    size_t coll_head_bytes = (size_t)((uint8_t *)s->liars->data - (uint8_t *)s->liars->page);
    gw_peer_map_page *honest = s->ranks[0]->peer_map->page, *lying = s->ranks[1]->peer_map->page;
    switch (r->what % 16) {
    case 0:
    case 1: poll_all(s); break;
    case 2:
    case 3: start_op(s, r); break;
    case 4: arrive(s, r); break;
    case 5: arrive(s, r), advance_counters(s, r), poll_all(s); break;
    case 6: advance_counters(s, r); break;
    case 7: write_word(s->liars->page, coll_head_bytes, r); break;
    case 8: write_word(honest, sizeof *honest, r); break;
    case 9: write_word(lying, r->b & 1 ? 1024 : sizeof *lying, r); break;
    case 10: post_frame(s, r); break;
    case 11: post_frame(s, r), poll_all(s); break;
    case 12: change_frame(s, r); break;
    case 13: send_frame(s, r); break;
    case 14: answer_frames(s, r); break;
    case 15: sleep_and_wake(s, r); break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    state s = {0};
    open_all(&s);
    for (int i = 0; i < RECORDS_MAX && size >= sizeof(record); i++, data += sizeof(record), size -= sizeof(record)) {
        record r;
        memcpy(&r, data, sizeof r);
        act(&s, &r);
    }
    poll_all(&s);
    close_all(&s);
    return 0;
}
