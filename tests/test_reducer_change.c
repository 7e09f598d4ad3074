/* test_reducer_change.c - a reducer that continues with another strategy between two steps. Exact strategies give the
 * mean before and after. What a codec has left arrives, whatever strategy follows: the sums over all steps are those of
 * the gradients once an exact step has been made. */
#include <math.h>

#include "reducer/reducer_internal.h"
#include "small_job.h"

#define RANKS 3
#define TENSORS 3
#define STEPS 3 /* under each strategy */

static const size_t counts[TENSORS] = {5000, 17, 70000};
static const char *const names[TENSORS] = {"first", "bias", "last"};
static const char *const *lines; /* strategies, one after the other; NULL at the end */
static bool scattered;           /* tensors are not side by side */
static int port;

static float gradient_of(int rank, int tensor, size_t i, int step) {
    return (float)((int)((i * 7 + (size_t)(step * 13 + tensor)) % 23) - 11 + rank);
}

static void make_tensors(gw_comm *comm, gw_reducer_tensor *tensors) {
    for (int t = 0; t < TENSORS; t++)
        tensors[t] = (gw_reducer_tensor){.name = names[t],
                                         .count = counts[t],
                                         .gradient = scattered ? malloc(counts[t] * sizeof(float))
                                                               : gw_alloc(comm, counts[t] * sizeof(float))};
}

static void step(gw_reducer *reducer, const gw_reducer_tensor *tensors, int rank, int number, double *sums) {
    for (int t = 0; t < TENSORS; t++) {
        CHECK_EQ(GW_OK, gw_reducer_wait(reducer, t));
        for (size_t i = 0; i < counts[t]; i++) ((float *)tensors[t].gradient)[i] = gradient_of(rank, t, i, number);
    }
    for (int t = TENSORS - 1; t >= 0; t--) CHECK_EQ(GW_OK, gw_reducer_ready(reducer, t));
    CHECK_EQ(GW_OK, gw_reducer_end(reducer));
    CHECK_EQ(GW_OK, gw_reducer_flush(reducer));
    for (int t = 0; t < TENSORS; t++)
        for (size_t i = 0; i < counts[t]; i++)
            sums[(size_t)t * counts[TENSORS - 1] + i] += ((float *)tensors[t].gradient)[i];
}

static double wanted(int tensor, size_t i, int steps) {
    double sum = 0;
    for (int s = 0; s < steps; s++)
        for (int r = 0; r < RANKS; r++) sum += gradient_of(r, tensor, i, s) / (double)RANKS;
    return sum;
}

/* After an exact step. */
static void check_sums(const double *sums, int steps) {
    int wrong = 0;
    for (int t = 0; t < TENSORS; t++)
        for (size_t i = 0; i < counts[t]; i++)
            wrong += fabs(sums[(size_t)t * counts[TENSORS - 1] + i] - wanted(t, i, steps)) > 1e-3;
    CHECK_EQ(0, wrong);
}

/* The state is saved after each change, and a fresh reducer would continue from it. */
static void save_and_restore(gw_reducer *reducer) {
    size_t bytes = gw_reducer_state_bytes(reducer);
    void *state = malloc(bytes);
    CHECK_EQ(GW_OK, gw_reducer_state_save(reducer, state));
    CHECK_EQ(GW_OK, gw_reducer_state_restore(reducer, state, bytes));
    free(state);
}

static void member(int rank) {
    gw_comm *comm = NULL;
    gw_reducer *reducer = NULL;
    gw_reducer_tensor tensors[TENSORS];
    gw_reducer_options options = GW_REDUCER_OPTIONS_DEFAULT;
    gw_options joining = job_options(rank, RANKS, port, "fixed");
    double *sums = calloc(TENSORS * counts[TENSORS - 1], sizeof *sums);
    int steps = 0;
    CHECK_EQ(GW_OK, gw_init(&comm, &joining));
    make_tensors(comm, tensors);
    options.strategy = lines[0];
    CHECK_EQ(GW_OK, gw_reducer_commit(&reducer, comm, tensors, TENSORS, &options));
    for (const char *const *line = lines; *line; line++) {
        gw_strategy strategy = comm->context->strategy;
        gw_error error = {.rank = -1};
        CHECK_EQ(GW_OK, gw_strategy_overlay(&strategy, *line, NULL, &error));
        if (line != lines) CHECK_EQ(GW_OK, gw_reducer_change(reducer, &strategy));
        save_and_restore(reducer);
        for (int i = 0; i < STEPS; i++) step(reducer, tensors, rank, steps++, sums);
        if (!gw_strategy_compresses(&strategy)) check_sums(sums, steps);
        CHECK_EQ(steps, gw_reducer_read_counters(reducer).step);
    }
    gw_reducer_close(reducer);
    for (int t = 0; scattered && t < TENSORS; t++) free(tensors[t].gradient);
    gw_finalize(comm);
    free(sums);
}

static void run(const char *const *strategies, bool apart) {
    lines = strategies;
    scattered = apart;
    port = free_port();
    job_fork(RANKS, member);
}

static void exact_strategies_follow_each_other(void) {
    static const char *const strategies[] = {"schedule=wfbp",
                                             "arch=ring schedule=dear",
                                             "arch=halving schedule=p3",
                                             "schedule=fifo",
                                             "arch=tree schedule=bytescheduler:slice=64K,credit=64K",
                                             "schedule=wfbp",
                                             NULL};
    run(strategies, false);
    run(strategies, true);
}

static void nothing_of_a_residual_is_lost(void) {
    static const char *const strategies[] = {"compress=topk:ratio=0.01,feedback=both",
                                             "arch=ring compress=topk:ratio=0.01,feedback=both schedule=dear",
                                             "compress=onebit:feedback=both",
                                             "arch=ring compress=powersgd:rank=2",
                                             "compress=none",
                                             "compress=int8:feedback=worker schedule=p3",
                                             "compress=none schedule=dear",
                                             NULL};
    run(strategies, false);
    run(strategies, true);
}

TEST_MAIN(CASE(exact_strategies_follow_each_other), CASE(nothing_of_a_residual_is_lost))
