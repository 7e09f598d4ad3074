/* test_qsgd.c - QSGD is unbiased, and its variance is what the paper says: of one encoding, and of the mean of ranks in
 * one pass. */
#include "codec_draws.h"
#include "coded_variance.h"

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

static void is_unbiased(void) {
    fill_input(input, COUNT, INPUT_NORMAL, 11);
    for (int bits = 1; bits <= 8; bits *= 2) check_qsgd(bits, false);
    check_qsgd(2, true);
    check_qsgd(4, true);
}

static void one_pass_has_the_variance_of_the_paper(void) {
    check_variance(&(unbiased_case){"qsgd:bits=4", 512, 7, 0});
    check_variance(&(unbiased_case){"qsgd:bits=2", 512, 1, 0});
}

TEST_MAIN(CASE(is_unbiased), CASE(one_pass_has_the_variance_of_the_paper))
