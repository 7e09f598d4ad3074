/* test_recording.c - gw_trace_start and gw_trace_stop in real jobs: the recorded events of operations, messages, waits
 * and training steps on each rank, and refusals. */
#include "gradwire/trace.h"
#include "insight/analyses.h"
#include "small_job.h"

enum { WORLD = 3, COUNT = 300000, STEPS = 4, TENSORS = 3 };

static char folder[] = "/tmp/gradwire-recording-XXXXXX";
static char capture[64], timeline[64];
static int port;
static const char *strategy;
static const char *reducer_line; /* of the reducer; NULL: the job's */
static bool marks;               /* the caller marks its steps */

static gw_comm *join(int rank) {
    gw_comm *comm = NULL;
    gw_options options = job_options(rank, WORLD, port, strategy);
    CHECK_EQ(GW_OK, gw_init(&comm, &options));
    return comm;
}

static void run_job(const char *line, void (*body)(int rank)) {
    strategy = line;
    port = free_port();
    job_fork(WORLD, body);
}

static gw_view look(void) {
    gw_error error = {.rank = -1};
    gw_view view = {0};
    char warning[GW_ERROR_TEXT_BYTES];
    CHECK_EQ(GW_OK, gw_view_load(capture, &view, &error));
    CHECK(!gw_insight_warning(view.insight, warning));
    CHECK_EQ(WORLD, view.insight->rank_count);
    return view;
}

static size_t count_of(const gw_view *view, gw_trace_kind kind) {
    size_t total = 0, n;
    for (int r = 0; r < WORLD; r++) {
        gw_insight_of(view->insight, r, kind, &n);
        total += n;
    }
    return total;
}

/* ---- plain collectives, recorded in the middle of a job, twice ---- */

static void starts_and_stops(int rank) {
    gw_comm *comm = join(rank);
    float *data = gw_alloc(comm, COUNT * sizeof *data);
    for (int round = 0; round < 2; round++) {
        CHECK_EQ(GW_OK, gw_allreduce(comm, data, data, COUNT, GW_F32, GW_SUM));
        CHECK_EQ(GW_OK, gw_trace_start(comm, timeline, capture));
        CHECK_EQ(GW_INVALID, gw_trace_start(comm, timeline, capture));
        for (int i = 0; i < 5; i++) CHECK_EQ(GW_OK, gw_allreduce(comm, data, data, COUNT, GW_F32, GW_SUM));
        CHECK_EQ(GW_OK, gw_barrier(comm)); /* all have recorded the operation of the last message */
        CHECK_EQ(GW_OK, gw_trace_stop(comm));
        CHECK_EQ(GW_INVALID, gw_trace_stop(comm));
        CHECK(!gw_trace_runs(comm));
        gw_trace_layer(comm, "nobody listens", false, 0, 0, 1);
        CHECK_EQ(GW_OK, gw_allreduce(comm, data, data, COUNT, GW_F32, GW_SUM));
    }
    gw_free(comm, data);
    CHECK_EQ(GW_OK, gw_finalize(comm));
}

static void messages_of_a_ring(void) {
    run_job("arch=ring transport=tcp", starts_and_stops);
    gw_view view = look();
    const uint64_t each = 2 * (WORLD - 1) * (uint64_t)COUNT * 4 / WORLD; /* bytes a rank sends in one of them */
    uint64_t bytes[WORLD] = {0};
    size_t whole = 0;
    for (size_t i = 0; i < view.messages.count; i++) {
        const gw_message *m = &view.messages.list[i];
        if (m->bytes == 0) continue; /* the barrier's */
        bytes[m->src] += m->bytes;
        whole += m->seen_sent && m->seen_arrived && m->arrived >= m->handed;
        CHECK_EQ((m->src + 1) % WORLD, m->dst);
    }
    for (int r = 0; r < WORLD; r++) CHECK_EQ(5 * each, bytes[r]);
    CHECK_EQ(WORLD * 6, count_of(&view, GW_TRACE_OPERATION));
    CHECK_EQ(6, view.operations.count);
    CHECK_EQ(WORLD, view.operations.list[0].ranks);
    CHECK(whole > 0 && count_of(&view, GW_TRACE_WAITED) > 0);
    CHECK_STR("allreduce, ring", gw_insight_name(view.insight, view.operations.list[0].name));
    gw_view_free(&view);
}

static void a_host_local_collective_has_no_messages(void) {
    run_job("arch=direct transport=shm", starts_and_stops);
    gw_view view = look();
    CHECK_EQ(0, view.messages.count);
    CHECK_EQ(WORLD * 6, count_of(&view, GW_TRACE_COLL));
    CHECK_EQ(WORLD * 6, count_of(&view, GW_TRACE_OPERATION));
    gw_view_free(&view);
}

