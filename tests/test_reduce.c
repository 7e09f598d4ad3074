/* test_reduce.c - the reduction kernels against the references: every type, operation, width and CPU level, lengths
 * around the vectors' sizes, unaligned buffers, nasty values, and the overlaps that reduce.h allows. */
#include "base/reduce.h"

#include "base/cpu.h"
#include "base/dtype.h"
#include "base/half.h"
#include "base/rng.h"
#include "test.h"

#define SOURCES_MAX 64
#define COUNT_MAX 1100
#define BUFFER_BYTES ((COUNT_MAX + 64) * 8)

static const size_t long_counts[] = {127, 128, 129, 255, 257, 513, 1031};
#define COUNTS (71 + sizeof long_counts / sizeof long_counts[0])

static size_t count_of(size_t i) { return i < 71 ? i : long_counts[i - 71]; }

static char *buffer[SOURCES_MAX + 4]; /* allocated once, freed at the end */

static void allocate(void) {
    for (size_t i = 0; i < sizeof buffer / sizeof buffer[0]; i++) {
        free(buffer[i]);
        buffer[i] = aligned_alloc(64, (BUFFER_BYTES + 63) / 64 * 64);
    }
}

static void release(void) {
    for (size_t i = 0; i < sizeof buffer / sizeof buffer[0]; i++) {
        free(buffer[i]);
        buffer[i] = NULL;
    }
}

#define INFINITE UINT64_C(0x7ff0000000000000) /* as f64 */

/* One random element of a type: half the time a corner, else any bits or a moderate number. */
static uint64_t nasty(gw_rng *rng, gw_dtype type) {
    static const uint64_t f32[] = {0, 0x80000000, 1, 0x80000001, 0x7fffff, 0x800000, 0x3f800000, 0xbf800000, 0x7f7fffff,
                                   0xff7fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0xffc00001, 0x7f800001, 0x7fffffff,
                                   0x477ff000, 0x477fefff, 0x33000000, 0x33000001, 0x38800000, 0x387fffff};
    static const uint64_t f64[] = {0, UINT64_C(1) << 63, 1, UINT64_C(0x7fefffffffffffff), INFINITE,
                                   INFINITE | UINT64_C(1) << 63, UINT64_C(0x7ff8000000000000), INFINITE | 1,
                                   UINT64_C(0x3ff0000000000000)};
    static const uint64_t f16[] = {0, 0x8000, 1, 0x8001, 0x3ff, 0x400, 0x7bff, 0xfbff, 0x7c00,
                                   0xfc00, 0x7e00, 0x7c01, 0xffff};
    static const uint64_t bf16[] = {0, 0x8000, 1, 0x807f, 0x80, 0x7f7f, 0xff7f, 0x7f80, 0xff80, 0x7fc0, 0x7f81, 0xffff};
    static const uint64_t whole[] = {0, 1, UINT64_MAX, INT8_MAX, 0x80, INT32_MAX, 0x80000000,
                                     INT64_MAX, UINT64_C(1) << 63};
    uint64_t bits = gw_rng_u64(rng);
    uint32_t draw = gw_rng_u32(rng), pick = draw >> 8;
#define PICK(table) table[pick % (sizeof table / sizeof table[0])]
    if (draw & 1) {
        if (type == GW_F32) return PICK(f32);
        if (type == GW_F64) return PICK(f64);
        if (type == GW_F16) return PICK(f16);
        if (type == GW_BF16) return PICK(bf16);
        return PICK(whole);
    }
    if (draw & 2) { /* moderate */
        if (type == GW_F32) return (bits & 0x81ffffff) | 0x3e000000;
        if (type == GW_F64) return (bits & UINT64_C(0x803fffffffffffff)) | UINT64_C(0x3fc0000000000000);
        if (type == GW_F16) return (bits & 0x8fff) | 0x3000;
        if (type == GW_BF16) return (bits & 0x81ff) | 0x3e00;
    }
    return bits;
}

