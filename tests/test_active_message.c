/* test_active_message.c - active messages between simulated ranks: payloads of any size arrive whole and once, kinds
 * and peers take turns. */
#include <string.h>

#include "engine/active_message.h"
#include "test.h"
#include "transport/sim_transport.h"

#define RANKS 4
#define MESSAGES 40 /* of a kind */
#define LAST 2      /* the kind of the letter that says that there are no more */

typedef struct rank {
    struct office *office;
    int number;
    gw_core *core;
    gw_team *team;
    gw_am *am;
    gw_progress_callback callback;
    uint8_t *data;        /* what it sends */
    uint8_t *recv_buffer; /* LETTERS places of `most` bytes for each peer and kind */
    int to, left;         /* whom it sends to, and letters that have not left yet */
    bool seen[RANKS][2][MESSAGES];
} rank;

typedef struct office {
    gw_sim_net *net;
    rank ranks[RANKS];
    size_t most;                         /* bytes of a payload */
    uint8_t order[RANKS * 2 * MESSAGES]; /* arrivals at rank 0: peer and kind */
    int came, due;
    bool wrong;
} office;

static uint8_t byte_of(int from, uint32_t kind, uint32_t partition, size_t i) {
    return (uint8_t)((size_t)from * 31 + kind * 7 + partition * 3 + i * 131 + i / 251);
}

static uint8_t *place_of(rank *r, int from, const gw_am_message *message) {
    size_t index = ((size_t)from * 2 + message->kind) * MESSAGES + message->partition;
    return r->recv_buffer + index * r->office->most;
}

static void *recv_buffer(void *ctx, int from, const gw_am_message *message, gw_error *error) {
    (void)error;
    return place_of(ctx, from, message);
}

static void arrived(void *ctx, int from, const gw_am_message *message, gw_time now, gw_error *error) {
    rank *r = ctx;
    office *o = r->office;
    (void)now, (void)error;
    if (message->kind == LAST) {
        gw_am_listen(r->am, from, false);
        return;
    }
    o->wrong |= r->seen[from][message->kind][message->partition];
    r->seen[from][message->kind][message->partition] = true;
    for (size_t i = 0; message->bytes && i < message->bytes; i++)
        o->wrong |= place_of(r, from, message)[i] != byte_of(from, message->kind, message->partition, i);
    if (r->number == 0) o->order[o->came] = (uint8_t)(from * 2 + (int)message->kind);
    o->came++;
}

static void sent(void *ctx, int to, const gw_am_message *message) {
    (void)to;
    ((rank *)ctx)->left -= message->kind != LAST;
}

static bool poll(void *ctx, gw_time now) {
    rank *r = ctx;
    gw_error error = {0};
    bool moved = gw_am_poll(r->am, now, &error);
    if (r->to >= 0 && !r->left) {
        gw_am_send(r->am, r->to, &(gw_am_message){.kind = LAST}, NULL, now, &error);
        r->to = -1;
        moved = true;
    }
    r->office->wrong |= error.status != GW_OK;
    return moved;
}
static bool busy(void *ctx) { return !gw_am_idle(((rank *)ctx)->am); }

static void on_moved(void *ctx, int number) {
    office *o = ctx;
    while (gw_core_poll(o->ranks[number].core, gw_sim_now(o->net)) && !o->wrong) {}
}
static void on_message(void *ctx, int from, int to, const void *bytes, size_t length) {
    (void)ctx, (void)from, (void)to, (void)bytes, (void)length;
}
static void on_hang_up(void *ctx, int number, int gone) { (void)ctx, (void)number, (void)gone; }
static const char *host_name(void *ctx, int number) {
    (void)ctx, (void)number;
    return "host";
}
static void send_control(void *ctx, int neighbour, const gw_control_message *message) {
    (void)ctx, (void)neighbour, (void)message;
}
static void failed(void *ctx, const gw_error *error) {
    printf("    %s\n", error->text);
    ((rank *)ctx)->office->wrong = true;
}
static void slow(void *ctx, const char *sentence) { (void)ctx, (void)sentence; }

static void open_rank(office *o, int number, const int *host_of) {
    rank *r = &o->ranks[number];
    int members[RANKS];
    gw_error error = {0};
    *r = (rank){.office = o, .number = number, .to = -1, .data = malloc(2 * MESSAGES * o->most),
                .recv_buffer = malloc(RANKS * 2 * MESSAGES * o->most)};
    gw_core_config config = {.rank = number, .world = RANKS, .deadline = 1000 * GW_SECOND, .ctx = r,
                             .host_name = host_name, .send = send_control, .failed = failed, .slow = slow};
    CHECK_EQ(GW_OK, gw_core_open(&r->core, &config, 0, &error));
    gw_engine *engine = gw_core_engine(r->core);
    gw_transport *transport = gw_sim_transport(o->net, number, gw_engine_sink(engine));
    for (int p = 0; p < RANKS; p++) {
        members[p] = p;
        if (p != number) gw_engine_route(engine, p, transport);
    }
    gw_topology topology = {.world = RANKS, .host_of = host_of};
    CHECK_EQ(GW_OK, gw_team_open(&r->team, engine, 1, number, members, &topology, NULL, &error));
    gw_am_events events = {.ctx = r, .recv_buffer = recv_buffer, .arrived = arrived, .sent = sent};
    CHECK_EQ(GW_OK, gw_am_open(&r->am, r->core, r->team, &events, &error));
    r->callback = (gw_progress_callback){.ctx = r, .poll = poll, .busy = busy};
    gw_core_attach(r->core, &r->callback);
}

