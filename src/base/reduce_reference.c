/* reduce_reference.c - reductions one element at a time: slow and simple; the tests compare the kernels with them. */
#include "base/dtype.h"
#include "base/float8.h"
#include "base/half.h"
#include "base/reduce.h"

#include <string.h>

/* An element as it lies in memory. */
typedef union element {
    float f32;
    double f64;
    int8_t i8;
    uint8_t u8;
    int16_t i16;
    uint16_t u16;
    int32_t i32;
    uint32_t u32;
    uint64_t u64;
} element;

/* A number between load and store: f for floating types of up to 32 bits, d for f64, i for integers of all sizes and
 * bools (sums wrap when they are stored). */
typedef struct number {
    float f;
    double d;
    uint64_t i;
} number;

static bool is_float(gw_dtype type) { return type != GW_F64 && gw_dtype_is_float(type); }

static number read_number(gw_dtype type, const void *from, size_t index) {
    element e;
    memcpy(&e, (const char *)from + index * gw_dtype_bytes(type), gw_dtype_bytes(type));
    switch (type) {
    case GW_F32: return (number){.f = e.f32};
    case GW_F64: return (number){.d = e.f64};
    case GW_F16: return (number){.f = gw_f16_to_f32(e.u16)};
    case GW_BF16: return (number){.f = gw_bf16_to_f32(e.u16)};
    case GW_F8E4M3: return (number){.f = gw_f8e4m3_to_f32(e.u8)};
    case GW_F8E5M2: return (number){.f = gw_f8e5m2_to_f32(e.u8)};
    case GW_BOOL: return (number){.i = e.u8 != 0};
    case GW_I8: return (number){.i = (uint64_t)e.i8};
    case GW_U8: return (number){.i = e.u8};
    case GW_I16: return (number){.i = (uint64_t)e.i16};
    case GW_U16: return (number){.i = e.u16};
    case GW_I32: return (number){.i = (uint64_t)e.i32};
    case GW_U32: return (number){.i = e.u32};
    default: return (number){.i = e.u64};
    }
}

static void write_number(gw_dtype type, void *to, size_t index, number n) {
    element e = {.u64 = n.i}; /* integers keep their low bits */
    size_t bytes = gw_dtype_bytes(type);
    switch (type) {
    case GW_F32: e.f32 = n.f; break;
    case GW_F64: e.f64 = n.d; break;
    case GW_F16: e.u16 = gw_f32_to_f16(n.f); break;
    case GW_BF16: e.u16 = gw_f32_to_bf16(n.f); break;
    case GW_F8E4M3: e.u8 = gw_f32_to_f8e4m3(n.f); break;
    case GW_F8E5M2: e.u8 = gw_f32_to_f8e5m2(n.f); break;
    default:
        if (bytes == 1) e.u8 = (uint8_t)n.i;
        if (bytes == 2) e.u16 = (uint16_t)n.i;
        if (bytes == 4) e.u32 = (uint32_t)n.i;
    }
    memcpy((char *)to + index * bytes, &e, bytes);
}

static bool less(gw_dtype type, number a, number b) {
    if (is_float(type)) return a.f < b.f;
    if (type == GW_F64) return a.d < b.d;
    if (type == GW_U64) return a.i < b.i;
    return (int64_t)a.i < (int64_t)b.i; /* shorter unsigned numbers are never negative */
}

static bool is_nan(gw_dtype type, number a) {
    if (is_float(type)) return a.f != a.f;
    return type == GW_F64 && a.d != a.d;
}

/* Bools are 0 or 1. */
static number combine_bools(gw_redop op, number a, number b) {
    switch (op) {
    case GW_PROD:
    case GW_MIN:
    case GW_BAND: return (number){.i = a.i && b.i};
    case GW_BXOR: return (number){.i = a.i != b.i};
    default: return (number){.i = a.i || b.i};
    }
}

static number combine(gw_reduction r, number a, number b) {
    if (r.dtype == GW_BOOL) return combine_bools(r.op, a, b);
    switch (r.op) {
    case GW_SUM:
    case GW_AVG: return (number){a.f + b.f, a.d + b.d, a.i + b.i};
    case GW_PROD: return (number){a.f * b.f, a.d * b.d, a.i * b.i};
    case GW_MIN: return less(r.dtype, b, a) || is_nan(r.dtype, b) ? b : a;
    case GW_MAX: return less(r.dtype, a, b) || is_nan(r.dtype, b) ? b : a;
    case GW_BAND: return (number){.i = a.i & b.i};
    case GW_BOR: return (number){.i = a.i | b.i};
    default: return (number){.i = a.i ^ b.i};
    }
}

static number scaled(number n, double factor) { return (number){n.f * (float)factor, n.d * factor, n.i}; }

/* The accumulator wraps at its own size before it is divided. */
static number divided(gw_reduction r, number n) {
    uint64_t world = (uint64_t)r.world;
    if (r.dtype == GW_U64) return (number){.i = n.i / world};
    int64_t sum = gw_accumulator(r.dtype, r.op) == GW_I32 ? (int32_t)n.i : (int64_t)n.i;
    return (number){n.f / (float)r.world, n.d / r.world, (uint64_t)(sum / r.world)};
}

static number finished(gw_reduction r, number n) {
    if (r.op == GW_AVG) n = divided(r, n);
    return r.scale.set ? scaled(n, r.scale.postscale) : n;
}

static number read_operand(gw_reduction r, const void *from, bool wide, size_t index) {
    number n = read_number(wide ? gw_accumulator(r.dtype, r.op) : r.dtype, from, index);
    return r.scale.set && !wide ? scaled(n, r.scale.prescale) : n;
}

static void write_result(gw_reduction r, void *to, size_t index, number n, bool finish) {
    if (finish) write_number(r.dtype, to, index, finished(r, n));
    else write_number(gw_accumulator(r.dtype, r.op), to, index, n);
}

void gw_reduce_pair_reference(gw_reduction r, void *dst, const void *a, bool a_wide, const void *b, bool b_wide,
                              size_t count, bool finish) {
    for (size_t i = 0; i < count; i++) {
        number sum = combine(r, read_operand(r, a, a_wide, i), read_operand(r, b, b_wide, i));
        write_result(r, dst, i, sum, finish);
    }
}

void gw_reduce_many_reference(gw_reduction r, void *dst, const void *const *src, int sources, size_t count,
                              bool finish) {
    for (size_t i = 0; i < count; i++) {
        number sum = read_operand(r, src[0], false, i);
        for (int s = 1; s < sources; s++) sum = combine(r, sum, read_operand(r, src[s], false, i));
        write_result(r, dst, i, sum, finish);
    }
}