/* ---- training steps ---- */

static void apply(void *ctx, const gw_reducer_update *update) {
    (void)ctx;
    float *weights = update->weights;
    const float *gradient = update->gradient;
    for (size_t i = 0; i < update->count; i++) weights[i] -= 0.1f * gradient[i];
}

static void trains(int rank) {
    static const char *const names[TENSORS] = {"first.weight", "second.weight", "third.bias"};
    static float gradient[TENSORS][5000], weights[TENSORS][5000];
    gw_comm *comm = join(rank);
    gw_reducer *reducer = NULL;
    gw_reducer_tensor tensors[TENSORS];
    gw_reducer_options options = GW_REDUCER_OPTIONS_DEFAULT;
    options.update = apply;
    options.strategy = reducer_line;
    for (int t = 0; t < TENSORS; t++)
        tensors[t] = (gw_reducer_tensor){.name = names[t], .count = 5000, .dtype = GW_F32, .gradient = gradient[t],
                                      .weights = weights[t]};
    CHECK_EQ(GW_OK, gw_trace_start(comm, NULL, capture));
    CHECK_EQ(GW_OK, gw_reducer_commit(&reducer, comm, tensors, TENSORS, &options));
    if (marks) gw_trace_step_begin(comm);
    for (int s = 0; s < STEPS && !test_failures; s++) {
        for (int t = 0; t < TENSORS; t++) CHECK_EQ(GW_OK, gw_reducer_wait(reducer, t));
        CHECK(gw_trace_runs(comm));
        uint64_t now = gw_clock_now();
        gw_trace_layer(comm, "first", false, (uint64_t)s, now - 1000, now);
        gw_trace_layer(comm, "first", true, (uint64_t)s, now, 0); /* an end before its beginning: a moment */
        for (int t = TENSORS - 1; t >= 0; t--) {
            for (int i = 0; i < 5000; i++) gradient[t][i] = (float)(i % 7);
            CHECK_EQ(GW_OK, gw_reducer_ready(reducer, t));
        }
        CHECK_EQ(GW_OK, gw_reducer_end(reducer));
        if (reducer_line) CHECK_EQ(GW_OK, gw_reducer_flush(reducer)); /* as a caller that updates by itself */
        if (marks) gw_trace_step_end(comm, 10 + (uint64_t)s, NULL);
    }
    CHECK_EQ(GW_OK, gw_reducer_flush(reducer));
    gw_reducer_close(reducer);
    CHECK_EQ(GW_OK, gw_finalize(comm)); /* ends the recording by itself */
}

static void check_tensors(const gw_view *view) {
    CHECK_EQ(STEPS, view->steps.count);
    CHECK_EQ(WORLD, view->steps.list[0].recorded);
    CHECK_EQ(WORLD * STEPS * TENSORS, count_of(view, GW_TRACE_READY));
    CHECK_EQ(WORLD * STEPS * TENSORS, count_of(view, GW_TRACE_APPLIED));
    CHECK(count_of(view, GW_TRACE_QUEUED) >= (size_t)(WORLD * STEPS * TENSORS));
    CHECK(count_of(view, GW_TRACE_OPERATION) > 0);
    CHECK_EQ(WORLD * STEPS, count_of(view, GW_TRACE_FORWARD));
    CHECK_EQ(WORLD * STEPS, count_of(view, GW_TRACE_BACKWARD));
    size_t n;
    const gw_insight_event *layer = gw_insight_of(view->insight, 2, GW_TRACE_FORWARD, &n);
    CHECK_STR("first", gw_insight_name(view->insight, layer[STEPS - 1].is.name));
    CHECK_EQ(STEPS - 1, layer[STEPS - 1].is.number);
    CHECK_EQ(1000, layer->is.end - layer->is.begin);
    const gw_insight_event *ready = gw_insight_of(view->insight, 1, GW_TRACE_READY, &n);
    CHECK_STR("third.bias", gw_insight_name(view->insight, ready->is.name));
    CHECK_EQ(20000, ready->is.bytes);
}

static void fused_tensors(void) {
    run_job("arch=ring transport=tcp schedule=wfbp", trains);
    gw_view view = look();
    check_tensors(&view);
    bool labelled = false; /* messages have the names of their tensors */
    for (size_t i = 0; i < view.messages.count; i++)
        labelled |= strcmp(gw_insight_name(view.insight, view.messages.list[i].name), "first.weight and 2 more") == 0;
    CHECK(labelled);
    CHECK_EQ(WORLD * STEPS * TENSORS, count_of(&view, GW_TRACE_FUSED));
    gw_view_free(&view);
}

