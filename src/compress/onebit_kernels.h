/* onebit_kernels.h - the passes of onebit.c over a block, for CPUs with AVX2 and AVX-512. */
#ifndef GW_COMPRESS_ONEBIT_KERNELS_H
#define GW_COMPRESS_ONEBIT_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GW_ONEBIT_BLOCK 2048u /* elements */
#define GW_ONEBIT_LANES 16    /* the lane of a value is its number modulo this */

/* Sums over the values of one side, relative to the threshold: the plain one, or those of squares and cubes. */
typedef struct gw_onebit_side {
    float sum[GW_ONEBIT_LANES], squares[GW_ONEBIT_LANES], cubes[GW_ONEBIT_LANES];
    size_t count;
} gw_onebit_side;

typedef struct gw_onebit_sides {
    gw_onebit_side low, high;
} gw_onebit_sides;

/* A block that was encoded: what is to be added to each value of a side. */
typedef struct gw_onebit_coded {
    const uint8_t *bits;
    float low, high;
} gw_onebit_coded;

/* The first three handle groups of 16 elements, of 32 where squares are summed, and return how many elements that was.
 */
typedef struct gw_onebit_kernels {
    /* Sets the bits of values at or above the threshold, and the sums. */
    size_t (*divide)(const float *x, size_t count, float threshold, bool weighted, uint8_t *bits, gw_onebit_sides *s);
    /* x += the value of its side. */
    size_t (*add)(gw_onebit_coded coded, size_t count, float *x);
    /* The same, and clears what is not finite; squares in GW_KERNEL_NORM_LANES. */
    size_t (*take_off)(gw_onebit_coded coded, size_t count, float *e, float *lane);
    /* A whole block: e += gradient, and divides it at 0, weighted; and takes off of `before`, the block before e. */
    void (*turn)(float *e, const float *gradient, uint8_t *bits, gw_onebit_sides *s, gw_onebit_coded before,
                 float *lane);
} gw_onebit_kernels;

extern const gw_onebit_kernels gw_onebit_avx2, gw_onebit_avx512;

#endif
