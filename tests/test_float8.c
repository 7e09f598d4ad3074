/* test_float8.c - f8e4m3 and f8e5m2: every code, rounding against arithmetic in double, and the kernels that convert
 * arrays against the scalar conversions. */
#include "base/float8.h"

#include <math.h>

#include "base/cpu.h"
#include "base/reduce.h"
#include "test.h"

typedef struct format {
    gw_dtype dtype;
    float (*widen)(uint8_t code);
    uint8_t (*round)(float value);
    int digits, lowest; /* bits of a number with its leading one; exponent of the least subnormal number */
    double largest;
    uint8_t overflow; /* code */
} format;

static const format formats[] = {
    {GW_F8E4M3, gw_f8e4m3_to_f32, gw_f32_to_f8e4m3, 4, -9, 448, 0x7e},
    {GW_F8E5M2, gw_f8e5m2_to_f32, gw_f32_to_f8e5m2, 3, -16, 57344, 0x7c},
};
#define FORMATS 2

static bool is_nan_code(const format *f, unsigned code) { return (code & 0x7f) > (f->digits == 3 ? 0x7c : 0x7e); }

/* A code read as sign, exponent and mantissa. */
static double value_of(const format *f, unsigned code) {
    int bits = f->digits - 1, exponent = (int)(code & 0x7f) >> bits, mantissa = (int)code & ((1 << bits) - 1);
    double size = exponent ? ldexp((1 << bits) + mantissa, f->lowest + exponent - 1) : ldexp(mantissa, f->lowest);
    if (f->digits == 3 && exponent == 31) size = INFINITY;
    return code & 0x80 ? -size : size;
}

static void widens_every_code(void) {
    for (int i = 0; i < FORMATS; i++) {
        const format *f = &formats[i];
        for (unsigned code = 0; code < 256; code++) {
            float value = f->widen((uint8_t)code);
            CHECK(is_nan_code(f, code) ? isnan(value) : value == value_of(f, code));
            CHECK(!signbit(value) == !(code >> 7));
            CHECK_EQ(is_nan_code(f, code) ? code | 0x7f : code, f->round(value));
        }
    }
    CHECK(gw_f8e4m3_to_f32(0x7e) == 448 && gw_f8e4m3_to_f32(0x01) == 0x1p-9f && gw_f8e4m3_to_f32(0x08) == 0x1p-6f);
    CHECK(gw_f8e5m2_to_f32(0x7b) == 57344 && gw_f8e5m2_to_f32(0x01) == 0x1p-16f && isinf(gw_f8e5m2_to_f32(0xfc)));
}

/* The code of a number: to nearest even; what is then beyond the largest number overflows. */
static unsigned rounded(const format *f, float value) {
    unsigned sign = signbit(value) ? 0x80 : 0;
    if (isnan(value)) return sign | 0x7f;
    if (isinf(value)) return sign | f->overflow;
    if (value == 0) return sign;
    int last = ilogb(value) - f->digits + 1;
    if (last < f->lowest) last = f->lowest;
    double result = fabs(ldexp(rint(ldexp((double)value, -last)), last));
    if (result > f->largest) return sign | f->overflow;
    unsigned code = 0;
    while (value_of(f, code) != result) code++;
    return sign | code;
}

static void check_rounding(float value) {
    for (int i = 0; i < FORMATS; i++) CHECK_EQ(rounded(&formats[i], value), formats[i].round(value));
}

/* Both signs of a float and of its neighbours. */
static void check_around(float value) {
    uint32_t bits = gw_float_bits(value);
    for (int near = -2; near <= 2; near++) {
        check_rounding(gw_bits_float(bits + (uint32_t)near));
        check_rounding(-gw_bits_float(bits + (uint32_t)near));
    }
}

static void rounds_to_nearest_even(void) {
    for (uint64_t bits = 0; bits <= UINT32_MAX; bits += 60013) check_rounding(gw_bits_float((uint32_t)bits));
    for (int i = 0; i < FORMATS; i++)
        for (unsigned code = 0; value_of(&formats[i], code) < formats[i].largest; code++) {
            double here = value_of(&formats[i], code), next = value_of(&formats[i], code + 1);
            check_around((float)here);
            check_around((float)((here + next) / 2));
        }
    static const float edges[] = {448,      464,      480,       57344,     61440,   65536,
                                  0x1p-10f, 0x1p-17f, 0x1p-126f, 0x1p-140f, 0x1p127f};
    for (size_t i = 0; i < sizeof edges / sizeof edges[0]; i++) check_around(edges[i]);
}

static void overflow_and_nan(void) {
    CHECK_EQ(0x7e, gw_f32_to_f8e4m3(464)); /* the tie goes to 448, which is even */
    CHECK_EQ(0x7e, gw_f32_to_f8e4m3(nextafterf(464, 500)));
    CHECK_EQ(0xfe, gw_f32_to_f8e4m3(-INFINITY));
    CHECK_EQ(0x7c, gw_f32_to_f8e5m2(61440)); /* the tie goes to infinity, which is even */
    CHECK_EQ(0x7b, gw_f32_to_f8e5m2(nextafterf(61440, 0)));
    static const uint32_t payloads[] = {0x7fc00000, 0x7f800001, 0x7fffffff, 0x7fa00000};
    for (int i = 0; i < 4; i++)
        for (uint32_t sign = 0; sign < 2; sign++) {
            CHECK_EQ(sign << 7 | 0x7f, gw_f32_to_f8e4m3(gw_bits_float(payloads[i] | sign << 31)));
            CHECK_EQ(sign << 7 | 0x7f, gw_f32_to_f8e5m2(gw_bits_float(payloads[i] | sign << 31)));
        }
}

/* The kernels: an unfinished sum of one operand widens, a finished one rounds. */
static void check_arrays(const format *f, size_t count, uint32_t low) {
    static uint8_t code[0x10000], back[0x10000];
    static float value[0x10000];
    gw_reduction sum = {.dtype = f->dtype, .op = GW_SUM, .world = 1};
    for (size_t i = 0; i < count; i++) code[i] = (uint8_t)(i + low);
    const void *src = code;
    void *dst = value;
    gw_reduce_push(sum, &dst, 1, &src, 1, count, false);
    for (size_t i = 0; i < count; i++)
        CHECK(value[i] == f->widen(code[i]) ? !signbit(value[i]) == !(code[i] >> 7) : is_nan_code(f, code[i]));
    for (size_t i = 0; i < count; i++) value[i] = gw_bits_float((uint32_t)i << 16 | low);
    gw_reduce_finish(sum, back, value, true, count);
    for (size_t i = 0; i < count; i++) CHECK_EQ(f->round(value[i]), back[i]);
}

static void arrays_equal_scalars(void) {
    static const uint32_t lows[] = {0, 0x8000, 0x7fff, 0x8001, 0xffff}; /* ties among them */
    for (int level = GW_CPU_PLAIN; level <= GW_CPU_AVX512; level++) {
        if ((int)gw_cpu_limit((gw_cpu_level)level) != level) continue;
        for (int i = 0; i < FORMATS; i++) {
            for (int k = 0; k < 5; k++) check_arrays(&formats[i], 0x10000, lows[k]);
            for (size_t count = 0; count < 70; count++) check_arrays(&formats[i], count, lows[count % 5]);
        }
    }
    gw_cpu_limit(GW_CPU_AVX512);
}

TEST_MAIN(CASE(widens_every_code), CASE(rounds_to_nearest_even), CASE(overflow_and_nan), CASE(arrays_equal_scalars))
