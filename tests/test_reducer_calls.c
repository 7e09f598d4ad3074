/* test_reducer_calls.c - the calls of a step beside ready and wait: absent tensors, several ready tensors in one call,
 * accumulation over micro-steps, and gradients that are not finite. Real processes; results are compared with the mean
 * computed here. */
#include <math.h>

#include "small_job.h"

#define TENSORS 5
#define STEPS 5
#define ROWS 200
#define COLS 600
#define WEIGHT 2 /* the tensor that arch=sfb sends as factors */

static const size_t counts[TENSORS] = {300, 0, ROWS *COLS, ROWS, 1};
static const char *const names[TENSORS] = {"embedding", "empty", "fc.weight", "fc.bias", "scale"};

static const char *line; /* of the job that runs */
static int world, port;

typedef struct member {
    gw_comm *comm;
    gw_reducer *reducer;
    gw_reducer_tensor tensors[TENSORS];
    float *gradients, *weights, *left, *right;
    int rank;
} member;

/* Small whole numbers, so that sums are exact in any order. That of the matrix is an outer product. */
static float left_of(int rank, size_t row) { return (float)((rank + 1) * (int)(row % 3 + 1)); }
static float right_of(size_t column, int step) { return (float)((int)(column % 5) + step); }

static float gradient_of(int rank, int tensor, size_t i, int step) {
    if (tensor == WEIGHT) return left_of(rank, i / COLS) * right_of(i % COLS, step);
    return (float)((rank + 1) * (int)(i % 17) + 3 * step + tensor - 20);
}

static void fill(const member *m, int tensor, int step) {
    float *gradient = m->tensors[tensor].gradient;
    for (size_t i = 0; i < counts[tensor]; i++) gradient[i] = gradient_of(m->rank, tensor, i, step);
}

static gw_status ready_tensor(const member *m, int tensor, int step) {
    if (!gw_reducer_wants_factors(m->reducer, tensor)) return gw_reducer_ready(m->reducer, tensor);
    for (size_t i = 0; i < ROWS; i++) m->left[i] = left_of(m->rank, i);
    for (size_t i = 0; i < COLS; i++) m->right[i] = right_of(i, step);
    return gw_reducer_ready_factors(m->reducer, tensor, m->left, m->right, 1);
}

static member sit_down(int rank, const gw_reducer_options *options) {
    member m = {.rank = rank};
    gw_options joining = job_options(rank, world, port, line);
    CHECK_EQ(GW_OK, gw_init(&m.comm, &joining));
    if (!m.comm) printf("    %s\n", gw_last_error(NULL)), exit(1);
    size_t total = 0, at = 0;
    for (int t = 0; t < TENSORS; t++) total += counts[t];
    m.gradients = gw_alloc(m.comm, total * sizeof(float));
    m.weights = calloc(total, sizeof(float));
    m.left = calloc(4 * ROWS, sizeof(float));
    m.right = calloc(4 * COLS, sizeof(float));
    for (int t = 0; t < TENSORS; at += counts[t++])
        m.tensors[t] = (gw_reducer_tensor){.name = names[t], .count = counts[t], .gradient = m.gradients + at,
                                           .weights = m.weights + at, .rows = t == WEIGHT ? ROWS : 0,
                                           .batch = t == WEIGHT ? 4 : 0};
    CHECK_EQ(GW_OK, gw_reducer_commit(&m.reducer, m.comm, m.tensors, TENSORS, options));
    if (!m.reducer) printf("    %s\n", gw_last_error(NULL)), exit(1);
    return m;
}

static void get_up(member *m) {
    gw_reducer_close(m->reducer);
    gw_free(m->comm, m->gradients);
    free(m->weights);
    free(m->left);
    free(m->right);
    gw_finalize(m->comm);
}

