/* codec_draws.h - mean and variance of what an unbiased codec decodes to: 10,000 draws of 1,000 elements with a fixed
 * seed. */
#ifndef GW_TEST_CODEC_DRAWS_H
#define GW_TEST_CODEC_DRAWS_H

#include "codec_run.h"

#define COUNT 1000
#define DRAWS 10000

static float input[COUNT], decoded[COUNT];
static double mean[COUNT], square[COUNT];

static void draw_all(const char *text) {
    codec_run r;
    run_open(&r, text, 1, COUNT);
    memset(mean, 0, sizeof mean);
    memset(square, 0, sizeof square);
    for (int draw = 0; draw < DRAWS; draw++) {
        memset(decoded, 0, sizeof decoded);
        run_encode(&r, input);
        run_decode(&r, decoded);
        for (size_t i = 0; i < COUNT; i++) {
            mean[i] += (double)decoded[i] / DRAWS;
            square[i] += (double)decoded[i] * (double)decoded[i] / DRAWS;
        }
    }
    run_close(&r);
}

__attribute__((unused)) static double largest_of(const float *x, size_t count) {
    double largest = 0;
    for (size_t i = 0; i < count; i++) largest = fmax(largest, fabs((double)x[i]));
    return largest;
}

static double norm2_of(const float *x, size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; i++) sum += (double)x[i] * (double)x[i];
    return sum;
}

/* Each element's mean is within 5 standard errors, taken from the variance that rounding between two neighbours has;
 * and the squared error of a block, on average, is at most `factor` times its squared norm. unit: the distance of
 * levels. */
__attribute__((unused)) static void check_block(const char *text, size_t first, size_t count, double unit,
                                                bool sign_only, double factor) {
    double error = 0;
    for (size_t i = first; i < first + count; i++) {
        double x = (double)input[i], part = sign_only ? (x / unit + 1) / 2 : x / unit - floor(x / unit);
        double step = sign_only ? 2 * unit : unit, variance = step * step * part * (1 - part);
        double allowed = 5 * sqrt(variance / DRAWS) + step * 0x1p-16;
        if (fabs(mean[i] - x) > allowed) printf("    %s: element %zu is %g, on average %g\n", text, i, x, mean[i]);
        CHECK(fabs(mean[i] - x) <= allowed);
        error += square[i] - 2 * mean[i] * x + x * x;
    }
    double norm2 = norm2_of(input + first, count);
    if (error > factor * norm2) printf("    %s: variance %g of the norm, allowed %g\n", text, error / norm2, factor);
    CHECK(error <= factor * norm2);
}

#endif
