/* reduce_plain.c - the reduction kernels for any CPU: vectors of 16 bytes, which the compiler maps to the CPU's own. */
#define VECTOR_BYTES 16
#define TABLE gw_reduce_plain
#include "base/half_bits.h"
#include "base/reduce_body.h"

#define WORDS (VECTOR_BYTES / 4)

INLINE vec f16_load(const char *from) {
    uint16_t raw[WORDS];
    vec_f32 value;
    memcpy(raw, from, sizeof raw);
    for (int i = 0; i < WORDS; i++) value[i] = gw_f16_widen(raw[i]);
    return (vec)value;
}

INLINE void f16_store(char *to, vec value) {
    uint16_t raw[WORDS];
    for (int i = 0; i < WORDS; i++) raw[i] = gw_f16_round(((vec_f32)value)[i]);
    memcpy(to, raw, sizeof raw);
}

INLINE vec u16_load(const char *from) {
    uint16_t raw[WORDS];
    memcpy(raw, from, sizeof raw);
    return (vec)(vec_u32){raw[0], raw[1], raw[2], raw[3]};
}

INLINE void u16_store(char *to, vec value) {
    uint16_t raw[WORDS];
    for (int i = 0; i < WORDS; i++) raw[i] = (uint16_t)((vec_u32)value)[i];
    memcpy(to, raw, sizeof raw);
}

INLINE vec i8_load(const char *from) {
    int8_t raw[WORDS];
    memcpy(raw, from, sizeof raw);
    return (vec)(vec_i32){raw[0], raw[1], raw[2], raw[3]};
}

INLINE vec u8_load(const char *from) {
    uint8_t raw[WORDS];
    memcpy(raw, from, sizeof raw);
    return (vec)(vec_i32){raw[0], raw[1], raw[2], raw[3]};
}

INLINE void u8_store(char *to, vec value) {
    uint8_t raw[WORDS];
    for (int i = 0; i < WORDS; i++) raw[i] = (uint8_t)((vec_u32)value)[i];
    memcpy(to, raw, sizeof raw);
}

INLINE vec divide_i32(vec value, double divisor) {
    vec_i32 quotient;
    for (int i = 0; i < WORDS; i++) quotient[i] = (int32_t)(((vec_i32)value)[i] / divisor);
    return (vec)quotient;
}
