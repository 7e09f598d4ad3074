/* finite.c - see finite.h. A value is not finite if all bits of its exponent are set. Adding the lowest bit of the
 * exponent to the bits without sign then carries into the sign: one addition and one OR for each value. f8e4m3 has no
 * infinity, only the NaN whose bits are all set, so there the lowest bit of all is added. */
#include "base/finite.h"

#include <string.h>

#include "base/dtype.h"

#define BLOCK 1024 /* values; the compiler vectorises a loop of constant length */

#define WITHOUT_SIGN(type, bits) ((type)((bits) & (type)((type) ~(type)0 >> 1)))

#define SCAN(name, type, lowest)                                                                                       \
    static inline type name##_carry(const uint8_t *at) {                                                               \
        type bits;                                                                                                     \
        memcpy(&bits, at, sizeof bits);                                                                                \
        return (type)(WITHOUT_SIGN(type, bits) + (type)(lowest));                                                      \
    }                                                                                                                  \
    static bool name##_block(const uint8_t *at) {                                                                      \
        type carried = 0;                                                                                              \
        for (size_t i = 0; i < BLOCK; i++) carried |= name##_carry(at + i * sizeof(type));                             \
        return carried >> (8 * sizeof(type) - 1);                                                                      \
    }                                                                                                                  \
    static size_t name(const uint8_t *values, size_t count) {                                                          \
        size_t i = 0;                                                                                                  \
        while (i + BLOCK <= count && !name##_block(values + i * sizeof(type))) i += BLOCK;                             \
        while (i < count && !(name##_carry(values + i * sizeof(type)) >> (8 * sizeof(type) - 1))) i++;                 \
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
