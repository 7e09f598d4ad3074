/* fp16.c - IEEE half precision, 2 bytes each, rounded to nearest even.
 *
 * A value above 65,504 arrives as an infinity, so overflow is visible; NaN and infinities arrive unchanged; values
 * below 6e-8 arrive as zero. */
#include "base/half.h"

#define TO_F32 gw_f16_to_f32
#define TO_F32_ARRAY gw_f16_to_f32_array
#define FROM_F32_ARRAY gw_f32_to_f16_array

#if defined(__x86_64__)
#include <immintrin.h>

#define HALF_AVX2 __attribute__((target("avx2,f16c")))

HALF_AVX2 static inline __m256 widen8(const uint16_t *x) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)x));
}
#endif

#include "compress/half_body.h"

const gw_codec gw_codec_fp16 = {
    .technique = {.name = "fp16",
                  .about = "half precision, 2 bytes a value",
                  .params = GW_PARAMS(GW_CODEC_FEEDBACK(GW_FEEDBACK_NONE), GW_CODEC_FORM)},
    .significand = 11,
    .encode_rate = 21e9,
    .decode_rate = 20e9,
    .trusted = {.error = 0.001, .aligned = 0.999},
    .block = 1,
    .merge_unit = sizeof(uint16_t),
    .bound = bound,
    .encode = encode,
    .decode_add = decode_add,
    .merge = merge,
};