static void fill(gw_rng *rng, gw_dtype type, char *to, size_t count) {
    size_t bytes = gw_dtype_bytes(type);
    for (size_t i = 0; i < count; i++) {
        uint64_t bits = nasty(rng, type);
        memcpy(to + i * bytes, &bits, bytes);
    }
}

static bool is_nan(gw_dtype type, const char *at) {
    uint16_t half;
    float f;
    double d;
    memcpy(&half, at, gw_dtype_bytes(type) == 2 ? 2 : 0);
    switch (type) {
    case GW_F32: memcpy(&f, at, 4); return f != f;
    case GW_F64: memcpy(&d, at, 8); return d != d;
    case GW_F16: return (half & 0x7fff) > 0x7c00;
    case GW_BF16: return (half & 0x7fff) > 0x7f80;
    default: return false;
    }
}

/* The index of the first difference, count where there is none. Any NaN equals any other. */
static size_t differ(gw_dtype type, const char *a, const char *b, size_t count) {
    size_t bytes = gw_dtype_bytes(type);
    for (size_t i = 0; i < count; i++, a += bytes, b += bytes) {
        if (memcmp(a, b, bytes) != 0 && !(is_nan(type, a) && is_nan(type, b))) return i;
    }
    return count;
}

static void same(const char *what, gw_reduction r, gw_dtype type, const char *expected, const char *actual,
                 size_t count) {
    size_t at = differ(type, expected, actual, count);
    if (at == count) return;
    if (test_failures++ < 10) {
        printf("    %s, %s, %s %s, world %d, count %zu: element %zu differs\n", what, gw_cpu_name(gw_cpu()),
               gw_dtype_name(r.dtype), gw_redop_name(r.op), r.world, count, at);
    }
}

typedef void check(gw_rng *rng, gw_reduction r);

static void for_all(check *run) {
    static const int worlds[] = {1, 2, 3, 8, 1000};
    gw_rng rng = gw_rng_make(7, 0);
    allocate();
    for (int level = GW_CPU_PLAIN; level <= GW_CPU_AVX512; level++) {
        if ((int)gw_cpu_limit((gw_cpu_level)level) != level) continue;
        for (int type = 0; type < GW_DTYPES; type++) {
            for (int op = 0; op < GW_REDOPS; op++) {
                for (int w = 0; w < (op == GW_AVG ? 5 : 1); w++)
                    run(&rng, (gw_reduction){(gw_dtype)type, (gw_redop)op, worlds[w]});
            }
        }
    }
    gw_cpu_limit(GW_CPU_AVX512);
    release();
}

/* dst lies between canaries; all three start at any element of a vector. */
static void check_pair(gw_rng *rng, gw_reduction r, bool a_wide, bool b_wide, bool finish, size_t count) {
    gw_dtype wide = gw_accumulator(r.dtype, r.op), a_type = a_wide ? wide : r.dtype, b_type = b_wide ? wide : r.dtype;
    gw_dtype dst_type = finish ? r.dtype : wide;
    size_t bytes = gw_dtype_bytes(dst_type), before = (1 + count % 31) * bytes, end = before + count * bytes;
    char *a = buffer[0] + count % 7 * gw_dtype_bytes(a_type), *b = buffer[1] + count % 5 * gw_dtype_bytes(b_type);
    char *expected = buffer[2], *area = buffer[3];
    fill(rng, a_type, a, count);
    fill(rng, b_type, b, count);
    memset(area, 0x5a, end + 64);
    gw_reduce_pair_reference(r, expected, a, a_wide, b, b_wide, count, finish);
    gw_reduce_pair(r, area + before, a, a_wide, b, b_wide, count, finish);
    same("pair", r, dst_type, expected, area + before, count);
    for (size_t i = 0; i < before; i++) CHECK_EQ(0x5a, area[i]);
    for (size_t i = end; i < end + 64; i++) CHECK_EQ(0x5a, area[i]);
}

