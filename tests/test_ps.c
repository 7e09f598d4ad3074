/* test_ps.c - parameter servers from outside: real processes take steps through them under every synchronization. */
#include <math.h>
#include <stddef.h>
#include <time.h>

#include "schedule/schedule.h"
#include "small_job.h"

#define TENSORS 6
#define STEPS 3

static const size_t counts[TENSORS] = {300, 0, 70001, 16, 200000, 5};
static const char *const names[TENSORS] = {"conv", "empty", "fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"};

static int world, port;
static const char *line;
static char said[1024]; /* the error of a refused commit */

typedef struct model {
    gw_reducer_tensor tensors[TENSORS];
    float *gradients, *weights;
} model;

static void make_model(model *m, size_t gap) {
    size_t total = 0, at = 0;
    for (int t = 0; t < TENSORS; t++) total += counts[t] + gap;
    m->gradients = calloc(total, sizeof(float));
    m->weights = calloc(total, sizeof(float));
    for (int t = 0; t < TENSORS; t++) {
        m->tensors[t] = (gw_reducer_tensor){.name = names[t], .count = counts[t], .dtype = GW_F32,
                                         .gradient = m->gradients + at, .weights = m->weights + at};
        at += counts[t] + gap;
    }
}

static void free_model(model *m) {
    free(m->gradients);
    free(m->weights);
}

static gw_comm *join(int rank) {
    gw_comm *comm = NULL;
    gw_options options = job_options(rank, world, port, line);
    CHECK_EQ(GW_OK, gw_init(&comm, &options));
    if (!comm) printf("    %s\n", gw_last_error(NULL)), exit(1);
    return comm;
}

static void run(const char *strategy, int ranks, void (*body)(int rank)) {
    line = strategy;
    world = ranks;
    port = free_port();
    int before = test_failures;
    job_fork(ranks, body);
    if (test_failures != before) printf("    with %d ranks, %s\n", ranks, strategy);
}

/* Values whose sum depends on the order. */
static float noisy(int rank, int tensor, size_t i, int step) {
    uint32_t x = (uint32_t)i * 2654435761u + (uint32_t)rank * 40503u + (uint32_t)tensor * 97u + (uint32_t)step * 7u;
    x ^= x >> 13;
    x *= 2246822519u;
    x ^= x >> 16;
    return ((float)(x & 0xffffff) / 8388608.0f - 1.0f) * ldexpf(1, (int)(x >> 28) - 8);
}

static void fill(model *m, int tensor, int rank, int number) {
    float *gradient = m->tensors[tensor].gradient;
    for (size_t i = 0; i < counts[tensor]; i++) gradient[i] = noisy(rank, tensor, i, number);
}

static void descend(void *ctx, const gw_reducer_update *u) {
    float *weights = u->weights;
    const float *gradient = u->gradient;
    (void)ctx;
    for (size_t i = 0; i < u->count; i++) weights[i] -= 0.25f * (float)(u->rate_scale * u->scale) * gradient[i];
}

/* Takes steps under a strategy and leaves the last means in the gradients, sums of updates in the weights. */
static void take_steps(gw_comm *comm, model *m, const char *strategy, bool updates) {
    gw_reducer *reducer = NULL;
    gw_reducer_options options = GW_REDUCER_OPTIONS_DEFAULT;
    options.strategy = strategy;
    if (updates) options.update = descend;
    CHECK_EQ(GW_OK, gw_reducer_commit(&reducer, comm, m->tensors, TENSORS, &options));
    if (!reducer) printf("    %s: %s\n", strategy, gw_last_error(NULL)), exit(1);
    for (int number = 0; number < STEPS; number++) {
        for (int t = 0; t < TENSORS; t++) CHECK_EQ(GW_OK, gw_reducer_wait(reducer, t));
        for (int t = TENSORS - 1; t >= 0; t--) {
            fill(m, t, gw_rank(comm), number);
            CHECK_EQ(GW_OK, gw_reducer_ready(reducer, t));
        }
        CHECK_EQ(GW_OK, gw_reducer_end(reducer));
    }
    CHECK_EQ(GW_OK, gw_reducer_flush(reducer));
    gw_reducer_close(reducer);
}

static void same_bits(const model *a, const model *b, const char *strategy) {
    for (int t = 0; t < TENSORS; t++) {
        size_t bytes = counts[t] * sizeof(float);
        bool same = memcmp(a->tensors[t].gradient, b->tensors[t].gradient, bytes) == 0 &&
                    memcmp(a->tensors[t].weights, b->tensors[t].weights, bytes) == 0;
        CHECK(same);
        if (!same) printf("    %s: %s differs from arch=direct\n", strategy, names[t]);
    }
}