static void run(const char *strategy, int ranks, void (*body)(int rank)) {
    line = strategy;
    world = ranks;
    port = free_port();
    int before = test_failures;
    job_fork(ranks, body);
    if (test_failures != before) printf("    with %d ranks, %s\n", ranks, strategy);
}

static void check_values(const float *values, int tensor, double (*expected)(int tensor, size_t i, int step),
                         int step) {
    for (size_t i = 0; i < counts[tensor]; i++) {
        double e = expected(tensor, i, step);
        if (fabs(values[i] - e) <= 1e-3 + 1e-5 * fabs(e)) continue;
        CHECK(!"a value is wrong");
        printf("    %s, element %zu, step %d: %g, not %g\n", names[tensor], i, step, (double)values[i], e);
        return;
    }
}

#define SAYS(status, words, call)                                                                                      \
    do {                                                                                                               \
        CHECK_EQ(status, call);                                                                                        \
        CHECK(strstr(gw_last_error(NULL), words) != NULL);                                                             \
        if (!strstr(gw_last_error(NULL), words)) printf("    said: %s\n", gw_last_error(NULL));                        \
    } while (0)

/* Absent tensors: in turn on some ranks, on all of them, and on none. */

static bool is_absent(int rank, int tensor, int step) { return step == tensor || (rank + tensor + step) % 3 == 0; }

static double mean_of_present(int tensor, size_t i, int step) {
    double sum = 0;
    for (int r = 0; r < world; r++)
        if (!is_absent(r, tensor, step)) sum += gradient_of(r, tensor, i, step);
    return sum / world;
}

static void hand_over_present(const member *m, int step) {
    for (int t = TENSORS - 1; t >= 0; t--) {
        fill(m, t, step); /* stays there if the tensor is absent, and must not be sent */
        CHECK_EQ(GW_OK, is_absent(m->rank, t, step) ? gw_reducer_absent(m->reducer, t) : ready_tensor(m, t, step));
    }
    CHECK_EQ(GW_OK, gw_reducer_end(m->reducer));
}

static void leaves_out(int rank) {
    member m = sit_down(rank, NULL);
    for (int step = 0; step < STEPS; step++) {
        hand_over_present(&m, step);
        for (int t = 0; t < TENSORS; t++) {
            CHECK_EQ(GW_OK, gw_reducer_wait(m.reducer, t));
            check_values(m.tensors[t].gradient, t, mean_of_present, step);
        }
    }
    get_up(&m);
}

static void an_absent_tensor_counts_as_zeros(void) {
    run("", 3, leaves_out);
    run("schedule=dear arch=ring transport=tcp", 2, leaves_out);
    run("schedule=p3:slice=32K arch=halving", 4, leaves_out);
    run("compress=fp16 schedule=fifo", 3, leaves_out);
    run("arch=ps", 3, leaves_out);
    run("arch=ps:servers=1 schedule=bytescheduler", 2, leaves_out);
    run("arch=sfb", 3, leaves_out);
    run("", 1, leaves_out);
}

static void descend(void *ctx, const gw_reducer_update *u) {
    float *weights = u->weights;
    const float *gradient = u->gradient;
    (void)ctx;
    for (size_t i = 0; i < u->count; i++) weights[i] -= 0.5f * (float)(u->rate_scale * u->scale) * gradient[i];
}

static double descended(int tensor, size_t i, int steps) {
    double weight = 0;
    for (int step = 0; step < steps; step++) weight -= 0.5 * mean_of_present(tensor, i, step);
    return weight;
}

static void updates_without_some(int rank) {
    gw_reducer_options options = GW_REDUCER_OPTIONS_DEFAULT;
    options.update = descend;
    member m = sit_down(rank, &options);
    for (int step = 0; step < STEPS; step++) {
        for (int t = 0; t < TENSORS; t++) CHECK_EQ(GW_OK, gw_reducer_wait(m.reducer, t));
        hand_over_present(&m, step);
    }
    CHECK_EQ(GW_OK, gw_reducer_flush(m.reducer));
    for (int t = 0; t < TENSORS; t++) check_values(m.tensors[t].weights, t, descended, STEPS);
    get_up(&m);
}

