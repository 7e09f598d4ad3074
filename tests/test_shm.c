/* test_shm.c - messages among ranks of one host: every path of a payload, order, full rings, sleeping, generations,
 * dead and hostile ranks. */
#include "base/rng.h"
#include "ranks.h"
#include "transport/shm/shm_transport_internal.h"

#define PACKETS 4096

/* Stands in for a rank's engine: receives everything into a pool, and checks it against the pattern of its frame. */
typedef struct fake_engine {
    rank_env *env;
    gw_packet packets[PACKETS];
    uint64_t next[RANKS_MAX]; /* index of the frame that must come next from each peer */
    uint64_t received, sent, views, lost;
    uint64_t pieces, grants;
    uint64_t passed_on[RANKS_MAX]; /* bytes of the payload that is used part by part */
    uint8_t *recv_buffers[RANKS_MAX];
    uint64_t held_ticket; /* a view that is kept for a while */
    const uint8_t *held;
    int held_peer;
    bool hold;
    gw_status why_lost;
} fake_engine;

#if RANKS_ARE_THREADS
static _Thread_local fake_engine engine;
#else
static fake_engine engine;
#endif

#define RECV_BUFFER_BYTES ((8 << 20) + 64)

static uint8_t pattern(int rank, uint64_t index, uint64_t i) {
    return (uint8_t)((uint64_t)rank * 101 + index * 17 + i + (i >> 8) * 3);
}

static void *on_recv_buffer(void *ctx, int peer, const gw_frame *frame) {
    (void)ctx;
    CHECK(frame->length <= RECV_BUFFER_BYTES);
    if (!engine.recv_buffers[peer]) engine.recv_buffers[peer] = malloc(RECV_BUFFER_BYTES);
    return engine.recv_buffers[peer];
}

static void check_bytes(int peer, uint64_t index, uint64_t at, const uint8_t *data, uint64_t bytes) {
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < bytes; i++) wrong += data[i] != pattern(peer, index, at + i);
    CHECK_EQ(0, wrong);
}

/* Every other payload is used part by part. */
static bool on_piece(void *ctx, int peer, const gw_frame *frame, uint64_t at, const void *data, uint64_t bytes) {
    (void)ctx;
    if (frame->index % 2 == 0) return false;
    CHECK_EQ(engine.passed_on[peer], at);
    CHECK(at + bytes <= frame->length);
    CHECK(at % 8 == 0);
    check_bytes(peer, frame->index, at, data, bytes);
    engine.passed_on[peer] += bytes;
    engine.pieces++;
    return true;
}

static void on_arrived(void *ctx, int peer, const gw_frame *frame, const void *data, uint64_t ticket) {
    (void)ctx;
    if (frame->kind == GW_FRAME_GRANT) {
        engine.grants++;
        return;
    }
    CHECK_EQ(engine.next[peer], frame->index);
    engine.next[peer] = frame->index + 1;
    engine.received++;
    engine.views += ticket != 0;
    if (data) check_bytes(peer, frame->index, 0, data, frame->length);
    else CHECK_EQ(frame->length, engine.passed_on[peer]);
    engine.passed_on[peer] = 0;
    if (ticket && engine.hold && !engine.held_ticket) {
        engine.held_ticket = ticket;
        engine.held = data;
        engine.held_peer = peer;
    } else if (ticket) {
        engine.env->transport->ops->release(engine.env->transport, peer, ticket);
    }
}

static void on_sent(void *ctx, int peer, gw_packet *packet) {
    (void)ctx, (void)peer;
    CHECK(packet->owner == &engine);
    packet->owner = NULL;
    engine.sent++;
}

static void on_lost(void *ctx, int peer, gw_status status, const char *detail) {
    (void)ctx;
    printf("    link to %d lost: %s\n", peer, detail);
    engine.lost++;
    engine.why_lost = status;
}

static const gw_sink sink = {
    .recv_buffer = on_recv_buffer, .part = on_piece, .arrived = on_arrived, .sent = on_sent, .lost = on_lost};

static void start_engine(rank_env *env) { engine = (fake_engine){.env = env}; }

static void stop_engine(void) {
    CHECK_EQ(0, engine.lost);
    for (int r = 0; r < RANKS_MAX; r++) free(engine.recv_buffers[r]);
}

