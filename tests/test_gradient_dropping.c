/* test_gradient_dropping.c - Gradient Dropping (compress=threshold): whatever pattern the gradient has, a step sends
 * its share of the largest values, and none waits for ever. */
#include "codec_run.h"

#define COUNT_MAX 200000

static float input[COUNT_MAX], sum_a[COUNT_MAX], sum_b[COUNT_MAX];

/* Gradients whose patterns deceive samples with a fixed stride, or thresholds without a correction. */
static float deceiving(int kind, size_t i, gw_rng *rng) {
    float x = (float)(gw_rng_unit(rng) + 0.5);
    switch (kind) {
    case 0: return i % 16 ? x : 0;                       /* every 16th is zero */
    case 1: return i % 16 ? x : 1000 * x;                /* ... or much larger than all others */
    case 2: return gw_rng_below(rng, 50) ? 0 : -x;       /* most are zero */
    case 3: return (float)gw_rng_below(rng, 3) - 1;      /* many are equal */
    case 4: return x / (float)(1e-6 + gw_rng_unit(rng)); /* a heavy tail */
    default: return (float)i;                            /* a ramp: the largest are side by side */
    }
}

static void sends_its_share(void) {
    enum { COUNT = 200000 };
    for (int kind = 0; kind < 6; kind++)
        for (int k = 0; k < 3; k++) {
            const char *ratio = (const char *[]){"0.001", "0.01", "0.2"}[k];
            char text[64], same[64];
            codec_run r, top;
            gw_rng rng = gw_rng_make(7, (uint64_t)kind);
            snprintf(text, sizeof text, "threshold:ratio=%s", ratio);
            snprintf(same, sizeof same, "topk:ratio=%s", ratio);
            run_open(&r, text, 1, COUNT), run_open(&top, same, 1, COUNT);
            size_t sent = 0, there = 0;
            for (size_t i = 0; i < COUNT; i++) there += (input[i] = deceiving(kind, i, &rng)) != 0;
            memset(sum_a, 0, sizeof(float) * COUNT), memset(sum_b, 0, sizeof(float) * COUNT);
            run_encode(&r, input), run_decode(&r, sum_a);
            run_encode(&top, input), run_decode(&top, sum_b);
            for (size_t i = 0; i < COUNT; i++) sent += sum_a[i] != 0;
            double wanted = fmin(atof(ratio) * COUNT, (double)there);
            if (fabs((double)sent / wanted - 1) > 0.03)
                printf("    %s, kind %d: %zu of %g\n", text, kind, sent, wanted);
            CHECK(fabs((double)sent / wanted - 1) <= 0.03);
            CHECK_EQ(0, memcmp(sum_a, sum_b, sizeof(float) * COUNT)); /* the largest, however the sample fell */
            run_close(&r), run_close(&top);
        }
}

/* Every 16th gradient is zero, in the place where a fixed stride would look. The others arrive within 1.5 / ratio
 * steps: none is smaller than a third of the largest. */
static void leaves_none_behind(void) {
    enum { COUNT = 70000 };
    codec_run r;
    run_open(&r, "threshold:ratio=0.05", 1, COUNT);
    memset(sum_a, 0, sizeof(float) * COUNT);
    for (int step = 0; step < 60; step++) {
        gw_rng rng = gw_rng_make(9, 0);
        for (size_t i = 0; i < COUNT; i++) input[i] = deceiving(0, i, &rng);
        run_encode(&r, input);
        run_decode(&r, sum_a);
    }
    for (size_t i = 0; i < COUNT; i++) CHECK((sum_a[i] > 0) == (i % 16 > 0));
    run_close(&r);
}

TEST_MAIN(CASE(sends_its_share), CASE(leaves_none_behind))
