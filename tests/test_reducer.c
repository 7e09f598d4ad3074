/* test_reducer.c - gw_reducer from outside: real processes make steps under every schedule, every synchronization and a
 * few codecs; results are compared with the mean computed here. */
#include <math.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "schedule/schedule.h"
#include "small_job.h"

#define TENSORS 7
#define STEPS 6

static const size_t counts[TENSORS] = {300, 0, 70001, 16, 5, 40000, 1};
static const char *const names[TENSORS] = {"conv.weight", "empty",      "fc1.weight", "fc1.bias",
                                           "norm",        "fc2.weight", "fc2.bias"};

static const char *line; /* of the job that runs */
static int world, port;
static bool scattered; /* gradients are not contiguous */

typedef struct model {
    gw_reducer_tensor tensors[TENSORS];
    float *gradients, *weights;
} model;

/* Small whole numbers, so that sums are exact in any order. */
static float gradient_of(int rank, int tensor, size_t element, int step) {
    return (float)((rank + 1) * (int)(element % 17) + 3 * step + tensor - 20);
}

static double mean_of(int tensor, size_t element, int step) {
    double sum = 0;
    for (int r = 0; r < world; r++) sum += gradient_of(r, tensor, element, step);
    return sum / world;
}

static void make_model(gw_comm *comm, model *m) {
    size_t total = 0, gap = scattered ? 3 : 0, at = 0;
    for (int t = 0; t < TENSORS; t++) total += counts[t] + gap;
    m->gradients = gw_alloc(comm, total * sizeof(float));
    m->weights = calloc(total, sizeof(float));
    for (int t = 0; t < TENSORS; t++) {
        m->tensors[t] = (gw_reducer_tensor){.name = names[t], .count = counts[t], .dtype = GW_F32,
                                    .gradient = m->gradients + at, .weights = m->weights + at,
                                    .rows = counts[t] == 40000 ? 200 : 0};
        at += counts[t] + gap;
    }
}

static void backward(gw_reducer *reducer, model *m, int rank, int number) {
    for (int t = TENSORS - 1; t >= 0; t--) {
        float *gradient = m->tensors[t].gradient;
        for (size_t i = 0; i < counts[t]; i++) gradient[i] = gradient_of(rank, t, i, number);
        CHECK_EQ(GW_OK, gw_reducer_ready(reducer, t));
    }
    CHECK_EQ(GW_OK, gw_reducer_end(reducer));
}

static gw_comm *join(int rank) {
    gw_comm *comm = NULL;
    gw_options options = job_options(rank, world, port, line);
    CHECK_EQ(GW_OK, gw_init(&comm, &options));
    if (!comm) {
        printf("    %s\n", gw_last_error(NULL));
        exit(1);
    }
    return comm;
}

/* A rank's part, begun and ended. */
typedef struct member {
    gw_comm *comm;
    gw_reducer *reducer;
    model m;
} member;

static member sit_down(int rank, const gw_reducer_options *options) {
    member s = {.comm = join(rank)};
    make_model(s.comm, &s.m);
    CHECK_EQ(GW_OK, gw_reducer_commit(&s.reducer, s.comm, s.m.tensors, TENSORS, options));
    if (!s.reducer) {
        printf("    %s\n", gw_last_error(NULL));
        exit(1);
    }
    return s;
}

static void get_up(member *s) {
    gw_reducer_close(s->reducer);
    gw_free(s->comm, s->m.gradients);
    free(s->m.weights);
    gw_finalize(s->comm);
}

static void run(const char *strategy, int ranks, bool apart, void (*body)(int rank)) {
    line = strategy;
    world = ranks;
    scattered = apart;
    port = free_port();
    int before = test_failures;
    job_fork(ranks, body);
    if (test_failures != before) printf("    with %d ranks, %s\n", ranks, strategy);
}

