/* test_reduce.c - the reduction kernels against the references: every type, operation, width and CPU level, lengths
 * around the vectors' sizes, unaligned buffers, nasty values, and the overlaps that reduce.h allows. */
#include "base/reduce.h"

#include "base/cpu.h"
#include "base/dtype.h"
#include "base/float8.h"
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
    static const uint64_t f32[] = {0,          0x80000000, 1,          0x80000001, 0x7fffff,   0x800000,
                                   0x3f800000, 0xbf800000, 0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000,
                                   0x7fc00000, 0xffc00001, 0x7f800001, 0x7fffffff, 0x477ff000, 0x477fefff,
                                   0x33000000, 0x33000001, 0x38800000, 0x387fffff};
    static const uint64_t f64[] = {0,
                                   UINT64_C(1) << 63,
                                   1,
                                   UINT64_C(0x7fefffffffffffff),
                                   INFINITE,
                                   INFINITE | UINT64_C(1) << 63,
                                   UINT64_C(0x7ff8000000000000),
                                   INFINITE | 1,
                                   UINT64_C(0x3ff0000000000000)};
    static const uint64_t f16[] = {0,      0x8000, 1,      0x8001, 0x3ff,  0x400, 0x7bff,
                                   0xfbff, 0x7c00, 0xfc00, 0x7e00, 0x7c01, 0xffff};
    static const uint64_t bf16[] = {0, 0x8000, 1, 0x807f, 0x80, 0x7f7f, 0xff7f, 0x7f80, 0xff80, 0x7fc0, 0x7f81, 0xffff};
    static const uint64_t whole[] = {0,         1,          UINT64_MAX, INT8_MAX,         0x80, INT16_MAX, 0x8000,
                                     INT32_MAX, 0x80000000, INT64_MAX,  UINT64_C(1) << 63};
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
        if (type == GW_F8E4M3) return (bits & 0x9f) | 0x20;
        if (type == GW_F8E5M2) return (bits & 0x8f) | 0x30;
    }
    return bits; /* of 8 bits: corners are among them often enough */
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
    case GW_F8E4M3: return (*at & 0x7f) == 0x7f;
    case GW_F8E5M2: return (*at & 0x7f) > 0x7c;
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
        printf("    %s, %s, %s %s, world %d, prescale %g, postscale %g, count %zu: element %zu differs\n", what,
               gw_cpu_name(gw_cpu()), gw_dtype_name(r.dtype), gw_redop_name(r.op), r.world, r.scale.prescale,
               r.scale.postscale, count, at);
    }
}

typedef void check(gw_rng *rng, gw_reduction r);

/* Every scale that a reduction may have; worlds only matter to averages. */
static void for_scales(check *run, gw_rng *rng, gw_reduction r) {
    static const int worlds[] = {1, 2, 3, 8, 1000};
    static const gw_scale scales[] = {{true, 0.37, 1}, {true, 1, -3}, {true, 1e-4, 1e30}};
    for (int w = 0; w < (r.op == GW_AVG ? 5 : 1); w++) {
        r.world = worlds[w];
        run(rng, r);
    }
    r.world = 3;
    for (int s = 0; s < 3 && !gw_scale_refuses(r.dtype, r.op); s++) {
        r.scale = scales[s];
        run(rng, r);
    }
}