static void open_office(office *o, size_t most, const int *host_of) {
    gw_error error = {0};
    gw_sim_config config = {.world = RANKS, .latency = 50 * 1000, .bytes_per_second = 125e6, .jitter = 20 * 1000,
                            .seed = most};
    gw_sim_events events = {.ctx = o, .message = on_message, .hang_up = on_hang_up, .timer = on_moved,
                            .moved = on_moved};
    *o = (office){.most = most};
    CHECK_EQ(GW_OK, gw_sim_open(&o->net, &config, &events, &error));
    for (int r = 0; r < RANKS; r++) open_rank(o, r, host_of);
}

static void close_office(office *o) {
    gw_error over = {.status = GW_ABORTED, .rank = -1};
    for (int r = 0; r < RANKS; r++) {
        if (o->wrong) gw_engine_fail(gw_core_engine(o->ranks[r].core), &over);
        else CHECK(gw_am_idle(o->ranks[r].am));
        gw_core_detach(o->ranks[r].core, &o->ranks[r].callback);
        gw_am_close(o->ranks[r].am);
        gw_team_close(o->ranks[r].team);
        gw_core_close(o->ranks[r].core);
        free(o->ranks[r].data);
        free(o->ranks[r].recv_buffer);
    }
    gw_sim_close(o->net);
}

/* All letters of one kind first, then those of the other, as a worker pushes before its own server answers. */
static void write_all(office *o, int from, int to, size_t (*bytes_of)(const office *o, uint32_t partition)) {
    rank *r = &o->ranks[from];
    gw_error error = {0};
    gw_am_listen(o->ranks[to].am, from, true);
    for (uint32_t kind = 0; kind < 2; kind++)
        for (uint32_t k = 0; k < MESSAGES; k++) {
            gw_am_message message = {.kind = kind, .partition = k, .bytes = bytes_of(o, k)};
            uint8_t *data = r->data + (kind * MESSAGES + k) * o->most;
            for (size_t i = 0; i < message.bytes; i++) data[i] = byte_of(from, kind, k, i);
            CHECK_EQ(GW_OK, gw_am_send(r->am, to, &message, data, 0, &error));
            o->due++;
        }
    r->to = to;
    r->left = 2 * MESSAGES;
}

static void drive(office *o) {
    for (int r = 0; r < RANKS; r++) gw_sim_timer(o->net, r, 1);
    while (!o->wrong && gw_sim_step(o->net)) {}
    CHECK(!o->wrong);
    CHECK_EQ(o->due, o->came);
}

static size_t nasty(const office *o, uint32_t partition) {
    static const size_t sizes[] = {0, 1, 65536, 65537, 98303, 98304, 98305, 196608, 700001, 5};
    (void)o;
    return sizes[partition % (sizeof sizes / sizeof sizes[0])];
}
static size_t full(const office *o, uint32_t partition) {
    (void)partition;
    return o->most;
}

/* Every rank to every rank, within a host and between hosts. */
static void payloads_arrive_whole_and_once(void) {
    static const int hosts[][RANKS] = {{0, 1, 2, 3}, {0, 0, 1, 1}, {0, 0, 0, 0}};
    office o;
    for (size_t h = 0; h < sizeof hosts / sizeof hosts[0]; h++) {
        open_office(&o, 700001, hosts[h]);
        for (int from = 0; from < RANKS; from++) write_all(&o, from, (from + 1) % RANKS, nasty);
        drive(&o);
        close_office(&o);
    }
}

/* Three ranks send to one: when half has come, about as much has come of each, and of each kind of each. */
static void kinds_and_peers_take_turns(void) {
    static const int hosts[RANKS] = {0, 1, 2, 3};
    office o;
    int of[RANKS * 2] = {0};
    open_office(&o, 256 * 1024, hosts);
    for (int from = 1; from < RANKS; from++) write_all(&o, from, 0, full);
    drive(&o);
    for (int i = 0; i < o.due / 2; i++) of[o.order[i]]++;
    for (int i = 2; i < RANKS * 2; i++) CHECK(of[i] >= MESSAGES / 2 - 6 && of[i] <= MESSAGES / 2 + 6);
    close_office(&o);
}

TEST_MAIN(CASE(payloads_arrive_whole_and_once), CASE(kinds_and_peers_take_turns))
