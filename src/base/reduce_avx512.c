/* reduce_avx512.c - the reduction kernels for CPUs with AVX-512 (F, BW, DQ, VL). */
#if defined(__x86_64__)
#include <immintrin.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl")
#endif

#define VECTOR_BYTES 64
#define TABLE gw_reduce_avx512
#include "base/reduce_body.h"

INLINE __m256i load_32(const char *from) { return _mm256_loadu_si256((const __m256i *)from); }
INLINE __m128i load_16(const char *from) { return _mm_loadu_si128((const __m128i *)from); }

INLINE vec f16_load(const char *from) { return (vec)_mm512_cvtph_ps(load_32(from)); }
INLINE vec u16_load(const char *from) { return (vec)_mm512_cvtepu16_epi32(load_32(from)); }
INLINE vec i8_load(const char *from) { return (vec)_mm512_cvtepi8_epi32(load_16(from)); }
INLINE vec u8_load(const char *from) { return (vec)_mm512_cvtepu8_epi32(load_16(from)); }

INLINE void f16_store(char *to, vec value) {
    _mm256_storeu_si256((__m256i *)to, _mm512_cvtps_ph((__m512)value, _MM_FROUND_TO_NEAREST_INT));
}

INLINE void u16_store(char *to, vec value) {
    _mm256_storeu_si256((__m256i *)to, _mm512_cvtepi32_epi16((__m512i)value));
}

INLINE void u8_store(char *to, vec value) { _mm_storeu_si128((__m128i *)to, _mm512_cvtepi32_epi8((__m512i)value)); }

INLINE vec divide_i32(vec value, double divisor) {
    __m256i low = _mm512_castsi512_si256((__m512i)value), high = _mm512_extracti64x4_epi64((__m512i)value, 1);
    __m512d by = _mm512_set1_pd(divisor);
    low = _mm512_cvttpd_epi32(_mm512_div_pd(_mm512_cvtepi32_pd(low), by));
    high = _mm512_cvttpd_epi32(_mm512_div_pd(_mm512_cvtepi32_pd(high), by));
    return (vec)_mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
