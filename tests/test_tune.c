/* test_tune.c - the search for a schedule's sizes: the Gaussian process against results by hand, expected
 * improvement against an integral, and the search on functions with and without noise, and on steps in virtual time. */
#include "test.h"

#include <math.h>

#include "base/rng.h"
#include "schedule/lapack.h"
#include "schedule/schedule.h"
#include "schedule/tune.h"
#include "sim/reducer_sim.h"

static const gw_lapack *lapack(void) {
    const gw_lapack *found = NULL;
    gw_error error = {.rank = -1};
    CHECK_EQ(GW_OK, gw_lapack_load(&found, &error));
    return found;
}

/* ---- the process ---- */

static void solves(void) {
    double a[9] = {4, 2, 1, 2, 5, 3, 1, 3, 6}, x[3] = {4 + 4 + 3, 2 + 10 + 9, 1 + 6 + 18}, y[3] = {2, 1, 0};
    CHECK(gw_lapack_factor(lapack(), a, 3));
    gw_lapack_solve(lapack(), a, 3, x);
    for (int i = 0; i < 3; i++) CHECK(fabs(x[i] - (i + 1)) < 1e-12);
    gw_lapack_solve_lower(lapack(), a, 3, y); /* L = [2; 1 2; .5 1.25 ...] */
    CHECK(fabs(y[0] - 1) < 1e-12 && fabs(y[1]) < 1e-12);
    double flat[4] = {1, 1, 1, 1};
    flat[3] = 0.5;
    CHECK(!gw_lapack_factor(lapack(), flat, 2));
}

static void goes_through_what_was_seen(void) {
    gw_observation seen[5];
    gw_gaussian g;
    for (int i = 0; i < 5; i++)
        seen[i] = (gw_observation){.at = {i / 4.0}, .value = sin(3 * i / 4.0), .variance = 1e-8};
    CHECK(gw_gaussian_fit(&g, lapack(), seen, 5, 1));
    for (int i = 0; i < 5; i++) {
        gw_expectation there = gw_gaussian_at(&g, seen[i].at);
        CHECK(fabs(there.mean - seen[i].value) < 1e-3);
        CHECK(there.deviation < 1e-3);
    }
    double between = 0.4;
    gw_expectation guess = gw_gaussian_at(&g, &between);
    CHECK(fabs(guess.mean - sin(1.2)) < 0.05);
    CHECK(guess.deviation > 1e-3);
}

/* With one observation the posterior is known: mean and variance shrink by k / (k + noise). */
static void one_observation_by_hand(void) {
    gw_observation seen[2] = {{.at = {0.5}, .value = 1, .variance = 0.01}, {.at = {0.5}, .value = 3, .variance = 0.01}};
    gw_gaussian g;
    CHECK(gw_gaussian_fit(&g, lapack(), seen, 2, 1));
    double k = g.signal * g.signal, at = 0.5;
    gw_expectation there = gw_gaussian_at(&g, &at);
    CHECK(fabs(there.mean - 2) < 1e-9); /* two that contradict each other: their middle, half as noisy */
    CHECK(fabs(there.deviation - sqrt(k - k * k / (k + 0.005))) < 1e-6);
}

static void improvement_is_the_integral(void) {
    double z[] = {-2, -0.5, 0, 0.7, 3};
    for (int i = 0; i < 5; i++) {
        gw_expectation there = {.mean = 1, .deviation = 0.3};
        double best = 1 + z[i] * 0.3, sum = 0, width = 0.3 * 1e-3;
        for (int k = -8000; k < 8000; k++) {
            double value = 1 + ((double)k + 0.5) * width, u = (value - 1) / 0.3;
            if (value < best) sum += (best - value) * exp(-u * u / 2) / (0.3 * sqrt(2 * M_PI)) * width;
        }
        CHECK(fabs(gw_expected_improvement(there, best) - sum) < 1e-5);
    }
    CHECK(gw_expected_improvement((gw_expectation){.mean = 2}, 1) == 0);
    CHECK(gw_expected_improvement((gw_expectation){.mean = 1}, 3) == 2);
}

/* ---- the search ---- */

typedef double landscape(const double *bytes);

#define K 1024.0
#define M (1024.0 * 1024.0)

/* Start-up costs for each slice, and a tail that grows with the slice. */
static double fusing(const double *b) { return 1000 + 200 * M / b[0] + b[0] / M * 12; }
/* Small slices cost start-ups, large ones cannot be overtaken; little credit leaves gaps, much delays urgent slices. */
static double slicing(const double *b) {
    double in_flight = b[1] > b[0] ? b[1] / b[0] : 1;
    return 1000 + 60 * M / b[0] / in_flight + 20 * M / b[0] + b[0] / M * 60 + b[1] / M * 15;
}
static double flat(const double *b) {
    (void)b;
    return 1000;
}
/* The preset is the optimum. */
static double preset_best(const double *b) { return 1000 + 100 * pow(log2(b[0] / (4 * M)), 2); }