/* Hop by hop where a bucket has several. */
static void routes_are_named(void) {
    run_job("arch=ring transport=tcp schedule=dear", trains);
    gw_view view = look();
    bool first = false, second = false;
    for (size_t i = 0; i < view.messages.count; i++) {
        const char *name = gw_insight_name(view.insight, view.messages.list[i].name);
        first |= strstr(name, ": reduce-scatter among all ranks") != NULL;
        second |= strstr(name, ": all-gather among all ranks") != NULL;
    }
    CHECK(first && second);
    gw_view_free(&view);
}

static void coded_tensors(void) {
    run_job("arch=ring transport=tcp schedule=p3 compress=topk:ratio=0.1", trains);
    gw_view view = look();
    check_tensors(&view);
    CHECK(count_of(&view, GW_TRACE_ENCODED) > 0);
    CHECK(count_of(&view, GW_TRACE_DECODED) > 0);
    CHECK(count_of(&view, GW_TRACE_VALUE) > 0); /* what compression lost */
    gw_view_free(&view);
}

/* Each begins where the one before it ended, also if the caller flushes after every step. */
static void check_steps(const gw_view *view, uint64_t first) {
    size_t n;
    for (int r = 0; r < WORLD; r++) {
        const gw_insight_event *steps = gw_insight_of(view->insight, r, GW_TRACE_STEP, &n);
        CHECK_EQ(STEPS, n);
        for (size_t s = 0; s < n; s++) {
            CHECK_EQ(first + s, steps[s].is.number);
            CHECK_EQ(s == 0, steps[s].is.index);
            if (s) CHECK_EQ(steps[s - 1].is.end, steps[s].is.begin);
        }
    }
    CHECK_EQ(STEPS - 1, view->steps.whole);
}

static void steps_follow_each_other(void) {
    size_t changes;
    reducer_line = "schedule=p3";
    run_job("arch=ring transport=tcp schedule=wfbp", trains);
    gw_view view = look();
    check_steps(&view, 0);
    CHECK(strstr(gw_view_strategy(&view, &changes), "schedule=p3") != NULL); /* the reducer's */
    CHECK_EQ(0, changes);
    gw_view_free(&view);
}

static void steps_of_the_caller(void) {
    size_t changes;
    marks = true;
    run_job("arch=ring transport=tcp schedule=wfbp", trains);
    gw_view view = look();
    check_steps(&view, 10);
    CHECK(strstr(gw_view_strategy(&view, &changes), "schedule=wfbp") != NULL); /* it gave none */
    gw_view_free(&view);
    reducer_line = NULL;
    marks = false;
}

/* ---- refusals ---- */

static void nowhere_to_write(int rank) {
    gw_comm *comm = join(rank);
    CHECK_EQ(GW_SYSTEM, gw_trace_start(comm, NULL, "/proc/nowhere/c.gwt"));
    CHECK(strstr(gw_last_error(comm), rank == 0 ? "/proc/nowhere/c.gwt cannot be written" : "rank 0 cannot write"));
    CHECK_EQ(GW_INVALID, gw_trace_start(comm, NULL, NULL));
    CHECK_EQ(GW_INVALID, gw_trace_start(NULL, NULL, capture));
    CHECK_EQ(GW_OK, gw_barrier(comm)); /* a refused recording ends nothing */
    CHECK_EQ(GW_OK, gw_finalize(comm));
}

static void a_missing_directory(void) { run_job("transport=tcp", nowhere_to_write); }

static void half_asked(int rank) {
    gw_comm *comm = NULL;
    gw_options options = job_options(rank, WORLD, port, strategy);
    if (rank == 1) setenv("GRADWIRE_CAPTURE", capture, 1);
    CHECK_EQ(GW_INVALID, gw_init(&comm, &options));
    CHECK(strstr(gw_last_error(NULL), rank == 1 ? "set for rank 1, but not for all others" : "but it is for others"));
    CHECK(comm == NULL);
}

static void set_for_one_rank_only(void) { run_job("transport=tcp", half_asked); }

static void set_up(void) {
    CHECK(mkdtemp(folder) != NULL);
    snprintf(capture, sizeof capture, "%s/c.gwt", folder);
    snprintf(timeline, sizeof timeline, "%s/t.json", folder);
}

static void clean_up(void) {
    unlink(capture);
    unlink(timeline);
    CHECK(rmdir(folder) == 0);
}

TEST_MAIN(CASE(set_up), CASE(messages_of_a_ring), CASE(a_host_local_collective_has_no_messages), CASE(fused_tensors),
          CASE(routes_are_named), CASE(coded_tensors), CASE(steps_follow_each_other), CASE(steps_of_the_caller),
          CASE(a_missing_directory), CASE(set_for_one_rank_only), CASE(clean_up))