static void send_frame(int peer, uint64_t index, const void *data, uint64_t length) {
    gw_packet *packet = &engine.packets[index % PACKETS];
    CHECK(packet->owner == NULL);
    *packet = (gw_packet){.frame = {.kind = GW_FRAME_DATA, .index = index, .length = length}, .data = data,
                          .owner = &engine};
    engine.env->transport->ops->send(engine.env->transport, peer, packet);
}

static bool look_at_transport(void *ctx) {
    rank_env *env = ctx;
    return env->transport->ops->poll(env->transport, 0);
}

static void drive(rank_env *env, uint64_t received, uint64_t sent) {
    gw_time deadline = gw_clock_now() + 60 * GW_SECOND;
    for (int idle = 0; (engine.received < received || engine.sent < sent) && !engine.lost;) {
        idle = look_at_transport(env) ? 0 : idle + 1;
        if (engine.received >= received && engine.sent >= sent) break;
        if (idle > 20) rank_sleep(env, look_at_transport, env);
        else if (idle) sched_yield();
        if (gw_clock_now() < deadline) continue;
        CHECK(!"a message takes for ever");
        break;
    }
}

static const uint64_t lengths[] = {0,     1,          3,     1023,   16384,  LENT_BYTES_MIN - 1, LENT_BYTES_MIN,
                                   65535, PART_BYTES, 65540, 131072, 150004, RING_BYTES + 8,     (4 << 20) + 4};
#define LENGTHS (sizeof lengths / sizeof lengths[0])

/* Every rank sends every length to every rank; each length from shared or from private memory. */
static void exchange_all(rank_env *env, bool shared, uint64_t first) {
    uint8_t *buffers[LENGTHS];
    gw_error error = {.status = GW_OK};
    uint64_t peers = (uint64_t)env->ranks - 1;
    for (size_t l = 0; l < LENGTHS; l++) {
        buffers[l] = shared ? gw_shm_alloc(env->transport, lengths[l] + 1, &error) : malloc(lengths[l] + 1);
        for (uint64_t i = 0; i < lengths[l]; i++) buffers[l][i] = pattern(env->rank, first + l, i);
    }
    uint64_t received = engine.received, sent = engine.sent;
    for (int peer = 0; peer < env->ranks; peer++) {
        if (peer == env->rank) continue;
        for (size_t l = 0; l < LENGTHS; l++) {
            gw_packet *packet = &engine.packets[(uint64_t)peer * LENGTHS + l];
            *packet = (gw_packet){.frame = {.kind = GW_FRAME_DATA, .index = first + l, .length = lengths[l]},
                                  .data = buffers[l], .owner = &engine};
            env->transport->ops->send(env->transport, peer, packet);
        }
    }
    drive(env, received + peers * LENGTHS, sent + peers * LENGTHS);
    rank_meet(env);
    for (size_t l = 0; l < LENGTHS; l++) {
        if (shared) gw_shm_free(env->transport, buffers[l]);
        else free(buffers[l]);
    }
}

static void exchange(rank_env *env) {
    start_engine(env);
    exchange_all(env, false, 0);
    CHECK_EQ(0, engine.views);
    CHECK(engine.pieces > 0);
    exchange_all(env, true, LENGTHS);
    CHECK_EQ(8 * (env->ranks - 1), engine.views);
    /* Once more, and the received data is sent on. */
    for (int r = 0; r < env->ranks; r++) engine.next[r]++;
    exchange_all(env, false, 2 * LENGTHS + 1);
    stop_engine();
}

/* With six ranks a ring may be used only in part. */
static void every_path_of_a_payload(void) {
    static const int ranks[] = {2, 3, 6};
    for (int i = 0; i < 3; i++) run_ranks(ranks[i], exchange, &sink);
}

/* More frames than the ring has slots, and more small payloads than it has bytes, to a rank that does not poll. */
static void overflow(rank_env *env) {
    enum { FRAMES = 1000, BYTES = 1500 };
    static uint8_t data[FRAMES][BYTES];
    start_engine(env);
    if (env->rank == 0) {
        for (uint64_t f = 0; f < FRAMES; f++) {
            for (uint64_t i = 0; i < BYTES; i++) data[f][i] = pattern(0, f, i);
            send_frame(1, f, data[f], f % BYTES);
        }
        CHECK(engine.sent >= 100 && engine.sent < FRAMES);
        for (int i = 0; i < 100; i++) look_at_transport(env);
        CHECK(engine.sent < FRAMES);
    }
    rank_meet(env);
    drive(env, env->rank == 1 ? FRAMES : 0, env->rank == 0 ? FRAMES : 0);
    stop_engine();
}

