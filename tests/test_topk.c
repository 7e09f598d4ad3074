/* test_topk.c - Top-K: a step sends the largest values of each block. */
#include "codec_run.h"

enum { COUNT_MAX = 140000 };

static float input[COUNT_MAX], decoded[COUNT_MAX];

/* One encoding. */

static void encode(codec_run *r) {
    memset(decoded, 0, sizeof decoded);
    run_encode(r, input);
    run_decode(r, decoded);
}

static int by_magnitude(const void *a, const void *b) {
    const float *x = *(const float *const *)a, *y = *(const float *const *)b;
    if (fabsf(*x) != fabsf(*y)) return fabsf(*x) < fabsf(*y) ? 1 : -1;
    return x < y ? -1 : 1;
}

/* Of equal values the first. */
static void expect_largest(size_t first, size_t count, double ratio) {
    static const float *order[65536];
    static bool sent[65536];
    size_t k = (size_t)(ratio * (double)count + 0.5), wrong = 0;
    for (size_t i = 0; i < count; i++) order[i] = input + first + i;
    qsort(order, count, sizeof *order, by_magnitude);
    memset(sent, 0, sizeof sent);
    for (size_t i = 0; i < (k ? k : 1); i++) sent[order[i] - input - first] = true;
    for (size_t i = 0; i < count; i++) wrong += decoded[first + i] != (sent[i] ? input[first + i] : 0);
    CHECK_EQ(0, wrong);
}

static void sends_the_largest(void) {
    static const input_kind kinds[] = {INPUT_NORMAL, INPUT_LEVELS, INPUT_EQUAL, INPUT_HUGE};
    static const char *const ratios[] = {"0.001", "0.01", "0.3"};
    for (size_t n = 0; n < 4 * 3; n++) {
        codec_run r;
        char text[40];
        size_t count = n % 2 ? 3000 : COUNT_MAX;
        snprintf(text, sizeof text, "topk:ratio=%s", ratios[n % 3]);
        run_open(&r, text, 1, count);
        fill_input(input, count, kinds[n / 3], n);
        encode(&r);
        for (size_t at = 0; at < count; at += 65536)
            expect_largest(at, count - at < 65536 ? count - at : 65536, atof(ratios[n % 3]));
        run_close(&r);
    }
}

/* More values that are not finite than fit: the rest is sent later, none is forgotten. */
static void not_finite_waits_for_space(void) {
    enum { COUNT = 1000, BAD = 25 };
    codec_run r;
    size_t arrived = 0, kept = 0;
    run_open(&r, "topk:ratio=0.01", 1, COUNT);
    for (int step = 0; step < 3; step++) {
        fill_input(input, COUNT, INPUT_ZERO, 0);
        for (size_t i = 0; step == 0 && i < BAD; i++) input[i * 40] = NAN;
        encode(&r);
        for (size_t i = 0; i < COUNT; i++) arrived += isnan(decoded[i]);
    }
    for (size_t i = 0; i < COUNT; i++) kept += !isfinite(r.state.residual[i]);
    CHECK_EQ(BAD, arrived);
    CHECK_EQ(0, kept);
    run_close(&r);
}

TEST_MAIN(CASE(sends_the_largest), CASE(not_finite_waits_for_space))
