/* test_zmq.c - the ZeroMQ transport: messages between ranks of one process, ranks that leave, strangers, forgeries,
 * generations; and a rank of a real job that is killed. */
#include "transport/zmq/zmq_transport.h"

#include "base/little_endian.h"
#include "fault_job.h"
#include "transport/zmq/zmq_keys.h"

#include <poll.h>
#include <zmq.h>

#define RANKS 3
#define MESSAGES 48
#define DEADLINE (TEST_PATIENCE_S * GW_SECOND)
#define MIB ((size_t)1 << 20)

typedef struct mesh_rank {
    int rank;
    gw_transport *transport;
    uint64_t posted[RANKS], sent[RANKS], arrived[RANKS];
    int lost[RANKS];
    gw_status status;
    char detail[256];
    uint8_t *recv_buffer;
    struct packet *packets; /* all that were posted */
} mesh_rank;

typedef struct packet {
    gw_packet packet;
    struct packet *next;
    uint8_t *data;
} packet;

static uint8_t byte_of(int from, int to, uint64_t index, uint64_t at) {
    return (uint8_t)((at * 31 + index * 7 + (uint64_t)(from * 3 + to)) ^ (at >> 9));
}

static void *recv_buffer(void *ctx, int from, const gw_frame *frame) {
    mesh_rank *n = ctx;
    (void)from;
    free(n->recv_buffer);
    return n->recv_buffer = malloc(frame->length);
}

static void arrived(void *ctx, int from, const gw_frame *frame, const void *data, uint64_t ticket) {
    mesh_rank *n = ctx;
    const uint8_t *bytes = data;
    bool right = true;
    CHECK_EQ(0, ticket);
    CHECK_EQ(n->arrived[from], frame->index);
    CHECK((frame->length == 0) == (data == NULL) && (uintptr_t)data % 8 == 0);
    CHECK_EQ(frame->length * 3, frame->count);
    for (uint64_t i = 0; i < frame->length; i++) right &= bytes[i] == byte_of(from, n->rank, frame->index, i);
    CHECK(right);
    n->arrived[from]++;
}

static void sent(void *ctx, int to, gw_packet *which) {
    mesh_rank *n = ctx;
    n->sent[to]++;
    memset(((packet *)which->owner)->data, 0xee, which->frame.length); /* it may be reused, so it is */
}

static void lost(void *ctx, int peer, gw_status status, const char *detail) {
    mesh_rank *n = ctx;
    n->lost[peer]++;
    n->status = status;
    snprintf(n->detail, sizeof n->detail, "%s", detail);
}

static void rank_open(mesh_rank *n, int rank, bool clear, uint8_t key) {
    gw_error error = {0};
    gw_zmq_options options = {.rank = rank, .world = RANKS, .clear = clear};
    memset(options.key, key, sizeof options.key);
    options.address.v4 = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    *n = (mesh_rank){.rank = rank};
    gw_sink sink = {.ctx = n, .recv_buffer = recv_buffer, .arrived = arrived, .sent = sent, .lost = lost};
    CHECK_EQ(GW_OK, gw_zmq_open(&n->transport, &options, sink, &error));
    if (!n->transport) abort();
}

static gw_status attach(mesh_rank *n, const mesh_rank *other, gw_error *error) {
    gw_address host = {.v4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}};
    uint8_t endpoint[GW_ZMQ_ENDPOINT_BYTES];
    gw_zmq_endpoint(other->transport, endpoint);
    return gw_zmq_attach(n->transport, other->rank, &host, endpoint, error);
}

static void mesh_open(mesh_rank ranks[RANKS], bool clear) {
    for (int r = 0; r < RANKS; r++) rank_open(&ranks[r], r, clear, 42);
    for (int r = 0; r < RANKS; r++)
        for (int q = 0; q < RANKS; q++)
            if (q != r) CHECK_EQ(GW_OK, attach(&ranks[r], &ranks[q], NULL));
}

static void forget(mesh_rank *n) {
    while (n->packets) {
        packet *next = n->packets->next;
        free(n->packets->data);
        free(n->packets);
        n->packets = next;
    }
}

static void rank_close(mesh_rank *n) {
    if (n->transport) n->transport->ops->close(n->transport);
    n->transport = NULL;
    forget(n);
    free(n->recv_buffer);
    n->recv_buffer = NULL;
}

