/* test_half.c - f16 and bf16 against arithmetic in double, and the array versions against the scalar ones. */
#include "base/half.h"

#include <math.h>

#include "base/cpu.h"
#include "test.h"

static uint32_t float_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float bits_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Every bit pattern read as sign, exponent and mantissa. */
static double f16_value(unsigned bits) {
    int exponent = bits >> 10 & 31, mantissa = bits & 0x3ff;
    double size = exponent == 31 ? INFINITY : exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24);
    return bits & 0x8000 ? -size : size;
}

/* value rounded to nearest even with `digits` bits, the last one never worth less than 2^lowest. */
static double rounded(double value, int digits, int lowest, double largest) {
    if (value == 0 || isinf(value)) return value;
    int last = ilogb(value) - digits + 1;
    if (last < lowest) last = lowest;
    double result = ldexp(rint(ldexp(value, -last)), last);
    return fabs(result) > largest ? copysign(INFINITY, value) : result;
}

static void f16_widens_every_pattern(void) {
    for (unsigned bits = 0; bits < 0x10000; bits++) {
        float value = gw_f16_to_f32((uint16_t)bits);
        if ((bits & 0x7fff) > 0x7c00) CHECK(isnan(value) && (float_bits(value) & 0x400000));
        else CHECK(value == f16_value(bits) && !signbit(value) == !(bits >> 15));
        uint16_t back = gw_f32_to_f16(value);
        CHECK_EQ((bits & 0x7fff) > 0x7c00 ? bits | 0x200 : bits, back);
    }
}

static void bf16_widens_every_pattern(void) {
    for (unsigned bits = 0; bits < 0x10000; bits++) {
        float value = gw_bf16_to_f32((uint16_t)bits);
        CHECK_EQ(bits << 16, float_bits(value));
        CHECK_EQ((bits & 0x7fff) > 0x7f80 ? bits | 0x40 : bits, gw_f32_to_bf16(value));
    }
}

static void check_rounding(float value) {
    float f16 = gw_f16_to_f32(gw_f32_to_f16(value)), bf16 = gw_bf16_to_f32(gw_f32_to_bf16(value));
    if (isnan(value)) {
        CHECK(isnan(f16) && isnan(bf16));
        return;
    }
    CHECK(f16 == rounded(value, 11, -24, 65504));
    CHECK(bf16 == rounded(value, 8, -133, 0x1.fep127));
    CHECK(!signbit(f16) == !signbit(value) && !signbit(bf16) == !signbit(value));
}

/* A walk over all floats, and the neighbourhood of every tie between two f16 or bf16. */
static void rounds_to_nearest_even(void) {
    for (uint64_t bits = 0; bits <= UINT32_MAX; bits += 6007) check_rounding(bits_float((uint32_t)bits));
    for (unsigned high = 0; high < 0x10000; high++) {
        for (int near = -1; near <= 1; near++) {
            check_rounding(bits_float((high << 16 | 0x8000) + (uint32_t)near));
            check_rounding(bits_float((high << 16 | 0x1000) + (uint32_t)near));
        }
    }
}

static uint16_t half[0x10000], half_back[0x10000];
static float single[0x10000];

/* low: the bits of the floats below those that a bf16 keeps. */
static void check_arrays(size_t count, size_t from, uint32_t low) {
    for (size_t i = 0; i < count; i++) half[i] = (uint16_t)(from + i);
    gw_f16_to_f32_array(single, half, count);
    for (size_t i = 0; i < count; i++) CHECK_EQ(float_bits(gw_f16_to_f32(half[i])), float_bits(single[i]));
    gw_bf16_to_f32_array(single, half, count);
    for (size_t i = 0; i < count; i++) CHECK_EQ(float_bits(gw_bf16_to_f32(half[i])), float_bits(single[i]));
    for (size_t i = 0; i < count; i++) single[i] = bits_float((uint32_t)(from + i) << 16 | low);
    gw_f32_to_f16_array(half_back, single, count);
    for (size_t i = 0; i < count; i++) CHECK_EQ(gw_f32_to_f16(single[i]), half_back[i]);
    gw_f32_to_bf16_array(half_back, single, count);
    for (size_t i = 0; i < count; i++) CHECK_EQ(gw_f32_to_bf16(single[i]), half_back[i]);
}

static void arrays_equal_scalars(void) {
    static const uint32_t lows[] = {0, 0x8000, 0x7fff, 0x8001, 0x1000, 0x0fff, 0x3000, 0xffff}; /* ties among them */
    for (int level = GW_CPU_PLAIN; level <= GW_CPU_AVX512; level++) {
        if ((int)gw_cpu_limit((gw_cpu_level)level) != level) continue;
        for (int i = 0; i < 8; i++) check_arrays(0x10000, 0, lows[i]);
        for (size_t count = 0; count < 70; count++) check_arrays(count, 0x7bf0 + count * 3, lows[count % 8]);
    }
    gw_cpu_limit(GW_CPU_AVX512);
}

static void cpu_level_is_limited(void) {
    gw_cpu_level best = gw_cpu_limit(GW_CPU_AVX512);
    CHECK_EQ(best, gw_cpu());
    CHECK_EQ(GW_CPU_PLAIN, gw_cpu_limit(GW_CPU_PLAIN));
    CHECK_EQ(GW_CPU_PLAIN, gw_cpu());
    CHECK_EQ(best, gw_cpu_limit(GW_CPU_AVX512));
    CHECK_STR("avx2", gw_cpu_name(GW_CPU_AVX2));
    setenv("GRADWIRE_CPU", "plain", 1);
    CHECK_EQ(GW_CPU_PLAIN, gw_cpu_limit(GW_CPU_AVX512));
    setenv("GRADWIRE_CPU", "abacus", 1);
    CHECK_EQ(best, gw_cpu_limit(GW_CPU_AVX512));
    unsetenv("GRADWIRE_CPU");
}

TEST_MAIN(CASE(f16_widens_every_pattern), CASE(bf16_widens_every_pattern), CASE(rounds_to_nearest_even),
          CASE(arrays_equal_scalars), CASE(cpu_level_is_limited))