/* PS_FULL: every schedule, whatever the world (make test-servers). */
static bool full(void) { return getenv("PS_FULL") != NULL; }

static void serve_like_direct(gw_comm *comm, const model *direct, int servers, bool apart, const char *schedule) {
    char strategy[128];
    model served;
    snprintf(strategy, sizeof strategy, "arch=ps:servers=%d%s schedule=%s", servers, apart ? ",chunk=100K" : "",
             schedule);
    make_model(&served, apart ? 3 : 0);
    take_steps(comm, &served, strategy, true);
    same_bits(direct, &served, strategy);
    free_model(&served);
}

static void equals_direct(int rank) {
    const gw_technique *schedules[GW_TECHNIQUES_MAX];
    char text[GW_TECHNIQUE_TEXT_BYTES];
    int count = 0;
    for (const gw_technique *const *t = gw_schedule_techniques; *t; t++)
        if (!gw_policy_of(*t)->splits) schedules[count++] = *t; /* servers do not stop half way */
    gw_comm *comm = join(rank);
    model direct;
    make_model(&direct, 0);
    take_steps(comm, &direct, "arch=direct", true);
    for (int servers = 1; servers <= 4 && servers <= world; servers++)
        for (int gap = 0; gap < 2; gap++) {
            if (world > 4 && gap != servers % 2 && !full()) continue; /* many processes on few cores */
            for (int s = 0; s < count; s++)
                if (full() || s == (servers + gap + world) % count)
                    serve_like_direct(comm, &direct, servers, gap, gw_technique_example(schedules[s], 0, text));
        }
    free_model(&direct);
    gw_finalize(comm);
}

static void bsp_over_servers_equals_direct(void) {
    for (int ranks = 1; ranks <= 6; ranks++) run(ranks % 2 ? "transport=auto" : "transport=tcp", ranks, equals_direct);
}

/* The other meanings: servers keep the weights. Every worker pushes ones. */

static gw_reducer *commit_descending(gw_comm *comm, model *m, size_t gap) {
    gw_reducer *reducer = NULL;
    gw_reducer_options options = GW_REDUCER_OPTIONS_DEFAULT;
    make_model(m, gap);
    options.update = descend;
    CHECK_EQ(GW_OK, gw_reducer_commit(&reducer, comm, m->tensors, TENSORS, &options));
    if (!reducer) printf("    %s\n", gw_last_error(NULL)), exit(1);
    return reducer;
}

static void pushes_ones(int rank) {
    gw_comm *comm = join(rank);
    model m;
    gw_reducer *reducer = commit_descending(comm, &m, rank % 2 ? 3 : 0);
    for (int number = 0; number < STEPS; number++) {
        for (int t = 0; t < TENSORS; t++) {
            CHECK_EQ(GW_OK, gw_reducer_wait(reducer, t));
            /* Its answer has all of its own pushes, and of no worker more than it has made. */
            for (size_t i = 0; i < counts[t]; i += 61) {
                float pushes = -4 * (float)world * ((float *)m.tensors[t].weights)[i];
                CHECK(pushes >= (float)number && pushes <= (float)(world * STEPS));
                CHECK(pushes == rintf(pushes));
            }
        }
        if (rank == world - 1) nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
        for (int t = TENSORS - 1; t >= 0; t--) {
            for (size_t i = 0; i < counts[t]; i++) ((float *)m.tensors[t].gradient)[i] = 1;
            CHECK_EQ(GW_OK, gw_reducer_ready(reducer, t));
        }
        CHECK_EQ(GW_OK, gw_reducer_end(reducer));
    }
    CHECK_EQ(GW_OK, gw_reducer_flush(reducer));
    gw_reducer_close(reducer);
    free_model(&m);
    gw_finalize(comm);
}

static void servers_that_keep_weights(void) {
    run("arch=ps:servers=2 sync=asp", 4, pushes_ones);
    run("arch=ps:servers=2 sync=ssp:staleness=1 schedule=p3", 4, pushes_ones);
    run("arch=ps sync=ssp:staleness=0 transport=tcp", 2, pushes_ones);
    run("arch=ps sync=asp", 1, pushes_ones);
    run("arch=ps:replicas=1 sync=asp", 2, pushes_ones);
    run("arch=ps:servers=2,replicas=1 sync=asp compress=fp16", 4, pushes_ones);
}

static void step_by_ones(gw_reducer *reducer, model *m, int compute_ms) {
    for (int t = 0; t < TENSORS; t++) CHECK_EQ(GW_OK, gw_reducer_wait(reducer, t));
    if (compute_ms) nanosleep(&(struct timespec){.tv_nsec = compute_ms * 1000000L}, NULL);
    for (int t = TENSORS - 1; t >= 0; t--) {
        for (size_t i = 0; i < counts[t]; i++) ((float *)m->tensors[t].gradient)[i] = 1;
        CHECK_EQ(GW_OK, gw_reducer_ready(reducer, t));
    }
    CHECK_EQ(GW_OK, gw_reducer_end(reducer));
}