static void absent_tensors_are_updated(void) {
    run("sync=bsp schedule=wfbp", 3, updates_without_some);
    run("sync=delayed:warmup=1", 2, updates_without_some);
    run("sync=periodic:every=5", 3, updates_without_some);
    run("sync=periodic:every=2,from=1 schedule=dear", 2, updates_without_some);
}

static double first_mean(int tensor, size_t i, int step) {
    double sum = 0;
    for (int r = 0; r < world; r++) sum += gradient_of(r, tensor, i, step);
    return sum / world;
}

/* After one step every tensor is absent on every rank: what arrives is what the codec held back. */
static void sends_the_rest(int rank) {
    member m = sit_down(rank, NULL);
    float *arrived = calloc(ROWS * COLS + 1000, sizeof *arrived), *at = arrived;
    for (int step = 0; step < 24; step++) {
        for (int t = TENSORS - 1; t >= 0; t--) {
            if (step == 0) fill(&m, t, 0);
            CHECK_EQ(GW_OK, step ? gw_reducer_absent(m.reducer, t) : gw_reducer_ready(m.reducer, t));
        }
        CHECK_EQ(GW_OK, gw_reducer_end(m.reducer));
        CHECK_EQ(GW_OK, gw_reducer_flush(m.reducer));
        at = arrived;
        for (int t = 0; t < TENSORS; t++)
            for (size_t i = 0; i < counts[t]; i++) *at++ += ((const float *)m.tensors[t].gradient)[i];
    }
    at = arrived;
    for (int t = 0; t < TENSORS; at += counts[t++]) check_values(at, t, first_mean, 0);
    free(arrived);
    get_up(&m);
}

static void residuals_of_absent_tensors_are_sent(void) {
    run("compress=topk:ratio=0.2", 2, sends_the_rest);
    run("compress=topk:ratio=0.2 arch=ps", 2, sends_the_rest);
}

/* Several in one call. */

static void hands_over_lists(int rank) {
    static const int odd[] = {3, 1}, even[] = {4, 2, 0};
    static const int unknown[] = {0, TENSORS}, twice[] = {0, 2, 0}, again[] = {0, 3};
    member m = sit_down(rank, NULL);
    for (int step = 0; step < STEPS; step++) {
        for (int t = 0; t < TENSORS; t++) fill(&m, t, step);
        SAYS(GW_INVALID, "gw_reducer_ready_many: there is no tensor 5 among 5",
             gw_reducer_ready_many(m.reducer, unknown, 2));
        SAYS(GW_INVALID, "gw_reducer_ready_many: embedding has been ready", gw_reducer_ready_many(m.reducer, twice, 3));
        CHECK_EQ(GW_OK, gw_reducer_ready_many(m.reducer, odd, 2));
        SAYS(GW_INVALID, "gw_reducer_ready_many: fc.bias has been ready", gw_reducer_ready_many(m.reducer, again, 2));
        CHECK_EQ(GW_OK, gw_reducer_ready_many(m.reducer, even, 3)); /* none of them has been marked so far */
        CHECK_EQ(GW_OK, gw_reducer_end(m.reducer));
        for (int t = 0; t < TENSORS; t++) {
            CHECK_EQ(GW_OK, gw_reducer_wait(m.reducer, t));
            check_values(m.tensors[t].gradient, t, first_mean, step);
        }
    }
    CHECK_EQ(GW_OK, gw_reducer_ready_many(m.reducer, NULL, 0));
    SAYS(GW_INVALID, "no list of 2 tensors", gw_reducer_ready_many(m.reducer, NULL, 2));
    SAYS(GW_INVALID, "no list of -1 tensors", gw_reducer_ready_many(m.reducer, odd, -1));
    get_up(&m);
}