static void full_rings_wait(void) { run_ranks(2, overflow, &sink); }

static void queue_frame(rank_env *env, gw_packet *packet, gw_frame frame, uint8_t urgency, const void *data) {
    *packet = (gw_packet){.frame = frame, .data = data, .urgency = urgency, .owner = &engine};
    env->transport->ops->send(env->transport, 1, packet);
}

/* Grants overtake between the chunks of a payload in flight; urgent payloads overtake queued ones. */
static void overtake(rank_env *env) {
    enum { BYTES = 4 * RING_BYTES };
    start_engine(env);
    uint8_t *data = malloc(BYTES), small[2][8];
    if (env->rank == 0) {
        for (uint64_t i = 0; i < BYTES; i++) data[i] = pattern(0, 0, i);
        for (uint64_t i = 0; i < 8; i++) small[0][i] = pattern(0, 1, i), small[1][i] = pattern(0, 2, i);
        queue_frame(env, &engine.packets[0], (gw_frame){.kind = GW_FRAME_DATA, .length = BYTES}, 0, data);
        queue_frame(env, &engine.packets[1], (gw_frame){.kind = GW_FRAME_DATA, .index = 2, .length = 8}, 0, small[1]);
        queue_frame(env, &engine.packets[2], (gw_frame){.kind = GW_FRAME_DATA, .index = 1, .length = 8}, 7, small[0]);
        for (int g = 3; g < 6; g++) queue_frame(env, &engine.packets[g], (gw_frame){.kind = GW_FRAME_GRANT}, 0, NULL);
    }
    rank_meet(env);
    gw_time deadline = gw_clock_now() + 60 * GW_SECOND;
    while (env->rank == 1 && engine.grants < 3 && gw_clock_now() < deadline) look_at_transport(env);
    if (env->rank == 1) CHECK_EQ(0, engine.received); /* rank 0 has not polled again: only what fits the ring came */
    rank_meet(env);
    drive(env, env->rank == 1 ? 3 : 0, env->rank == 0 ? 6 : 0);
    CHECK_EQ(env->rank == 1 ? 3 : 0, engine.grants);
    stop_engine();
    free(data);
}

static void grants_overtake_payloads(void) { run_ranks(2, overtake, &sink); }

/* The sender's buffer is free only when the view is released. */
static void hold_a_view(rank_env *env) {
    gw_error error = {.status = GW_OK};
    start_engine(env);
    engine.hold = true;
    uint8_t *data = gw_shm_alloc(env->transport, 1 << 20, &error);
    for (uint64_t i = 0; i < 1 << 20; i++) data[i] = pattern(env->rank, 0, i);
    if (env->rank == 0) send_frame(1, 0, data, 1 << 20);
    if (env->rank == 1) drive(env, 1, 0);
    rank_meet(env);
    for (int i = 0; i < 100; i++) look_at_transport(env);
    CHECK_EQ(0, engine.sent);
    rank_meet(env);
    if (env->rank == 1) env->transport->ops->release(env->transport, engine.held_peer, engine.held_ticket);
    if (env->rank == 0) drive(env, 0, 1);
    rank_meet(env);
    stop_engine();
}

static void views_are_lent_until_released(void) { run_ranks(2, hold_a_view, &sink); }

/* Frames of the old generation are dropped, whichever rank resets first; a view held over a reset keeps its contents.
 */
static void start_anew(rank_env *env) {
    gw_error error = {.status = GW_OK};
    uint8_t small[8] = {0};
    start_engine(env);
    engine.hold = true;
    uint8_t *data = gw_shm_alloc(env->transport, 1 << 20, &error);
    for (uint64_t i = 0; i < 1 << 20; i++) data[i] = pattern(env->rank, 0, i);
    if (env->rank == 0) send_frame(1, 0, data, 1 << 20);
    if (env->rank == 1) drive(env, 1, 0);
    rank_meet(env);
    if (env->rank == 0) {
        for (uint64_t f = 1; f < 50; f++) send_frame(1, f, small, 8);
        engine.sent = 0;
        env->transport->ops->reset(env->transport, 2);
        memset(data, 0, 1 << 20);
        for (int p = 0; p < PACKETS; p++) engine.packets[p].owner = NULL;
        for (int i = 0; i < 8; i++) small[i] = pattern(0, 100, (uint64_t)i);
        send_frame(1, 100, small, 8);
        CHECK_EQ(0, engine.sent); /* the peer has not reached this generation */
    }
    rank_meet(env);
    if (env->rank == 1) {
        uint64_t wrong = 0;
        for (uint64_t i = 0; i < 1 << 20 && !RANKS_ARE_THREADS; i++) wrong += engine.held[i] != pattern(0, 0, i);
        CHECK_EQ(0, wrong);
        env->transport->ops->release(env->transport, 0, engine.held_ticket);
        env->transport->ops->reset(env->transport, 2);
        engine.next[0] = 100;
        engine.received = 0;
    }
    drive(env, env->rank == 1 ? 1 : 0, env->rank == 0 ? 1 : 0);
    CHECK_EQ(env->rank == 1 ? 1 : 0, engine.received);
    CHECK_EQ(env->rank == 0 ? 1 : 0, engine.sent);
    stop_engine();
}