/* With backup the mean is over the workers in the round, so that a step moves each weight by a quarter. */
static void slow_one_is_left_behind(int rank) {
    gw_comm *comm = join(rank);
    model m;
    gw_reducer *reducer = commit_descending(comm, &m, 0);
    for (int number = 0; number < (rank == 2 ? 2 : 20); number++) step_by_ones(reducer, &m, rank == 2 ? 100 : 0);
    CHECK_EQ(GW_OK, gw_reducer_flush(reducer));
    float rounds = -4 * ((float *)m.tensors[2].weights)[500];
    CHECK(rounds == rintf(rounds));
    if (rank != 2) CHECK(rounds >= 19 && rounds <= 22);
    gw_reducer_close(reducer);
    free_model(&m);
    gw_finalize(comm);
}

static void backup_does_not_wait(void) { run("arch=ps:servers=2 sync=backup:n=1", 3, slow_one_is_left_behind); }

/* How often the last rank's pushes came late; the same on all ranks. */
static int64_t late_pushes(gw_reducer *reducer, gw_comm *comm) {
    gw_reducer_worker_stats times[4];
    CHECK_EQ(GW_OK, gw_reducer_workers(reducer, times));
    int64_t late = (int64_t)times[world - 1].late;
    CHECK_EQ(GW_OK, gw_allreduce(comm, &late, &late, 1, GW_I64, GW_MAX));
    return late;
}

/* The others have made all of their steps and wait for it in a collective call, with the step open; twice, and on a
 * busy machine, where the others are slow too, until it was late. */
static void meet_the_slow_one(int rank) {
    enum { EPOCHS_MAX = 40 };
    gw_comm *comm = join(rank);
    model m;
    gw_reducer *reducer = commit_descending(comm, &m, 0);
    int64_t late = 0;
    for (int epoch = 0; epoch < 2 || (!late && epoch < EPOCHS_MAX); epoch++) {
        for (int number = 0; number < 8; number++) step_by_ones(reducer, &m, rank == world - 1 ? 15 : 0);
        if (epoch) CHECK_EQ(GW_OK, gw_reducer_flush(reducer)); /* in the first the last step may still be in flight */
        CHECK_EQ(GW_OK, gw_barrier(comm));
        if (epoch) late = late_pushes(reducer, comm);
    }
    CHECK(late > 0);
    gw_reducer_close(reducer);
    free_model(&m);
    gw_finalize(comm);
}

static void a_rank_left_behind_by_backup_catches_up(void) {
    run("arch=ps:servers=2 sync=backup:n=1", 3, meet_the_slow_one);
    run("arch=ps:servers=2,replicas=1 sync=backup:n=2 schedule=p3:slice=64K transport=tcp", 4, meet_the_slow_one);
    run("arch=ps sync=backup:n=1 compress=topk:ratio=0.1,feedback=both", 3, meet_the_slow_one);
    run("arch=ps:servers=2 sync=backup:n=1 schedule=mgwfbp", 3, meet_the_slow_one); /* all meet to cut new buckets */
}

/* What an update is told. Where each push is an update of its own they add up to one step: 1/n of it each. A caller of
 * the first header, without rate_scale, finds all of it in the scale. */

#define SIZE sizeof(gw_reducer_options)
#define OLD_SIZE offsetof(gw_reducer_options, nonfinite)

typedef struct told {
    const char *line;
    gw_redop op;
    size_t size; /* of the caller's options */
    int steps;
    double scale, rate_scale;
    uint64_t updates; /* after all steps */
} told;

static const told *expected;
static uint64_t updates_most;

static void check_told(void *ctx, const gw_reducer_update *u) {
    (void)ctx;
    CHECK(u->scale == expected->scale);
    CHECK(u->rate_scale == expected->rate_scale);
    if (u->updates > updates_most) updates_most = u->updates;
}

static void is_told(int rank) {
    gw_comm *comm = join(rank);
    gw_reducer *reducer = NULL;
    gw_reducer_options options = GW_REDUCER_OPTIONS_DEFAULT;
    model m;
    make_model(&m, 0);
    options.size = expected->size;
    options.op = expected->op;
    options.update = check_told;
    CHECK_EQ(GW_OK, gw_reducer_commit(&reducer, comm, m.tensors, TENSORS, &options));
    if (!reducer) printf("    %s\n", gw_last_error(NULL)), exit(1);
    for (int number = 0; number < expected->steps; number++) step_by_ones(reducer, &m, 0);
    CHECK_EQ(GW_OK, gw_reducer_flush(reducer));
    CHECK_EQ(GW_OK, gw_barrier(comm));
    if (rank == 0) CHECK_EQ((long)expected->updates, (long)updates_most); /* the server's */
    gw_reducer_close(reducer);
    free_model(&m);
    gw_finalize(comm);
}

