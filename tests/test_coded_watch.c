/* test_coded_watch.c - the watch over codecs: one that goes wrong on a tensor is caught by all ranks alike, the tensor
 * is sent exact with all residuals, and compressed again when the codec is well; a healthy one is left alone. In every
 * form, whole and in halves. */
#include "test.h"

#include <math.h>

#include "base/rng.h"
#include "coded_net.h"

enum { COUNT = 64 * 256, STEPS = 10 * GW_CODEC_WATCH_EVERY };

typedef void fill_fn(float *values, gw_rng *rng, size_t count);

static double normal(gw_rng *rng) { return sqrt(-2 * log(1 - gw_rng_unit(rng))) * cos(2 * M_PI * gw_rng_unit(rng)); }

/* A gradient that learns: a few directions that all ranks share, with noise. */
static void healthy(float *values, gw_rng *rng, size_t count) {
    size_t cols = COUNT / 64;
    for (size_t i = 0; i < count; i++)
        values[i] = (float)(sin(0.1 * (double)(i / cols)) * cos(0.01 * (double)(i % cols)) + 0.2 * normal(rng));
}

/* One value in each 512 is so large that int8 rounds the others to nothing, and onebit gives its size to a thousand. */
static void spiky(float *values, gw_rng *rng, size_t count) {
    for (size_t i = 0; i < count; i++) values[i] = (float)(i % 512 ? normal(rng) : 200);
}

/* Below what half precision can tell apart. */
static void tiny(float *values, gw_rng *rng, size_t count) {
    for (size_t i = 0; i < count; i++) values[i] = (float)(1e-8 * normal(rng));
}

static void fill(mini *m, uint64_t step, fill_fn *with) {
    for (int r = 0; r < m->world; r++)
        for (int t = 0; t < 2; t++) {
            gw_rng rng = gw_rng_make(step * 100 + (uint64_t)r, (uint64_t)t);
            with(m->ranks[r].gradient[t], &rng, tensors(COUNT)[t].count);
        }
}

static void open_watched(mini *m, int world, const char *codec, bool halves) {
    *m = (mini){.watches = true, .halves = halves};
    open_mini_as(m, world, "auto", codec, COUNT, GW_FORM_AUTO);
}

static double kept(const mini *m, size_t i) {
    double sum = 0;
    for (int r = 0; r < m->world; r++) {
        const gw_codec_state *states[] = {&m->ranks[r].coded[0].state, &m->ranks[r].coded[0].second};
        for (int s = 0; s < 2; s++)
            if (states[s]->residual && gw_stripes_cover(&states[s]->covers, i, 1))
                sum += (double)*gw_codec_residual_at(states[s], i);
    }
    return sum;
}

/* How far the result is from the mean of gradients and of what was kept before the step; and what is kept after it. */
static double error_of_step(mini *m, uint64_t step, double *left) {
    double *before = malloc(COUNT * sizeof *before), error = 0, norm = 0;
    for (size_t i = 0; i < COUNT; i++) before[i] = kept(m, i);
    run_step(m, step);
    *left = 0;
    for (size_t i = 0; i < COUNT; i++) {
        double sum = before[i];
        for (int r = 0; r < m->world; r++) sum += (double)m->ranks[r].gradient[0][i];
        double gap = (double)m->ranks[0].result[0][i] - sum / m->world;
        error += gap * gap;
        norm += sum * sum / m->world / m->world;
        *left += fabs(kept(m, i));
    }
    free(before);
    return sqrt(error / norm);
}

static void ranks_agree(const mini *m) {
    for (int r = 1; r < m->world; r++) {
        CHECK(memcmp(m->ranks[0].result[0], m->ranks[r].result[0], COUNT * sizeof(float)) == 0);
        CHECK_EQ(m->ranks[0].watched.exact, m->ranks[r].watched.exact);
    }
}

static void is_caught(const char *codec, int world, bool halves, fill_fn *wrong) {
    mini m;
    double left;
    uint64_t step = 0;
    open_watched(&m, world, codec, halves);
    for (; step < 2; step++) {
        fill(&m, step, healthy);
        run_step(&m, step);
    }
    CHECK_EQ(0, m.ranks[0].watched.exact);
    for (; step < STEPS && m.ranks[0].watched.exact == 0; step++) {
        fill(&m, step, wrong);
        run_step(&m, step);
        ranks_agree(&m);
    }
    CHECK_EQ(1, m.ranks[0].watched.exact); /* the matrix; the bias is never coded */
    CHECK_EQ(1, m.ranks[world - 1].watched.times);
    fill(&m, step, wrong);
    double error = error_of_step(&m, step++, &left);
    if (!(error < 1e-5) || left > 0) printf("    %s, %d ranks: error %g, %g is left\n", codec, world, error, left);
    CHECK(error < 1e-5);
    CHECK(left == 0);
    ranks_agree(&m);
    for (uint64_t end = step + 40 * GW_CODEC_WATCH_EVERY; step < end && m.ranks[0].watched.exact; step++) {
        fill(&m, step, healthy);
        run_step(&m, step);
        ranks_agree(&m);
    }
    CHECK_EQ(0, m.ranks[world - 1].watched.exact);
    close_mini(&m);
}

