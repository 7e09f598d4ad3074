/* finite.c - see finite.h. A value is not finite if all bits of its exponent are set. Adding the lowest bit of the
 * exponent to the bits without sign then carries into the sign: one addition and one OR for each value. f8e4m3 has no
 * infinity, only the NaN whose bits are all set, so there the lowest bit of all is added. */
#include "base/finite.h"

#include <string.h>

#include "base/dtype.h"

#define BLOCK_BYTES 4096
#define VECTOR_BYTES 16 /* four of them in turn, so that no addition waits for the one before */

#define WITHOUT_SIGN(type) ((type)((type) ~(type)0 >> 1))

#define SCAN(name, type, lowest)                                                                                       \
    typedef type name##_vector __attribute__((vector_size(VECTOR_BYTES)));                                             \
    static inline name##_vector name##_overflow(const uint8_t *at) {                                                   \
        name##_vector bits;                                                                                            \
        memcpy(&bits, at, sizeof bits);                                                                                \
        return (bits & WITHOUT_SIGN(type)) + (type)(lowest);                                                           \
    }                                                                                                                  \
    static bool name##_block(const uint8_t *at) {                                                                      \
        name##_vector a = {0}, b = {0}, c = {0}, d = {0};                                                              \
        type carried = 0;                                                                                              \
        for (const uint8_t *end = at + BLOCK_BYTES; at < end; at += 4 * VECTOR_BYTES) {                                \
            a |= name##_overflow(at), b |= name##_overflow(at + VECTOR_BYTES);                                         \
            c |= name##_overflow(at + 2 * VECTOR_BYTES), d |= name##_overflow(at + 3 * VECTOR_BYTES);                  \
        }                                                                                                              \
        a |= b | c | d;                                                                                                \
        for (size_t i = 0; i < VECTOR_BYTES / sizeof(type); i++) carried |= a[i];                                      \
        return carried >> (8 * sizeof(type) - 1);                                                                      \
    }                                                                                                                  \
    static bool name##_one(const uint8_t *at) {                                                                        \
        type bits;                                                                                                     \
        memcpy(&bits, at, sizeof bits);                                                                                \
        return (type)((bits & WITHOUT_SIGN(type)) + (type)(lowest)) >> (8 * sizeof bits - 1);                          \
    }                                                                                                                  \
    static size_t name(const uint8_t *values, size_t count) {                                                          \
        const size_t block = BLOCK_BYTES / sizeof(type);                                                               \
        size_t i = 0;                                                                                                  \
        while (i + block <= count && !name##_block(values + i * sizeof(type))) i += block;                             \
        while (i < count && !name##_one(values + i * sizeof(type))) i++;                                               \
        return i;                                                                                                      \
    }

SCAN(scan_f64, uint64_t, UINT64_C(1) << 52)
SCAN(scan_f32, uint32_t, 1u << 23)
SCAN(scan_bf16, uint16_t, 1u << 7)
SCAN(scan_f16, uint16_t, 1u << 10)
SCAN(scan_f8e5m2, uint8_t, 1u << 2)
SCAN(scan_f8e4m3, uint8_t, 1u)

size_t gw_first_nonfinite(const void *values, size_t count, gw_dtype dtype) {
    switch (dtype) {
    case GW_F64: return scan_f64(values, count);
    case GW_F32: return scan_f32(values, count);
    case GW_BF16: return scan_bf16(values, count);
    case GW_F16: return scan_f16(values, count);
    case GW_F8E5M2: return scan_f8e5m2(values, count);
    case GW_F8E4M3: return scan_f8e4m3(values, count);
    default: return count;
    }
}
