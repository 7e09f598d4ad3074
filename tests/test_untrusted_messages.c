/* test_untrusted_messages.c - what a peer says in messages: lengths that it announces, and grants without end. */
#include "base/announced.h"
#include "engine/engine_internal.h"
#include "test.h"

#include <sys/resource.h>
#include <sys/wait.h>

static gw_error failure; /* what the engine reported */

static void on_failed(void *ctx, const gw_error *error) {
    (void)ctx;
    failure = *error;
}
static void on_waiting(void *ctx, const int *awaited, int count, const char *what, gw_time deadline) {
    (void)ctx, (void)awaited, (void)count, (void)what, (void)deadline;
}
static const char *host_name(void *ctx, int rank) {
    (void)ctx, (void)rank;
    return "here";
}

static void lengths_that_wrap_are_refused(void) {
    const uint64_t lengths[] = {UINT64_MAX, UINT64_MAX - 1, (uint64_t)1 << 63, PTRDIFF_MAX};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        gw_error error = {0};
        size_t total = 100;
        CHECK(gw_announced_alloc(lengths[i], 3, "a server's state", &error) == NULL);
        CHECK_EQ(GW_PROTOCOL, error.status);
        CHECK_EQ(3, error.rank);
        CHECK(strstr(error.text, "rank 3 announced ") && strstr(error.text, " bytes of a server's state"));
        CHECK_EQ(GW_PROTOCOL, gw_announced_add(&total, lengths[i], 3, "its own state", &error));
        CHECK_EQ(100, total);
    }
}

static void lengths_that_fit_are_taken(void) {
    gw_error error = {0};
    size_t total = 0;
    void *none = gw_announced_alloc(0, 1, "nothing", &error), *some = gw_announced_alloc(100, 1, "something", &error);
    CHECK(none && some);
    for (uint64_t r = 1; r < 4; r++) CHECK_EQ(GW_OK, gw_announced_add(&total, r * 1000, (int)r, "its state", &error));
    CHECK_EQ(6000, total);
    free(none);
    free(some);
}

/* For operations that this rank has not started, each with another number. */
static int grants_until_refused(gw_engine *engine, int most) {
    gw_sink sink = gw_engine_sink(engine);
    int sent = 0;
    for (; sent < most && failure.status == GW_OK; sent++) {
        gw_frame frame = {.kind = GW_FRAME_GRANT, .comm = 1, .op = 1000 + (uint64_t)sent, .index = 1, .root = -1};
        sink.arrived(sink.ctx, 1, &frame, NULL, 0);
    }
    return sent;
}

static gw_engine *open_engine(gw_team **team) {
    gw_engine *engine = NULL;
    const int members[2] = {0, 1}, hosts[2] = {0, 1};
    gw_engine_config config = {.rank = 0, .world = 2, .deadline = 10 * GW_SECOND, .host_name = host_name,
                               .events = {.failed = on_failed, .waiting = on_waiting, .overdue = on_waiting}};
    gw_topology topology = {.world = 2, .host_of = hosts};
    CHECK_EQ(GW_OK, gw_engine_open(&engine, &config, NULL));
    CHECK_EQ(GW_OK, gw_team_open(team, engine, 1, 0, members, &topology, NULL, NULL));
    failure = (gw_error){0};
    return engine;
}

static void close_engine(gw_engine *engine, gw_team *team) {
    gw_error over = {.status = GW_ABORTED, .rank = -1};
    gw_engine_fail(engine, &over);
    gw_team_close(team);
    gw_engine_close(engine);
}

static void grants_have_a_limit(void) {
    gw_team *team = NULL;
    gw_engine *engine = open_engine(&team);
    CHECK(grants_until_refused(engine, 1000) == 1000); /* a rank that is ahead is no liar */
    CHECK(grants_until_refused(engine, 1000) == 1000); /* nor one that says it twice */
    CHECK(grants_until_refused(engine, 40000) < 40000);
    CHECK_EQ(GW_PROTOCOL, failure.status);
    CHECK_EQ(1, failure.rank);
    CHECK(strstr(failure.text, "rank 1 on here granted 32768 sends that this rank has not started"));
    close_engine(engine, team);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* they do not survive without memory */
/* A message of an operation that has not begun here: it needs memory of its own. */
static void receive_early(gw_engine *engine, uint64_t op) {
    gw_sink sink = gw_engine_sink(engine);
    gw_frame frame = {.kind = GW_FRAME_DATA, .flags = GW_FRAME_EAGER, .comm = 1, .op = op, .length = GW_EAGER_BYTES,
                      .root = -1};
    failure = (gw_error){0};
    if (!sink.recv_buffer(sink.ctx, 1, &frame)) sink.lost(sink.ctx, 1, GW_PROTOCOL, "it has no place here");
}

/* In a process of its own. */
static void receive_without_memory(gw_engine *engine) {
    struct rlimit none = {0};
    CHECK_EQ(0, setrlimit(RLIMIT_AS, &none));
    while (malloc(GW_EAGER_BYTES)) {}
    receive_early(engine, 8);
    CHECK_EQ(GW_MEMORY, failure.status);
    CHECK_EQ(-1, failure.rank);
    CHECK(strstr(failure.text, "out of memory for 65536 bytes that rank 1 on here has sent"));
    fflush(stdout);
    _exit(test_failures != 0);
}

/* A rank without memory is not told that its peer is to blame. */
static void out_of_memory_is_nobodys_fault(void) {
    gw_team *team = NULL;
    gw_engine *engine = open_engine(&team);
    int result = -1;
    receive_early(engine, 7);
    CHECK_EQ(GW_OK, failure.status);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) receive_without_memory(engine);
    CHECK_EQ(child, waitpid(child, &result, 0));
    CHECK_EQ(0, result);
    close_engine(engine, team);
}
#else
static void out_of_memory_is_nobodys_fault(void) {}
#endif

TEST_MAIN(CASE(lengths_that_wrap_are_refused), CASE(lengths_that_fit_are_taken), CASE(grants_have_a_limit),
          CASE(out_of_memory_is_nobodys_fault))
