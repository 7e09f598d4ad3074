/* test_combinations.c - a covering set of strategy lines has every pair of techniques of two axes: each line trains a
 * small model to a falling loss, with micro-steps and with gradients that some ranks lack; a pair without a line is
 * refused with a reason. SHOW_STRATEGIES=1 prints the lines. */
#include <math.h>

#include "small_job.h"
#include "strategy/combine.h"

#define LINES_MAX 512
#define RANKS 3
#define AXES GW_AXIS_TRANSPORT /* those that are paired; transports take turns */
#define TENSORS 4
#define STEPS 20

static gw_strategy lines[LINES_MAX];
static int line_count, port;
static const char *transport;
static bool met[AXES][GW_TECHNIQUES_MAX][AXES][GW_TECHNIQUES_MAX];

static int number_of(gw_axis axis, const gw_technique *t) {
    int i = 0;
    while (gw_techniques(axis)[i] != t) i++;
    return i;
}

static bool *pair_met(const gw_strategy *s, gw_axis a, gw_axis b) {
    return &met[a][number_of(a, s->axes[a].technique)][b][number_of(b, s->axes[b].technique)];
}

static int new_pairs(const gw_strategy *s) {
    int count = 0;
    for (gw_axis a = 0; a < AXES; a++)
        for (gw_axis b = a + 1; b < AXES; b++) count += !*pair_met(s, a, b);
    return count;
}

/* Sets the other axes so that the line stays possible and as many pairs as can be meet in it. */
static void enrich(gw_strategy *s, gw_axis a, gw_axis b) {
    gw_reducer_facts facts = {.world = RANKS, .updates = true};
    for (gw_axis axis = 0; axis < AXES; axis++) {
        if (axis == a || axis == b) continue;
        for (const gw_technique *const *t = gw_techniques(axis); *t; t++) {
            gw_strategy other = *s;
            other.axes[axis] = (gw_setting){.technique = *t};
            gw_technique_default(*t, other.axes[axis].values);
            if (!gw_strategy_check_step(&other, &facts, NULL) && new_pairs(&other) > new_pairs(s)) *s = other;
        }
    }
}

static void cover(gw_axis a, const gw_technique *first, gw_axis b, const gw_technique *second) {
    gw_error error = {.rank = -1};
    gw_strategy s;
    bool *there = &met[a][number_of(a, first)][b][number_of(b, second)];
    if (*there) return;
    if (gw_strategy_combine(a, first, b, second, RANKS, &s, &error)) {
        CHECK_EQ(GW_UNSUPPORTED, error.status);
        CHECK(strstr(error.text, first->name) || strstr(error.text, second->name) || strstr(error.text, "arch=ps"));
        return;
    }
    enrich(&s, a, b);
    for (gw_axis x = 0; x < AXES; x++)
        for (gw_axis y = x + 1; y < AXES; y++) *pair_met(&s, x, y) = true;
    if (line_count == LINES_MAX) abort();
    lines[line_count++] = s;
}

static void make_covering_set(void) {
    line_count = 0;
    for (gw_axis a = 0; a < AXES; a++)
        for (gw_axis b = a + 1; b < AXES; b++)
            for (const gw_technique *const *x = gw_techniques(a); *x; x++)
                for (const gw_technique *const *y = gw_techniques(b); *y; y++) cover(a, *x, b, *y);
}

/* Each rank's loss is half the squared distance to a point of its own. */

typedef struct model {
    gw_reducer_tensor tensors[TENSORS];
    float weights[2600], gradients[2600], target[2600];
} model;

static void make_model(model *m, int rank) {
    static const struct {
        const char *name;
        size_t count, rows;
    } shapes[TENSORS] = {{"w1", 1200, 30}, {"b1", 30, 0}, {"w2", 1300, 50}, {"b2", 10, 0}};
    size_t at = 0;
    for (int t = 0; t < TENSORS; t++) {
        m->tensors[t] = (gw_reducer_tensor){.name = shapes[t].name, .count = shapes[t].count, .dtype = GW_F32,
                                         .gradient = m->gradients + at, .weights = m->weights + at,
                                         .rows = shapes[t].rows, .exact = !shapes[t].rows};
        at += shapes[t].count;
    }
    for (size_t i = 0; i < 2600; i++) {
        m->weights[i] = 0;
        m->target[i] = (float)((i * 37) % 19) / 19 + 0.5f + 0.1f * (float)rank;
    }
}

