/* test_sfb.c - Poseidon's hybrid: the chosen form follows the cost formula, factors rebuild the matrix, real processes
 * get the dense result to rounding, and fewer bytes are sent, as the formula says. */
#include <math.h>

#include "arch/sfb.h"
#include "small_job.h"

/* The formula, written down once more. */
static bool cheaper(double m, double n, double k, double p1, double p2) {
    return 2 * k * (p1 - 1) * (m + n) <= 2 * m * n * (p1 + p2 - 2) / p2;
}

static void vgg16_by_the_formula(void) {
    static const size_t shapes[3][2] = {{4096, 25088}, {4096, 4096}, {1000, 4096}};
    int factors = 0, matrices = 0;
    for (int s = 0; s < 3; s++)
        for (size_t batch = 8; batch <= 128; batch *= 4)
            for (int workers = 2; workers <= 32; workers++)
                for (int servers = 1; servers <= workers; servers++) {
                    gw_sfb_layer layer = {shapes[s][0], shapes[s][1], batch};
                    bool chosen = gw_sfb_chosen(&layer, workers, servers);
                    CHECK_EQ(cheaper((double)layer.rows, (double)layer.cols, (double)batch, workers, servers), chosen);
                    factors += chosen;
                    matrices += !chosen;
                }
    CHECK(factors > 0 && matrices > 0);
    /* Some that can be worked out in the head: K (M + N) against 2 M N / P. */
    CHECK(gw_sfb_chosen(&(gw_sfb_layer){4096, 25088, 32}, 8, 8));
    CHECK(gw_sfb_chosen(&(gw_sfb_layer){4096, 4096, 32}, 32, 32));
    CHECK(!gw_sfb_chosen(&(gw_sfb_layer){4096, 4096, 128}, 33, 33));
    CHECK(!gw_sfb_chosen(&(gw_sfb_layer){1000, 4096, 128}, 16, 16));
    CHECK(!gw_sfb_chosen(&(gw_sfb_layer){4096, 25088, 1}, 1, 1));
}

static void factors_rebuild_the_matrix(void) {
    enum { ROWS = 7, COLS = 2100, BATCH = 8, FIRST = 5 };
    static float left[BATCH * ROWS], right[BATCH * COLS], sum[ROWS * COLS];
    for (int i = 0; i < BATCH * ROWS; i++) left[i] = (float)(i % 11) - 5;
    for (int i = 0; i < BATCH * COLS; i++) right[i] = (float)(i % 13) - 6;
    const gw_sfb_worker workers[] = {
        {left, right, FIRST}, {left, right, 0}, {left + FIRST * ROWS, right + FIRST * COLS, BATCH - FIRST}};
    gw_sfb_sum(sum, ROWS, COLS, workers, 3, 0.5f);
    int wrong = 0;
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLS; c++) {
            float expected = 0;
            for (int k = 0; k < BATCH; k++) expected += 0.5f * left[k * ROWS + r] * right[k * COLS + c];
            wrong += sum[r * COLS + c] != expected;
        }
    CHECK_EQ(0, wrong);
}

/* Real processes. */

#define TENSORS 4
#define STEPS 4
#define ROWS 200
#define COLS 600

static const struct {
    const char *name;
    size_t count, rows, batch;
} shapes[TENSORS] = {{"conv", 20000, 0, 0},
                     {"fc1.weight", ROWS *COLS, ROWS, 4},
                     {"fc1.bias", ROWS, 0, 0},
                     {"fc2.weight", 10 * ROWS, 10, 4}};

static int world, port;
static const char *line;
static bool mixed; /* in some steps some ranks hand over the matrix */

typedef struct model {
    gw_reducer_tensor tensors[TENSORS];
    float *gradients, *weights, *left, *right;
    double sent; /* by all ranks */
} model;