static void generations_stay_apart(void) { run_ranks(2, start_anew, &sink); }

static void ping_pong(rank_env *env) {
    uint8_t data[64];
    start_engine(env);
    for (uint64_t round = 0; round < 300; round++) {
        for (uint64_t i = 0; i < sizeof data; i++) data[i] = pattern(env->rank, round, i);
        if (round % 50 == 0 && env->rank == 0) rank_await_sleepers(env);
        if (env->rank == 0) send_frame(1, round, data, sizeof data);
        drive(env, round + 1, 0);
        if (env->rank == 1) send_frame(0, round, data, sizeof data);
    }
    drive(env, 300, 300);
    CHECK(env->rank == 0 || env->sleeps >= 6);
    stop_engine();
}

static void sleepers_are_woken(void) { run_ranks(2, ping_pong, &sink); }

/* Memory that a killed rank has shown is unreachable: the rank is lost, which is no protocol error. Data that it has
 * copied arrives. */
static _Atomic pid_t *announcer;
static bool announce_shared;

static void announce_and_die(rank_env *env) {
    gw_error error = {.status = GW_OK};
    start_engine(env);
    if (env->rank == 0) {
        atomic_store(announcer, getpid());
        size_t bytes = RING_BYTES;
        uint8_t *data = announce_shared ? gw_shm_alloc(env->transport, bytes, &error) : malloc(bytes);
        for (uint64_t i = 0; i < bytes; i++) data[i] = pattern(0, 0, i);
        send_frame(1, 0, data, bytes);
        look_at_transport(env);
    }
    rank_meet(env);
    if (env->rank == 0) rank_die(env);
    char folder[64], at; /* a process that ends frees its memory first, then its files, then its directory in /proc */
    snprintf(folder, sizeof folder, "/proc/%d/cwd", (int)atomic_load(announcer));
    for (int i = 0; i < 10000 && readlink(folder, &at, 1) == 1; i++) usleep(1000);
    drive(env, 1, 0);
    CHECK_EQ(announce_shared ? 0 : 1, engine.received);
    CHECK_EQ(announce_shared ? 1 : 0, engine.lost);
    if (announce_shared) CHECK_EQ(GW_PEER_LOST, engine.why_lost);
    engine.lost = 0;
    stop_engine();
}

static void memory_of_a_dead_rank(void) {
    if (RANKS_ARE_THREADS) return;
    announcer = mmap(NULL, sizeof *announcer, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int shared = 0; shared < 2; shared++) {
        announce_shared = shared;
        run_ranks(2, announce_and_die, &sink);
    }
    munmap(announcer, sizeof *announcer);
}

/* A peer writes arbitrary bytes into memory that it shares with this rank: no other memory is read or written (only a
 * sanitizer, or the end of a mapping, shows this), and the link ends at the first invalid message. */

typedef struct victim {
    uint64_t arrived, lost, sum;
    uint8_t *recv_buffer;
} victim;

static void *exact_recv_buffer(void *ctx, int peer, const gw_frame *frame) {
    victim *v = ctx;
    (void)peer;
    free(v->recv_buffer);
    return v->recv_buffer = frame->length <= RECV_BUFFER_BYTES ? malloc(frame->length) : NULL;
}

static void look_at_bytes(victim *v, const uint8_t *data, uint64_t bytes) {
    for (uint64_t i = 0; data && i < bytes; i += 64) v->sum += data[i];
    if (data && bytes) v->sum += data[bytes - 1];
}