static void pair_widths(gw_rng *rng, gw_reduction r) {
    for (int widths = 0; widths < 8; widths++) {
        for (size_t i = 0; i < COUNTS; i++) check_pair(rng, r, widths & 1, widths & 2, widths & 4, count_of(i));
    }
}

static void pair_equals_reference(void) { for_all(pair_widths); }

/* dst = a, or b, at the same address. */
static void check_same_address(gw_rng *rng, gw_reduction r, bool a_wide, bool b_wide, bool finish, size_t count) {
    gw_dtype wide = gw_accumulator(r.dtype, r.op), a_type = a_wide ? wide : r.dtype, b_type = b_wide ? wide : r.dtype;
    gw_dtype dst_type = finish ? r.dtype : wide;
    fill(rng, a_type, buffer[0], count);
    fill(rng, b_type, buffer[1], count);
    memcpy(buffer[3], buffer[0], count * gw_dtype_bytes(a_type));
    memcpy(buffer[4], buffer[1], count * gw_dtype_bytes(b_type));
    gw_reduce_pair_reference(r, buffer[2], buffer[0], a_wide, buffer[1], b_wide, count, finish);
    if (gw_dtype_bytes(dst_type) <= gw_dtype_bytes(a_type)) {
        gw_reduce_pair(r, buffer[3], buffer[3], a_wide, buffer[1], b_wide, count, finish);
        same("dst is a", r, dst_type, buffer[2], buffer[3], count);
    }
    if (gw_dtype_bytes(dst_type) <= gw_dtype_bytes(b_type)) {
        gw_reduce_pair(r, buffer[4], buffer[0], a_wide, buffer[4], b_wide, count, finish);
        same("dst is b", r, dst_type, buffer[2], buffer[4], count);
    }
}

/* b is raw at the end of the wide dst, as a message lands. */
static void check_recv_buffer(gw_rng *rng, gw_reduction r, bool a_wide, size_t count) {
    gw_dtype wide = gw_accumulator(r.dtype, r.op);
    size_t raw_bytes = gw_dtype_bytes(r.dtype), wide_bytes = gw_dtype_bytes(wide);
    char *landed = buffer[3] + count * (wide_bytes - raw_bytes);
    fill(rng, a_wide ? wide : r.dtype, buffer[0], count);
    fill(rng, r.dtype, buffer[1], count);
    memcpy(landed, buffer[1], count * raw_bytes);
    gw_reduce_pair_reference(r, buffer[2], buffer[0], a_wide, buffer[1], false, count, false);
    gw_reduce_pair(r, buffer[3], buffer[0], a_wide, landed, false, count, false);
    same("landing slot", r, wide, buffer[2], buffer[3], count);
}

static void overlaps(gw_rng *rng, gw_reduction r) {
    for (size_t i = 0; i < COUNTS; i++) {
        for (int widths = 0; widths < 8; widths++)
            check_same_address(rng, r, widths & 1, widths & 2, widths & 4, count_of(i));
        for (int a_wide = 0; a_wide < 2; a_wide++) check_recv_buffer(rng, r, a_wide, count_of(i));
    }
}

static void pair_may_overlap(void) { for_all(overlaps); }