/* The caller updates: the gradient's memory holds the mean after gw_reducer_wait. */
static void means(int rank) {
    member s = sit_down(rank, NULL);
    for (int number = 0; number < STEPS; number++) {
        for (int t = 0; t < TENSORS; t++) {
            CHECK_EQ(GW_OK, gw_reducer_wait(s.reducer, t));
            const float *gradient = s.m.tensors[t].gradient;
            for (size_t i = 0; number && i < counts[t]; i++)
                if (fabs(gradient[i] - mean_of(t, i, number - 1)) > 1e-5) {
                    CHECK(!"a mean is wrong");
                    printf("    tensor %d element %zu step %d: %g, not %g\n", t, i, number, (double)gradient[i],
                           mean_of(t, i, number - 1));
                    break;
                }
        }
        backward(s.reducer, &s.m, rank, number);
    }
    CHECK_EQ(GW_OK, gw_reducer_flush(s.reducer));
    get_up(&s);
}

static void every_schedule_gives_the_mean(void) {
    char text[200], schedule[GW_TECHNIQUE_TEXT_BYTES];
    int runs = 0;
    for (const gw_technique *const *t = gw_schedule_techniques; *t; t++)
        for (int i = 0; gw_technique_example(*t, i, schedule); i++, runs++) {
            snprintf(text, sizeof text, "schedule=%s", schedule);
            run(text, 2 + runs % 3, runs % 2, means);
            snprintf(text, sizeof text, "schedule=%s transport=tcp arch=%s", schedule, runs % 2 ? "ring" : "halving");
            run(text, 2 + (runs + 1) % 3, runs % 2 == 0, means);
        }
}

/* Tuning while steps are made: every result is still the mean, and all ranks end with the same buckets. */
static const char *tune_file; /* NULL: tune "on" */

static void check_means(const member *s, int number) {
    for (int t = 0; t < TENSORS; t++) {
        CHECK_EQ(GW_OK, gw_reducer_wait(s->reducer, t));
        const float *gradient = s->m.tensors[t].gradient;
        for (size_t i = 0; number && i < counts[t]; i += 7) CHECK(fabs(gradient[i] - mean_of(t, i, number - 1)) < 1e-3);
    }
}

static void tunes(int rank) {
    gw_reducer_options options = GW_REDUCER_OPTIONS_DEFAULT;
    options.tune = tune_file ? tune_file : "on";
    bool known = tune_file && access(tune_file, R_OK) == 0;
    member s = sit_down(rank, &options);
    CHECK_EQ(!known, gw_reducer_read_counters(s.reducer).tuning);
    int number = 0;
    for (; gw_reducer_read_counters(s.reducer).tuning && number < 200; number++) {
        check_means(&s, number);
        backward(s.reducer, &s.m, rank, number);
    }
    CHECK(!gw_reducer_read_counters(s.reducer).tuning);
    CHECK(gw_reducer_read_counters(s.reducer).trials <= 15);
    CHECK(known == (gw_reducer_read_counters(s.reducer).trials == 0));
    check_means(&s, number);
    int64_t buckets = gw_reducer_read_counters(s.reducer).buckets, all = 0;
    CHECK_EQ(GW_OK, gw_allreduce(s.comm, &buckets, &all, 1, GW_I64, GW_MAX));
    CHECK_EQ(all, buckets);
    CHECK_EQ(GW_OK, gw_reducer_flush(s.reducer));
    get_up(&s);
}

static void tuning_changes_no_result(void) {
    run("schedule=bytescheduler", 3, false, tunes);
    run("schedule=dear transport=tcp", 2, true, tunes);
    run("schedule=p3:slice=32K arch=ps", 2, false, tunes);
}

static void tuning_results_are_kept(void) {
    char path[] = "/tmp/gradwire-test-XXXXXX", text[4096] = "";
    int fd = mkstemp(path);
    close(fd);
    unlink(path);
    tune_file = path;
    run("schedule=wfbp", 2, false, tunes);
    FILE *file = fopen(path, "r");
    CHECK(file && fread(text, 1, sizeof text - 1, file) > 0);
    if (file) fclose(file);
    CHECK(strncmp(text, "# gradwire tune: 2 ranks, 7 tensors, ", 37) == 0);
    CHECK(strstr(text, "\n# trial 1: fuse auto, ") != NULL);
    CHECK(strstr(text, "\nschedule=wfbp:fuse=") != NULL);
    run("schedule=wfbp", 2, false, tunes); /* checks that it is known now */
    unlink(path);
    tune_file = NULL;
}