static void a_list_is_ready_as_a_whole_or_not_at_all(void) {
    run("", 2, hands_over_lists);
    run("schedule=dear transport=tcp", 3, hands_over_lists);
    run("schedule=tictac arch=ps", 2, hands_over_lists);
}

static void lists_under_update(int rank) {
    static const int all[] = {4, 3, 2, 1, 0};
    gw_reducer_options options = GW_REDUCER_OPTIONS_DEFAULT;
    options.update = descend;
    member m = sit_down(rank, &options);
    for (int step = 0; step < STEPS; step++) {
        for (int t = 0; t < TENSORS; t++) fill(&m, t, step); /* runs ahead: the exchange has a copy */
        CHECK_EQ(GW_OK, gw_reducer_ready_many(m.reducer, all, TENSORS));
        CHECK_EQ(GW_OK, gw_reducer_end(m.reducer));
    }
    CHECK_EQ(GW_OK, gw_reducer_flush(m.reducer));
    for (size_t i = 0; i < counts[0]; i++) {
        double weight = 0;
        for (int step = 0; step < STEPS; step++) weight -= 0.5 * first_mean(0, i, step);
        CHECK(fabs(((const float *)m.tensors[0].weights)[i] - weight) < 1e-3);
    }
    get_up(&m);
}

static void a_list_waits_for_the_step_before(void) { run("sync=delayed:warmup=0", 2, lists_under_update); }

/* Accumulation: ranks make different numbers of micro-steps. */

static int micro_steps(int rank, int step) { return (rank + step) % 3; }

static double mean_of_accumulated(int tensor, size_t i, int step) {
    double sum = 0;
    for (int r = 0; r < world; r++) sum += (1 + micro_steps(r, step)) * gradient_of(r, tensor, i, step);
    return sum / world;
}

/* Of a tensor that is sent as factors the caller keeps those of all micro-steps. */
static gw_status ready_accumulated(const member *m, int tensor, int step, int parts) {
    if (!gw_reducer_wants_factors(m->reducer, tensor)) return gw_reducer_ready(m->reducer, tensor);
    for (int k = 0; k < parts; k++) {
        for (size_t i = 0; i < ROWS; i++) m->left[(size_t)k * ROWS + i] = left_of(m->rank, i);
        for (size_t i = 0; i < COLS; i++) m->right[(size_t)k * COLS + i] = right_of(i, step);
    }
    return gw_reducer_ready_factors(m->reducer, tensor, m->left, m->right, (size_t)parts);
}

static void make_pass(const member *m, int step, int pass) {
    for (int t = 0; t < TENSORS; t++) {
        float *gradient = m->tensors[t].gradient;
        CHECK_EQ(GW_OK, gw_reducer_wait(m->reducer, t));
        if (pass == 0 && step) check_values(gradient, t, mean_of_accumulated, step - 1);
        for (size_t i = 0; i < counts[t]; i++)
            gradient[i] = (pass ? gradient[i] : 0) + gradient_of(m->rank, t, i, step);
        CHECK_EQ(GW_OK, ready_accumulated(m, t, step, 1 + pass));
    }
    CHECK_EQ(GW_OK, gw_reducer_end(m->reducer));
}

static void accumulates(int rank) {
    member m = sit_down(rank, NULL);
    for (int step = 0; step < STEPS; step++) {
        int pass = 0;
        CHECK_EQ(GW_OK, gw_reducer_accumulate(m.reducer, true));
        for (; pass < micro_steps(rank, step); pass++) make_pass(&m, step, pass);
        CHECK_EQ(step, gw_reducer_read_counters(m.reducer).steps);
        CHECK_EQ(step, gw_reducer_read_counters(m.reducer).step);
        CHECK_EQ(GW_OK, gw_reducer_accumulate(m.reducer, false));
        make_pass(&m, step, pass);
    }
    for (int t = 0; t < TENSORS; t++) {
        CHECK_EQ(GW_OK, gw_reducer_wait(m.reducer, t));
        check_values(m.tensors[t].gradient, t, mean_of_accumulated, STEPS - 1);
    }
    get_up(&m);
}

