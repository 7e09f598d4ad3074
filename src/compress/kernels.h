/* kernels.h - passes over floats that several codecs share. Each has a plain reference and a fast version with the same
 * bits; gw_cpu() chooses. Buffers need only the alignment of their element. */
#ifndef GW_COMPRESS_KERNELS_H
#define GW_COMPRESS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define GW_INFINITY_BITS UINT32_C(0x7f800000) /* |x| as bits: infinity; above it are the NaNs */

static inline uint32_t gw_magnitude_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits & UINT32_C(0x7fffffff);
}

static inline float gw_float_of_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

#define GW_KERNEL_LANES 16      /* of products: an element's lane is its number modulo this */
#define GW_KERNEL_NORM_LANES 32 /* of squares */
#define GW_KERNEL_STRETCH 4096  /* elements summed in f32 before going to f64 */

/* lanes: a multiple of 4. */
static inline double gw_lanes_sum(const float *lane, int lanes) {
    double sum[4] = {0};
    for (int i = 0; i < lanes; i++) sum[i % 4] += (double)lane[i];
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* Squares are summed in lanes of f32 over 4,096 elements, and these sums are added in f64. The result is not finite if
 * a sum overflows or the data is not finite. */
double gw_kernel_norm2(const float *x, size_t count);
double gw_kernel_dot(const float *x, const float *y, size_t count);
/* e += g; returns the sum of squares of the new e. */
double gw_kernel_add(float *e, const float *g, size_t count);
/* The same, and peaks as gw_kernel_peaks32 finds them in the new e. */
double gw_kernel_add_peaks32(float *e, const float *g, size_t count, uint32_t *peaks);
/* e *= factor. */
void gw_kernel_scale(float *e, float factor, size_t count);
/* A residual after the decoded values were subtracted: values that are not finite have arrived as such and are set to
 * 0. Returns the sum of squares. */
double gw_kernel_sanitise(float *e, size_t count);
/* The largest |x| as bits, so a NaN beats infinity and both beat numbers; 0 for no elements. */
uint32_t gw_kernel_peak(const float *x, size_t count);
/* peaks[i] = the peak of the i-th 32 elements (the last may be shorter). */
void gw_kernel_peaks32(const float *x, size_t count, uint32_t *peaks);

/* sum += scale * x, x as bytes of f32 at any address. */
void gw_kernel_axpy(float *sum, const void *x, float scale, size_t count);

/* The fast versions handle whole groups of GW_KERNEL_NORM_LANES elements, with peaks of four times as many, add to the
 * lanes, and return how many elements that was. Four peaks of 32 elements that follow each other are stored at once. */
size_t gw_kernel_add_avx2(float *lane, float *e, const float *g, size_t count);
size_t gw_kernel_add_avx512(float *lane, float *e, const float *g, size_t count);
size_t gw_kernel_add_peaks32_avx2(float *lane, float *e, const float *g, size_t count, uint32_t *peaks);
size_t gw_kernel_add_peaks32_avx512(float *lane, float *e, const float *g, size_t count, uint32_t *peaks);
size_t gw_kernel_sanitise_avx2(float *lane, float *e, size_t count);
size_t gw_kernel_sanitise_avx512(float *lane, float *e, size_t count);
size_t gw_kernel_norm2_avx2(float *lane, const float *x, size_t count);
size_t gw_kernel_momentum_avx2(float *lane, float *u, float *v, const float *g, float momentum, float clip,
                               size_t count);

/* DGC: u = m*u + clip*g, v += u; returns the sum of squares of v. */
double gw_kernel_momentum(float *u, float *v, const float *g, float momentum, float clip, size_t count);

#endif
