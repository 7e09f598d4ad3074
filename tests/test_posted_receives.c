/* test_posted_receives.c - a posted receive belongs to one connection at a time. Rank 0 is an engine over tcp; the test
 * itself is rank 1: it begins a message on one connection and sends it whole on another. */
#include "base/clock.h"
#include "engine/engine_internal.h"
#include "test.h"
#include "transport/tcp/tcp.h"

#include <fcntl.h>
#include <sys/socket.h>

#define COUNT 50000 /* bytes of a message: it may come without a grant, and is not read through the buffer */
#define HALF (COUNT / 2)
#define KEPT 0xa5 /* marks a buffer that must not be written any more */

typedef struct rank0 {
    gw_engine *engine;
    gw_transport *tcp;
    gw_team *team;
    gw_op *op;
    gw_error failed; /* what the engine reported */
    int fd[2];       /* rank 1's ends of its two connections */
    uint8_t in[COUNT], out[COUNT];
    uint8_t wire[GW_FRAME_BYTES + COUNT]; /* the message of rank 1 */
} rank0;

static void on_failed(void *ctx, const gw_error *error) { ((rank0 *)ctx)->failed = *error; }
static void on_waiting(void *ctx, const int *awaited, int count, const char *what, gw_time deadline) {
    (void)ctx, (void)awaited, (void)count, (void)what, (void)deadline;
}
static const char *host_name(void *ctx, int rank) {
    (void)ctx, (void)rank;
    return "here";
}
static void no_dial(void *ctx, int peer, int stream, uint32_t generation) {
    (void)ctx, (void)peer, (void)stream, (void)generation;
}

static void poll_some(rank0 *r) {
    for (int i = 0; i < 50; i++) gw_engine_poll(r->engine, gw_clock_now());
}

static int connect_one(rank0 *r, int stream, uint32_t generation) {
    int fds[2];
    CHECK_EQ(0, socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds));
    gw_tcp_adopt(r->tcp, 1, stream, generation, fds[0], false, NULL);
    return fds[1];
}

static rank0 *open_rank0(int streams) {
    rank0 *r = calloc(1, sizeof *r);
    int members[2] = {0, 1}, hosts[2] = {0, 1};
    gw_engine_config config = {.rank = 0, .world = 2, .deadline = 10 * GW_SECOND, .host_name = host_name,
                               .events = {.ctx = r, .failed = on_failed, .waiting = on_waiting, .overdue = on_waiting}};
    gw_tcp_options options = {.rank = 0, .world = 2, .streams = streams};
    gw_topology topology = {.world = 2, .host_of = hosts};
    CHECK_EQ(GW_OK, gw_engine_open(&r->engine, &config, NULL));
    CHECK_EQ(GW_OK, gw_tcp_open(&r->tcp, &options, gw_engine_sink(r->engine), no_dial, r, NULL));
    gw_engine_route(r->engine, 1, r->tcp);
    CHECK_EQ(GW_OK, gw_team_open(&r->team, r->engine, 1, 0, members, &topology, NULL, NULL));
    for (int i = 0; i < 2; i++) r->fd[i] = connect_one(r, i % streams, 0);
    poll_some(r);
    return r;
}

static void close_rank0(rank0 *r) {
    gw_error over = {.status = GW_ABORTED, .rank = -1};
    gw_engine_fail(r->engine, &over);
    if (r->op) gw_op_release(r->op);
    r->tcp->ops->close(r->tcp);
    gw_team_close(r->team);
    gw_engine_close(r->engine);
    for (int i = 0; i < 2; i++) close(r->fd[i]);
    free(r);
}

static gw_op_spec spec_of(rank0 *r, gw_collective collective) {
    return (gw_op_spec){.collective = collective, .in = r->in, .out = r->out, .count = COUNT, .dtype = GW_U8,
                        .redop = GW_SUM, .root = collective == GW_COLL_RECV ? 1 : 0,
                        .builder = collective == GW_COLL_RECV ? &gw_plan_send_recv : &gw_plan_tree};
}

static void start(rank0 *r, gw_collective collective) {
    gw_op_spec spec = spec_of(r, collective);
    CHECK_EQ(GW_OK, gw_op_start(&r->op, r->team, &spec, gw_clock_now(), NULL));
}

/* The one message that rank 1 owes the first operation of this kind. */
static void encode(rank0 *r, gw_collective collective) {
    gw_op_spec spec = spec_of(r, collective);
    gw_signature s = gw_op_sign(r->team, &spec);
    bool pair = collective == GW_COLL_RECV;
    gw_frame frame = {.kind = GW_FRAME_DATA, .flags = GW_FRAME_EAGER, .collective = s.collective, .dtype = s.dtype,
                      .redop = s.redop, .builder = s.builder, .comm = 1, .count = s.count, .root = s.root,
                      .op = pair ? GW_PAIR_OP | UINT64_C(1) << 62 : 0, .length = COUNT};
    if (r->op) {
        frame.op = r->op->number;
        frame.channel = r->op->streams[0].desc.channel;
    }
    gw_frame_write(&frame, r->wire);
    memset(r->wire + GW_FRAME_BYTES, 7, COUNT);
}