static void says_its_routes(int rank) {
    member m = sit_down(rank, NULL);
    char routes[2000], few[8];
    int length = gw_reducer_routes(m.reducer, routes, sizeof routes);
    CHECK_EQ(strlen(routes), length);
    CHECK(strstr(routes, "reduce-scatter among all ranks (") && strstr(routes, ", all-gather among all ranks ("));
    CHECK_EQ(length, gw_reducer_routes(m.reducer, few, sizeof few));
    CHECK_EQ(0, strncmp(routes, few, sizeof few - 1));
    for (int t = 0; t < TENSORS; t++) CHECK_EQ(GW_OK, gw_reducer_absent(m.reducer, t));
    CHECK_EQ(GW_OK, gw_reducer_end(m.reducer));
    get_up(&m);
}

static void routes_can_be_read(void) { run("schedule=dear transport=tcp arch=ring", 2, says_its_routes); }

static void micro_steps_stay_local(void) {
    run("", 3, accumulates);
    run("schedule=dear transport=tcp arch=ring", 2, accumulates);
    run("schedule=p3:slice=32K", 2, accumulates);
    run("schedule=mgwfbp", 2, accumulates); /* times the calls of the first steps */
    run("arch=ps", 3, accumulates);
    run("arch=sfb", 3, accumulates);
}

/* While a micro-step runs nothing is sent and nothing is touched. */
static void stays_alone(int rank) {
    static const int some[] = {0, 3};
    member m = sit_down(rank, NULL);
    CHECK_EQ(GW_OK, gw_reducer_accumulate(m.reducer, true));
    for (int t = 0; t < TENSORS; t++) fill(&m, t, 1);
    if (rank == 0) /* the other rank makes no call */
        for (int k = 0; k < 3; k++) {
            CHECK_EQ(GW_OK, gw_reducer_ready_many(m.reducer, some, 2));
            CHECK_EQ(GW_OK, gw_reducer_absent(m.reducer, 4));
            CHECK_EQ(GW_OK, gw_reducer_end(m.reducer));
            CHECK_EQ(GW_OK, gw_reducer_flush(m.reducer));
            for (int t = 0; t < TENSORS; t++) CHECK_EQ(GW_OK, gw_reducer_wait(m.reducer, t));
        }
    for (int t = 0; t < TENSORS; t++)
        for (size_t i = 0; i < counts[t]; i++) CHECK(((float *)m.tensors[t].gradient)[i] == gradient_of(rank, t, i, 1));
    SAYS(GW_INVALID, "gw_reducer_ready: there is no tensor 9", gw_reducer_ready(m.reducer, 9));
    CHECK_EQ(0, gw_reducer_read_counters(m.reducer).messages_sent);
    CHECK_EQ(0, gw_reducer_reached(m.reducer, 0));
    get_up(&m);
}

static void a_micro_step_sends_nothing(void) { run("transport=tcp", 2, stays_alone); }

/* Mistakes. */

