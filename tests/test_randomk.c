/* test_randomk.c - random values without feedback are unbiased. */
#include "codec_draws.h"

/* Of each stretch one element, all equally likely. */
static void is_unbiased(void) {
    fill_input(input, COUNT, INPUT_NORMAL, 14);
    draw_all("randomk:ratio=0.1,feedback=none");
    for (size_t i = 0; i < COUNT; i++) {
        double x = (double)input[i];
        CHECK(fabs(mean[i] - x) <= 5 * fabs(x) * sqrt(10 * (1 - 0.1) / DRAWS));
    }
}

TEST_MAIN(CASE(is_unbiased))
