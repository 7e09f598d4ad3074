/* test_codec_random.c - the random codecs are unbiased, and their variance is what the papers allow: 10,000 draws of
 * 1,000 elements with a fixed seed. */
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

static double largest_of(const float *x, size_t count) {
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
static void check_block(const char *text, size_t first, size_t count, double unit, bool sign_only, double factor) {
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

static void check_qsgd(int bits, bool elias) {
    char text[32];
    snprintf(text, sizeof text, "qsgd:bits=%d%s", bits, elias ? ",elias" : "");
    int levels = bits == 1 ? 1 : (1 << (bits - 1)) - 1;
    draw_all(text);
    for (size_t first = 0; first < COUNT; first += 512) {
        size_t count = COUNT - first < 512 ? COUNT - first : 512;
        double norm = elias ? sqrt(norm2_of(input + first, count)) : largest_of(input + first, count);
        double n = (double)count, s = levels;
        bool sign_only = bits == 1 && !elias;
        check_block(text, first, count, norm / s, sign_only, sign_only ? n : fmin(n / (s * s), sqrt(n) / s));
    }
}

static void qsgd_is_unbiased(void) {
    fill_input(input, COUNT, INPUT_NORMAL, 11);
    for (int bits = 1; bits <= 8; bits *= 2) check_qsgd(bits, false);
    check_qsgd(2, true);
    check_qsgd(4, true);
}

/* The bound of three levels: sum of |x|(s - |x|), at most sqrt(n) times the squared norm. */
static void terngrad_is_unbiased(void) {
    static const char *const texts[] = {"terngrad:clip=0", "terngrad:clip=0,shared"};
    fill_input(input, COUNT, INPUT_NORMAL, 12);
    for (int t = 0; t < 2; t++) {
        draw_all(texts[t]);
        check_block(texts[t], 0, COUNT, largest_of(input, COUNT), false, sqrt(COUNT));
    }
}

/* Clipping is the exception: values are cut to 2.5 standard deviations, the others stay unbiased. */
static void terngrad_clips(void) {
    fill_input(input, COUNT, INPUT_NORMAL, 13);
    input[17] = 3.0f;
    double sum = 0;
    for (size_t i = 0; i < COUNT; i++) sum += (double)input[i];
    double cut = 2.5 * sqrt(norm2_of(input, COUNT) / COUNT - sum * sum / COUNT / COUNT);
    draw_all("terngrad");
    CHECK(fabs(mean[17] - cut) < 1e-4 * cut);
    for (size_t i = 0; i < COUNT; i++) {
        if (i == 17) continue;
        double x = (double)input[i], part = fabs(x) / cut;
        CHECK(fabs(mean[i] - x) <= 5 * cut * sqrt(part * (1 - part) / DRAWS) + cut * 0x1p-15);
    }
}

/* Of each stretch one element, all equally likely. */
static void randomk_is_unbiased(void) {
    fill_input(input, COUNT, INPUT_NORMAL, 14);
    draw_all("randomk:ratio=0.1,feedback=none");
    for (size_t i = 0; i < COUNT; i++) {
        double x = (double)input[i];
        CHECK(fabs(mean[i] - x) <= 5 * fabs(x) * sqrt(10 * (1 - 0.1) / DRAWS));
    }
}

TEST_MAIN(CASE(qsgd_is_unbiased), CASE(terngrad_is_unbiased), CASE(terngrad_clips), CASE(randomk_is_unbiased))