static void post(mesh_rank *n, int to, size_t bytes) {
    packet *p = calloc(1, sizeof *p);
    uint64_t index = n->posted[to]++;
    p->data = malloc(bytes + 1);
    for (size_t i = 0; i < bytes; i++) p->data[i] = byte_of(n->rank, to, index, i);
    p->packet = (gw_packet){.frame = {.kind = GW_FRAME_DATA, .index = index, .length = bytes, .count = bytes * 3},
                            .data = p->data, .owner = p};
    p->next = n->packets;
    n->packets = p;
    n->transport->ops->send(n->transport, to, &p->packet);
}

static void poll_all(mesh_rank *ranks, int count) {
    for (int r = 0; r < count; r++)
        if (ranks[r].transport) ranks[r].transport->ops->poll(ranks[r].transport, 0);
}

static bool complete(const mesh_rank *ranks) {
    for (int a = 0; a < RANKS; a++)
        for (int b = 0; b < RANKS; b++)
            if (ranks[a].posted[b] != ranks[b].arrived[a] || ranks[a].posted[b] != ranks[a].sent[b]) return false;
    return true;
}

#define POLL_UNTIL(ranks, count, condition)                                                                            \
    do {                                                                                                               \
        gw_time until_end = gw_clock_now() + DEADLINE;                                                                 \
        while (!(condition) && gw_clock_now() < until_end) {                                                           \
            poll_all(ranks, count);                                                                                    \
            sched_yield();                                                                                             \
        }                                                                                                              \
        CHECK(condition);                                                                                              \
    } while (0)

/* Polls long enough for a forbidden message to arrive. */
static void poll_a_while(mesh_rank *ranks, int count) {
    for (gw_time until = gw_clock_now() + 100 * GW_MILLISECOND; gw_clock_now() < until; usleep(100))
        poll_all(ranks, count);
}

static void everything_arrives_in_order(void) {
    static const size_t sizes[] = {0, 1, 7, 64, 1000, 8192, 8193, 65536, 262144, 1000003};
    for (int clear = 0; clear < 2; clear++) {
        mesh_rank ranks[RANKS];
        mesh_open(ranks, clear);
        CHECK(ranks[0].transport->ops->ordered && ranks[0].transport->ops->hangs_up);
        for (int i = 0; i < MESSAGES; i++)
            for (int a = 0; a < RANKS; a++)
                for (int b = 0; b < RANKS; b++)
                    if (a != b) post(&ranks[a], b, sizes[(i * 7 + a + b) % 10]);
        POLL_UNTIL(ranks, RANKS, complete(ranks));
        for (int r = 0; r < RANKS; r++) CHECK(ranks[r].lost[0] + ranks[r].lost[1] + ranks[r].lost[2] == 0);
        for (int r = 0; r < RANKS; r++) rank_close(&ranks[r]);
    }
}

static gw_time close_time(mesh_rank *n) {
    gw_time since = gw_clock_now();
    rank_close(n);
    return gw_clock_now() - since;
}

/* Messages sent before the end arrive first; then the end is reported once, also to ranks that got no message. Returns
 * whether close() took no longer than necessary. */
static bool leave_in_turn(void) {
    mesh_rank ranks[RANKS];
    mesh_open(ranks, false);
    for (int i = 0; i < 8; i++) post(&ranks[2], 0, 50000);
    gw_time first = close_time(&ranks[2]);
    POLL_UNTIL(ranks, 2, ranks[0].lost[2] && ranks[1].lost[2]);
    poll_a_while(ranks, 2);
    CHECK_EQ(8, ranks[0].arrived[2]);
    CHECK_EQ(1, ranks[0].lost[2]);
    CHECK_EQ(1, ranks[1].lost[2]);
    CHECK_EQ(GW_PEER_LOST, ranks[0].status);
    CHECK(strstr(ranks[0].detail, "left") != NULL);
    post(&ranks[0], 1, 100);
    POLL_UNTIL(ranks, 2, ranks[1].arrived[0] == 1);
    rank_close(&ranks[0]);
    gw_time last = close_time(&ranks[1]); /* all have left: it waits for no rank */
    return first < 900 * GW_MILLISECOND * JOB_SLOWER && last < 500 * GW_MILLISECOND * JOB_SLOWER;
}

static void leaving_is_reported_last(void) { CHECK_IN_SOME_TRY(leave_in_turn()); }