static void make_model(model *m) {
    size_t total = 0;
    for (int t = 0; t < TENSORS; t++) total += shapes[t].count;
    m->gradients = calloc(total, sizeof(float));
    m->weights = calloc(total, sizeof(float));
    m->left = calloc(4 * COLS, sizeof(float));
    m->right = calloc(4 * COLS, sizeof(float));
    for (size_t t = 0, at = 0; t < TENSORS; at += shapes[t++].count)
        m->tensors[t] = (gw_reducer_tensor){.name = shapes[t].name, .count = shapes[t].count, .rows = shapes[t].rows,
                                         .batch = shapes[t].batch, .dtype = GW_F32, .gradient = m->gradients + at,
                                         .weights = m->weights + at};
}

static void free_model(model *m) {
    free(m->gradients);
    free(m->weights);
    free(m->left);
    free(m->right);
}

static void descend(void *ctx, const gw_reducer_update *u) {
    float *weights = u->weights;
    const float *gradient = u->gradient;
    (void)ctx;
    for (size_t i = 0; i < u->count; i++) weights[i] -= 0.25f * (float)(u->rate_scale * u->scale) * gradient[i];
}

static float noise(int rank, int number, size_t i) {
    uint32_t x = ((uint32_t)i + 1) * 2654435761u ^ (uint32_t)(rank * 7919 + number * 104729);
    x ^= x >> 15;
    x *= 2246822519u;
    return (float)(x >> 8) / 8388608.0f - 1;
}

/* As factors where they are wanted, and as the matrix of the same factors where not. Rank 1 has one example less. */
static void hand_over(gw_reducer *reducer, model *m, int t, int rank, int number) {
    size_t rows = shapes[t].rows, cols = rows ? shapes[t].count / rows : 0, batch = shapes[t].batch - (rank == 1);
    float *gradient = m->tensors[t].gradient;
    if (!shapes[t].batch) {
        for (size_t i = 0; i < shapes[t].count; i++) gradient[i] = noise(rank, number, i);
        CHECK_EQ(GW_OK, gw_reducer_ready(reducer, t));
        return;
    }
    for (size_t i = 0; i < batch * rows; i++) m->left[i] = noise(rank, number + 50, i);
    for (size_t i = 0; i < batch * cols; i++) m->right[i] = noise(rank, number + 90, i);
    if (gw_reducer_wants_factors(reducer, t) && !(mixed && (rank + number) % 3 == 0)) {
        CHECK_EQ(GW_INVALID, gw_reducer_ready_factors(reducer, t, m->left, m->right, shapes[t].batch + 1));
        CHECK_EQ(GW_OK, gw_reducer_ready_factors(reducer, t, m->left, m->right, batch));
        return;
    }
    gw_sfb_sum(gradient, rows, cols, &(gw_sfb_worker){m->left, m->right, batch}, 1, 1);
    if (!gw_reducer_wants_factors(reducer, t))
        CHECK_EQ(GW_INVALID, gw_reducer_ready_factors(reducer, t, m->left, m->right, batch));
    CHECK_EQ(GW_OK, gw_reducer_ready(reducer, t));
}

static void take_steps(gw_comm *comm, model *m, const char *strategy, double clip) {
    gw_reducer *reducer = NULL;
    gw_reducer_options options = GW_REDUCER_OPTIONS_DEFAULT;
    options.strategy = strategy;
    options.update = descend;
    options.clip = clip;
    CHECK_EQ(GW_OK, gw_reducer_commit(&reducer, comm, m->tensors, TENSORS, &options));
    if (!reducer) printf("    %s: %s\n", strategy, gw_last_error(NULL)), exit(1);
    bool factors = strstr(strategy, "sfb") && !strstr(strategy, "ssp"); /* there weights come back */
    CHECK_EQ(factors, gw_reducer_wants_factors(reducer, 1));
    CHECK(!gw_reducer_wants_factors(reducer, 0) && !gw_reducer_wants_factors(reducer, 2));
    for (int number = 0; number < STEPS; number++) {
        for (int t = 0; t < TENSORS; t++) CHECK_EQ(GW_OK, gw_reducer_wait(reducer, t));
        for (int t = TENSORS - 1; t >= 0; t--) hand_over(reducer, m, t, gw_rank(comm), number);
        CHECK_EQ(GW_OK, gw_reducer_end(reducer));
    }
    CHECK_EQ(GW_OK, gw_reducer_flush(reducer));
    gw_barrier(comm); /* a server's answers to others are counted here */
    m->sent = (double)gw_reducer_read_counters(reducer).bytes_sent;
    gw_reducer_close(reducer);
    CHECK_EQ(GW_OK, gw_allreduce(comm, &m->sent, &m->sent, 1, GW_F64, GW_SUM));
}

