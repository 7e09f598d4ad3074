/* reduce_avx2.c - the reduction kernels for CPUs with AVX2 and F16C. */
#if defined(__x86_64__)
#include <immintrin.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,f16c"))), apply_to = function)
#else
#pragma GCC target("avx2,f16c")
#endif

#define VECTOR_BYTES 32
#define TABLE gw_reduce_avx2
#include "base/reduce_body.h"

INLINE __m128i load_16(const char *from) { return _mm_loadu_si128((const __m128i *)from); }
INLINE __m128i load_8(const char *from) { return _mm_loadl_epi64((const __m128i *)from); }

INLINE vec f16_load(const char *from) { return (vec)_mm256_cvtph_ps(load_16(from)); }
INLINE vec u16_load(const char *from) { return (vec)_mm256_cvtepu16_epi32(load_16(from)); }
INLINE vec i8_load(const char *from) { return (vec)_mm256_cvtepi8_epi32(load_8(from)); }
INLINE vec u8_load(const char *from) { return (vec)_mm256_cvtepu8_epi32(load_8(from)); }

INLINE void f16_store(char *to, vec value) {
    _mm_storeu_si128((__m128i *)to, _mm256_cvtps_ph((__m256)value, _MM_FROUND_TO_NEAREST_INT));
}

/* Packing works within each half of the register; the permutation then joins the two results. */
INLINE void u16_store(char *to, vec value) {
    __m256i packed = _mm256_packus_epi32((__m256i)value, (__m256i)value);
    _mm_storeu_si128((__m128i *)to, _mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0x08)));
}

INLINE void u8_store(char *to, vec value) {
    const __m256i low_bytes = _mm256_set1_epi32(0x0c080400);
    __m256i packed = _mm256_shuffle_epi8((__m256i)value, low_bytes);
    __m128i both = _mm_unpacklo_epi32(_mm256_castsi256_si128(packed), _mm256_extracti128_si256(packed, 1));
    _mm_storel_epi64((__m128i *)to, both);
}

INLINE vec divide_i32(vec value, double divisor) {
    __m128i low = _mm256_castsi256_si128((__m256i)value), high = _mm256_extracti128_si256((__m256i)value, 1);
    __m256d by = _mm256_set1_pd(divisor);
    low = _mm256_cvttpd_epi32(_mm256_div_pd(_mm256_cvtepi32_pd(low), by));
    high = _mm256_cvttpd_epi32(_mm256_div_pd(_mm256_cvtepi32_pd(high), by));
    return (vec)_mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
}

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
