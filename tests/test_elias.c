/* test_elias.c - levels as Elias gamma bits: round trips, lengths within the bound, and invalid bits. */
#include "compress/elias.h"

#include "base/rng.h"
#include "test.h"

#define COUNT_MAX 512

static void levels_come_back(void) {
    gw_rng rng = gw_rng_make(3, 0);
    static const int most[] = {1, 7, 127};
    for (int round = 0; round < 3000; round++) {
        int8_t level[COUNT_MAX], read[COUNT_MAX];
        int levels = most[round % 3];
        size_t count = gw_rng_below(&rng, COUNT_MAX + 1), used;
        uint64_t zeros = gw_rng_below(&rng, 40); /* from none to nearly all */
        for (size_t i = 0; i < count; i++) {
            level[i] =
                (int8_t)(gw_rng_below(&rng, zeros + 1) ? 0
                                                       : (int)gw_rng_below(&rng, 2u * (unsigned)levels + 1) - levels);
        }
        size_t bound = gw_elias_bound(count, levels);
        uint8_t *bytes = malloc(bound + 1);
        size_t written = gw_elias_write(level, count, bytes);
        CHECK(written <= bound);
        CHECK(gw_elias_read(bytes, written, levels, read, count, &used));
        CHECK_EQ(written, used);
        CHECK(memcmp(level, read, count) == 0);
        for (size_t cut = 0; cut < written; cut++) CHECK(!gw_elias_read(bytes, cut, levels, read, count, &used));
        free(bytes);
    }
}

/* The documented bits: two zeros, then -5: gamma(3) = 0 1 1, sign 1, gamma(5) = 0 0 1 0 1; one zero: gamma(2) = 0 1
 * 0. */
static void bits_are_as_documented(void) {
    static const int8_t level[] = {0, 0, -5, 0};
    uint8_t bytes[8];
    CHECK_EQ(2, gw_elias_write(level, 4, bytes));
    CHECK_EQ(0x4e, bytes[0]); /* 0 1 1 1 0 0 1 0, lowest first */
    CHECK_EQ(0x05, bytes[1]); /* 1 0 1 0 */
}

static void nonsense_is_refused(void) {
    static const uint8_t too_far[] = {0x4c, 0}, too_large[] = {0x11, 0}, endless[16] = {0};
    int8_t level[4];
    size_t used;
    CHECK(!gw_elias_read(too_far, 2, 7, level, 4, &used));   /* five zeros of four, then 1 */
    CHECK(!gw_elias_read(too_large, 2, 3, level, 4, &used)); /* magnitude 4 of 3 */
    CHECK(!gw_elias_read(endless, 16, 7, level, 4, &used));
}

TEST_MAIN(CASE(levels_come_back), CASE(bits_are_as_documented), CASE(nonsense_is_refused))