/* A rank of another job, with another key: none of its messages arrive, and no rank is lost. */
static void strangers_stay_out(void) {
    for (int clear = 0; clear < 2; clear++) {
        mesh_rank ranks[RANKS], stranger;
        mesh_open(ranks, clear);
        rank_open(&stranger, 1, clear, 43);
        CHECK_EQ(GW_OK, attach(&stranger, &ranks[0], NULL));
        post(&stranger, 0, 100);
        post(&stranger, 0, 100000);
        poll_a_while(ranks, RANKS);
        CHECK_EQ(0, ranks[0].arrived[1]);
        post(&ranks[1], 0, 1000);
        POLL_UNTIL(ranks, RANKS, ranks[0].arrived[1] == 1);
        CHECK_EQ(0, ranks[0].lost[1]);
        stranger.transport->ops->reset(stranger.transport, 1); /* drops its unsent messages */
        rank_close(&stranger);
        for (int r = 0; r < RANKS; r++) rank_close(&ranks[r]);
    }
}

/* A liar's end of a connection to rank 0: it poses as rank 1, of which it knows the key. */
typedef struct liar {
    void *context, *dealer;
} liar;

static liar liar_open(const mesh_rank *victim, bool right_id, int queued) {
    uint8_t key[GW_ZMQ_KEY_BYTES], id[GW_ZMQ_ID_BYTES], endpoint[GW_ZMQ_ENDPOINT_BYTES];
    char url[64];
    liar l = {.context = zmq_ctx_new()};
    l.dealer = zmq_socket(l.context, ZMQ_DEALER);
    memset(key, 42, sizeof key);
    CHECK(gw_zmq_id(key, 1, 0, 0, id));
    if (!right_id) id[20] ^= 1;
    gw_zmq_endpoint(victim->transport, endpoint);
    snprintf(url, sizeof url, "tcp://127.0.0.1:%u", gw_le_get16(endpoint + 6));
    zmq_setsockopt(l.dealer, ZMQ_ROUTING_ID, id, sizeof id);
    zmq_setsockopt(l.dealer, ZMQ_LINGER, &(int){0}, sizeof(int));
    zmq_setsockopt(l.dealer, ZMQ_SNDHWM, &queued, sizeof queued);
    CHECK(zmq_connect(l.dealer, url) == 0);
    return l;
}

static void liar_close(const liar *l) {
    zmq_close(l->dealer);
    zmq_ctx_term(l->context);
}

typedef struct forgery {
    uint64_t number;
    size_t head, body; /* bytes; head 0: no head at all */
    bool bad_frame;
    gw_status status; /* with which rank 0 must lose rank 1; GW_OK: it must not */
    const char *text;
} forgery;

static void forge(const forgery *f, bool right_id) {
    mesh_rank ranks[RANKS];
    uint8_t bytes[256] = {0};
    mesh_open(ranks, true);
    liar l = liar_open(&ranks[0], right_id, 0);
    gw_le_put(bytes, f->number, 8);
    gw_frame_write(&(gw_frame){.kind = GW_FRAME_DATA, .length = 16, .count = 48}, bytes + 8);
    if (f->bad_frame) bytes[8] ^= 0xff;
    zmq_send(l.dealer, bytes, f->head, f->body ? ZMQ_SNDMORE : 0);
    if (f->body) zmq_send(l.dealer, bytes, f->body, 0);
    if (f->status) POLL_UNTIL(ranks, RANKS, ranks[0].lost[1] == 1);
    else poll_a_while(ranks, RANKS);
    CHECK_EQ(f->status, ranks[0].status);
    CHECK(strstr(ranks[0].detail, f->text) != NULL);
    CHECK_EQ(0, ranks[0].arrived[1]);
    liar_close(&l);
    for (int r = 0; r < RANKS; r++) rank_close(&ranks[r]);
}

static void forgeries_are_found_out(void) {
    static const forgery list[] = {
        {.number = 0, .head = 20, .status = GW_PROTOCOL, .text = "too short"},
        {.number = 0, .head = 72, .bad_frame = true, .status = GW_PROTOCOL, .text = ""},
        {.number = 0, .head = 72, .status = GW_PROTOCOL, .text = "than it announced"},
        {.number = 0, .head = 72, .body = 17, .status = GW_PROTOCOL, .text = "than it announced"},
        {.number = 3, .head = 88, .status = GW_PEER_LOST, .text = "messages were lost"},
        {.number = 0, .head = 0, .status = GW_PROTOCOL, .text = "too short"},
    };
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) forge(&list[i], true);
    forge(&(forgery){.number = 0, .head = 88, .text = ""}, false); /* without a proof it is ignored */
}

