/* test_rng.c - Philox against the published vectors, and the sequential generator over it. */
#include "base/rng.h"

#include "test.h"

/* The known answers that come with the paper's Random123 library. */
static void philox_known_answers(void) {
    static const struct {
        uint64_t key, low, high;
        uint32_t out[4], out7[4];
    } known[] = {
        {0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}, {0x5f6fb709, 0x0d893f64, 0x4f121f81, 0x4f730a48}},
        {UINT64_MAX,
         UINT64_MAX,
         UINT64_MAX,
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
         {0x5207ddc2, 0x45165e59, 0x4d8ee751, 0x8c52f662}},
        {UINT64_C(0x299f31d0a4093822),
         UINT64_C(0x85a308d3243f6a88),
         UINT64_C(0x0370734413198a2e),
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1},
         {0x4dfccaba, 0x190a87f0, 0xc47362ba, 0xb6b5242a}},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        uint32_t out[4];
        gw_philox(known[i].key, known[i].low, known[i].high, out);
        for (int word = 0; word < 4; word++) CHECK_EQ(known[i].out[word], out[word]);
        gw_philox7(known[i].key, known[i].low, known[i].high, out);
        for (int word = 0; word < 4; word++) CHECK_EQ(known[i].out7[word], out[word]);
    }
}

static void sequence_repeats(void) {
    gw_rng a = gw_rng_make(42, 3), b = gw_rng_make(42, 3);
    for (int i = 0; i < 1000; i++) CHECK_EQ(gw_rng_u32(&a), gw_rng_u32(&b));
    a = gw_rng_make(42, 3);
    uint32_t block[4];
    for (uint64_t counter = 0; counter < 10; counter++) {
        gw_philox(a.key, counter, 0, block);
        for (int word = 0; word < 4; word++) CHECK_EQ(block[word], gw_rng_u32(&a));
    }
}

static void seeds_and_streams_differ(void) {
    uint64_t first[64];
    for (uint64_t i = 0; i < 64; i++) {
        gw_rng rng = gw_rng_make(i / 8, i % 8);
        first[i] = gw_rng_u64(&rng);
        for (uint64_t j = 0; j < i; j++) CHECK(first[i] != first[j]);
    }
}

/* 60,000 dice: each face 10,000 times, give or take six standard deviations. */
static void below_is_even(void) {
    gw_rng rng = gw_rng_make(1, 0);
    int faces[6] = {0};
    for (int i = 0; i < 60000; i++) faces[gw_rng_below(&rng, 6)]++;
    for (int i = 0; i < 6; i++) CHECK(faces[i] > 9450 && faces[i] < 10550);
    for (int i = 0; i < 100; i++) CHECK_EQ(0, gw_rng_below(&rng, 1));
    /* Of 3/4 of the range, plain remainders would fall twice as often into the first third. */
    uint64_t bound = UINT64_C(3) << 62;
    int low = 0;
    for (int i = 0; i < 30000; i++) {
        uint64_t drawn = gw_rng_below(&rng, bound);
        CHECK(drawn < bound);
        low += drawn < bound / 3;
    }
    CHECK(low > 9500 && low < 10500);
}

static void unit_fills_the_interval(void) {
    gw_rng rng = gw_rng_make(2, 0);
    double sum = 0, lowest = 1, highest = 0;
    for (int i = 0; i < 100000; i++) {
        double drawn = gw_rng_unit(&rng);
        CHECK(drawn >= 0 && drawn < 1);
        sum += drawn;
        if (drawn < lowest) lowest = drawn;
        if (drawn > highest) highest = drawn;
    }
    CHECK(sum > 49400 && sum < 50600);
    CHECK(lowest < 0.001 && highest > 0.999);
}

TEST_MAIN(CASE(philox_known_answers), CASE(sequence_repeats), CASE(seeds_and_streams_differ), CASE(below_is_even),
          CASE(unit_fills_the_interval))