static double gaussian(gw_rng *rng) {
    return sqrt(-2 * log(gw_rng_unit(rng) + 1e-300)) * cos(2 * M_PI * gw_rng_unit(rng));
}

typedef struct found {
    double values[GW_TUNE_AXES];
    int trials;
    double gain;
} found;

static found search(landscape *f, const gw_tune_axis *axes, int count, double noise, uint64_t seed) {
    gw_rng rng = gw_rng_make(seed, 1);
    gw_tuner *tuner = NULL;
    gw_error error = {.rank = -1};
    found result = {.trials = 0};
    CHECK_EQ(GW_OK, gw_tuner_open(&tuner, axes, count, &error));
    while (gw_tuner_next(tuner, result.values)) {
        double us[4];
        for (int i = 0; i < 4; i++) us[i] = f(result.values) * (1 + noise * fabs(gaussian(&rng)));
        gw_tuner_observe(tuner, us, 4);
        for (int i = 0; i < count; i++)
            CHECK((result.values[i] >= axes[i].lowest && result.values[i] <= axes[i].highest) ||
                  result.values[i] == axes[i].preset);
    }
    result.trials = gw_tuner_trials(tuner);
    result.gain = gw_tuner_gain(tuner);
    gw_tuner_close(tuner);
    return result;
}

static const gw_tune_axis one[] = {{.lowest = 64 * K, .highest = 128 * M, .preset = 25 * M}};
static const gw_tune_axis two[] = {{.lowest = 64 * K, .highest = 32 * M, .preset = M},
                                   {.lowest = 64 * K, .highest = 128 * M, .preset = 4 * M}};

/* The best of a grid of `side` points on each axis, ends included. */
static double best_of_grid(landscape *f, const gw_tune_axis *axes, int count, int side) {
    double best = INFINITY;
    for (int a = 0; a < side; a++)
        for (int b = 0; b < (count > 1 ? side : 1); b++) {
            double at[2] = {axes[0].lowest * pow(axes[0].highest / axes[0].lowest, (double)a / (side - 1)), 0};
            if (count > 1) at[1] = axes[1].lowest * pow(axes[1].highest / axes[1].lowest, (double)b / (side - 1));
            best = fmin(best, f(at));
        }
    return best;
}

static double preset_of(landscape *f, const gw_tune_axis *axes, int count) {
    double at[2] = {axes[0].preset, count > 1 ? axes[1].preset : 0};
    return f(at);
}

/* Over many seeds of noise: how many ended within 5 % of the best of a fine grid, and none slower than the preset. */
static int good_of(landscape *f, const gw_tune_axis *axes, int count, double noise, int seeds) {
    double best = best_of_grid(f, axes, count, 97), preset = preset_of(f, axes, count);
    int good = 0, most = 0;
    for (int seed = 1; seed <= seeds; seed++) {
        found result = search(f, axes, count, noise, (uint64_t)seed);
        double time = f(result.values);
        good += time <= best * 1.05;
        if (result.trials > most) most = result.trials;
        CHECK(time <= preset * (1 + noise / 2));
    }
    CHECK(most <= GW_TUNE_TRIALS);
    printf("    %d of %d within 5 %% of the best, %d trials at most\n", good, seeds, most);
    return good;
}

static void finds_the_best_without_noise(void) {
    CHECK_EQ(1, good_of(fusing, one, 1, 0, 1));
    CHECK_EQ(1, good_of(slicing, two, 2, 0, 1));
}

static void finds_it_in_noise(void) {
    CHECK(good_of(fusing, one, 1, 0.02, 30) >= 29);
    CHECK(good_of(slicing, two, 2, 0.02, 30) >= 29);
}

static void stays_where_nothing_is_better(void) {
    static const gw_tune_axis at_best[] = {{.lowest = 64 * K, .highest = 128 * M, .preset = 4 * M}};
    for (int seed = 1; seed <= 10; seed++) {
        CHECK(preset_best(search(preset_best, at_best, 1, 0.02, (uint64_t)seed).values) < 1005);
        found level = search(flat, one, 1, 0.02, (uint64_t)seed);
        CHECK(level.gain < 1.03);
    }
    CHECK(search(flat, one, 1, 0, 1).values[0] == one[0].preset);
    CHECK(search(flat, one, 1, 0, 1).gain == 1);
}