/* What cannot be tuned is left as it is. */
static void untuned(int rank) {
    gw_reducer_options options = GW_REDUCER_OPTIONS_DEFAULT;
    options.tune = "on";
    member s = sit_down(rank, &options);
    CHECK(!gw_reducer_read_counters(s.reducer).tuning);
    CHECK_EQ(GW_OK, gw_reducer_flush(s.reducer));
    get_up(&s);
}

static void some_schedules_have_no_sizes(void) {
    run("schedule=tictac", 2, false, untuned);
    run("schedule=bytescheduler", 1, false, untuned);
}

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define CALL_NS_MAX 20000.0
#else
#define CALL_NS_MAX 1000.0
#endif

static double least_call_ns(gw_reducer *reducer) {
    double least = 1e9;
    for (int batch = 0; batch < 20; batch++) {
        gw_time begun = gw_clock_now();
        for (int i = 0; i < 1000; i++) gw_reducer_wait(reducer, i % TENSORS);
        double ns = (double)(gw_clock_now() - begun) / 1000;
        if (ns < least) least = ns;
    }
    return least;
}

static void calls(int rank) {
    member s = sit_down(rank, NULL);
    backward(s.reducer, &s.m, rank, 0);
    CHECK_EQ(GW_OK, gw_reducer_flush(s.reducer));
    double ns = least_call_ns(s.reducer);
    if (rank == 0) printf("    %.0f ns\n", ns);
    CHECK(ns < CALL_NS_MAX);
    get_up(&s);
}

static void a_call_with_nothing_to_do_is_short(void) { run("schedule=bytescheduler", 2, false, calls); }

static void a_world_of_one(void) {
    run("schedule=p3", 1, false, means);
    run("schedule=dear", 1, true, means);
}

/* The step updates, by plain descent. */

static uint64_t applied[TENSORS];

static void descend(void *ctx, const gw_reducer_update *u) {
    float *weights = u->weights;
    const float *gradient = u->gradient;
    (void)ctx;
    if (!u->temporary) CHECK_EQ(applied[u->tensor]++, u->step); /* every step once, in order */
    for (size_t i = 0; i < u->count; i++) weights[i] -= 0.5f * (float)(u->rate_scale * u->scale) * gradient[i];
}

/* What weights of one element become under each synchronization, for gradients that do not depend on weights. */
static double plain(int tensor, size_t element, int steps) {
    double w = 0;
    for (int s = 0; s < steps; s++) w -= 0.5 * mean_of(tensor, element, s);
    return w;
}

static void updates(int rank) {
    gw_reducer_options options = GW_REDUCER_OPTIONS_DEFAULT;
    options.update = descend;
    member s = sit_down(rank, &options);
    for (int number = 0; number < STEPS; number++) {
        for (int t = 0; t < TENSORS; t++) CHECK_EQ(GW_OK, gw_reducer_wait(s.reducer, t));
        backward(s.reducer, &s.m, rank, number);
    }
    CHECK_EQ(GW_OK, gw_reducer_flush(s.reducer));
    for (int t = 0; t < TENSORS; t++)
        for (size_t i = 0; i < counts[t]; i++) {
            const float *weights = s.m.tensors[t].weights;
            if (fabs(weights[i] - plain(t, i, STEPS)) <= 1e-4) continue;
            CHECK(!"a weight is wrong");
            printf("    tensor %d element %zu: %g, not %g\n", t, i, (double)weights[i], plain(t, i, STEPS));
            break;
        }
    get_up(&s);
}

static void every_synchronization_ends_at_the_same_weights(void) {
    run("sync=bsp schedule=dear", 2, false, updates);
    run("sync=delayed:warmup=2 schedule=wfbp", 3, false, updates);
    run("sync=delayed:warmup=0 schedule=p3", 2, true, updates);
    run("sync=periodic:every=3", 2, false, updates);
    run("sync=periodic:every=2,from=2 schedule=dear", 4, true, updates);
}

