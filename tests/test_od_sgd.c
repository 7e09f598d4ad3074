/* test_od_sgd.c - OD-SGD (sync=delayed) in virtual time: the survey's figure, and weights beside a plain reference,
 * with every local optimiser and under every schedule. */
#include "test.h"

#include <math.h>

#include "schedule/schedule.h"
#include "sim/reducer_sim.h"

static gw_time last_step(const gw_reducer_sim_outcome *o, int steps) {
    return o->began[steps - 1] - o->began[steps - 2];
}

static gw_time run_figure(gw_reducer_sim *training, const char *line) {
    gw_reducer_sim_outcome outcome;
    gw_error error = {.rank = -1};
    CHECK_EQ(GW_OK, gw_strategy_parse(line, &training->strategy, &error));
    CHECK_EQ(GW_OK, gw_reducer_sim_run(training, &outcome, &error));
    CHECK(outcome.ok);
    if (!outcome.ok) printf("    %s\n", outcome.text);
    return last_step(&outcome, training->steps);
}

/* The survey's figure 6: one unit of forward, one of backward for each of two layers, one and a half of communication
 * for each: a synchronous step takes five units, OD-SGD three. The unit is taken from what the network takes. */
static void figure_six(void) {
    gw_reducer_sim t = {.seed = 1, .world = 2, .layers = 1, .steps = 8, .updates = true, .host_of = {0, 1},
                     .bytes_per_second = 1e9, .layer = {{.count = 1 << 20}}};
    gw_time exchange = run_figure(&t, "transport=sim arch=ring schedule=wfbp:fuse=1"), unit = exchange * 2 / 3;
    t.layers = 2;
    t.layer[0] = (gw_reducer_sim_layer){.count = 1 << 20, .forward = unit, .backward = unit};
    t.layer[1] = (gw_reducer_sim_layer){.count = 1 << 20, .forward = 0, .backward = unit};
    gw_time bsp = run_figure(&t, "transport=sim arch=ring schedule=wfbp:fuse=1 sync=bsp");
    gw_time delayed = run_figure(&t, "transport=sim arch=ring schedule=wfbp:fuse=1 sync=delayed:warmup=0");
    printf("    bsp %.4f units, delayed %.4f\n", (double)bsp / (double)unit, (double)delayed / (double)unit);
    CHECK(fabs((double)bsp / (double)unit - 5) < 0.005);
    CHECK(fabs((double)delayed / (double)unit - 3) < 0.005);
}

/* OD-SGD against a plain reference. Each rank pulls each weight towards its own target with a force of its own, or the
 * mean over ranks would not tell local weights from shared ones. */

enum { WORLD = 3, STEPS = 12, COUNT = 100, WARMUP = 4 };

static float pull(int rank, int layer, size_t element, float weight) {
    return 0.2f * (float)(rank + 1) * (weight - (float)(rank * 3 + layer + (int)(element % 5)));
}

static void pulling_gradient(int rank, int layer, int step, const float *weights, size_t count, float *gradient) {
    (void)step;
    for (size_t i = 0; i < count; i++) gradient[i] = pull(rank, layer, i, weights[i]);
}

/* The local optimiser, and its figures. */
typedef struct local_case {
    const char *text;
    double rate, lambda, momentum;
} local_case;
static const local_case locals[] = {{"", 1, 0, 0},
                                    {",rate=0.5", 0.5, 0, 0},
                                    {",local=momentum,momentum=0.7", 1, 0, 0.7},
                                    {",local=dcasgd,lambda=0.3,rate=2", 2, 0.3, 0}};
static const local_case *local;

static double reference_of(int layer, size_t element) {
    double shared = 0, here[WORLD] = {0}, velocity[WORLD] = {0};
    for (int step = 0; step < STEPS; step++) {
        double gradient[WORLD], mean = 0;
        for (int r = 0; r < WORLD; r++) gradient[r] = (double)pull(r, layer, element, (float)here[r]);
        for (int r = 0; r < WORLD; r++) mean += gradient[r] / WORLD;
        for (int r = 0; r < WORLD && step >= WARMUP; r++) { /* from weights that are a step behind */
            double g = gradient[r] + local->lambda * gradient[r] * gradient[r] * (shared - here[r]);
            velocity[r] = local->momentum * velocity[r] + g;
            here[r] = shared - local->rate * GW_REDUCER_SIM_RATE * velocity[r];
        }
        shared -= GW_REDUCER_SIM_RATE * mean;
        for (int r = 0; r < WORLD && step < WARMUP; r++) here[r] = shared;
    }
    return shared;
}

static void compare_with_reference(void *ctx, int rank, int layer, const float *weights, size_t count) {
    (void)ctx, (void)rank;
    for (size_t i = 0; i < count; i++) CHECK(fabs(weights[i] - reference_of(layer, i)) < 1e-4);
}

static void delayed_is_that_of_the_reference(void) {
    gw_reducer_sim t = {.seed = 3, .world = WORLD, .layers = 2, .steps = STEPS, .updates = true, .host_of = {0, 1, 2},
                     .bytes_per_second = 1e8, .latency = 100000, .jitter = 300000, .unevenness = 0.5,
                     .layer = {{.count = COUNT, .forward = 1000000, .backward = 1000000},
                               {.count = COUNT, .forward = 200000, .backward = 900000}},
                     .gradient = pulling_gradient,
                     .ended = compare_with_reference};
    char line[100];
    for (int i = 0; gw_schedule_techniques[i]; i++) {
        local = &locals[i % 4];
        snprintf(line, sizeof line, "transport=sim sync=delayed:warmup=%d%s schedule=%s", WARMUP, local->text,
                 gw_schedule_techniques[i]->name);
        run_figure(&t, line);
    }
}

TEST_MAIN(CASE(figure_six), CASE(delayed_is_that_of_the_reference))
