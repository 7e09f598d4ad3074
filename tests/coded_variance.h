/* coded_variance.h - the variance of means that unbiased codecs give over the simulated network, beside the closed form
 * of the papers: the sum over ranks and blocks of (norm/s)^2 f(1-f), divided by p^2. */
#ifndef GW_TEST_CODED_VARIANCE_H
#define GW_TEST_CODED_VARIANCE_H

#include <math.h>

#include "base/rng.h"
#include "coded_net.h"

typedef struct unbiased_case {
    const char *codec;
    size_t block;
    double levels, clip; /* clip: standard deviations, 0: off */
} unbiased_case;

static double norm_of(const unbiased_case *c, const float *x, size_t count) {
    double peak = 0, sum = 0, squares = 0;
    for (size_t i = 0; i < count; i++) {
        peak = fmax(peak, fabs((double)x[i]));
        sum += x[i];
        squares += (double)x[i] * x[i];
    }
    double middle = sum / (double)count, cut = c->clip * sqrt(squares / (double)count - middle * middle);
    return cut > 0 && cut < peak ? cut : peak;
}

/* Of one encoding, by the papers: the sum of (norm/s)^2 f(1-f) over blocks. Adds the expected values. */
static double closed_form(const unbiased_case *c, const float *x, size_t count, double *expected) {
    double variance = 0;
    for (size_t at = 0; at < count; at += c->block) {
        size_t length = count - at < c->block ? count - at : c->block;
        double norm = norm_of(c, x + at, length), unit = norm / c->levels;
        for (size_t i = at; i < at + length; i++) {
            double cut = fmax(-norm, fmin(norm, (double)x[i])), f = fabs(cut) / unit - floor(fabs(cut) / unit);
            variance += unit * unit * f * (1 - f);
            expected[i] += cut;
        }
    }
    return variance;
}

static void fill_normal(mini *m, const gw_codec_tensor *what) {
    for (int r = 0; r < m->world; r++) {
        gw_rng rng = gw_rng_make((uint64_t)r, 9);
        for (uint64_t i = 0; i < what->count; i++)
            m->ranks[r].gradient[0][i] =
                (float)(sqrt(-2 * log(1 - gw_rng_unit(&rng))) * cos(2 * M_PI * gw_rng_unit(&rng)));
    }
}

/* The variance of the mean over ranks, against that of the closed form divided by p^2. */
static double variance_factor(const unbiased_case *c, int world, gw_coded_form form) {
    enum { STEPS = 20 };
    size_t count = 64 * 320;
    const gw_codec_tensor *what = tensors(count);
    double *expected = calloc(count, sizeof *expected), measured = 0, closed = 0;
    mini m;
    open_mini(&m, world, "auto", c->codec, count, form);
    CHECK_EQ(form, gw_coded_exchange_chosen(m.ranks[0].exchange));
    fill_normal(&m, what);
    for (int r = 0; r < world; r++) closed += closed_form(c, m.ranks[r].gradient[0], count, expected);
    for (uint64_t step = 0; step < STEPS; step++) {
        run_step(&m, step);
        for (size_t i = 0; i < count; i++) {
            double error = m.ranks[0].result[0][i] - expected[i] / world;
            measured += error * error;
        }
    }
    close_mini(&m);
    free(expected);
    return measured / STEPS / (closed / world / world);
}

/* One pass at 4 ranks within 10 %; two passes at 8 by the factor that gw_coded_form_variance predicts. */
static void check_variance(const unbiased_case *c) {
    gw_codec_setup setup;
    gw_error error = {0};
    double once, predicted;
    CHECK_EQ(GW_OK, gw_codec_parse(c->codec, &setup, &error));
    CHECK_EQ(GW_OK, gw_coded_form_variance(&setup, GW_FORM_ONE_PASS, &once, &error));
    CHECK_EQ(GW_OK, gw_coded_form_variance(&setup, GW_FORM_TWO_PASS, &predicted, &error));
    CHECK_EQ(GW_FORM_ONE_PASS, gw_coded_form_of(&setup, 4, false));
    double one = variance_factor(c, 4, GW_FORM_ONE_PASS), two = variance_factor(c, 8, GW_FORM_TWO_PASS);
    printf("    %-16s one pass at 4 ranks %.3f of the closed form, two passes at 8 %.2f (%.2f predicted)\n", c->codec,
           one, two, predicted);
    CHECK(once == 1 && fabs(one - 1) < 0.1);
    CHECK(fabs(two / predicted - 1) < 0.15);
}

#endif
