/* reduce_body.h - the reduction kernels, written once over vectors of VECTOR_BYTES and compiled for each CPU level.
 *
 * The including file sets VECTOR_BYTES, TABLE (the name of the table of kernels) and the target, and defines what
 * intrinsics do better than vector arithmetic (declared below). A group of four vectors is accumulated in registers
 * over all sources and then stored to all destinations: each element is read once and written once. A job's last,
 * shorter group goes through a padded copy. Stores are ordinary ones: non-temporal stores slow down the next reader of
 * the result.
 *
 * Functions are always inlined with constant types and operations, so that each kernel keeps one arm of every
 * switch. */
#include <string.h>

#include "base/reduce_kernels.h"

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 4")
#define VECTORS 4 /* of a group: enough independent work to hide the latency of an addition */
#define VECTOR(type, bytes) typedef type __attribute__((vector_size(bytes)))

/* vec holds any type; arithmetic casts it, which costs nothing. */
VECTOR(uint8_t, VECTOR_BYTES) vec;
VECTOR(float, VECTOR_BYTES) vec_f32;
VECTOR(double, VECTOR_BYTES) vec_f64;
VECTOR(int8_t, VECTOR_BYTES) vec_i8;
VECTOR(int32_t, VECTOR_BYTES) vec_i32;
VECTOR(uint32_t, VECTOR_BYTES) vec_u32;
VECTOR(int64_t, VECTOR_BYTES) vec_i64;
VECTOR(uint64_t, VECTOR_BYTES) vec_u64;
VECTOR(int32_t, VECTOR_BYTES / 2) half_i32; /* as many elements as a whole vector of 64 bits has */

typedef struct group {
    vec v[VECTORS];
} group;

/* What each CPU level implements itself. Loads and stores convert between a vector of 32-bit elements and as many
 * narrower ones; stores of integers keep the low bits. */
INLINE vec f16_load(const char *from);            /* to f32 */
INLINE void f16_store(char *to, vec value);       /* from f32, to nearest even */
INLINE vec u16_load(const char *from);            /* to u32 */
INLINE void u16_store(char *to, vec value);       /* from u32 below 65536 */
INLINE vec i8_load(const char *from);             /* to i32 */
INLINE vec u8_load(const char *from);             /* to i32 */
INLINE void u8_store(char *to, vec value);        /* from i32 */
/* Rounds towards zero. A double quotient never rounds up to the next integer, because the exact quotient is at least
 * 1/divisor below that integer. */
INLINE vec divide_i32(vec value, double divisor);

INLINE size_t size_of(gw_dtype dtype) {
    switch (dtype) {
    case GW_I8:
    case GW_U8: return 1;
    case GW_F16:
    case GW_BF16: return 2;
    case GW_F64:
    case GW_I64: return 8;
    default: return 4;
    }
}

/* Integers are added and multiplied unsigned: they wrap. */
INLINE vec add(gw_dtype type, vec a, vec b) {
    switch (type) {
    case GW_F32: return (vec)((vec_f32)a + (vec_f32)b);
    case GW_F64: return (vec)((vec_f64)a + (vec_f64)b);
    case GW_I32: return (vec)((vec_u32)a + (vec_u32)b);
    case GW_I64: return (vec)((vec_u64)a + (vec_u64)b);
    default: return a + b;
    }
}

INLINE vec multiply(gw_dtype type, vec a, vec b) {
    switch (type) {
    case GW_F32: return (vec)((vec_f32)a * (vec_f32)b);
    case GW_F64: return (vec)((vec_f64)a * (vec_f64)b);
    case GW_I32: return (vec)((vec_u32)a * (vec_u32)b);
    case GW_I64: return (vec)((vec_u64)a * (vec_u64)b);
    default: return a * b;
    }
}

/* All bits of an element set where a < b. */
INLINE vec less(gw_dtype type, vec a, vec b) {
    switch (type) {
    case GW_F32: return (vec)((vec_f32)a < (vec_f32)b);
    case GW_F64: return (vec)((vec_f64)a < (vec_f64)b);
    case GW_I32: return (vec)((vec_i32)a < (vec_i32)b);
    case GW_I64: return (vec)((vec_i64)a < (vec_i64)b);
    case GW_I8: return (vec)((vec_i8)a < (vec_i8)b);
    default: return (vec)(a < b);
    }
}

INLINE vec is_nan(gw_dtype type, vec a) {
    switch (type) {
    case GW_F32: return (vec)((vec_f32)a != (vec_f32)a);
    case GW_F64: return (vec)((vec_f64)a != (vec_f64)a);
    default: return a ^ a;
    }
}

INLINE vec combine(gw_dtype type, gw_redop op, vec a, vec b) {
    if (op == GW_PROD) return multiply(type, a, b);
    if (op != GW_MIN && op != GW_MAX) return add(type, a, b);
    vec take_b = (op == GW_MIN ? less(type, b, a) : less(type, a, b)) | is_nan(type, b);
    return (a & ~take_b) | (b & take_b);
}