static void put(rank0 *r, int connection, size_t from, size_t to) {
    CHECK_EQ(to - from, write(r->fd[connection], r->wire + from, to - from));
    poll_some(r);
}

static void begin_on(rank0 *r, int connection) { put(r, connection, 0, GW_FRAME_BYTES + HALF); }
static void end_on(rank0 *r, int connection) { put(r, connection, GW_FRAME_BYTES + HALF, sizeof r->wire); }
static void whole_on(rank0 *r, int connection) { put(r, connection, 0, sizeof r->wire); }

static bool holds_only(const uint8_t *bytes, uint8_t value) {
    for (size_t i = 0; i < COUNT; i++)
        if (bytes[i] != value) return false;
    return true;
}

/* The message that was begun on one connection is refused on the other, and the first cannot write any more. */
static void expect_refusal(rank0 *r) {
    CHECK_EQ(GW_PROTOCOL, r->failed.status);
    CHECK_EQ(1, r->failed.rank);
    CHECK(strstr(r->failed.text, "twice"));
    CHECK(!gw_op_done(r->op));
    gw_engine_fail(r->engine, &r->failed);
    r->tcp->ops->reset(r->tcp, 1);
    memset(r->out, KEPT, COUNT); /* the caller has its buffer back */
    ssize_t wrote = send(r->fd[0], r->wire + GW_FRAME_BYTES + HALF, HALF, MSG_NOSIGNAL);
    (void)wrote; /* the connection is closed, or its data is not read */
    poll_some(r);
    CHECK(holds_only(r->out, KEPT));
}

static void completed_on_another_connection(void) {
    for (int streams = 1; streams <= 2; streams++) {
        rank0 *r = open_rank0(streams);
        start(r, GW_COLL_RECV);
        encode(r, GW_COLL_RECV);
        begin_on(r, 0);
        whole_on(r, 1);
        if (gw_op_done(r->op)) { /* then the first must not write into the buffer, which the caller owns again */
            memset(r->out, KEPT, COUNT);
            end_on(r, 0);
            CHECK(holds_only(r->out, KEPT));
        }
        expect_refusal(r);
        close_rank0(r);
    }
}

/* The bytes of such a message are reduced as they arrive: a message that begins twice would be added twice. */
static void reduced_from_two_connections(void) {
    rank0 *r = open_rank0(1);
    start(r, GW_COLL_REDUCE);
    encode(r, GW_COLL_REDUCE);
    begin_on(r, 0);
    whole_on(r, 1);
    expect_refusal(r);
    close_rank0(r);
}

/* Before the operation is started the message is in the unexpected queue; then it moves to its receive buffer. */
static void eager_on_one_posted_on_another(void) {
    rank0 *r = open_rank0(1);
    start(r, GW_COLL_RECV); /* for the numbers of its message */
    encode(r, GW_COLL_RECV);
    gw_op *numbered = r->op;
    numbered->number = 0; /* nothing matches it */
    begin_on(r, 0);
    gw_frame frame;
    CHECK_EQ(GW_OK, gw_frame_read(&frame, r->wire, NULL));
    numbered->number = frame.op;
    whole_on(r, 1);
    expect_refusal(r);
    close_rank0(r);
}

static void eager_twice(void) {
    rank0 *r = open_rank0(1);
    start(r, GW_COLL_RECV);
    encode(r, GW_COLL_RECV);
    r->op->number = 0;
    begin_on(r, 0);
    whole_on(r, 1);
    expect_refusal(r);
    close_rank0(r);
}

/* An operation fails while the transport uses its receive buffer: the transport drops it before the caller gets it
 * back. */
static void failed_in_the_middle(void) {
    rank0 *r = open_rank0(1);
    gw_error failed = {.status = GW_ABORTED, .rank = -1};
    start(r, GW_COLL_RECV);
    encode(r, GW_COLL_RECV);
    begin_on(r, 0);
    gw_engine_fail(r->engine, &failed);
    r->tcp->ops->reset(r->tcp, 1);
    CHECK(gw_op_done(r->op));
    memset(r->out, KEPT, COUNT);
    int late = connect_one(r, 0, 0); /* of the generation that is over */
    CHECK_EQ(sizeof r->wire, write(late, r->wire, sizeof r->wire));
    poll_some(r);
    CHECK(holds_only(r->out, KEPT));
    close(late);
    close_rank0(r);
}

/* What an honest peer does still works. */
static void one_connection_after_another(void) {
    rank0 *r = open_rank0(2);
    start(r, GW_COLL_RECV);
    encode(r, GW_COLL_RECV);
    begin_on(r, 0);
    CHECK(!gw_op_done(r->op));
    end_on(r, 0);
    CHECK(gw_op_done(r->op));
    CHECK_EQ(GW_OK, r->failed.status);
    CHECK(holds_only(r->out, 7));
    close_rank0(r);
}

TEST_MAIN(CASE(completed_on_another_connection), CASE(reduced_from_two_connections),
          CASE(eager_on_one_posted_on_another), CASE(eager_twice), CASE(failed_in_the_middle),
          CASE(one_connection_after_another))
