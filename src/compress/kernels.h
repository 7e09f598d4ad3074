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
#define GW_KERNEL_STRETCH 4096u /* elements summed in f32 before going to f64 */

/* lanes: a multiple of 4. */
static inline double gw_lanes_sum(const float *lane, int lanes) {
    typedef float four __attribute__((vector_size(16)));
    typedef double fours __attribute__((vector_size(32)));
    fours sum = {0};
    for (int i = 0; i < lanes; i += 4) {
        four part;
        memcpy(&part, lane + i, sizeof part);
        sum += __builtin_convertvector(part, fours);
    }
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

#define GW_KERNEL_AHEAD 2048u /* elements: the hardware prefetcher does not keep up with two streams or more */
#define GW_KERNEL_LIST 4096u
#define GW_KERNEL_LIST_SPARE (GW_KERNEL_STRETCH + 32u) /* entries that are written beyond the end */
#define GW_KERNEL_NOTHING UINT32_C(0x80000000)         /* which no |x| reaches */

/* Elements whose |x| as bits is at least `least`, ascending, and their values. */
typedef struct gw_kernel_list {
    uint32_t least;
    size_t count;
    uint16_t index[GW_KERNEL_LIST + GW_KERNEL_LIST_SPARE];
    float value[GW_KERNEL_LIST + GW_KERNEL_LIST_SPARE];
} gw_kernel_list;

/* Squares are summed in lanes of f32 over 4,096 elements, and these sums are added in f64. The result is not finite if
 * a sum overflows or the data is not finite. */
double gw_kernel_norm2(const float *x, size_t count);
double gw_kernel_dot(const float *x, const float *y, size_t count);
/* e += g; returns the sum of squares of the new e. */
double gw_kernel_add(float *e, const float *g, size_t count);
/* The same for at most 65,536 elements, and moves those of the new e that reach list->least to the list: they are then
 * 0 in e. The sum of squares has them too. Where the list becomes longer than GW_KERNEL_LIST, not all are moved. */
double gw_kernel_add_move(float *e, const float *g, size_t count, gw_kernel_list *list);
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

/* DGC: u = m*u + clip*g, v += u; returns the sum of squares of v. */
double gw_kernel_momentum(float *u, float *v, const float *g, float momentum, float clip, size_t count);

/* The fast versions (kernels_body.h) handle whole groups of GW_KERNEL_NORM_LANES elements, add to the lanes, and return
 * how many elements that was. Numbers of elements in the list begin at `first`. */
typedef struct gw_kernels {
    size_t (*norm2)(float *lane, const float *x, size_t count);
    size_t (*add)(float *lane, float *e, const float *g, size_t count);
    size_t (*add_move)(float *lane, float *e, const float *g, size_t count, size_t first, gw_kernel_list *list);
    size_t (*sanitise)(float *lane, float *e, size_t count);
    size_t (*momentum)(float *lane, float *u, float *v, const float *g, float momentum, float clip, size_t count);
} gw_kernels;

extern const gw_kernels gw_kernels_avx2, gw_kernels_avx512;
extern const uint64_t gw_kernel_places[256]; /* the numbers of the bits that are set, a byte each, lowest first */

#endif