static void is_deterministic(void) {
    for (int seed = 1; seed <= 5; seed++) {
        found a = search(slicing, two, 2, 0.05, (uint64_t)seed), b = search(slicing, two, 2, 0.05, (uint64_t)seed);
        CHECK(memcmp(&a, &b, sizeof a) == 0);
    }
}

static void odd_axes(void) {
    gw_tune_axis outside[] = {{.lowest = 64 * K, .highest = 128 * K, .preset = 25 * M}};
    gw_tune_axis point[] = {{.lowest = 100, .highest = 100, .preset = 100}};
    gw_tuner *tuner = NULL;
    gw_error error = {.rank = -1};
    double values[GW_TUNE_AXES];
    CHECK_EQ(GW_OK, gw_tuner_open(&tuner, outside, 1, &error));
    CHECK(gw_tuner_next(tuner, values));
    CHECK(values[0] == 25 * M); /* the preset goes first even so */
    gw_tuner_close(tuner);
    CHECK_EQ(GW_OK, gw_tuner_open(&tuner, point, 1, &error));
    for (int i = 0; gw_tuner_next(tuner, values) && i < 100; i++) {
        CHECK(values[0] >= 100 && values[0] <= 200);
        gw_tuner_observe(tuner, (double[]){5}, 1);
    }
    CHECK(gw_tuner_trials(tuner) <= GW_TUNE_TRIALS);
    gw_tuner_close(tuner);
}

/* ---- steps in virtual time ---- */

/* VGG-16 a 1024th of its size (bench/profiles/vgg16.csv; floats, forward and backward in us, a 64th of its time), four
 * ranks, a network on which communication takes as long as compute. */
static const struct {
    size_t count;
    int forward, backward;
} vgg[] = {
    {1, 418, 471},   {36, 851, 1941},  {72, 274, 662},   {144, 419, 919},  {288, 190, 308},  {576, 298, 445},
    {576, 265, 574}, {1152, 161, 239}, {2304, 253, 353}, {2304, 210, 470}, {2304, 100, 119}, {2304, 71, 119},
    {2304, 79, 142}, {100356, 45, 72}, {16388, 15, 12},  {4000, 6, 9},
};

static double step_us(const char *schedule) {
    gw_reducer_sim t = {.seed = 1, .world = 4, .layers = 16, .steps = 4, .host_of = {0, 1, 2, 3},
                     .latency = 20000, .bytes_per_second = 77e6};
    gw_reducer_sim_outcome outcome;
    gw_error error = {.rank = -1};
    char line[200];
    for (int i = 0; i < 16; i++)
        t.layer[i] = (gw_reducer_sim_layer){.count = vgg[i].count, .forward = (gw_time)vgg[i].forward * 1000,
                                         .backward = (gw_time)vgg[i].backward * 1000};
    snprintf(line, sizeof line, "transport=sim arch=ring schedule=%s", schedule);
    CHECK_EQ(GW_OK, gw_strategy_parse(line, &t.strategy, &error));
    CHECK_EQ(GW_OK, gw_reducer_sim_run(&t, &outcome, &error));
    CHECK(outcome.ok);
    return (double)(outcome.began[3] - outcome.began[1]) / 2e3;
}

static double slices(const double *b) {
    char schedule[100];
    snprintf(schedule, sizeof schedule, "bytescheduler:slice=%.0f,credit=%.0f", b[0], b[1]);
    return step_us(schedule);
}

static void tunes_a_step_in_virtual_time(void) {
    static const gw_tune_axis sizes[] = {{.lowest = 16 * K, .highest = 400 * K, .preset = 250e3},
                                         {.lowest = 16 * K, .highest = M, .preset = M}};
    double preset = preset_of(slices, sizes, 2), best = INFINITY;
    for (int a = 0; a < 4; a++)
        for (int b = 0; b < 3; b++) best = fmin(best, slices((double[]){16 * K * pow(2.8, a), 32 * K * pow(5, b)}));
    found result = search(slices, sizes, 2, 0, 1);
    printf("    preset %.0f us, best of 12 %.0f us, tuned %.0f us (slice %.0f K, credit %.0f K) in %d trials\n", preset,
           best, slices(result.values), result.values[0] / K, result.values[1] / K, result.trials);
    CHECK(slices(result.values) <= best * 1.05);
    CHECK(slices(result.values) <= preset);
    CHECK(result.trials <= GW_TUNE_TRIALS);
}

TEST_MAIN(CASE(solves), CASE(goes_through_what_was_seen), CASE(one_observation_by_hand),
          CASE(improvement_is_the_integral), CASE(finds_the_best_without_noise), CASE(finds_it_in_noise),
          CASE(stays_where_nothing_is_better), CASE(is_deterministic), CASE(odd_axes),
          CASE(tunes_a_step_in_virtual_time))