static void an_update_with_one_push_is_a_part_of_a_step(void) {
    static const told all[] = {{"arch=ps sync=asp", GW_AVG, SIZE, STEPS, 1, 0.25, 4 * STEPS},
                               {"arch=ps sync=ssp schedule=p3", GW_SUM, SIZE, STEPS, 4, 0.25, 4 * STEPS},
                               {"arch=ps sync=asp", GW_AVG, OLD_SIZE, STEPS, 0.25, 1, 4 * STEPS},
                               {"arch=ps sync=asp", GW_SUM, OLD_SIZE, STEPS, 1, 1, 4 * STEPS},
                               {"arch=ps sync=ssp:staleness=0", GW_SUM, SIZE, STEPS, 1, 1, STEPS},
                               {"arch=ps sync=asp schedule=mgwfbp", GW_AVG, SIZE, 8, 1, 0.25, 4 * 8}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        expected = &all[i];
        run(all[i].line, 4, is_told);
    }
}

/* Impossible combinations are refused at commit, on every rank. */

static const char *refused_line, *refused_why;
static bool refused_updates;

static void is_refused(int rank) {
    gw_comm *comm = join(rank);
    gw_reducer *reducer = NULL;
    gw_reducer_options options = GW_REDUCER_OPTIONS_DEFAULT;
    model m;
    make_model(&m, 0);
    options.strategy = refused_line;
    if (refused_updates) options.update = descend;
    CHECK_EQ(GW_UNSUPPORTED, gw_reducer_commit(&reducer, comm, m.tensors, TENSORS, &options));
    snprintf(said, sizeof said, "%s", gw_last_error(NULL));
    CHECK(strstr(said, refused_why) != NULL);
    if (!strstr(said, refused_why)) printf("    %s: %s\n", refused_line, said);
    free_model(&m);
    gw_finalize(comm);
}

static void refuse(const char *strategy, bool updates, const char *why) {
    refused_line = strategy;
    refused_why = why;
    refused_updates = updates;
    run("arch=auto", 2, is_refused);
}

static void refusals(void) {
    refuse("sync=asp arch=ring", true, "somebody has to keep the weights");
    refuse("sync=ssp", true, "use arch=ps");
    refuse("arch=ps sync=asp", false, "an update function");
    refuse("arch=ps:servers=3", false, "the job has 2 ranks");
    refuse("arch=ps schedule=dear", false, "no half");
    refuse("arch=ps:replicas=1 compress=topk", false, "a codec that leaves nothing");
    refuse("arch=ps:replicas=1 compress=terngrad:shared", false, "a codec that leaves nothing");
    refuse("arch=ps sync=backup:n=2", true, "at least one");
}

/* A rank that closes early under bsp is reported at once. */
static void closes_early(int rank) {
    gw_comm *comm = join(rank);
    gw_reducer *reducer = NULL;
    model m;
    make_model(&m, 0);
    CHECK_EQ(GW_OK, gw_reducer_commit(&reducer, comm, m.tensors, TENSORS, NULL));
    if (!reducer) exit(1);
    gw_status status = GW_OK;
    for (int t = TENSORS - 1; t >= 0 && rank == 0; t--) CHECK_EQ(GW_OK, gw_reducer_ready(reducer, t));
    if (rank == 0 && !(status = gw_reducer_end(reducer))) status = gw_reducer_flush(reducer);
    else nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    if (rank == 0) {
        CHECK_EQ(GW_MISMATCH, status);
        CHECK(strstr(gw_last_error(comm), "rank 1 closed its reducer") != NULL);
    }
    gw_reducer_close(reducer);
    free_model(&m);
    gw_finalize(comm);
}

static void closing_early_is_an_error(void) {
    char folder[] = "/tmp/gradwire-test-XXXXXX", command[64];
    if (!mkdtemp(folder)) abort();
    setenv("GRADWIRE_FLIGHT_DIR", folder, 1);
    run("arch=ps", 2, closes_early);
    snprintf(command, sizeof command, "rm -r %s", folder);
    CHECK_EQ(0, system(command));
}

TEST_MAIN(CASE(bsp_over_servers_equals_direct), CASE(servers_that_keep_weights), CASE(backup_does_not_wait),
          CASE(a_rank_left_behind_by_backup_catches_up), CASE(an_update_with_one_push_is_a_part_of_a_step),
          CASE(refusals), CASE(closing_early_is_an_error))