/* Through a codec that loses next to nothing on such numbers, and with what it keeps saved and restored. */
static void coded(int rank) {
    member s = sit_down(rank, NULL);
    for (int number = 0; number < STEPS; number++) {
        for (int t = 0; t < TENSORS; t++) CHECK_EQ(GW_OK, gw_reducer_wait(s.reducer, t));
        backward(s.reducer, &s.m, rank, number);
        size_t bytes = gw_reducer_state_bytes(s.reducer);
        void *state = malloc(bytes + 1), *again = malloc(bytes + 1);
        CHECK_EQ(GW_OK, gw_reducer_state_save(s.reducer, state));
        CHECK_EQ(GW_OK, gw_reducer_state_restore(s.reducer, state, bytes));
        CHECK_EQ(GW_OK, gw_reducer_state_save(s.reducer, again));
        CHECK_EQ(0, memcmp(state, again, bytes));
        CHECK_EQ(GW_MISMATCH, gw_reducer_state_restore(s.reducer, state, bytes - 1));
        free(state);
        free(again);
    }
    const float *gradient = s.m.tensors[3].gradient; /* 16 elements: sent exact */
    for (size_t i = 0; i < counts[3]; i++) CHECK(fabs(gradient[i] - mean_of(3, i, STEPS - 1)) < 1e-4);
    gw_reducer_counters counted = gw_reducer_read_counters(s.reducer);
    CHECK_EQ(STEPS, counted.steps);
    CHECK(counted.bytes_sent > 0 && counted.bytes_sent < counted.dense_bytes);
    get_up(&s);
}

static void codecs_travel_with_every_schedule(void) {
    run("compress=onebit schedule=wfbp", 2, false, coded);
    run("compress=topk schedule=p3 transport=tcp", 3, true, coded);
    run("compress=fp16 schedule=dear transport=tcp", 4, false, coded);
    run("compress=qsgd:feedback=both schedule=dear:fuse=1K", 3, false, coded);
    run("compress=dgc schedule=bytescheduler", 2, true, coded);
    run("compress=powersgd:rank=2 schedule=fifo", 2, false, coded);
}

static void add_results(const model *m, double *arrived) {
    for (int t = 0, at = 0; t < TENSORS; t++)
        for (size_t i = 0; i < counts[t]; i++) arrived[at++] += ((const float *)m->tensors[t].gradient)[i];
}

static void take_all_over(gw_comm *comm, const void *mine, size_t bytes, gw_reducer *fewer) {
    for (int r = 0; r < world; r++) {
        uint64_t length = bytes;
        CHECK_EQ(GW_OK, gw_broadcast(comm, &length, &length, 1, GW_I64, r));
        uint8_t *state = malloc(length);
        memcpy(state, mine, length < bytes ? length : bytes);
        CHECK_EQ(GW_OK, gw_broadcast(comm, state, state, length, GW_U8, r));
        if (fewer) CHECK_EQ(GW_OK, gw_reducer_state_merge(fewer, state, length));
        free(state);
    }
}

/* Three ranks take two steps; two of them go on with what all three kept, and empty gradients, until nothing waits.
 * What has arrived by then is what was given. */
static void hands_over(int rank) {
    member s = sit_down(rank, NULL);
    double *arrived = calloc(120000, sizeof *arrived), worst = 0;
    for (int number = 0; number < 2; number++) {
        backward(s.reducer, &s.m, rank, number);
        CHECK_EQ(GW_OK, gw_reducer_flush(s.reducer));
        add_results(&s.m, arrived);
    }
    size_t bytes = gw_reducer_state_bytes(s.reducer);
    void *state = malloc(bytes);
    gw_comm *few = NULL;
    gw_reducer *reducer = NULL;
    CHECK_EQ(GW_OK, gw_reducer_state_save(s.reducer, state));
    CHECK_EQ(GW_OK, gw_comm_split(s.comm, rank < 2 ? 0 : -1, rank, &few));
    if (few) CHECK_EQ(GW_OK, gw_reducer_commit(&reducer, few, s.m.tensors, TENSORS, NULL));
    take_all_over(s.comm, state, bytes, reducer);
    for (int number = 0; reducer && number < 24; number++) {
        for (int t = 0; t < TENSORS; t++) memset(s.m.tensors[t].gradient, 0, counts[t] * sizeof(float));
        for (int t = TENSORS - 1; t >= 0; t--) CHECK_EQ(GW_OK, gw_reducer_ready(reducer, t));
        CHECK_EQ(GW_OK, gw_reducer_end(reducer));
        CHECK_EQ(GW_OK, gw_reducer_flush(reducer));
        add_results(&s.m, arrived);
    }
    for (int t = 0, at = 0; reducer && t < TENSORS; t++)
        for (size_t i = 0; i < counts[t]; i++, at++)
            worst = fmax(worst, fabs(arrived[at] - mean_of(t, i, 0) - mean_of(t, i, 1)));
    if (worst > 1e-3) printf("    %g is missing\n", worst);
    CHECK(worst <= 1e-3);
    gw_reducer_close(reducer);
    if (few) gw_finalize(few);
    free(state);
    free(arrived);
    get_up(&s);
}