static double loss(const model *m) {
    double sum = 0;
    for (size_t i = 0; i < 2540; i++) sum += 0.5 * (m->weights[i] - m->target[i]) * (m->weights[i] - m->target[i]);
    return sum;
}

static void descend(void *ctx, const gw_reducer_update *u) {
    float *weights = u->weights;
    const float *gradient = u->gradient;
    (void)ctx;
    for (size_t i = 0; i < u->count; i++) weights[i] -= 0.01f * (float)(u->rate_scale * u->scale) * gradient[i];
}

/* In a micro-step, and of an absent tensor, the gradient must not be sent: it is not a number. */
static void fill(model *m, int tensor, bool sent) {
    size_t first = (size_t)((float *)m->tensors[tensor].weights - m->weights);
    for (size_t i = first; i < first + m->tensors[tensor].count; i++)
        m->gradients[i] = sent ? m->weights[i] - m->target[i] : NAN;
}

static void make_micro_step(gw_reducer *reducer, model *m) {
    CHECK_EQ(GW_OK, gw_reducer_accumulate(reducer, true));
    for (int t = TENSORS - 1; t >= 0; t--) {
        fill(m, t, false);
        CHECK_EQ(GW_OK, gw_reducer_ready(reducer, t));
    }
    CHECK_EQ(GW_OK, gw_reducer_end(reducer));
    CHECK_EQ(GW_OK, gw_reducer_accumulate(reducer, false));
}

static void train(gw_comm *comm, const char *line) {
    static model m;
    gw_reducer *reducer = NULL;
    gw_reducer_options options = GW_REDUCER_OPTIONS_DEFAULT;
    make_model(&m, gw_rank(comm));
    options.strategy = line;
    options.update = descend;
    double before = loss(&m);
    int failures = test_failures;
    CHECK_EQ(GW_OK, gw_reducer_commit(&reducer, comm, m.tensors, TENSORS, &options));
    if (!reducer) printf("    %s: %s\n", line, gw_last_error(NULL)), exit(1);
    for (int number = 0; number < STEPS; number++) {
        for (int t = 0; t < TENSORS; t++) CHECK_EQ(GW_OK, gw_reducer_wait(reducer, t));
        if (number % 3 == 1) make_micro_step(reducer, &m);
        for (int t = TENSORS - 1; t >= 0; t--) {
            bool absent = (number + t + gw_rank(comm)) % 5 == 0;
            fill(&m, t, !absent);
            CHECK_EQ(GW_OK, absent ? gw_reducer_absent(reducer, t) : gw_reducer_ready(reducer, t));
        }
        CHECK_EQ(GW_OK, gw_reducer_end(reducer));
    }
    CHECK_EQ(GW_OK, gw_reducer_flush(reducer));
    bool falls = loss(&m) < before;
    CHECK(falls);
    if (test_failures != failures)
        printf("    %s: the loss went from %g to %g; %s\n", line, before, loss(&m), gw_last_error(NULL));
    gw_reducer_close(reducer);
}

static int turn, turns;

static void trains_its_lines(int rank) {
    gw_comm *comm = NULL;
    gw_options options = job_options(rank, RANKS, port, transport);
    CHECK_EQ(GW_OK, gw_init(&comm, &options));
    if (!comm) exit(1);
    for (int i = turn; i < line_count; i += turns) {
        char line[GW_STRATEGY_PRINT_BYTES];
        gw_strategy_print(&lines[i], line, sizeof line);
        *strstr(line, " transport=") = '\0';
        train(comm, line);
    }
    gw_finalize(comm);
}

static void every_pair_trains_or_is_refused(void) {
    static const char *const transports[] = {"transport=auto", "transport=tcp", "transport=shm"};
    make_covering_set();
    turns = 3;
    for (turn = 0; turn < turns; turn++) {
        transport = transports[turn];
        port = free_port();
        job_fork(RANKS, trains_its_lines);
    }
    for (int i = 0; i < line_count && getenv("SHOW_STRATEGIES"); i++) {
        char line[GW_STRATEGY_PRINT_BYTES];
        gw_strategy_print(&lines[i], line, sizeof line);
        printf("    %s\n", line);
    }
    printf("    %d lines cover every pair\n", line_count);
}

TEST_MAIN(CASE(every_pair_trains_or_is_refused))
