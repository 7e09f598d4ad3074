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

#include "base/float8.h"
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
VECTOR(int16_t, VECTOR_BYTES) vec_i16;
VECTOR(uint16_t, VECTOR_BYTES) vec_u16;
VECTOR(int32_t, VECTOR_BYTES) vec_i32;
VECTOR(uint32_t, VECTOR_BYTES) vec_u32;
VECTOR(int64_t, VECTOR_BYTES) vec_i64;
VECTOR(uint64_t, VECTOR_BYTES) vec_u64;
VECTOR(int32_t, VECTOR_BYTES / 2) half_i32; /* as many elements as a whole vector of 64 bits has */
VECTOR(uint32_t, VECTOR_BYTES / 2) half_u32;

typedef struct group {
    vec v[VECTORS];
} group;

/* What each CPU level implements itself. Loads and stores convert between a vector of 32-bit elements and as many
 * narrower ones; stores of integers keep the low bits. */
INLINE vec f16_load(const char *from);      /* to f32 */
INLINE void f16_store(char *to, vec value); /* from f32, to nearest even */
INLINE vec u16_load(const char *from);      /* to u32 */
INLINE void u16_store(char *to, vec value); /* from u32 below 65536 */
INLINE vec i8_load(const char *from);       /* to i32 */
INLINE vec u8_load(const char *from);       /* to i32 */
INLINE void u8_store(char *to, vec value);  /* from i32 */
/* Rounds towards zero. A double quotient never rounds up to the next integer, because the exact quotient is at least
 * 1/divisor below that integer. */
INLINE vec divide_i32(vec value, double divisor);

INLINE size_t size_of(gw_dtype dtype) {
    switch (dtype) {
    case GW_F64:
    case GW_I64:
    case GW_U64: return 8;
    case GW_F32:
    case GW_I32:
    case GW_U32: return 4;
    case GW_F16:
    case GW_BF16:
    case GW_I16:
    case GW_U16: return 2;
    default: return 1;
    }
}

/* Integers are added and multiplied unsigned: they wrap. */
INLINE vec add(gw_dtype type, vec a, vec b) {
    switch (type) {
    case GW_F32: return (vec)((vec_f32)a + (vec_f32)b);
    case GW_F64: return (vec)((vec_f64)a + (vec_f64)b);
    case GW_I64:
    case GW_U64: return (vec)((vec_u64)a + (vec_u64)b);
    case GW_I32:
    case GW_U32: return (vec)((vec_u32)a + (vec_u32)b);
    case GW_I16:
    case GW_U16: return (vec)((vec_u16)a + (vec_u16)b);
    default: return a + b;
    }
}