static void residuals_move_to_other_ranks(void) { run("compress=topk:ratio=0.2 schedule=wfbp", 3, false, hands_over); }

/* Mistakes. */
static void mistakes(int rank) {
    gw_comm *comm = join(rank);
    gw_reducer *reducer = NULL;
    model m;
    make_model(comm, &m);
    gw_reducer_options options = GW_REDUCER_OPTIONS_DEFAULT;
#define SAYS(status, words, call)                                                                                      \
    do {                                                                                                               \
        CHECK_EQ(status, call);                                                                                        \
        CHECK(strstr(gw_last_error(NULL), words) != NULL);                                                             \
        if (!strstr(gw_last_error(NULL), words)) printf("    said: %s\n", gw_last_error(NULL));                        \
    } while (0)
    options.strategy = "sync=periodic";
    SAYS(GW_UNSUPPORTED, "sync=periodic works on weights",
         gw_reducer_commit(&reducer, comm, m.tensors, TENSORS, &options));
    CHECK(reducer == NULL);
    options.strategy = "schedule=nonesuch";
    SAYS(GW_INVALID, "nonesuch", gw_reducer_commit(&reducer, comm, m.tensors, TENSORS, &options));
    m.tensors[2].name = "norm";
    SAYS(GW_INVALID, "two tensors are called norm", gw_reducer_commit(&reducer, comm, m.tensors, TENSORS, NULL));
    m.tensors[2].name = names[2], m.tensors[2].after = (int[]){2}, m.tensors[2].after_count = 1;
    SAYS(GW_INVALID, "fc1.weight, tensor 2, builds on tensor 2",
         gw_reducer_commit(&reducer, comm, m.tensors, TENSORS, NULL));
    m.tensors[2].after = (int[]){0};
    CHECK_EQ(GW_OK, gw_reducer_commit(&reducer, comm, m.tensors, TENSORS, NULL));
    SAYS(GW_INVALID, "no tensor 7 among 7", gw_reducer_ready(reducer, TENSORS));
    CHECK_EQ(GW_OK, gw_reducer_ready(reducer, 0));
    SAYS(GW_INVALID, "conv.weight has been ready", gw_reducer_ready(reducer, 0));
    SAYS(GW_INVALID, "gw_reducer_end: tensor 1, empty, was neither ready nor absent", gw_reducer_end(reducer));
    SAYS(GW_INVALID, "conv.weight is ready in a step that has not ended", gw_reducer_wait(reducer, 0));
    SAYS(GW_INVALID, "conv.weight is ready in a step that has not ended", gw_reducer_flush(reducer));
    for (int t = 1; t < TENSORS; t++) CHECK_EQ(GW_OK, gw_reducer_ready(reducer, t));
    CHECK_EQ(GW_OK, gw_reducer_end(reducer));
    CHECK_EQ(GW_OK, gw_reducer_flush(reducer));
    gw_reducer_close(reducer);
    gw_free(comm, m.gradients);
    free(m.weights);
    gw_finalize(comm);
}

static void mistakes_give_an_error_sentence(void) { run("", 2, false, mistakes); }

