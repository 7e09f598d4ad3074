/* test_terngrad.c - TernGrad is unbiased but for what it clips, and its variance is what the paper says: of one
 * encoding, and of the mean of ranks in one pass. */
#include "codec_draws.h"
#include "coded_variance.h"

/* The bound of three levels: sum of |x|(s - |x|), at most sqrt(n) times the squared norm. */
static void is_unbiased(void) {
    static const char *const texts[] = {"terngrad:clip=0", "terngrad:clip=0,shared"};
    fill_input(input, COUNT, INPUT_NORMAL, 12);
    for (int t = 0; t < 2; t++) {
        draw_all(texts[t]);
        check_block(texts[t], 0, COUNT, largest_of(input, COUNT), false, sqrt(COUNT));
    }
}

/* Clipping is the exception: values are cut to 2.5 standard deviations, the others stay unbiased. */
static void clips(void) {
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

static void one_pass_has_the_variance_of_the_paper(void) {
    check_variance(&(unbiased_case){"terngrad:clip=0", 2048, 1, 0});
    check_variance(&(unbiased_case){"terngrad", 2048, 1, 2.5});
}

TEST_MAIN(CASE(is_unbiased), CASE(clips), CASE(one_pass_has_the_variance_of_the_paper))