static void same_to_rounding(const model *a, const model *b) {
    double furthest = 0, largest = 0;
    for (int t = 0; t < TENSORS; t++)
        for (size_t i = 0; i < shapes[t].count; i++) {
            double x = ((float *)a->tensors[t].weights)[i], y = ((float *)b->tensors[t].weights)[i];
            furthest = fmax(furthest, fabs(x - y));
            largest = fmax(largest, fabs(x));
        }
    CHECK(largest > 0 && furthest < 1e-5 * largest);
}

/* Bytes that factors of fc1 save, all ranks and steps together: the matrix costs each rank 2 (p-1)/p of itself. */
static double saved(void) {
    double p = world, matrix = 4.0 * ROWS * COLS * 2 * (p - 1) / p, examples = 4 * p - (world > 1);
    return STEPS * (p * matrix - (p - 1) * examples * 4.0 * (ROWS + COLS));
}

static void equals_dense(int rank) {
    gw_comm *comm = NULL;
    gw_options options = job_options(rank, world, port, "transport=tcp");
    CHECK_EQ(GW_OK, gw_init(&comm, &options));
    if (!comm) exit(1);
    model dense, factored;
    make_model(&dense);
    make_model(&factored);
    double clip = strstr(line, "fifo") ? 3 : 0;
    take_steps(comm, &dense, "arch=ring", clip);
    take_steps(comm, &factored, line, clip);
    same_to_rounding(&dense, &factored);
    double fell = dense.sent - factored.sent;
    if (!strstr(line, "servers") && !strstr(line, "compress") && !mixed) {
        CHECK(fabs(fell - saved()) < 0.1 * saved()); /* fc2, and headers */
        if (rank == 0 && fabs(fell - saved()) >= 0.1 * saved())
            printf("    %s: %.0f bytes less, %.0f expected\n", line, fell, saved());
    }
    CHECK(fell > 0 || mixed || strstr(line, "ssp"));
    free_model(&dense);
    free_model(&factored);
    gw_finalize(comm);
}

static void train(const char *strategy, int ranks) {
    int before = test_failures;
    line = strategy;
    world = ranks;
    port = free_port();
    job_fork(world, equals_dense);
    if (test_failures != before) printf("    with %d ranks, %s\n", world, line);
}

static void processes_get_the_dense_result(void) {
    static const char *const lines[] = {"arch=sfb",
                                        "arch=sfb schedule=p3:slice=64K",
                                        "arch=sfb:servers=2 schedule=p3",
                                        "arch=sfb schedule=dear",
                                        "arch=sfb schedule=fifo",
                                        "arch=sfb:servers=1 schedule=bytescheduler:slice=64K,credit=64K",
                                        "arch=sfb:servers=2 sync=ssp:staleness=0"};
    for (int i = 0; i < (int)(sizeof lines / sizeof *lines); i++) train(lines[i], 2 + i % 3);
}

static void some_ranks_have_no_factors(void) {
    mixed = true;
    train("arch=sfb", 3);
    train("arch=sfb schedule=dear", 2);
    train("arch=sfb:servers=2 schedule=p3", 4);
    mixed = false;
}

TEST_MAIN(CASE(vgg16_by_the_formula), CASE(factors_rebuild_the_matrix), CASE(processes_get_the_dense_result),
          CASE(some_ranks_have_no_factors))