/* One rank breaks a step off, after an exception say: it does not wait for itself, and the others are told. */
static void breaks_off(int rank) {
    member s = sit_down(rank, NULL);
    gw_status status = gw_barrier(s.comm); /* all have committed */
    if (rank == world - 1) {
        CHECK_EQ(GW_OK, status);
        CHECK_EQ(GW_OK, gw_reducer_ready(s.reducer, 0));
    } else {
        for (int t = TENSORS - 1; t >= 0 && !status; t--) status = gw_reducer_ready(s.reducer, t);
        if (!status) status = gw_reducer_end(s.reducer);
        if (!status) status = gw_reducer_flush(s.reducer);
        CHECK_EQ(GW_ABORTED, status);
        CHECK(strstr(gw_last_error(s.comm),
                     "it closed a reducer in a step that had not ended, in which conv.weight was ready"));
    }
    gw_reducer_close(s.reducer);
    if (world == 1) CHECK_EQ(GW_OK, gw_reducer_commit(&s.reducer, s.comm, s.m.tensors, TENSORS, NULL));
    else s.reducer = NULL;
    get_up(&s);
}

static void an_aborted_step_ends_on_all_ranks(void) {
    char folder[] = "/tmp/gradwire-test-XXXXXX", command[64];
    if (!mkdtemp(folder)) abort();
    setenv("GRADWIRE_FLIGHT_DIR", folder, 1);
    for (int ranks = 1; ranks <= 2; ranks++)
        for (int i = 0; i < 3; i++)
            run((const char *[]){"schedule=fifo", "schedule=dear", "arch=ps"}[i], ranks, false, breaks_off);
    snprintf(command, sizeof command, "rm -r %s", folder);
    CHECK_EQ(0, system(command));
}

/* One rank ends in the middle of a step, when the others have come out of the barrier: they are told, and nothing
 * hangs. */
static _Atomic int *left_barrier; /* how many have; in memory that all ranks share */

static void loses_one(int rank) {
    member s = sit_down(rank, NULL);
    backward(s.reducer, &s.m, rank, 0);
    CHECK_EQ(GW_OK, gw_reducer_flush(s.reducer));
    CHECK_EQ(GW_OK, gw_barrier(s.comm));
    atomic_fetch_add(left_barrier, 1);
    if (rank == 1) {
        while (atomic_load(left_barrier) % 3) usleep(1000); /* the watchdog ends it where that does not come */
        _exit(0);
    }
    gw_status status = GW_OK;
    for (int t = TENSORS - 1; t >= 0 && !status; t--) status = gw_reducer_ready(s.reducer, t);
    if (!status) status = gw_reducer_end(s.reducer);
    if (!status) status = gw_reducer_flush(s.reducer);
    CHECK_EQ(GW_PEER_LOST, status);
    CHECK(strstr(gw_last_error(s.comm), "rank 1") != NULL);
    CHECK_EQ(GW_PEER_LOST, gw_reducer_wait(s.reducer, 0));
    get_up(&s);
}

static void a_lost_rank_ends_the_step(void) {
    char folder[] = "/tmp/gradwire-test-XXXXXX", command[64];
    if (!mkdtemp(folder)) abort();
    setenv("GRADWIRE_FLIGHT_DIR", folder, 1);
    left_barrier = mmap(NULL, sizeof *left_barrier, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (left_barrier == MAP_FAILED) abort();
    run("schedule=p3:slice=16K transport=tcp", 3, false, loses_one);
    run("compress=topk schedule=wfbp", 3, false, loses_one);
    munmap(left_barrier, sizeof *left_barrier);
    snprintf(command, sizeof command, "rm -r %s", folder);
    CHECK_EQ(0, system(command));
}

TEST_MAIN(CASE(every_schedule_gives_the_mean), CASE(a_world_of_one), CASE(tuning_changes_no_result),
          CASE(tuning_results_are_kept), CASE(some_schedules_have_no_sizes), CASE(a_call_with_nothing_to_do_is_short),
          CASE(every_synchronization_ends_at_the_same_weights), CASE(codecs_travel_with_every_schedule),
          CASE(residuals_move_to_other_ranks), CASE(mistakes_give_an_error_sentence),
          CASE(an_aborted_step_ends_on_all_ranks), CASE(a_lost_rank_ends_the_step))