/* All sources, then dst outside, dst among the sources, and everything pushed into every source. */
static void check_many(gw_rng *rng, gw_reduction r, int sources, size_t count) {
    size_t bytes = gw_dtype_bytes(r.dtype);
    void *at[SOURCES_MAX];
    char *expected = buffer[SOURCES_MAX], *dst = buffer[SOURCES_MAX + 1] + bytes, *copy = buffer[SOURCES_MAX + 2];
    for (int s = 0; s < sources; s++) {
        at[s] = buffer[s] + (count + (size_t)s) % 9 * bytes;
        fill(rng, r.dtype, at[s], count);
    }
    const void *const *src = (const void *const *)at;
    gw_reduce_many_reference(r, expected, src, sources, count);
    gw_reduce_many(r, dst, src, sources, count);
    same("many", r, r.dtype, expected, dst, count);
    int inside = (int)(count % (size_t)sources);
    memcpy(copy, at[inside], count * bytes);
    gw_reduce_many(r, at[inside], src, sources, count);
    same("many into a source", r, r.dtype, expected, at[inside], count);
    memcpy(at[inside], copy, count * bytes);
    gw_reduce_push(r, at, sources, src, sources, count);
    for (int s = 0; s < sources; s++) same("push into the sources", r, r.dtype, expected, at[s], count);
}

static void many_sources(gw_rng *rng, gw_reduction r) {
    static const int sources[] = {1, 2, 3, 4, 8, 17, 64};
    static const size_t counts[] = {0, 1, 3, 15, 31, 32, 33, 64, 70, 127, 129, 300};
    for (size_t s = 0; s < sizeof sources / sizeof sources[0]; s++) {
        for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) check_many(rng, r, sources[s], counts[i]);
    }
}

static void many_equals_reference(void) { for_all(many_sources); }

/* Finishing one operand is finishing it combined with the neutral element (for min and max: with itself). */
static void finish_operands(gw_rng *rng, gw_reduction r) {
    gw_dtype wide = gw_accumulator(r.dtype, r.op);
    for (int is_wide = 0; is_wide < 2; is_wide++) {
        gw_dtype type = is_wide ? wide : r.dtype;
        size_t bytes = gw_dtype_bytes(type), count = is_wide ? 77 : 300;
        char *neutral = buffer[1];
        fill(rng, type, buffer[0], count);
        bool product = r.op == GW_PROD;
        uint64_t bits = product ? 1 : 0;
        if (type == GW_F32) bits = product ? 0x3f800000 : 0x80000000;
        if (type == GW_F64) bits = product ? UINT64_C(0x3ff0000000000000) : UINT64_C(1) << 63;
        if (type == GW_F16) bits = product ? 0x3c00 : 0x8000;
        if (type == GW_BF16) bits = product ? 0x3f80 : 0x8000;
        for (size_t i = 0; i < count; i++) memcpy(neutral + i * bytes, &bits, bytes);
        if (r.op == GW_MIN || r.op == GW_MAX) memcpy(neutral, buffer[0], count * bytes);
        gw_reduce_pair_reference(r, buffer[2], buffer[0], is_wide, neutral, is_wide, count, true);
        gw_reduce_finish(r, buffer[3], buffer[0], is_wide, count);
        same("finish", r, r.dtype, buffer[2], buffer[3], count);
        gw_reduce_finish(r, buffer[0], buffer[0], is_wide, count);
        same("finish in place", r, r.dtype, buffer[2], buffer[0], count);
    }
}

static void finish_equals_reference(void) { for_all(finish_operands); }

/* The contract in numbers, so that a mistake shared by kernel and reference shows. */
#define MANY(type, dtype, op, expected, ...)                                                                           \
    do {                                                                                                               \
        type many_in[] = {__VA_ARGS__}, many_out;                                                                      \
        int many_n = (int)(sizeof many_in / sizeof many_in[0]);                                                        \
        const void *many_src[8];                                                                                       \
        for (int many_i = 0; many_i < many_n; many_i++) many_src[many_i] = &many_in[many_i];                           \
        gw_reduce_many((gw_reduction){dtype, op, many_n}, &many_out, many_src, many_n, 1);                             \
        CHECK(many_out == (type)(expected));                                                                           \
        gw_reduce_many_reference((gw_reduction){dtype, op, many_n}, &many_out, many_src, many_n, 1);                   \
        CHECK(many_out == (type)(expected));                                                                           \
    } while (0)

