/* reduce_reference.c - reductions one element at a time: slow and simple; the tests compare the kernels with them. */
#include "base/dtype.h"
#include "base/half.h"
#include "base/reduce.h"

#include <string.h>

/* A number between load and store: f for f32, f16 and bf16, d for f64, i for integers of all sizes (sums wrap when they
 * are stored). */
typedef struct number {
    float f;
    double d;
    uint64_t i;
} number;

static bool is_float(gw_dtype type) { return type == GW_F32 || type == GW_F16 || type == GW_BF16; }

static number read_number(gw_dtype type, const void *from, size_t index) {
    const char *at = (const char *)from + index * gw_dtype_bytes(type);
    number n = {0};
    int8_t i8;
    uint8_t u8;
    int32_t i32;
    uint16_t half;
    switch (type) {
    case GW_F32: memcpy(&n.f, at, 4); break;
    case GW_F64: memcpy(&n.d, at, 8); break;
    case GW_F16: memcpy(&half, at, 2), n.f = gw_f16_to_f32(half); break;
    case GW_BF16: memcpy(&half, at, 2), n.f = gw_bf16_to_f32(half); break;
    case GW_I8: memcpy(&i8, at, 1), n.i = (uint64_t)i8; break;
    case GW_U8: memcpy(&u8, at, 1), n.i = u8; break;
    case GW_I32: memcpy(&i32, at, 4), n.i = (uint64_t)i32; break;
    default: memcpy(&n.i, at, 8); break;
    }
    return n;
}

static void write_number(gw_dtype type, void *to, size_t index, number n) {
    char *at = (char *)to + index * gw_dtype_bytes(type);
    uint8_t byte = (uint8_t)n.i;
    uint32_t word = (uint32_t)n.i;
    uint16_t half;
    switch (type) {
    case GW_F32: memcpy(at, &n.f, 4); break;
    case GW_F64: memcpy(at, &n.d, 8); break;
    case GW_F16: half = gw_f32_to_f16(n.f), memcpy(at, &half, 2); break;
    case GW_BF16: half = gw_f32_to_bf16(n.f), memcpy(at, &half, 2); break;
    case GW_I8:
    case GW_U8: memcpy(at, &byte, 1); break;
    case GW_I32: memcpy(at, &word, 4); break;
    default: memcpy(at, &n.i, 8); break;
    }
}

static bool less(gw_dtype type, number a, number b) {
    if (is_float(type)) return a.f < b.f;
    if (type == GW_F64) return a.d < b.d;
    return (int64_t)a.i < (int64_t)b.i; /* a u8 is never negative */
}

static bool is_nan(gw_dtype type, number a) {
    if (is_float(type)) return a.f != a.f;
    return type == GW_F64 && a.d != a.d;
}

static number combine(gw_reduction r, number a, number b) {
    switch (r.op) {
    case GW_SUM:
    case GW_AVG: return (number){a.f + b.f, a.d + b.d, a.i + b.i};
    case GW_PROD: return (number){a.f * b.f, a.d * b.d, a.i * b.i};
    case GW_MIN: return less(r.dtype, b, a) || is_nan(r.dtype, b) ? b : a;
    default: return less(r.dtype, a, b) || is_nan(r.dtype, b) ? b : a;
    }
}

/* The accumulator wraps at its own size before it is divided. */
static number finished(gw_reduction r, number n) {
    if (r.op != GW_AVG) return n;
    int64_t sum = gw_accumulator(r.dtype, r.op) == GW_I32 ? (int32_t)n.i : (int64_t)n.i;
    return (number){n.f / (float)r.world, n.d / r.world, (uint64_t)(sum / r.world)};
}

void gw_reduce_pair_reference(gw_reduction r, void *dst, const void *a, bool a_wide, const void *b, bool b_wide,
                              size_t count, bool finish) {
    gw_dtype wide = gw_accumulator(r.dtype, r.op);
    for (size_t i = 0; i < count; i++) {
        number x = read_number(a_wide ? wide : r.dtype, a, i), y = read_number(b_wide ? wide : r.dtype, b, i);
        number sum = combine(r, x, y);
        write_number(finish ? r.dtype : wide, dst, i, finish ? finished(r, sum) : sum);
    }
}

void gw_reduce_many_reference(gw_reduction r, void *dst, const void *const *src, int sources, size_t count) {
    for (size_t i = 0; i < count; i++) {
        number sum = read_number(r.dtype, src[0], i);
        for (int s = 1; s < sources; s++) sum = combine(r, sum, read_number(r.dtype, src[s], i));
        write_number(r.dtype, dst, i, finished(r, sum));
    }
}