/* Of a rank that does not poll, a peer cannot fill the memory: ZeroMQ reads no more than 256 of its messages. */
static void a_peer_cannot_fill_the_queue(void) {
    static const uint8_t message[65536];
    mesh_rank ranks[RANKS];
    int sent = 0;
    mesh_open(ranks, true);
    liar l = liar_open(&ranks[0], true, 1);
    for (int idle = 0; idle < 200 && sent < 3000; idle++) {
        while (sent < 3000 && zmq_send(l.dealer, message, sizeof message, ZMQ_DONTWAIT) >= 0) sent++, idle = 0;
        usleep(1000);
    }
    printf("    %d messages of 64 KiB left the sender\n", sent);
    CHECK(sent >= 256 && sent < 900); /* some are in the kernel's buffers */
    liar_close(&l);
    for (int r = 0; r < RANKS; r++) rank_close(&ranks[r]);
}

static void no_free(void *data, void *hint) { (void)data, (void)hint; }

/* A message beyond the limit ends the connection at its first bytes. */
static void a_huge_message_is_not_taken(void) {
    const size_t bytes = 1200 * MIB;
    mesh_rank ranks[RANKS];
    zmq_msg_t huge;
    void *zeros = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(zeros != MAP_FAILED);
    mesh_open(ranks, true);
    liar l = liar_open(&ranks[0], true, 0);
    CHECK_EQ(0, zmq_socket_monitor(l.dealer, "inproc://liar", ZMQ_EVENT_DISCONNECTED));
    void *monitor = zmq_socket(l.context, ZMQ_PAIR);
    CHECK_EQ(0, zmq_connect(monitor, "inproc://liar"));
    zmq_msg_init_data(&huge, zeros, bytes, no_free, NULL);
    CHECK(zmq_msg_send(&huge, l.dealer, 0) >= 0);
    zmq_pollitem_t ended = {.socket = monitor, .events = ZMQ_POLLIN};
    POLL_UNTIL(ranks, RANKS, zmq_poll(&ended, 1, 0) == 1 || ranks[0].lost[1]);
    CHECK_EQ(0, ranks[0].lost[1]); /* it would be, for what the message says */
    zmq_close(monitor);
    liar_close(&l);
    for (int r = 0; r < RANKS; r++) rank_close(&ranks[r]);
    munmap(zeros, bytes);
}

/* After a reset no message of the old generation arrives, posted memory is free, and early messages of the next one
 * wait. */
static void generations_stay_apart(void) {
    mesh_rank ranks[RANKS];
    mesh_open(ranks, false);
    post(&ranks[0], 1, 10);
    POLL_UNTIL(ranks, RANKS, ranks[1].arrived[0] == 1);
    for (int i = 0; i < 20; i++) post(&ranks[0], 1, MIB);
    ranks[0].transport->ops->reset(ranks[0].transport, 1);
    forget(&ranks[0]); /* the address sanitizer sees a late read */
    ranks[0].posted[1] = ranks[0].sent[1] = 0;
    for (int i = 0; i < 3; i++) post(&ranks[0], 1, 100 + (size_t)i * 30000);
    poll_a_while(ranks, RANKS);
    uint64_t before = ranks[1].arrived[0];
    CHECK(before >= 1 && before <= 21);
    for (int r = 1; r < RANKS; r++) ranks[r].transport->ops->reset(ranks[r].transport, 1);
    ranks[1].arrived[0] = 0;
    POLL_UNTIL(ranks, RANKS, ranks[1].arrived[0] == 3);
    post(&ranks[1], 0, 5000);
    POLL_UNTIL(ranks, RANKS, ranks[0].arrived[1] == 1);
    CHECK_EQ(0, ranks[1].lost[0]);
    for (int r = 0; r < RANKS; r++) rank_close(&ranks[r]);
}

/* A message, and a packet that is done, wake a rank that sleeps on the descriptor. */
static void sleepers_wake(void) {
    mesh_rank ranks[RANKS];
    mesh_open(ranks, false);
    for (int i = 0; i < 20; i++) {
        post(&ranks[0], 1, i % 2 ? 100 : 100000);
        for (gw_time until = gw_clock_now() + DEADLINE; ranks[1].arrived[0] <= (uint64_t)i && gw_clock_now() < until;) {
            gw_transport *t = ranks[1].transport;
            struct pollfd fd = {.fd = t->ops->wait_fd(t), .events = POLLIN};
            bool busy = t->ops->arm(t, true);
            busy |= t->ops->poll(t, 0);
            if (!busy) CHECK_EQ(1, poll(&fd, 1, TEST_PATIENCE_S * 1000));
            t->ops->arm(t, false);
        }
        CHECK_EQ(i + 1, ranks[1].arrived[0]);
        POLL_UNTIL(ranks, RANKS, ranks[0].sent[1] == (uint64_t)i + 1);
    }
    for (int r = 0; r < RANKS; r++) rank_close(&ranks[r]);
}