INLINE vec multiply(gw_dtype type, vec a, vec b) {
    switch (type) {
    case GW_F32: return (vec)((vec_f32)a * (vec_f32)b);
    case GW_F64: return (vec)((vec_f64)a * (vec_f64)b);
    case GW_I64:
    case GW_U64: return (vec)((vec_u64)a * (vec_u64)b);
    case GW_I32:
    case GW_U32: return (vec)((vec_u32)a * (vec_u32)b);
    case GW_I16:
    case GW_U16: return (vec)((vec_u16)a * (vec_u16)b);
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
    case GW_I16: return (vec)((vec_i16)a < (vec_i16)b);
    case GW_I8: return (vec)((vec_i8)a < (vec_i8)b);
    case GW_U64: return (vec)((vec_u64)a < (vec_u64)b);
    case GW_U32: return (vec)((vec_u32)a < (vec_u32)b);
    case GW_U16: return (vec)((vec_u16)a < (vec_u16)b);
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

/* The elements of b where mask is set, those of a elsewhere. */
INLINE vec choose(vec mask, vec a, vec b) { return (a & ~mask) | (b & mask); }

INLINE vec combine(gw_dtype type, gw_redop op, vec a, vec b) {
    switch (op) {
    case GW_BAND: return a & b;
    case GW_BOR: return a | b;
    case GW_BXOR: return a ^ b;
    case GW_PROD: return multiply(type, a, b);
    case GW_MIN: return choose(less(type, b, a) | is_nan(type, b), a, b);
    case GW_MAX: return choose(less(type, a, b) | is_nan(type, b), a, b);
    default: return add(type, a, b);
    }
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

INLINE vec divide_u64(vec value, int divisor) {
    vec_u64 quotient = {0};
    for (int i = 0; i < VECTOR_BYTES / 8; i++) quotient[i] = ((vec_u64)value)[i] / (uint64_t)divisor;
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
    case GW_U64: return exact ? (vec)((vec_u64)value >> __builtin_ctz((unsigned)divisor)) : divide_u64(value, divisor);
    default: return value; /* the small types have no averages: their accumulators do */
    }
}

INLINE vec multiply_by(gw_dtype type, vec value, double factor) {
    return type == GW_F32 ? (vec)((vec_f32)value * (float)factor) : (vec)((vec_f64)value * factor);
}

INLINE vec bf16_load(const char *from) { return (vec)((vec_u32)u16_load(from) << 16); }

INLINE void bf16_store(char *to, vec value) {
    vec_u32 bits = (vec_u32)value, nan = (vec_u32)is_nan(GW_F32, value);
    vec_u32 rounding = (0x7fff + (bits >> 16 & 1)) & ~nan, quiet = nan & 0x400000;
    u16_store(to, (vec)(((bits + rounding) | quiet) >> 16));
}

/* As gw_float8_widen and gw_float8_round, without branches. All sizes are positive as i32, for which every CPU has
 * comparisons. */
INLINE vec float8_load(gw_float8 f, const char *from) {
    vec_u32 code = (vec_u32)u8_load(from), sign = (code & 0x80) << 24, size = (code & 0x7f) << (23 - f.mantissa);
    vec normal = (vec)(size + ((f.least - 1) << 23));
    vec subnormal = (vec)((vec_f32)(size + (f.least << 23)) - gw_bits_float(f.least << 23));
    vec value = choose((vec)((vec_i32)size < 1 << 23), normal, subnormal);
    vec special = (vec)((vec_i32)(code & 0x7f) >= (int32_t)f.special);
    return choose(special, value, (vec)(size | 0x7f800000)) | (vec)sign;
}

INLINE void float8_store(gw_float8 f, char *to, vec value) {
    const int dropped = 23 - f.mantissa;
    const uint32_t magic = (f.least + (uint32_t)dropped) << 23, less_than_half = (UINT32_C(1) << (dropped - 1)) - 1;
    vec_u32 size = (vec_u32)value & 0x7fffffff, sign = (vec_u32)value >> 24 & 0x80;
    vec_u32 half = less_than_half + (size >> dropped & 1);
    vec code = (vec)((size + half - ((f.least - 1) << 23)) >> dropped);
    vec subnormal = (vec)((vec_u32)((vec_f32)size + gw_bits_float(magic)) - magic);
    code = choose((vec)((vec_i32)size < (int32_t)(f.least << 23)), code, subnormal);
    vec too_large = (vec)((vec_i32)size >= (int32_t)f.overflows) | (vec)((vec_i32)code > (int32_t)f.overflow);
    code = choose(too_large, code, (vec)(size * 0 + f.overflow));
    u8_store(to, code | (vec)((vec_u32)is_nan(GW_F32, value) & 0x7f) | (vec)sign);
}

INLINE vec i16_load(const char *from) { return (vec)((vec_i32)((vec_u32)u16_load(from) << 16) >> 16); }

INLINE vec i32_load(const char *from) {
    half_i32 half;
    memcpy(&half, from, sizeof half);
    return (vec) __builtin_convertvector(half, vec_i64);
}

INLINE vec u32_load(const char *from) {
    half_u32 half;
    memcpy(&half, from, sizeof half);
    return (vec) __builtin_convertvector(half, vec_u64);
}

INLINE void u32_store(char *to, vec value) {
    half_i32 half = __builtin_convertvector((vec_i64)value, half_i32);
    memcpy(to, &half, sizeof half);
}

/* One vector of `compute` elements from as many of type `stored`. */
INLINE vec load(gw_dtype stored, gw_dtype compute, const char *from) {
    vec value;
    if (stored == compute) {
        memcpy(&value, from, sizeof value);
        return stored == GW_BOOL ? (vec)(value != 0) & 1 : value;
    }
    switch (stored) {
    case GW_F16: return f16_load(from);
    case GW_BF16: return bf16_load(from);
    case GW_F8E4M3: return float8_load(GW_FLOAT8_E4M3, from);
    case GW_F8E5M2: return float8_load(GW_FLOAT8_E5M2, from);
    case GW_I8: return i8_load(from);
    case GW_U8: return u8_load(from);
    case GW_I16: return i16_load(from);
    case GW_U16: return u16_load(from);
    case GW_U32: return u32_load(from);
    default: return i32_load(from);
    }
}

INLINE void store(gw_dtype stored, gw_dtype compute, char *to, vec value) {
    if (stored == compute) {
        memcpy(to, &value, sizeof value);
        return;
    }
    switch (stored) {
    case GW_F16: f16_store(to, value); break;
    case GW_BF16: bf16_store(to, value); break;
    case GW_F8E4M3: float8_store(GW_FLOAT8_E4M3, to, value); break;
    case GW_F8E5M2: float8_store(GW_FLOAT8_E5M2, to, value); break;
    case GW_I8:
    case GW_U8: u8_store(to, value); break;
    case GW_I16:
    case GW_U16: u16_store(to, (vec)((vec_u32)value & 0xffff)); break;
    default: u32_store(to, value); break;
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

/* What a kernel is made for. */
typedef struct kernel {
    gw_dtype raw, wide, compute; /* wide equals raw if the accumulator is no wider */
    gw_redop op;
    bool scaled;
} kernel;

INLINE group load_operand(kernel k, const gw_reduce_job *job, bool is_wide, const void *source, size_t at,
                          size_t count) {
    if (k.raw != k.wide && is_wide) return load_group(k.wide, k.compute, source, at, count);
    if (!k.scaled || is_wide) return load_group(k.raw, k.compute, source, at, count);
    group g = load_group(k.raw, k.compute, source, at, count);
    UNROLL for (int i = 0; i < VECTORS; i++) g.v[i] = multiply_by(k.compute, g.v[i], job->scale.prescale);
    return g;
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

INLINE void reduce_group(kernel k, const gw_reduce_job *job, const operands *held, int sources, int destinations,
                         size_t at, size_t count) {
    group sum = load_operand(k, job, job->first_wide, source_of(job, held, 0), at, count);
    for (int s = 1; s < sources; s++) {
        group next = load_operand(k, job, job->rest_wide, source_of(job, held, s), at, count);
        UNROLL for (int i = 0; i < VECTORS; i++) sum.v[i] = combine(k.compute, k.op, sum.v[i], next.v[i]);
    }
    if (k.op == GW_AVG && job->divisor != 1) {
        UNROLL for (int i = 0; i < VECTORS; i++) sum.v[i] = divide(k.compute, sum.v[i], job->divisor);
    }
    if (k.scaled && !job->dst_wide) {
        UNROLL for (int i = 0; i < VECTORS; i++) sum.v[i] = multiply_by(k.compute, sum.v[i], job->scale.postscale);
    }
    for (int d = 0; d < destinations; d++) {
        void *to = destination_of(job, held, d);
        if (k.raw != k.wide && job->dst_wide) store_group(k.wide, k.compute, to, at, count, sum);
        else store_group(k.raw, k.compute, to, at, count, sum);
    }
}

/* All whole groups, for constant numbers of sources and destinations: half the time of the general loop if the data is
 * in the cache. */
INLINE size_t reduce_few(kernel k, const gw_reduce_job *job, int sources, int destinations) {
    const size_t elements = VECTORS * VECTOR_BYTES / size_of(k.compute), end = job->count / elements * elements;
    const operands held = {.src = {job->src[0], sources > 1 ? job->src[1] : NULL},
                           .dst = {job->dst[0], destinations > 1 ? job->dst[1] : NULL}};
    for (size_t at = 0; at < end; at += elements) reduce_group(k, job, &held, sources, destinations, at, elements);
    return end;
}

INLINE void reduce(kernel k, const gw_reduce_job *job) {
    const size_t elements = VECTORS * VECTOR_BYTES / size_of(k.compute);
    int sources = job->sources, destinations = job->destinations;
    size_t at = 0;
    if (k.raw == k.wide && k.raw == k.compute && !k.scaled) {
        if (sources == 2 && destinations == 2) at = reduce_few(k, job, 2, 2);
        else if (sources == 2 && destinations == 1) at = reduce_few(k, job, 2, 1);
        else if (sources == 1 && destinations == 1) at = reduce_few(k, job, 1, 1);
    }
    for (; job->count - at >= elements; at += elements) reduce_group(k, job, NULL, sources, destinations, at, elements);
    if (at < job->count) reduce_group(k, job, NULL, sources, destinations, at, job->count - at);
}

/* X(raw, op, wide, compute). The logical operations on bools (0 or 1 once they are loaded) are those on bits. */
#define FLOAT_KERNELS(X, raw, wide, compute)                                                                           \
    X(raw, SUM, wide, compute)                                                                                         \
    X(raw, AVG, wide, compute)                                                                                         \
    X(raw, MIN, raw, compute)                                                                                          \
    X(raw, MAX, raw, compute)                                                                                          \
    X(raw, PROD, wide, compute)
#define BIT_KERNELS(X, raw)                                                                                            \
    X(raw, BAND, raw, raw)                                                                                             \
    X(raw, BOR, raw, raw)                                                                                              \
    X(raw, BXOR, raw, raw)
#define INTEGER_KERNELS(X, raw, wide)                                                                                  \
    X(raw, SUM, raw, raw)                                                                                              \
    X(raw, AVG, wide, wide)                                                                                            \
    X(raw, MIN, raw, raw)                                                                                              \
    X(raw, MAX, raw, raw)                                                                                              \
    X(raw, PROD, raw, raw)                                                                                             \
    BIT_KERNELS(X, raw)
#define KERNELS(X)                                                                                                     \
    FLOAT_KERNELS(X, F32, F32, F32)                                                                                    \
    FLOAT_KERNELS(X, F64, F64, F64)                                                                                    \
    FLOAT_KERNELS(X, F16, F32, F32)                                                                                    \
    FLOAT_KERNELS(X, BF16, F32, F32)                                                                                   \
    FLOAT_KERNELS(X, F8E4M3, F32, F32)                                                                                 \
    FLOAT_KERNELS(X, F8E5M2, F32, F32)                                                                                 \
    INTEGER_KERNELS(X, I8, I32)                                                                                        \
    INTEGER_KERNELS(X, U8, I32)                                                                                        \
    INTEGER_KERNELS(X, I16, I32)                                                                                       \
    INTEGER_KERNELS(X, U16, I32)                                                                                       \
    INTEGER_KERNELS(X, I32, I64)                                                                                       \
    INTEGER_KERNELS(X, U32, I64)                                                                                       \
    INTEGER_KERNELS(X, I64, I64)                                                                                       \
    INTEGER_KERNELS(X, U64, U64)                                                                                       \
    BIT_KERNELS(X, BOOL)
/* X(raw, compute), for sums and averages: an average by 1 is a sum. */
#define SCALED_KERNELS(X)                                                                                              \
    X(F32, F32)                                                                                                        \
    X(F64, F64)                                                                                                        \
    X(F16, F32)                                                                                                        \
    X(BF16, F32)                                                                                                       \
    X(F8E4M3, F32)                                                                                                     \
    X(F8E5M2, F32)

#define KERNEL(raw, op, wide, compute)                                                                                 \
    static void raw##_##op(const gw_reduce_job *job) {                                                                 \
        reduce((kernel){GW_##raw, GW_##wide, GW_##compute, GW_##op, false}, job);                                      \
    }
KERNELS(KERNEL)

#define SCALED_KERNEL(raw, compute)                                                                                    \
    static void raw##_scaled(const gw_reduce_job *job) {                                                               \
        reduce((kernel){GW_##raw, GW_##compute, GW_##compute, GW_AVG, true}, job);                                     \
    }
SCALED_KERNELS(SCALED_KERNEL)

#define KERNEL_ENTRY(raw, op, wide, compute) [GW_##raw][GW_##op] = raw##_##op,
#define SCALED_ENTRY(raw, compute) [GW_##raw] = raw##_scaled,
const gw_reduce_table TABLE = {
    .unscaled = {KERNELS(KERNEL_ENTRY)[GW_BOOL][GW_SUM] = BOOL_BOR, [GW_BOOL][GW_MAX] = BOOL_BOR,
                 [GW_BOOL][GW_PROD] = BOOL_BAND, [GW_BOOL][GW_MIN] = BOOL_BAND},
    .scaled = {SCALED_KERNELS(SCALED_ENTRY)},
};