/* Towards zero: negative numbers are biased before the shift. The arithmetic shift is made of a logical one, because
 * AVX2 has none for 64 bits. */
INLINE vec divide_i64_power(vec value, int divisor) {
    int shift = __builtin_ctz((unsigned)divisor);
    vec_u64 negative = (vec_u64)((vec_i64)value < 0), sign = (vec_u64){0} + (UINT64_C(1) << 63 >> shift);
    vec_u64 biased = (vec_u64)value + (negative & (uint64_t)(divisor - 1));
    return (vec)((biased >> shift ^ sign) - sign);
}

INLINE vec divide_i64(vec value, int divisor) {
    vec_i64 quotient = {0};
    for (int i = 0; i < VECTOR_BYTES / 8; i++) quotient[i] = ((vec_i64)value)[i] / divisor;
    return (vec)quotient;
}

/* For powers of two the reciprocal is exact, and a product with it has the bits of the quotient. */
INLINE vec divide(gw_dtype type, vec value, int divisor) {
    bool exact = (divisor & (divisor - 1)) == 0;
    switch (type) {
    case GW_F32: return (vec)(exact ? (vec_f32)value * (1 / (float)divisor) : (vec_f32)value / (float)divisor);
    case GW_F64: return (vec)(exact ? (vec_f64)value * (1 / (double)divisor) : (vec_f64)value / (double)divisor);
    case GW_I32: return divide_i32(value, divisor);
    case GW_I64: return exact ? divide_i64_power(value, divisor) : divide_i64(value, divisor);
    default: return value; /* the small types have no averages: their accumulators do */
    }
}

INLINE vec bf16_load(const char *from) { return (vec)((vec_u32)u16_load(from) << 16); }

INLINE void bf16_store(char *to, vec value) {
    vec_u32 bits = (vec_u32)value, nan = (vec_u32)is_nan(GW_F32, value);
    vec_u32 rounding = (0x7fff + (bits >> 16 & 1)) & ~nan, quiet = nan & 0x400000;
    u16_store(to, (vec)(((bits + rounding) | quiet) >> 16));
}

/* One vector of `compute` elements from as many of type `stored`. */
INLINE vec load(gw_dtype stored, gw_dtype compute, const char *from) {
    vec value;
    half_i32 half;
    if (stored == compute) {
        memcpy(&value, from, sizeof value);
        return value;
    }
    switch (stored) {
    case GW_F16: return f16_load(from);
    case GW_BF16: return bf16_load(from);
    case GW_I8: return i8_load(from);
    case GW_U8: return u8_load(from);
    default: memcpy(&half, from, sizeof half); return (vec)__builtin_convertvector(half, vec_i64);
    }
}

INLINE void store(gw_dtype stored, gw_dtype compute, char *to, vec value) {
    half_i32 half;
    if (stored == compute) {
        memcpy(to, &value, sizeof value);
        return;
    }
    switch (stored) {
    case GW_F16: f16_store(to, value); break;
    case GW_BF16: bf16_store(to, value); break;
    case GW_I8:
    case GW_U8: u8_store(to, value); break;
    default: half = __builtin_convertvector((vec_i64)value, half_i32), memcpy(to, &half, sizeof half); break;
    }
}

/* Elements [at, at + count) of a source; count is less than a group only at the end. */
INLINE group load_group(gw_dtype stored, gw_dtype compute, const void *source, size_t at, size_t count) {
    const size_t step = VECTOR_BYTES / size_of(compute) * size_of(stored);
    const char *from = (const char *)source + at * size_of(stored);
    char padded[VECTORS * VECTOR_BYTES] __attribute__((aligned(VECTOR_BYTES)));
    if (count * size_of(compute) < sizeof padded) {
        memset(padded, 0, sizeof padded);
        from = memcpy(padded, from, count * size_of(stored));
    }
    group g;
    UNROLL for (int i = 0; i < VECTORS; i++) g.v[i] = load(stored, compute, from + (size_t)i * step);
    return g;
}

INLINE void store_group(gw_dtype stored, gw_dtype compute, void *destination, size_t at, size_t count, group g) {
    const size_t step = VECTOR_BYTES / size_of(compute) * size_of(stored);
    char *to = (char *)destination + at * size_of(stored);
    char padded[VECTORS * VECTOR_BYTES] __attribute__((aligned(VECTOR_BYTES)));
    bool whole = count * size_of(compute) == sizeof padded;
    UNROLL for (int i = 0; i < VECTORS; i++) store(stored, compute, (whole ? to : padded) + (size_t)i * step, g.v[i]);
    if (!whole) memcpy(to, padded, count * size_of(stored));
}

/* wide equals raw if the accumulator is no wider; the job's flags are then ignored. */
INLINE group load_operand(gw_dtype raw, gw_dtype wide, gw_dtype compute, bool is_wide, const void *source, size_t at,
                          size_t count) {
    if (raw != wide && is_wide) return load_group(wide, compute, source, at, count);
    return load_group(raw, compute, source, at, count);
}

/* A copy of the first operands, which the compiler can keep in registers. It cannot do so with the job's own arrays: as
 * far as it knows, the kernel's stores might change them. */
