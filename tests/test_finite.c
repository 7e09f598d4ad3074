/* test_finite.c - the scan for values that are not finite against isfinite, one value at a time. */
#include "base/finite.h"

#include <math.h>

#include "test.h"

/* A nasty value at every place of arrays around the block length is found there; the others are the largest finite. */
#define FINDS(type, dtype, most, ...)                                                                                  \
    do {                                                                                                               \
        type values[2100];                                                                                             \
        const type nasty[] = {__VA_ARGS__};                                                                            \
        for (size_t i = 0; i < 2100; i++) values[i] = (type)(most);                                                    \
        CHECK_EQ(2100, gw_first_nonfinite(values, 2100, dtype));                                                       \
        for (size_t count = 0; count < 2100; count += count < 3 ? 1 : 1023)                                            \
            CHECK_EQ(count, gw_first_nonfinite(values, count, dtype));                                                 \
        for (size_t at = 0; at < 2100; at++) {                                                                         \
            values[at] = nasty[at % (sizeof nasty / sizeof nasty[0])];                                                 \
            CHECK_EQ(at, gw_first_nonfinite(values, 2100, dtype));                                                     \
            values[at] = (type)(most);                                                                                 \
        }                                                                                                              \
    } while (0)

static void finds_it_wherever_it_is(void) {
    FINDS(float, GW_F32, -3.4028234e38f, NAN, -NAN, INFINITY, -INFINITY);
    FINDS(double, GW_F64, -1.7976931348623157e308, NAN, -NAN, INFINITY, -INFINITY);
    FINDS(uint16_t, GW_F16, 0xfbff, 0x7c00, 0xfc00, 0x7e01, 0xfc01);
    FINDS(uint16_t, GW_BF16, 0xff7f, 0x7f80, 0xff80, 0x7f81, 0xffff);
    FINDS(uint8_t, GW_F8E5M2, 0xfb, 0x7c, 0xfc, 0x7d, 0xff);
    FINDS(uint8_t, GW_F8E4M3, 0xfe, 0x7f, 0xff);
}

static void agrees_with_isfinite(void) {
    for (uint32_t bits = 0; bits < 1u << 16; bits++) {
        uint32_t wide = bits << 16;
        float value;
        memcpy(&value, &wide, sizeof value);
        CHECK_EQ(isfinite(value) ? 1 : 0, gw_first_nonfinite(&value, 1, GW_F32));
    }
}

static void integers_are_finite(void) {
    int32_t values[3] = {-1, INT32_MAX, INT32_MIN};
    CHECK_EQ(3, gw_first_nonfinite(values, 3, GW_I32));
}

TEST_MAIN(CASE(finds_it_wherever_it_is), CASE(agrees_with_isfinite), CASE(integers_are_finite))
