/* bf16.c - the upper half of an f32, 2 bytes each, rounded to nearest even.
 *
 * The range of f32, three significant digits. NaN and infinities arrive unchanged. */
#include "base/half.h"

#define TO_F32 gw_bf16_to_f32
#define TO_F32_ARRAY gw_bf16_to_f32_array
#define FROM_F32_ARRAY gw_f32_to_bf16_array

#if defined(__x86_64__)
#include <immintrin.h>

#define HALF_AVX2 __attribute__((target("avx2")))

HALF_AVX2 static inline __m256 widen8(const uint16_t *x) {
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)x));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
#endif

#include "compress/half_body.h"

const gw_codec gw_codec_bf16 = {
    .technique = {.name = "bf16",
                  .about = "bfloat16, 2 bytes a value",
                  .params = GW_PARAMS(GW_CODEC_FEEDBACK(GW_FEEDBACK_NONE), GW_CODEC_FORM)},
    .significand = 8,
    .encode_rate = 21e9,
    .decode_rate = 19e9,
    .trusted = {.error = 0.005, .aligned = 0.999},
    .block = 1,
    .merge_unit = sizeof(uint16_t),
    .bound = bound,
    .encode = encode,
    .decode_add = decode_add,
    .merge = merge,
};
