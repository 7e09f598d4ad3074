/* low_rank.h - products of a matrix with a few thin columns: the arithmetic of PowerSGD. m has rows x cols elements,
 * row after row; q has `rank` columns of cols elements, one after the other; p has rows x rank, row after row. Several
 * rows are taken together, so that q is read once for all of them. The bits are those of gw_kernel_dot and
 * gw_kernel_axpy, for each row and column. */
#ifndef GW_COMPRESS_LOW_RANK_H
#define GW_COMPRESS_LOW_RANK_H

#include <stddef.h>

/* p = m q; prefetches as much memory as m has, from `next` on. */
void gw_low_rank_dots(const float *m, size_t rows, size_t cols, size_t rank, const float *q, float *p,
                      const float *next);
/* q += transposed(m) p; rows one after the other, and of each the first `width` columns. */
void gw_low_rank_gather(const float *m, size_t rows, size_t cols, size_t width, size_t rank, const float *p, float *q);
/* m += p transposed(q); columns one after the other. */
void gw_low_rank_add(float *m, size_t rows, size_t cols, size_t rank, const float *p, const float *q);
/* The same, and clears what is then not finite; returns the sum of squares of m. */
double gw_low_rank_add_clear(float *m, size_t rows, size_t cols, size_t rank, const float *p, const float *q);

/* The fast versions (low_rank_body.h) handle groups of rows and return how many rows that was; they add the squares. */
typedef struct gw_low_rank_kernels {
    size_t (*dots)(const float *m, size_t rows, size_t cols, size_t rank, const float *q, float *p, const float *next);
    size_t (*gather)(const float *m, size_t rows, size_t cols, size_t width, size_t rank, const float *p, float *q);
    size_t (*add)(float *m, size_t rows, size_t cols, size_t rank, const float *p, const float *q);
    size_t (*add_clear)(float *m, size_t rows, size_t cols, size_t rank, const float *p, const float *q, double *left);
} gw_low_rank_kernels;

extern const gw_low_rank_kernels gw_low_rank_avx2, gw_low_rank_avx512;

#endif
