/* half.h - f16 and bf16 as bits: scalar conversions, rounding to nearest even, NaN kept a NaN, overflow to infinity. */
#ifndef GW_BASE_HALF_H
#define GW_BASE_HALF_H

#include <stddef.h>
#include <stdint.h>

float gw_f16_to_f32(uint16_t bits);
uint16_t gw_f32_to_f16(float value);
float gw_bf16_to_f32(uint16_t bits);
uint16_t gw_f32_to_bf16(float value);

/* Whole arrays, by the CPU's fastest kernel; the same bits as the scalar conversions. */
void gw_f16_to_f32_array(float *dst, const uint16_t *src, size_t count);
void gw_f32_to_f16_array(uint16_t *dst, const float *src, size_t count);
void gw_bf16_to_f32_array(float *dst, const uint16_t *src, size_t count);
void gw_f32_to_bf16_array(uint16_t *dst, const float *src, size_t count);

#endif