static void other_strategies_are_refused(void) {
    mesh_rank a, b;
    gw_error error = {0};
    gw_address host = {.v4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}};
    uint8_t none[GW_ZMQ_ENDPOINT_BYTES] = {0};
    rank_open(&a, 0, false, 1);
    rank_open(&b, 1, true, 1);
    CHECK_EQ(GW_MISMATCH, attach(&a, &b, &error));
    CHECK_STR("rank 0 uses transport=zmq and rank 1 does not: give all ranks the same strategy", error.text);
    CHECK_EQ(GW_MISMATCH, gw_zmq_attach(a.transport, 2, &host, none, NULL));
    rank_close(&a);
    rank_close(&b);
}

/* A real job. */

static void reduces_for_ever(gw_comm *comm, const job *j, job_member *member) {
    float *data = gw_alloc(comm, 2 * j->count * sizeof *data);
    if (!data) abort();
    for (size_t i = 0; i < j->count; i++) data[i] = (float)(j->me + 1);
    while (!job_failed(member, comm, gw_allreduce(comm, data, data + j->count, j->count, GW_F32, GW_SUM))) {
        member->wrong += data[2 * j->count - 1] != (float)(j->world * (j->world + 1) / 2);
        atomic_fetch_add(&member->rounds, 1);
    }
    gw_free(comm, data);
    member->finalized = gw_finalize(comm);
}

static double kill_once(size_t count) {
    job j = {.world = 4, .strategy = "transport=zmq", .deadline_s = 10, .body = reduces_for_ever, .count = count,
             .victim = 2};
    double worst = 0;
    job_start(&j);
    CHECK(job_all_reached(&j, 3, 15));
    gw_time killed = gw_clock_now();
    kill(j.pid[2], SIGKILL);
    job_reap(&j, 2, 5);
    for (int r = 0; r < 4; r++) {
        if (r == 2) continue;
        const job_member *member = &j.shared->member[r];
        CHECK(job_ended(&j, r, 8));
        CHECK_EQ(GW_PEER_LOST, member->status);
        CHECK_EQ(0, member->wrong);
        CHECK(strstr(member->text, "rank 2 on ") != NULL);
        double took = (double)(member->failed_at - killed) / 1e6;
        if (took > worst) worst = took;
    }
    printf("    %zu elements: the slowest knew after %.1f ms\n", count, worst);
    job_close(&j);
    return worst;
}

static void a_death_is_reported_within_a_second(void) {
    CHECK_IN_SOME_TRY(kill_once(1000) < 1000 * JOB_SLOWER * test_slowdown());
    CHECK_IN_SOME_TRY(kill_once(1000000) < 1000 * JOB_SLOWER * test_slowdown());
}

static void shrinks(gw_comm *comm, const job *j, job_member *member) {
    gw_comm *rest = NULL;
    float x = 1, sum = 0;
    while (!job_failed(member, comm, gw_allreduce(comm, &x, &sum, 1, GW_F32, GW_SUM))) {
        if (atomic_fetch_add(&member->rounds, 1) == 5 && j->me == j->victim) raise(SIGKILL);
    }
    member->later = gw_shrink(comm, &rest);
    if (!rest) return;
    member->shrunk = gw_allreduce(rest, &x, &sum, 1, GW_F32, GW_SUM) == GW_OK && sum == 3;
    gw_finalize(rest);
    gw_finalize(comm);
}

static void survivors_continue(void) {
    job j = {.world = 4, .strategy = "transport=zmq", .deadline_s = 5, .body = shrinks, .victim = 1};
    job_start(&j);
    job_reap(&j, 1, 15);
    for (int r = 0; r < 4; r++) {
        if (r == 1) continue;
        CHECK(job_ended(&j, r, 15));
        CHECK_EQ(GW_PEER_LOST, j.shared->member[r].status);
        CHECK_EQ(GW_OK, j.shared->member[r].later);
        CHECK_EQ(1, j.shared->member[r].shrunk);
    }
    job_close(&j);
}

TEST_MAIN(CASE(everything_arrives_in_order), CASE(leaving_is_reported_last), CASE(strangers_stay_out),
          CASE(forgeries_are_found_out), CASE(a_peer_cannot_fill_the_queue), CASE(a_huge_message_is_not_taken),
          CASE(generations_stay_apart), CASE(sleepers_wake), CASE(other_strategies_are_refused),
          CASE(a_death_is_reported_within_a_second), CASE(survivors_continue))