static void a_codec_that_goes_wrong_is_caught(void) {
    for (int halves = 0; halves < 2; halves++) {
        is_caught("onebit", 3, halves, spiky);                 /* two passes */
        is_caught("onebit:feedback=worker", 3, halves, spiky); /* one pass */
        is_caught("int8:feedback=both", 4, halves, spiky);
        is_caught("int8", 2, halves, spiky);
        is_caught("fp16", 3, halves, tiny);
        is_caught("fp16:feedback=worker", 4, halves, tiny);
    }
}

static void a_healthy_codec_is_left_alone(void) {
    static const char *const lines[] = {"fp16",   "bf16", "int8",     "int8:feedback=both",
                                        "onebit", "qsgd", "terngrad", "powersgd:rank=4"};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        mini m;
        open_watched(&m, 3, lines[i], false);
        for (uint64_t step = 0; step < STEPS; step++) {
            fill(&m, step, healthy);
            run_step(&m, step);
        }
        CHECK_EQ(0, m.ranks[0].watched.times);
        if (m.ranks[0].watched.times) printf("    %s is sent exact\n", lines[i]);
        close_mini(&m);
    }
}

/* sync=periodic has an exchange in one of some steps. */
static void the_number_of_the_step_does_not_matter(void) {
    mini m;
    open_watched(&m, 3, "onebit", false);
    for (uint64_t step = 7; step < STEPS * GW_CODEC_WATCH_EVERY && m.ranks[0].watched.times == 0;
         step += GW_CODEC_WATCH_EVERY) {
        fill(&m, step, spiky);
        run_step(&m, step);
    }
    CHECK_EQ(1, m.ranks[0].watched.times);
    close_mini(&m);
}

static void without_a_watch_nothing_is_sent_exact(void) {
    mini m;
    open_mini(&m, 3, "auto", "onebit", COUNT, GW_FORM_AUTO);
    for (uint64_t step = 0; step < STEPS; step++) {
        fill(&m, step, spiky);
        run_step(&m, step);
    }
    CHECK_EQ(0, m.ranks[0].watched.times);
    close_mini(&m);
}

/* The direction alone: what is decoded has the right size, and half of it another sign. */
static void a_lost_direction_is_caught(void) {
    gw_codec_watch watch = {0};
    gw_codec_report report = {.sampled = 1, .waiting = 1, .coded = 0.5, .common = 0.05};
    int steps = 0;
    for (; steps < 20 && !watch.exact; steps++) gw_codec_watch_update(&watch, &gw_codec_onebit, &report, 1);
    CHECK(watch.exact && steps > 0);
    for (steps = 0; steps < 40 && watch.exact; steps++)
        gw_codec_watch_update(&watch, &gw_codec_onebit, &(gw_codec_report){0}, 1);
    CHECK(!watch.exact && steps > 1); /* not at once: it was far away */
    report.common = (double)NAN;
    for (steps = 0; steps < 20 && !watch.exact; steps++) gw_codec_watch_update(&watch, &gw_codec_onebit, &report, 1);
    CHECK(watch.exact);
}

/* Gradients of units that are off are 0, and what is decoded is of earlier steps. */
static void a_sample_of_zeros_says_nothing(void) {
    gw_codec_watch watch = {0};
    gw_codec_report report = {.sampled = 0, .waiting = 1, .coded = 0.5};
    for (int i = 0; i < 20; i++) gw_codec_watch_update(&watch, &gw_codec_onebit, &report, 1);
    CHECK(!watch.exact);
}

TEST_MAIN(CASE(a_codec_that_goes_wrong_is_caught), CASE(a_healthy_codec_is_left_alone),
          CASE(the_number_of_the_step_does_not_matter), CASE(without_a_watch_nothing_is_sent_exact),
          CASE(a_lost_direction_is_caught), CASE(a_sample_of_zeros_says_nothing))
