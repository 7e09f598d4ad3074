/* half.c - see half.h. The reduction kernels convert arrays, as sums of one operand: an unfinished sum widens, a
 * finished one rounds. */
#include "base/half.h"

#include "base/half_bits.h"
#include "base/reduce_kernels.h"

float gw_f16_to_f32(uint16_t bits) { return gw_f16_widen(bits); }
uint16_t gw_f32_to_f16(float value) { return gw_f16_round(value); }
float gw_bf16_to_f32(uint16_t bits) { return gw_bf16_widen(bits); }
uint16_t gw_f32_to_bf16(float value) { return gw_bf16_round(value); }

static void widen(gw_dtype dtype, float *dst, const uint16_t *src, size_t count) {
    gw_reduce_run(dtype, GW_SUM,
                  &(gw_reduce_job){.src = (const void *[]){src},
                                   .sources = 1,
                                   .dst = (void *[]){dst},
                                   .destinations = 1,
                                   .dst_wide = true,
                                   .divisor = 1,
                                   .count = count});
}

static void narrow(gw_dtype dtype, uint16_t *dst, const float *src, size_t count) {
    gw_reduce_run(dtype, GW_SUM,
                  &(gw_reduce_job){.src = (const void *[]){src},
                                   .sources = 1,
                                   .dst = (void *[]){dst},
                                   .destinations = 1,
                                   .first_wide = true,
                                   .divisor = 1,
                                   .count = count});
}

void gw_f16_to_f32_array(float *dst, const uint16_t *src, size_t count) { widen(GW_F16, dst, src, count); }
void gw_f32_to_f16_array(uint16_t *dst, const float *src, size_t count) { narrow(GW_F16, dst, src, count); }
void gw_bf16_to_f32_array(float *dst, const uint16_t *src, size_t count) { widen(GW_BF16, dst, src, count); }
void gw_f32_to_bf16_array(uint16_t *dst, const float *src, size_t count) { narrow(GW_BF16, dst, src, count); }