static void known_integers(void) {
    MANY(int8_t, GW_I8, GW_SUM, -128, 127, 1);
    MANY(int8_t, GW_I8, GW_AVG, 126, 127, 127, 126);
    MANY(int8_t, GW_I8, GW_AVG, -1, -3, 0);
    MANY(int8_t, GW_I8, GW_MIN, -128, 127, -128, 0);
    MANY(uint8_t, GW_U8, GW_SUM, 44, 200, 100);
    MANY(uint8_t, GW_U8, GW_AVG, 150, 200, 100);
    MANY(uint8_t, GW_U8, GW_MAX, 200, 200, 100);
    MANY(uint8_t, GW_U8, GW_PROD, 144, 20, 20);
    MANY(int32_t, GW_I32, GW_SUM, INT32_MIN, INT32_MAX, 1);
    MANY(int32_t, GW_I32, GW_AVG, INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX);
    MANY(int32_t, GW_I32, GW_AVG, -2, -4, -4, 1);
    MANY(int32_t, GW_I32, GW_AVG, INT32_MIN, INT32_MIN, INT32_MIN);
    MANY(int64_t, GW_I64, GW_SUM, INT64_MIN, INT64_MAX, 1);
    MANY(int64_t, GW_I64, GW_AVG, -1, -7, 0, 0, 0);
    MANY(int64_t, GW_I64, GW_AVG, -1, INT64_MAX, INT64_MAX);
    MANY(int64_t, GW_I64, GW_PROD, -6, 2, -3);
}

static void known_floats(void) {
    MANY(float, GW_F32, GW_SUM, 0, 0x1p30f, 1, -0x1p30f); /* in this order: the 1 is lost */
    MANY(float, GW_F32, GW_SUM, 1, 0x1p30f, -0x1p30f, 1);
    MANY(float, GW_F32, GW_AVG, 2.0f / 3, 1, 1, 0);
    MANY(float, GW_F32, GW_MAX, __builtin_inff(), 1, __builtin_inff());
    MANY(double, GW_F64, GW_PROD, -0.75, 0.5, -1.5);
    uint16_t one = gw_f32_to_f16(1), many = gw_f32_to_f16(2048), bf = gw_f32_to_bf16(256), bf_one = gw_f32_to_bf16(1);
    MANY(uint16_t, GW_F16, GW_SUM, gw_f32_to_f16(2050), many, one, one); /* f16 alone would stay at 2048 */
    MANY(uint16_t, GW_BF16, GW_SUM, gw_f32_to_bf16(258), bf, bf_one, bf_one);
    MANY(uint16_t, GW_F16, GW_AVG, gw_f32_to_f16(60000), gw_f32_to_f16(60000), gw_f32_to_f16(60000));
    MANY(uint16_t, GW_F16, GW_SUM, 0x7c00, gw_f32_to_f16(60000), gw_f32_to_f16(60000));
    MANY(uint16_t, GW_F16, GW_MIN, 0x0000, 0x0000, 0x8000); /* equal: the earlier */
    MANY(uint16_t, GW_F16, GW_MAX, 0x8000, 0x8000, 0x0000);
}

static void nan_wins_minimum_and_maximum(void) {
    float nan = __builtin_nanf(""), low = -__builtin_inff(), result;
    for (int op = GW_MIN; op <= GW_MAX; op++) {
        gw_reduction r = {GW_F32, (gw_redop)op, 2};
        gw_reduce_pair(r, &result, &nan, false, &low, false, 1, true);
        CHECK(result != result);
        gw_reduce_pair(r, &result, &low, false, &nan, false, 1, true);
        CHECK(result != result);
    }
}

TEST_MAIN(CASE(pair_equals_reference), CASE(pair_may_overlap), CASE(many_equals_reference),
          CASE(finish_equals_reference), CASE(known_integers), CASE(known_floats), CASE(nan_wins_minimum_and_maximum))