static void mistakes(int rank) {
    member m = sit_down(rank, NULL);
    for (int t = 0; t < TENSORS; t++) fill(&m, t, 0);
    SAYS(GW_INVALID, "the reducer is NULL", gw_reducer_accumulate(NULL, true));
    SAYS(GW_INVALID, "the reducer is NULL", gw_reducer_absent(NULL, 0));
    SAYS(GW_INVALID, "gw_reducer_absent: there is no tensor 5 among 5", gw_reducer_absent(m.reducer, TENSORS));
    CHECK_EQ(GW_OK, gw_reducer_absent(m.reducer, 0));
    SAYS(GW_INVALID, "gw_reducer_absent: embedding has been ready or absent", gw_reducer_absent(m.reducer, 0));
    SAYS(GW_INVALID, "gw_reducer_ready: embedding has been ready or absent", gw_reducer_ready(m.reducer, 0));
    SAYS(GW_INVALID, "gw_reducer_accumulate: embedding is ready in a step that has not ended",
         gw_reducer_accumulate(m.reducer, true));
    CHECK_EQ(GW_OK, gw_reducer_ready(m.reducer, 1));
    SAYS(GW_INVALID,
         "gw_reducer_end: tensor 2, fc.weight, was neither ready nor absent in this step: call gw_reducer_ready, or "
         "gw_reducer_absent",
         gw_reducer_end(m.reducer));
    if (rank == 1) CHECK_EQ(GW_OK, gw_barrier(m.comm)); /* until then the step of rank 0 is under way */
    for (int t = 2; t < TENSORS; t++) CHECK_EQ(GW_OK, gw_reducer_ready(m.reducer, t));
    CHECK_EQ(GW_OK, gw_reducer_end(m.reducer));
    if (rank == 0) {
        SAYS(GW_INVALID, "gw_reducer_absent: fc.bias is still under way", gw_reducer_absent(m.reducer, 3));
        CHECK_EQ(GW_OK, gw_reducer_accumulate(m.reducer, true));
        SAYS(GW_INVALID, "gw_reducer_ready: fc.bias is still under way", gw_reducer_ready(m.reducer, 3));
        CHECK_EQ(GW_OK, gw_barrier(m.comm));
        CHECK_EQ(GW_OK, gw_reducer_wait(m.reducer, 3));
        CHECK_EQ(GW_OK, gw_reducer_ready(m.reducer, 3));
    }
    CHECK_EQ(GW_OK, gw_reducer_flush(m.reducer));
    get_up(&m);
}

static double mean_of_all(int tensor, size_t i, int step) {
    double sum = 0;
    for (int r = 0; r < world; r++) sum += (double)gradient_of(r, tensor, i, step);
    return sum / world;
}

/* Waiting for one of several tensors: what it names may be used at once, and all are named in turn. */
static void waits_for_any(int rank) {
    member m = sit_down(rank, NULL);
    for (int step = 0; step < STEPS; step++) {
        int left[TENSORS] = {0, 1, 2, 3, 4};
        for (int count = TENSORS; count > 0; count--) {
            int which = -1;
            CHECK_EQ(GW_OK, gw_reducer_wait_any(m.reducer, left, count, &which));
            CHECK(which >= 0 && which < count);
            if (which < 0 || which >= count) exit(1);
            int t = left[which];
            uint64_t waited = gw_reducer_read_counters(m.reducer).wait_ns;
            CHECK_EQ(GW_OK, gw_reducer_wait(m.reducer, t));
            CHECK_EQ(waited, gw_reducer_read_counters(m.reducer).wait_ns);
            if (step) check_values(m.tensors[t].gradient, t, mean_of_all, step - 1);
            left[which] = left[count - 1];
        }
        for (int t = TENSORS - 1; t >= 0; t--) {
            fill(&m, t, step);
            CHECK_EQ(GW_OK, gw_reducer_ready(m.reducer, t));
        }
        CHECK_EQ(GW_OK, gw_reducer_end(m.reducer));
    }
    CHECK_EQ(GW_OK, gw_reducer_flush(m.reducer));
    SAYS(GW_INVALID, "gw_reducer_wait_any: there is no tensor 5 among 5",
         gw_reducer_wait_any(m.reducer, (int[]){5}, 1, &(int){0}));
    SAYS(GW_INVALID, "gw_reducer_wait_any: there is no list", gw_reducer_wait_any(m.reducer, NULL, 1, &(int){0}));
    get_up(&m);
}

static void one_of_several_is_awaited(void) {
    run("schedule=p3 transport=tcp", 3, waits_for_any);
    run("schedule=tictac:mode=tac", 2, waits_for_any);
}