static void for_all(check *run) {
    gw_rng rng = gw_rng_make(7, 0);
    allocate();
    for (int level = GW_CPU_PLAIN; level <= GW_CPU_AVX512; level++) {
        if ((int)gw_cpu_limit((gw_cpu_level)level) != level) continue;
        for (int type = 0; type < GW_DTYPES; type++) {
            for (int op = 0; op < GW_REDOPS; op++)
                if (!gw_redop_refuses((gw_dtype)type, (gw_redop)op))
                    for_scales(run, &rng, (gw_reduction){.dtype = (gw_dtype)type, .op = (gw_redop)op});
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
    gw_reduce_many_reference(r, expected, src, sources, count, true);
    gw_reduce_many(r, dst, src, sources, count);
    same("many", r, r.dtype, expected, dst, count);
    int inside = (int)(count % (size_t)sources);
    memcpy(copy, at[inside], count * bytes);
    gw_reduce_many(r, at[inside], src, sources, count);
    same("many into a source", r, r.dtype, expected, at[inside], count);
    memcpy(at[inside], copy, count * bytes);
    gw_reduce_push(r, at, sources, src, sources, count, true);
    for (int s = 0; s < sources; s++) same("push into the sources", r, r.dtype, expected, at[s], count);
}

/* Unfinished: of the accumulator type, into two destinations apart from the sources. */
static void check_partial(gw_rng *rng, gw_reduction r, int sources, size_t count) {
    gw_dtype wide = gw_accumulator(r.dtype, r.op);
    char *expected = buffer[SOURCES_MAX], *dst[] = {buffer[SOURCES_MAX + 1], buffer[SOURCES_MAX + 2]};
    for (int s = 0; s < sources; s++) fill(rng, r.dtype, buffer[s], count);
    gw_reduce_many_reference(r, expected, (const void *const *)buffer, sources, count, false);
    gw_reduce_push(r, (void *const *)dst, 2, (const void *const *)buffer, sources, count, false);
    for (int d = 0; d < 2; d++) same("partial", r, wide, expected, dst[d], count);
}

static void many_sources(gw_rng *rng, gw_reduction r) {
    static const int sources[] = {1, 2, 3, 4, 8, 17, 64};
    static const size_t counts[] = {0, 1, 3, 15, 31, 32, 33, 64, 70, 127, 129, 300};
    for (size_t s = 0; s < sizeof sources / sizeof sources[0]; s++) {
        for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
            check_many(rng, r, sources[s], counts[i]);
            check_partial(rng, r, sources[s], counts[i]);
        }
    }
}

static void many_equals_reference(void) { for_all(many_sources); }

/* A number that changes no other when it is added (or multiplied by it), in the accumulator type. */
static uint64_t neutral_bits(gw_dtype wide, gw_redop op) {
    bool product = op == GW_PROD;
    if (wide == GW_F32) return product ? 0x3f800000 : 0x80000000;
    if (wide == GW_F64) return product ? UINT64_C(0x3ff0000000000000) : UINT64_C(1) << 63;
    return 0; /* wider integers only occur in averages */
}

/* Finishing a partial result is finishing it combined with a neutral partial result. */
static void finish_partial(gw_rng *rng, gw_reduction r) {
    gw_dtype wide = gw_accumulator(r.dtype, r.op);
    size_t bytes = gw_dtype_bytes(wide), count = 77;
    uint64_t bits = neutral_bits(wide, r.op);
    fill(rng, wide, buffer[0], count);
    for (size_t i = 0; i < count; i++) memcpy(buffer[1] + i * bytes, &bits, bytes);
    gw_reduce_pair_reference(r, buffer[2], buffer[0], true, buffer[1], true, count, true);
    gw_reduce_finish(r, buffer[3], buffer[0], true, count);
    same("finish a partial result", r, r.dtype, buffer[2], buffer[3], count);
    gw_reduce_finish(r, buffer[0], buffer[0], true, count);
    same("finish a partial result in place", r, r.dtype, buffer[2], buffer[0], count);
}

static void finish_operands(gw_rng *rng, gw_reduction r) {
    size_t count = 300;
    fill(rng, r.dtype, buffer[0], count);
    gw_reduce_many_reference(r, buffer[2], (const void *const *)buffer, 1, count, true);
    bool copies = memcmp(buffer[0], buffer[2], count * gw_dtype_bytes(r.dtype)) == 0;
    if (r.world == 1 && gw_reduce_is_copy(r) && !gw_dtype_is_float(r.dtype)) CHECK(copies); /* a NaN may change */
    gw_reduce_finish(r, buffer[3], buffer[0], false, count);
    same("finish", r, r.dtype, buffer[2], buffer[3], count);
    gw_reduce_finish(r, buffer[0], buffer[0], false, count);
    same("finish in place", r, r.dtype, buffer[2], buffer[0], count);
    if (r.scale.set || gw_accumulator(r.dtype, r.op) != r.dtype) finish_partial(rng, r);
}

static void finish_equals_reference(void) { for_all(finish_operands); }

/* The contract in numbers, so that a mistake shared by kernel and reference shows. */
static gw_scale many_scale; /* of MANY */
#define MANY(type, dtype, op, expected, ...)                                                                           \
    do {                                                                                                               \
        type many_in[] = {__VA_ARGS__}, many_out;                                                                      \
        int many_n = (int)(sizeof many_in / sizeof many_in[0]);                                                        \
        const void *many_src[8];                                                                                       \
        for (int many_i = 0; many_i < many_n; many_i++) many_src[many_i] = &many_in[many_i];                           \
        gw_reduction many_r = {dtype, op, many_n, many_scale};                                                         \
        gw_reduce_many(many_r, &many_out, many_src, many_n, 1);                                                        \
        CHECK(many_out == (type)(expected));                                                                           \
        gw_reduce_many_reference(many_r, &many_out, many_src, many_n, 1, true);                                        \
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
    MANY(int16_t, GW_I16, GW_SUM, INT16_MIN, INT16_MAX, 1);
    MANY(int16_t, GW_I16, GW_AVG, -2, -4, -4, 1);
    MANY(int16_t, GW_I16, GW_AVG, INT16_MIN, INT16_MIN, INT16_MIN);
    MANY(uint16_t, GW_U16, GW_AVG, 65535, 65535, 65535, 65535);
    MANY(uint16_t, GW_U16, GW_MAX, 65535, 1, 65535);
    MANY(uint32_t, GW_U32, GW_SUM, 0, UINT32_MAX, 1);
    MANY(uint32_t, GW_U32, GW_AVG, UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX);
    MANY(uint32_t, GW_U32, GW_MIN, 1, UINT32_MAX, 1);
    MANY(uint64_t, GW_U64, GW_MAX, UINT64_MAX, UINT64_MAX, 1);
    MANY(uint64_t, GW_U64, GW_AVG, (UINT64_MAX - 1) / 3, UINT64_MAX - 1, 0, 0);
    MANY(uint64_t, GW_U64, GW_AVG, INT64_MAX, UINT64_MAX, UINT64_MAX); /* the sum wraps */
}

static void known_bits_and_bools(void) {
    MANY(uint8_t, GW_U8, GW_BAND, 0x20, 0xf0, 0x2f);
    MANY(int16_t, GW_I16, GW_BOR, -1, 0x7fff, INT16_MIN);
    MANY(uint64_t, GW_U64, GW_BXOR, UINT64_MAX, UINT64_C(0xf0f0f0f0f0f0f0f0), UINT64_C(0x0f0f0f0f0f0f0f0f));
    MANY(uint8_t, GW_BOOL, GW_SUM, 1, 2, 0, 254);
    MANY(uint8_t, GW_BOOL, GW_SUM, 1, 128, 128);
    MANY(uint8_t, GW_BOOL, GW_MAX, 0, 0, 0);
    MANY(uint8_t, GW_BOOL, GW_PROD, 1, 1, 2, 4); /* no common bit, but all true */
    MANY(uint8_t, GW_BOOL, GW_MIN, 0, 3, 0);
    MANY(uint8_t, GW_BOOL, GW_BAND, 1, 8, 16);
    MANY(uint8_t, GW_BOOL, GW_BOR, 1, 0, 16);
    MANY(uint8_t, GW_BOOL, GW_BXOR, 0, 8, 16);
    MANY(uint8_t, GW_BOOL, GW_BXOR, 1, 8, 16, 1);
    MANY(uint8_t, GW_BOOL, GW_SUM, 1, 77); /* a single one, too */
}

static void known_float8(void) {
    uint8_t one = gw_f32_to_f8e4m3(1), sixteen = gw_f32_to_f8e4m3(16), most = gw_f32_to_f8e4m3(448);
    MANY(uint8_t, GW_F8E4M3, GW_SUM, gw_f32_to_f8e4m3(18), sixteen, one, one); /* alone, it would stay at 16 */
    MANY(uint8_t, GW_F8E4M3, GW_SUM, most, most, gw_f32_to_f8e4m3(20));        /* there is no infinity */
    MANY(uint8_t, GW_F8E4M3, GW_SUM, most, most, sixteen);
    MANY(uint8_t, GW_F8E4M3, GW_AVG, most, most, most, most);
    MANY(uint8_t, GW_F8E4M3, GW_MAX, 0x80, 0x80, 0x00);
    MANY(uint8_t, GW_F8E5M2, GW_SUM, 0x7c, 0x7b, 0x7b); /* infinity */
    MANY(uint8_t, GW_F8E5M2, GW_AVG, 0x7b, 0x7b, 0x7b);
    MANY(uint8_t, GW_F8E5M2, GW_MIN, 0xfc, 0x7b, 0xfc, 0x00);
}

/* Each summand is scaled before the sum, the sum after it, and after the division of an average. */
static void known_scales(void) {
    many_scale = (gw_scale){true, 0.5, 4};
    MANY(float, GW_F32, GW_SUM, 12, 1, 2, 3);
    MANY(double, GW_F64, GW_AVG, 4, 1, 2, 3);
    MANY(uint16_t, GW_F16, GW_SUM, 0x7c00, gw_f32_to_f16(60000), gw_f32_to_f16(60000));
    many_scale = (gw_scale){true, 0x1p-10, 0x1p9};
    MANY(uint16_t, GW_F16, GW_SUM, gw_f32_to_f16(60000), gw_f32_to_f16(60000), gw_f32_to_f16(60000));
    MANY(uint8_t, GW_F8E4M3, GW_SUM, gw_f32_to_f8e4m3(448), gw_f32_to_f8e4m3(448), gw_f32_to_f8e4m3(448));
    many_scale = (gw_scale){0};
    float mine = 10, partial = 3, result = 0;
    gw_reduction r = {.dtype = GW_F32, .op = GW_SUM, .world = 2, .scale = {true, 0.5, 8}};
    gw_reduce_pair(r, &result, &mine, false, &partial, true, 1, false);
    CHECK(result == 8); /* a partial result is scaled already, and stays unfinished */
    gw_reduce_pair(r, &result, &partial, true, &mine, false, 1, true);
    CHECK(result == 64);
}

static void scales_have_one_form(void) {
    gw_scale none = gw_scale_of(1, 1), half = gw_scale_of(0.5, 1), nan = gw_scale_of(__builtin_nan(""), 1);
    CHECK(!none.set && half.set && half.prescale == 0.5 && half.postscale == 1);
    CHECK(gw_scale_same(&none, &(gw_scale){false, 7, 7}) && !gw_scale_same(&none, &half));
    CHECK(gw_scale_same(&half, &(gw_scale){true, 0.5, 1}) && !gw_scale_same(&half, &(gw_scale){true, 1, 0.5}));
    CHECK(gw_scale_same(&nan, &nan));
    CHECK(!gw_scale_refuses(GW_F8E5M2, GW_AVG) && !gw_scale_refuses(GW_F64, GW_SUM));
    CHECK(gw_scale_refuses(GW_F32, GW_PROD) && gw_scale_refuses(GW_I32, GW_SUM) && gw_scale_refuses(GW_BOOL, GW_SUM));
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
        gw_reduction r = {.dtype = GW_F32, .op = (gw_redop)op, .world = 2};
        gw_reduce_pair(r, &result, &nan, false, &low, false, 1, true);
        CHECK(result != result);
        gw_reduce_pair(r, &result, &low, false, &nan, false, 1, true);
        CHECK(result != result);
    }
}

TEST_MAIN(CASE(pair_equals_reference), CASE(pair_may_overlap), CASE(many_equals_reference),
          CASE(finish_equals_reference), CASE(known_integers), CASE(known_bits_and_bools), CASE(known_floats),
          CASE(known_float8), CASE(known_scales), CASE(scales_have_one_form), CASE(nan_wins_minimum_and_maximum))
