/* test_step.c - the step API from outside: real processes take steps under every schedule, synchrony and a few codecs;
 * what comes back is compared with the mean computed here. */
#include <math.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "small_job.h"

#define TENSORS 7
#define STEPS 6

static const size_t counts[TENSORS] = {300, 0, 70001, 16, 5, 40000, 1};
static const char *const names[TENSORS] = {"conv.weight", "empty", "fc1.weight", "fc1.bias", "norm", "fc2.weight",
                                           "fc2.bias"};

static const char *line;  /* of the job that runs */
static int world, port;
static bool scattered;    /* gradients lie apart in memory */

typedef struct model {
    gw_step_tensor tensors[TENSORS];
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
        m->tensors[t] = (gw_step_tensor){.name = names[t], .count = counts[t], .dtype = GW_F32,
                                    .gradient = m->gradients + at, .weights = m->weights + at,
                                    .rows = counts[t] == 40000 ? 200 : 0};
        at += counts[t] + gap;
    }
}

static void backward(gw_step *step, model *m, int rank, int number) {
    for (int t = TENSORS - 1; t >= 0; t--) {
        float *gradient = m->tensors[t].gradient;
        for (size_t i = 0; i < counts[t]; i++) gradient[i] = gradient_of(rank, t, i, number);
        CHECK_EQ(GW_OK, gw_step_ready(step, t));
    }
    CHECK_EQ(GW_OK, gw_step_end(step));
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
typedef struct seat {
    gw_comm *comm;
    gw_step *step;
    model m;
} seat;

static seat sit_down(int rank, const gw_step_options *options) {
    seat s = {.comm = join(rank)};
    make_model(s.comm, &s.m);
    CHECK_EQ(GW_OK, gw_step_commit(&s.step, s.comm, s.m.tensors, TENSORS, options));
    if (!s.step) {
        printf("    %s\n", gw_last_error(NULL));
        exit(1);
    }
    return s;
}

static void get_up(seat *s) {
    gw_step_close(s->step);
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

/* The caller updates: the gradient's memory holds the mean after gw_step_wait. */
static void means(int rank) {
    seat s = sit_down(rank, NULL);
    for (int number = 0; number < STEPS; number++) {
        for (int t = 0; t < TENSORS; t++) {
            CHECK_EQ(GW_OK, gw_step_wait(s.step, t));
            const float *gradient = s.m.tensors[t].gradient;
            for (size_t i = 0; number && i < counts[t]; i++)
                if (fabs(gradient[i] - mean_of(t, i, number - 1)) > 1e-5) {
                    CHECK(!"a mean is wrong");
                    printf("    tensor %d element %zu step %d: %g, not %g\n", t, i, number, (double)gradient[i],
                           mean_of(t, i, number - 1));
                    break;
                }
        }
        backward(s.step, &s.m, rank, number);
    }
    CHECK_EQ(GW_OK, gw_step_flush(s.step));
    get_up(&s);
}

static const char *const schedules[] = {"fifo", "wfbp", "wfbp:fuse=1K", "mgwfbp", "p3:slice=16K", "tictac", "dear",
                                        "bytescheduler:slice=16K,credit=64K", "dear:fuse=1K", "tictac:mode=tac"};

static void every_schedule_gives_the_mean(void) {
    char text[200];
    for (size_t i = 0; i < sizeof schedules / sizeof *schedules; i++) {
        snprintf(text, sizeof text, "schedule=%s", schedules[i]);
        run(text, 2 + (int)i % 3, i % 2, means);
        snprintf(text, sizeof text, "schedule=%s transport=tcp arch=%s", schedules[i], i % 2 ? "ring" : "halving");
        run(text, 2 + (int)(i + 1) % 3, i % 2 == 0, means);
    }
}

/* Sizes are looked for while steps are made: every result is still the mean, and all ranks end with the same pieces. */
static const char *tune_file; /* NULL: tune "on" */

static void check_means(const seat *s, int number) {
    for (int t = 0; t < TENSORS; t++) {
        CHECK_EQ(GW_OK, gw_step_wait(s->step, t));
        const float *gradient = s->m.tensors[t].gradient;
        for (size_t i = 0; number && i < counts[t]; i += 7)
            CHECK(fabs(gradient[i] - mean_of(t, i, number - 1)) < 1e-3);
    }
}

static void tunes(int rank) {
    gw_step_options options = GW_STEP_OPTIONS_DEFAULT;
    options.tune = tune_file ? tune_file : "on";
    bool known = tune_file && access(tune_file, R_OK) == 0;
    seat s = sit_down(rank, &options);
    CHECK_EQ(!known, gw_step_count(s.step).tuning);
    int number = 0;
    for (; gw_step_count(s.step).tuning && number < 200; number++) {
        check_means(&s, number);
        backward(s.step, &s.m, rank, number);
    }
    CHECK(!gw_step_count(s.step).tuning);
    CHECK(gw_step_count(s.step).trials <= 15);
    CHECK(known == (gw_step_count(s.step).trials == 0));
    check_means(&s, number);
    int64_t pieces = gw_step_count(s.step).pieces, all = 0;
    CHECK_EQ(GW_OK, gw_allreduce(s.comm, &pieces, &all, 1, GW_I64, GW_MAX));
    CHECK_EQ(all, pieces);
    CHECK_EQ(GW_OK, gw_step_flush(s.step));
    get_up(&s);
}

static void tuning_changes_no_result(void) {
    run("schedule=bytescheduler", 3, false, tunes);
    run("schedule=dear transport=tcp", 2, true, tunes);
    run("schedule=p3:slice=32K arch=ps", 2, false, tunes);
}

static void what_was_tuned_is_kept(void) {
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
    CHECK(strstr(text, "\n# trial 1: fuse 25000000, ") != NULL);
    CHECK(strstr(text, "\nschedule=wfbp:fuse=") != NULL);
    run("schedule=wfbp", 2, false, tunes); /* checks that it is known now */
    unlink(path);
    tune_file = NULL;
}

/* What cannot be tuned is left as it is. */
static void untuned(int rank) {
    gw_step_options options = GW_STEP_OPTIONS_DEFAULT;
    options.tune = "on";
    seat s = sit_down(rank, &options);
    CHECK(!gw_step_count(s.step).tuning);
    CHECK_EQ(GW_OK, gw_step_flush(s.step));
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

static double least_call_ns(gw_step *step) {
    double least = 1e9;
    for (int batch = 0; batch < 20; batch++) {
        gw_time begun = gw_clock_now();
        for (int i = 0; i < 1000; i++) gw_step_wait(step, i % TENSORS);
        double ns = (double)(gw_clock_now() - begun) / 1000;
        if (ns < least) least = ns;
    }
    return least;
}

static void calls(int rank) {
    seat s = sit_down(rank, NULL);
    backward(s.step, &s.m, rank, 0);
    CHECK_EQ(GW_OK, gw_step_flush(s.step));
    double ns = least_call_ns(s.step);
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

static void descend(void *ctx, const gw_step_update *u) {
    float *weights = u->weights;
    const float *gradient = u->gradient;
    (void)ctx;
    if (!u->local) CHECK_EQ(applied[u->tensor]++, u->step); /* every step once, in order */
    for (size_t i = 0; i < u->count; i++) weights[i] -= 0.5f * (float)u->scale * gradient[i];
}

/* What weights of one element become under each synchrony, for gradients that do not depend on weights. */
static double plain(int tensor, size_t element, int steps) {
    double w = 0;
    for (int s = 0; s < steps; s++) w -= 0.5 * mean_of(tensor, element, s);
    return w;
}

static void updates(int rank) {
    gw_step_options options = GW_STEP_OPTIONS_DEFAULT;
    options.update = descend;
    seat s = sit_down(rank, &options);
    for (int number = 0; number < STEPS; number++) {
        for (int t = 0; t < TENSORS; t++) CHECK_EQ(GW_OK, gw_step_wait(s.step, t));
        backward(s.step, &s.m, rank, number);
    }
    CHECK_EQ(GW_OK, gw_step_flush(s.step));
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

static void every_synchrony_ends_at_the_same_weights(void) {
    run("sync=bsp schedule=dear", 2, false, updates);
    run("sync=delayed:warmup=2 schedule=wfbp", 3, false, updates);
    run("sync=delayed:warmup=0 schedule=p3", 2, true, updates);
    run("sync=periodic:every=3", 2, false, updates);
    run("sync=periodic:every=2,from=2 schedule=dear", 4, true, updates);
}

/* Through a codec that loses next to nothing on such numbers, and with what it keeps saved and restored. */
static void coded(int rank) {
    seat s = sit_down(rank, NULL);
    for (int number = 0; number < STEPS; number++) {
        for (int t = 0; t < TENSORS; t++) CHECK_EQ(GW_OK, gw_step_wait(s.step, t));
        backward(s.step, &s.m, rank, number);
        size_t bytes = gw_step_state_bytes(s.step);
        void *state = malloc(bytes + 1), *again = malloc(bytes + 1);
        CHECK_EQ(GW_OK, gw_step_state_save(s.step, state));
        CHECK_EQ(GW_OK, gw_step_state_restore(s.step, state, bytes));
        CHECK_EQ(GW_OK, gw_step_state_save(s.step, again));
        CHECK_EQ(0, memcmp(state, again, bytes));
        CHECK_EQ(GW_MISMATCH, gw_step_state_restore(s.step, state, bytes - 1));
        free(state);
        free(again);
    }
    const float *gradient = s.m.tensors[3].gradient; /* 16 elements: sent exact */
    for (size_t i = 0; i < counts[3]; i++) CHECK(fabs(gradient[i] - mean_of(3, i, STEPS - 1)) < 1e-4);
    gw_step_counters counted = gw_step_count(s.step);
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

static void take_all_over(gw_comm *comm, const void *mine, size_t bytes, gw_step *fewer) {
    for (int r = 0; r < world; r++) {
        uint64_t length = bytes;
        CHECK_EQ(GW_OK, gw_broadcast(comm, &length, &length, 1, GW_I64, r));
        uint8_t *state = malloc(length);
        memcpy(state, mine, length < bytes ? length : bytes);
        CHECK_EQ(GW_OK, gw_broadcast(comm, state, state, length, GW_U8, r));
        if (fewer) CHECK_EQ(GW_OK, gw_step_state_take_over(fewer, state, length));
        free(state);
    }
}

/* Three ranks take two steps; two of them go on with what all three kept, and empty gradients, until nothing waits.
 * What has arrived by then is what was given. */
static void hands_over(int rank) {
    seat s = sit_down(rank, NULL);
    double *arrived = calloc(120000, sizeof *arrived), worst = 0;
    for (int number = 0; number < 2; number++) {
        backward(s.step, &s.m, rank, number);
        CHECK_EQ(GW_OK, gw_step_flush(s.step));
        add_results(&s.m, arrived);
    }
    size_t bytes = gw_step_state_bytes(s.step);
    void *state = malloc(bytes);
    gw_comm *few = NULL;
    gw_step *step = NULL;
    CHECK_EQ(GW_OK, gw_step_state_save(s.step, state));
    CHECK_EQ(GW_OK, gw_comm_split(s.comm, rank < 2 ? 0 : -1, rank, &few));
    if (few) CHECK_EQ(GW_OK, gw_step_commit(&step, few, s.m.tensors, TENSORS, NULL));
    take_all_over(s.comm, state, bytes, step);
    for (int number = 0; step && number < 24; number++) {
        for (int t = 0; t < TENSORS; t++) memset(s.m.tensors[t].gradient, 0, counts[t] * sizeof(float));
        for (int t = TENSORS - 1; t >= 0; t--) CHECK_EQ(GW_OK, gw_step_ready(step, t));
        CHECK_EQ(GW_OK, gw_step_end(step));
        CHECK_EQ(GW_OK, gw_step_flush(step));
        add_results(&s.m, arrived);
    }
    for (int t = 0, at = 0; step && t < TENSORS; t++)
        for (size_t i = 0; i < counts[t]; i++, at++)
            worst = fmax(worst, fabs(arrived[at] - mean_of(t, i, 0) - mean_of(t, i, 1)));
    if (worst > 1e-3) printf("    %g is missing\n", worst);
    CHECK(worst <= 1e-3);
    gw_step_close(step);
    if (few) gw_finalize(few);
    free(state);
    free(arrived);
    get_up(&s);
}

static void residuals_are_handed_over(void) { run("compress=topk:ratio=0.2 schedule=wfbp", 3, false, hands_over); }

/* Mistakes. */
static void mistakes(int rank) {
    gw_comm *comm = join(rank);
    gw_step *step = NULL;
    model m;
    make_model(comm, &m);
    gw_step_options options = GW_STEP_OPTIONS_DEFAULT;
#define SAYS(status, words, call)                                                                                      \
    do {                                                                                                               \
        CHECK_EQ(status, call);                                                                                        \
        CHECK(strstr(gw_last_error(NULL), words) != NULL);                                                             \
        if (!strstr(gw_last_error(NULL), words)) printf("    said: %s\n", gw_last_error(NULL));                        \
    } while (0)
    options.strategy = "sync=periodic";
    SAYS(GW_UNSUPPORTED, "sync=periodic works on weights", gw_step_commit(&step, comm, m.tensors, TENSORS, &options));
    CHECK(step == NULL);
    options.strategy = "schedule=nonesuch";
    SAYS(GW_INVALID, "nonesuch", gw_step_commit(&step, comm, m.tensors, TENSORS, &options));
    m.tensors[2].name = "norm";
    SAYS(GW_INVALID, "two tensors are called norm", gw_step_commit(&step, comm, m.tensors, TENSORS, NULL));
    m.tensors[2].name = names[2];
    CHECK_EQ(GW_OK, gw_step_commit(&step, comm, m.tensors, TENSORS, NULL));
    SAYS(GW_INVALID, "no tensor 7 among 7", gw_step_ready(step, TENSORS));
    CHECK_EQ(GW_OK, gw_step_ready(step, 0));
    SAYS(GW_INVALID, "conv.weight has been ready", gw_step_ready(step, 0));
    SAYS(GW_INVALID, "empty has not been ready", gw_step_end(step));
    SAYS(GW_INVALID, "conv.weight is ready in a step that has not ended", gw_step_wait(step, 0));
    SAYS(GW_INVALID, "conv.weight is ready in a step that has not ended", gw_step_flush(step));
    for (int t = 1; t < TENSORS; t++) CHECK_EQ(GW_OK, gw_step_ready(step, t));
    CHECK_EQ(GW_OK, gw_step_end(step));
    CHECK_EQ(GW_OK, gw_step_flush(step));
    gw_step_close(step);
    gw_free(comm, m.gradients);
    free(m.weights);
    gw_finalize(comm);
}

static void mistakes_get_a_sentence(void) { run("", 2, false, mistakes); }

/* One rank breaks a step off, after an exception say: it does not wait for itself, and the others are told. */
static void breaks_off(int rank) {
    seat s = sit_down(rank, NULL);
    gw_status status = gw_barrier(s.comm); /* all have committed */
    if (rank == world - 1) {
        CHECK_EQ(GW_OK, status);
        CHECK_EQ(GW_OK, gw_step_ready(s.step, 0));
    } else {
        for (int t = TENSORS - 1; t >= 0 && !status; t--) status = gw_step_ready(s.step, t);
        if (!status) status = gw_step_end(s.step);
        if (!status) status = gw_step_flush(s.step);
        CHECK_EQ(GW_ABORTED, status);
        CHECK(strstr(gw_last_error(s.comm), "it closed a step that had not ended, in which conv.weight was ready"));
    }
    gw_step_close(s.step);
    if (world == 1) CHECK_EQ(GW_OK, gw_step_commit(&s.step, s.comm, s.m.tensors, TENSORS, NULL));
    else s.step = NULL;
    get_up(&s);
}

static void a_step_broken_off_ends_for_all(void) {
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
    seat s = sit_down(rank, NULL);
    backward(s.step, &s.m, rank, 0);
    CHECK_EQ(GW_OK, gw_step_flush(s.step));
    CHECK_EQ(GW_OK, gw_barrier(s.comm));
    atomic_fetch_add(left_barrier, 1);
    if (rank == 1) {
        while (atomic_load(left_barrier) % 3) usleep(1000); /* the watchdog ends it where that does not come */
        _exit(0);
    }
    gw_status status = GW_OK;
    for (int t = TENSORS - 1; t >= 0 && !status; t--) status = gw_step_ready(s.step, t);
    if (!status) status = gw_step_end(s.step);
    if (!status) status = gw_step_flush(s.step);
    CHECK_EQ(GW_PEER_LOST, status);
    CHECK(strstr(gw_last_error(s.comm), "rank 1") != NULL);
    CHECK_EQ(GW_PEER_LOST, gw_step_wait(s.step, 0));
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
          CASE(what_was_tuned_is_kept), CASE(some_schedules_have_no_sizes), CASE(a_call_with_nothing_to_do_is_short),
          CASE(every_synchrony_ends_at_the_same_weights),
          CASE(codecs_travel_with_every_schedule), CASE(residuals_are_handed_over),
          CASE(mistakes_get_a_sentence), CASE(a_step_broken_off_ends_for_all), CASE(a_lost_rank_ends_the_step))