typedef struct operands {
    const void *src[2]; /* the first two */
    void *dst[2];
} operands;

INLINE const void *source_of(const gw_reduce_job *job, const operands *held, int s) {
    return s < 2 && held ? held->src[s] : job->src[s];
}

INLINE void *destination_of(const gw_reduce_job *job, const operands *held, int d) {
    return d < 2 && held ? held->dst[d] : job->dst[d];
}

INLINE void reduce_group(gw_dtype raw, gw_dtype wide, gw_dtype compute, gw_redop op, const gw_reduce_job *job,
                         const operands *held, int sources, int destinations, size_t at, size_t count) {
    group sum = load_operand(raw, wide, compute, job->first_wide, source_of(job, held, 0), at, count);
    for (int s = 1; s < sources; s++) {
        group next = load_operand(raw, wide, compute, job->rest_wide, source_of(job, held, s), at, count);
        UNROLL for (int i = 0; i < VECTORS; i++) sum.v[i] = combine(compute, op, sum.v[i], next.v[i]);
    }
    if (op == GW_AVG && job->divisor != 1) {
        UNROLL for (int i = 0; i < VECTORS; i++) sum.v[i] = divide(compute, sum.v[i], job->divisor);
    }
    for (int d = 0; d < destinations; d++) {
        void *to = destination_of(job, held, d);
        if (raw != wide && job->dst_wide) store_group(wide, compute, to, at, count, sum);
        else store_group(raw, compute, to, at, count, sum);
    }
}

/* All whole groups, for constant numbers of sources and destinations: half the time of the general loop if the data is
 * in the cache. */
INLINE size_t reduce_few(gw_dtype type, gw_redop op, const gw_reduce_job *job, int sources, int destinations) {
    const size_t elements = VECTORS * VECTOR_BYTES / size_of(type), end = job->count / elements * elements;
    const operands held = {.src = {job->src[0], sources > 1 ? job->src[1] : NULL},
                           .dst = {job->dst[0], destinations > 1 ? job->dst[1] : NULL}};
    for (size_t at = 0; at < end; at += elements)
        reduce_group(type, type, type, op, job, &held, sources, destinations, at, elements);
    return end;
}

INLINE void reduce(gw_dtype raw, gw_dtype wide, gw_dtype compute, gw_redop op, const gw_reduce_job *job) {
    const size_t elements = VECTORS * VECTOR_BYTES / size_of(compute);
    int sources = job->sources, destinations = job->destinations;
    size_t at = 0;
    if (raw == wide && raw == compute) {
        if (sources == 2 && destinations == 2) at = reduce_few(raw, op, job, 2, 2);
        else if (sources == 2 && destinations == 1) at = reduce_few(raw, op, job, 2, 1);
        else if (sources == 1 && destinations == 1) at = reduce_few(raw, op, job, 1, 1);
    }
    for (; job->count - at >= elements; at += elements)
        reduce_group(raw, wide, compute, op, job, NULL, sources, destinations, at, elements);
    if (at < job->count)
        reduce_group(raw, wide, compute, op, job, NULL, sources, destinations, at, job->count - at);
}

/* X(raw, op, wide, compute) */
#define FLOAT_KERNELS(X, raw, wide, compute)                                                                           \
    X(raw, SUM, wide, compute)                                                                                         \
    X(raw, AVG, wide, compute)                                                                                         \
    X(raw, MIN, raw, compute)                                                                                          \
    X(raw, MAX, raw, compute)                                                                                          \
    X(raw, PROD, wide, compute)
#define INTEGER_KERNELS(X, raw, wide)                                                                                  \
    X(raw, SUM, raw, raw)                                                                                              \
    X(raw, AVG, wide, wide)                                                                                            \
    X(raw, MIN, raw, raw)                                                                                              \
    X(raw, MAX, raw, raw)                                                                                              \
    X(raw, PROD, raw, raw)
#define KERNELS(X)                                                                                                     \
    FLOAT_KERNELS(X, F32, F32, F32)                                                                                    \
    FLOAT_KERNELS(X, F64, F64, F64)                                                                                    \
    FLOAT_KERNELS(X, F16, F32, F32)                                                                                    \
    FLOAT_KERNELS(X, BF16, F32, F32)                                                                                   \
    INTEGER_KERNELS(X, I8, I32)                                                                                        \
    INTEGER_KERNELS(X, U8, I32)                                                                                        \
    INTEGER_KERNELS(X, I32, I64)                                                                                       \
    INTEGER_KERNELS(X, I64, I64)

#define KERNEL(raw, op, wide, compute)                                                                                 \
    static void raw##_##op(const gw_reduce_job *job) { reduce(GW_##raw, GW_##wide, GW_##compute, GW_##op, job); }
KERNELS(KERNEL)

#define KERNEL_ENTRY(raw, op, wide, compute) [GW_##raw][GW_##op] = raw##_##op,
gw_reduce_kernel *const TABLE[GW_DTYPES][GW_REDOPS] = {KERNELS(KERNEL_ENTRY)};