static bool look_at_piece(void *ctx, int peer, const gw_frame *frame, uint64_t at, const void *data, uint64_t bytes) {
    (void)peer;
    CHECK(bytes <= PART_BYTES && at <= frame->length && bytes <= frame->length - at);
    look_at_bytes(ctx, data, bytes);
    return frame->index % 2;
}

static void look_at_message(void *ctx, int peer, const gw_frame *frame, const void *data, uint64_t ticket) {
    victim *v = ctx;
    (void)peer, (void)ticket; /* never released: the same view then arrives twice */
    look_at_bytes(v, data, frame->length);
    v->arrived++;
}

static void note_loss(void *ctx, int peer, gw_status status, const char *detail) {
    (void)peer, (void)detail;
    CHECK(status != GW_OK);
    ((victim *)ctx)->lost++;
}

static void note_sent(void *ctx, int peer, gw_packet *packet) { (void)ctx, (void)peer, (void)packet; }

static uint64_t nasty(gw_rng *rng, uint64_t likely) {
    static const uint64_t edges[] = {0, 1, LOANS, PART_BYTES, RING_BYTES - 1, RING_BYTES, UINT32_MAX, UINT64_MAX};
    uint64_t kind = gw_rng_below(rng, 8);
    return kind < 6 ? likely : kind == 6 ? edges[gw_rng_below(rng, 8)] : gw_rng_u64(rng) >> gw_rng_below(rng, 64);
}

static slot_content lie(gw_rng *rng, shm_link *from) {
    uint64_t lengths_lied[] = {0, 100, PART_BYTES, PART_BYTES + 4, 3 * PART_BYTES};
    uint64_t position = from->partial ? from->arrived_bytes : 0;
    return (slot_content){.transfer = (uint32_t)nasty(rng, gw_rng_below(rng, 2)),
                    .place = (uint32_t)nasty(rng, gw_rng_below(rng, LOANS)),
                    .where = {.id = (uint32_t)nasty(rng, 0), .version = (uint32_t)nasty(rng, 1),
                              .offset = nasty(rng, 4096)},
                    .position = nasty(rng, position),
                    .frame = {.kind = (uint8_t)nasty(rng, 1), .flags = (uint8_t)nasty(rng, 0), .root = -1,
                              .dtype = (uint8_t)nasty(rng, 0), .redop = (uint8_t)nasty(rng, 0),
                              .index = gw_rng_below(rng, 2), .length = nasty(rng, lengths_lied[gw_rng_below(rng, 5)])}};
}

/* The rank itself writes into its ring what the hostile peer would write. */
static void be_lied_to(rank_env *env) {
    enum { LIES = 4000 };
    static victim v;
    shm *self = (shm *)env->transport;
    gw_error error = {.status = GW_OK};
    gw_packet packet = {.frame = {.kind = GW_FRAME_DATA, .length = 8}, .data = "lies lie"};
    gw_rng rng = gw_rng_make(7, 1);
    if (env->rank == 0) gw_shm_alloc(env->transport, 1 << 20, &error);
    rank_meet(env);
    self->base.sink = (gw_sink){.ctx = &v, .recv_buffer = exact_recv_buffer, .part = look_at_piece,
                                .arrived = look_at_message, .sent = note_sent, .lost = note_loss};
    for (int i = 0; env->rank == 1 && i < LIES; i++) {
        shm_link *from = self->by_rank[0];
        slot *at = &from->in->slots[from->consumed % SLOTS];
        at->what = lie(&rng, from);
        atomic_store(&at->turn, tagged(self, from->consumed + 1));
        atomic_store(&from->in->returned, tagged(self, gw_rng_u32(&rng)));
        atomic_store(&from->out->consumed, nasty(&rng, tagged(self, from->produced)));
        if (!from->queue.head) self->base.ops->send(&self->base, 0, &packet);
        self->base.ops->poll(&self->base, 0);
        if (from->broken) self->base.ops->reset(&self->base, self->generation + 1);
    }
    if (env->rank == 1) CHECK(v.arrived > LIES / 20 && v.lost > LIES / 20);
    rank_meet(env);
    free(v.recv_buffer);
}

static void a_hostile_peer_reaches_nothing(void) { run_ranks(2, be_lied_to, &sink); }

TEST_MAIN(CASE(every_path_of_a_payload), CASE(full_rings_wait), CASE(grants_overtake_payloads),
          CASE(views_are_lent_until_released), CASE(generations_stay_apart), CASE(sleepers_are_woken),
          CASE(memory_of_a_dead_rank), CASE(a_hostile_peer_reaches_nothing))