/* Gradients that are not finite. */

/* Refused before anything is sent; the step goes on with another gradient. */
static void refuses_nonfinite(int rank) {
    gw_reducer_options options = GW_REDUCER_OPTIONS_DEFAULT;
    options.nonfinite = GW_NONFINITE_REFUSED;
    member m = sit_down(rank, &options);
    bool factors = gw_reducer_wants_factors(m.reducer, WEIGHT);
    if (rank == 1) {
        m.gradients[counts[0] - 1] = INFINITY;
        SAYS(GW_NOT_FINITE,
             "gw_reducer_ready_many: the gradient of embedding on rank 1 is not finite in step 0 (element "
             "299)",
             gw_reducer_ready_many(m.reducer, (int[]){3, 0}, 2));
        m.gradients[counts[0] - 1] = 0;
        m.right[7] = NAN;
        if (factors)
            SAYS(GW_NOT_FINITE, "fc.weight on rank 1 is not finite in step 0 (element 7 of a factor)",
                 gw_reducer_ready_factors(m.reducer, WEIGHT, m.left, m.right, 1));
    }
    for (int t = TENSORS - 1; t >= 0; t--) CHECK_EQ(GW_OK, ready_tensor(&m, t, 0));
    CHECK_EQ(GW_OK, gw_reducer_end(m.reducer));
    CHECK_EQ(GW_OK, gw_reducer_flush(m.reducer));
    CHECK_EQ(rank == 1 ? 1 + factors : 0, gw_reducer_read_counters(m.reducer).nonfinite);
    get_up(&m);
}

/* It reaches all ranks, and the counters of the rank that it came from say so. */
static void counts_nonfinite(int rank) {
    gw_reducer_options options = GW_REDUCER_OPTIONS_DEFAULT;
    options.nonfinite = GW_NONFINITE_COUNTED;
    member m = sit_down(rank, &options);
    for (int step = 0; step < 3; step++) {
        for (int t = TENSORS - 1; t >= 0; t--) {
            float *gradient = m.tensors[t].gradient;
            CHECK_EQ(GW_OK, gw_reducer_wait(m.reducer, t));
            CHECK_EQ(step == 2 && t == 3, counts[t] && isnan(gradient[0]));
            fill(&m, t, step);
            if (rank == 1 && step == 1 && t == 3) gradient[0] = NAN;
            CHECK_EQ(GW_OK, gw_reducer_ready(m.reducer, t));
        }
        CHECK_EQ(GW_OK, gw_reducer_end(m.reducer));
    }
    CHECK_EQ(GW_OK, gw_reducer_flush(m.reducer));
    gw_reducer_counters counters = gw_reducer_read_counters(m.reducer);
    CHECK_EQ(rank == 1 ? 1 : 0, counters.nonfinite);
    CHECK_EQ(rank == 1 ? 1 : 0, counters.nonfinite_step);
    CHECK_EQ(rank == 1 ? 3 : 0, counters.nonfinite_tensor);
    get_up(&m);
}

static void gradients_that_are_not_finite(void) {
    run("schedule=wfbp", 2, refuses_nonfinite);
    run("arch=sfb", 2, refuses_nonfinite);
    run("schedule=p3", 2, counts_nonfinite);
}

static void mistakes_give_an_error_sentence(void) { run("", 2, mistakes); }

TEST_MAIN(CASE(an_absent_tensor_counts_as_zeros), CASE(absent_tensors_are_updated),
          CASE(residuals_of_absent_tensors_are_sent), CASE(a_list_is_ready_as_a_whole_or_not_at_all),
          CASE(a_list_waits_for_the_step_before), CASE(routes_can_be_read), CASE(micro_steps_stay_local),
          CASE(a_micro_step_sends_nothing), CASE(one_of_several_is_awaited), CASE(gradients_that_are_not_finite),
          CASE(mistakes_give_an_error_sentence))
