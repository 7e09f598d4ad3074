/* vec16.h - 16 floats: one register of AVX-512, or two of AVX2. Kernels are written once over these and compiled for
 * both levels; the including file sets VECTOR_BYTES and the target. */
#ifndef GW_COMPRESS_VEC16_H
#define GW_COMPRESS_VEC16_H

#include "compress/kernels.h"

#define INLINE static inline __attribute__((always_inline))
#define MAGNITUDE 0x7fffffff /* the bits of |x| */

#if VECTOR_BYTES == 64

typedef __m512 vec16;
typedef __mmask16 mask16;

INLINE vec16 load16(const float *x) { return _mm512_loadu_ps(x); }
INLINE void store16(float *x, vec16 v) { _mm512_storeu_ps(x, v); }
INLINE vec16 splat16(float x) { return _mm512_set1_ps(x); }
INLINE vec16 add16(vec16 x, vec16 y) { return _mm512_add_ps(x, y); }
INLINE vec16 sub16(vec16 x, vec16 y) { return _mm512_sub_ps(x, y); }
INLINE vec16 mul16(vec16 x, vec16 y) { return _mm512_mul_ps(x, y); }
INLINE mask16 at_least16(vec16 x, vec16 y) { return _mm512_cmp_ps_mask(x, y, _CMP_GE_OQ); }
INLINE vec16 blend16(mask16 m, vec16 off, vec16 on) { return _mm512_mask_blend_ps(m, off, on); }
INLINE unsigned bits16(mask16 m) { return _cvtmask16_u32(m); }
INLINE mask16 mask_of16(unsigned bits) { return _cvtu32_mask16(bits); }
/* x, or 0 where the mask is set */
INLINE vec16 unless16(mask16 m, vec16 x) { return _mm512_maskz_mov_ps(_knot_mask16(m), x); }
/* sum + x where the mask is set, and where it is not */
INLINE vec16 add_where16(vec16 sum, mask16 m, vec16 x) { return _mm512_mask_add_ps(sum, m, sum, x); }
INLINE vec16 add_unless16(vec16 sum, mask16 m, vec16 x) { return _mm512_mask_add_ps(sum, _knot_mask16(m), sum, x); }

INLINE mask16 reaches16(vec16 x, uint32_t least) {
    __m512i magnitude = _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(MAGNITUDE));
    return _mm512_cmpge_epu32_mask(magnitude, _mm512_set1_epi32((int)least));
}

/* 0 for what is not finite */
INLINE vec16 finite16(vec16 x) { return unless16(reaches16(x, GW_INFINITY_BITS), x); }

/* Writes the elements of the mask, whose numbers begin at `first`, one after the other; 16 of each are overwritten. */
INLINE unsigned compress16(vec16 x, mask16 m, size_t first, uint16_t *index, float *value) {
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __m512i number = _mm512_maskz_compress_epi32(m, _mm512_add_epi32(lane, _mm512_set1_epi32((int)first)));
    _mm256_storeu_si256((__m256i *)index, _mm512_cvtepi32_epi16(number));
    _mm512_storeu_ps(value, _mm512_maskz_compress_ps(m, x));
    return (unsigned)__builtin_popcount(bits16(m));
}

#else

typedef struct vec16 {
    __m256 a, b;
} vec16;

typedef vec16 mask16; /* all bits of an element, or none */

INLINE vec16 load16(const float *x) { return (vec16){_mm256_loadu_ps(x), _mm256_loadu_ps(x + 8)}; }
INLINE vec16 splat16(float x) { return (vec16){_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
INLINE vec16 add16(vec16 x, vec16 y) { return (vec16){_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
INLINE vec16 sub16(vec16 x, vec16 y) { return (vec16){_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
INLINE vec16 mul16(vec16 x, vec16 y) { return (vec16){_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
INLINE vec16 and16(vec16 x, vec16 y) { return (vec16){_mm256_and_ps(x.a, y.a), _mm256_and_ps(x.b, y.b)}; }
INLINE vec16 unless16(vec16 m, vec16 x) { return (vec16){_mm256_andnot_ps(m.a, x.a), _mm256_andnot_ps(m.b, x.b)}; }

INLINE void store16(float *x, vec16 v) {
    _mm256_storeu_ps(x, v.a);
    _mm256_storeu_ps(x + 8, v.b);
}

INLINE mask16 at_least16(vec16 x, vec16 y) {
    return (mask16){_mm256_cmp_ps(x.a, y.a, _CMP_GE_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_GE_OQ)};
}

INLINE vec16 blend16(mask16 m, vec16 off, vec16 on) {
    return (vec16){_mm256_blendv_ps(off.a, on.a, m.a), _mm256_blendv_ps(off.b, on.b, m.b)};
}

INLINE unsigned bits16(mask16 m) { return (unsigned)_mm256_movemask_ps(m.a) | (unsigned)_mm256_movemask_ps(m.b) << 8; }

/* For blend16, which looks at the sign alone. */
INLINE mask16 mask_of16(unsigned bits) {
    __m256i all = _mm256_set1_epi32((int)bits);
    __m256i low = _mm256_sllv_epi32(all, _mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24));
    __m256i high = _mm256_sllv_epi32(all, _mm256_setr_epi32(23, 22, 21, 20, 19, 18, 17, 16));
    return (mask16){_mm256_castsi256_ps(low), _mm256_castsi256_ps(high)};
}

INLINE vec16 add_where16(vec16 sum, mask16 m, vec16 x) { return add16(sum, and16(m, x)); }
INLINE vec16 add_unless16(vec16 sum, mask16 m, vec16 x) { return add16(sum, unless16(m, x)); }

INLINE __m256 reaches8(__m256 x, uint32_t least) {
    __m256i magnitude = _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(MAGNITUDE));
    return _mm256_castsi256_ps(_mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32((int)(least - 1))));
}

INLINE mask16 reaches16(vec16 x, uint32_t least) { return (mask16){reaches8(x.a, least), reaches8(x.b, least)}; }
INLINE vec16 finite16(vec16 x) { return unless16(reaches16(x, GW_INFINITY_BITS), x); }

INLINE unsigned compress8(__m256 x, __m256 m, size_t first, uint16_t *index, float *value) {
    unsigned bits = (unsigned)_mm256_movemask_ps(m);
    __m128i places = _mm_loadl_epi64((const __m128i *)&gw_kernel_places[bits]);
    __m128i number = _mm_add_epi16(_mm_cvtepu8_epi16(places), _mm_set1_epi16((short)first));
    _mm_storeu_si128((__m128i *)index, number);
    _mm256_storeu_ps(value, _mm256_permutevar8x32_ps(x, _mm256_cvtepu8_epi32(places)));
    return (unsigned)__builtin_popcount(bits);
}

INLINE unsigned compress16(vec16 x, mask16 m, size_t first, uint16_t *index, float *value) {
    unsigned low = compress8(x.a, m.a, first, index, value);
    return low + compress8(x.b, m.b, first + 8, index + low, value + low);
}

#endif
#endif
