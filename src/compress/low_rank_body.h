/* low_rank_body.h - low_rank.h, written once over vectors of VECTOR_BYTES and compiled for each CPU level.
 *
 * The including file sets VECTOR_BYTES, the target and TABLE (the name of the table of kernels); DOT_ROWS and DOT_COLS:
 * so many sums of products fit into registers; ROWS: so many factors for each of COLS columns do. Functions are always
 * inlined with a constant number of columns, so that arrays of vectors become registers. */
#include <string.h>

#include "compress/kernels.h"
#include "compress/low_rank.h"

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 4")
#define COLS 4
#define WIDTH (VECTOR_BYTES / sizeof(float))
#define PARTS (GW_KERNEL_LANES / WIDTH)

typedef float vec __attribute__((vector_size(VECTOR_BYTES)));

INLINE vec load(const float *from) {
    vec value;
    memcpy(&value, from, sizeof value);
    return value;
}

INLINE void store(float *to, vec value) { memcpy(to, &value, sizeof value); }
INLINE vec splat(float x) { return x - (vec){0}; }

/* Prefetches the same place of the next group of rows, which may be too far away for the first level of cache. */
INLINE void fetch(const float *x) { __builtin_prefetch(x, 0, 2); }

/* Sums of products over one stretch, in lanes. */
INLINE void dot_stretch(size_t columns, const float *m, size_t cols, const float *q, size_t length, double *sums,
                        size_t rank) {
    vec sum[DOT_ROWS][DOT_COLS][PARTS] = {{{{0}}}};
    size_t i = 0;
    for (; i + GW_KERNEL_LANES <= length; i += GW_KERNEL_LANES) {
        UNROLL for (size_t part = 0; part < PARTS; part++) {
            vec column[DOT_COLS];
            UNROLL for (size_t c = 0; c < columns; c++) column[c] = load(q + c * cols + i + part * WIDTH);
            UNROLL for (size_t r = 0; r < DOT_ROWS; r++) {
                vec value = load(m + r * cols + i + part * WIDTH);
                UNROLL for (size_t c = 0; c < columns; c++) sum[r][c][part] += value * column[c];
            }
        }
        UNROLL for (size_t r = 0; r < DOT_ROWS; r++) fetch(m + (r + DOT_ROWS) * cols + i);
    }
    UNROLL for (size_t r = 0; r < DOT_ROWS; r++) {
        UNROLL for (size_t c = 0; c < columns; c++) {
            float lane[GW_KERNEL_LANES];
            UNROLL for (size_t part = 0; part < PARTS; part++) store(lane + part * WIDTH, sum[r][c][part]);
            for (size_t k = i; k < length; k++) lane[k % GW_KERNEL_LANES] += m[r * cols + k] * q[c * cols + k];
            sums[r * rank + c] += gw_lanes_sum(lane, GW_KERNEL_LANES);
        }
    }
}

INLINE void dot_columns(size_t columns, const float *m, size_t cols, size_t rank, const float *q, float *p) {
    double sums[DOT_ROWS * DOT_COLS] = {0};
    for (size_t at = 0; at < cols; at += GW_KERNEL_STRETCH) {
        size_t length = cols - at < GW_KERNEL_STRETCH ? cols - at : GW_KERNEL_STRETCH;
        dot_stretch(columns, m + at, cols, q + at, length, sums, columns);
    }
    for (size_t r = 0; r < DOT_ROWS; r++)
        for (size_t c = 0; c < columns; c++) p[r * rank + c] = (float)sums[r * columns + c];
}

static size_t dots(const float *m, size_t rows, size_t cols, size_t rank, const float *q, float *p) {
    size_t i = 0;
    for (; i + DOT_ROWS <= rows; i += DOT_ROWS, m += DOT_ROWS * cols, p += DOT_ROWS * rank) {
        size_t c = 0;
        for (; c + DOT_COLS <= rank; c += DOT_COLS) dot_columns(DOT_COLS, m, cols, rank, q + c * cols, p + c);
        for (; c < rank; c++) dot_columns(1, m, cols, rank, q + c * cols, p + c);
    }
    return i;
}

INLINE void gather_columns(size_t columns, const float *m, size_t cols, size_t rank, const float *p, float *q) {
    vec factor[ROWS][COLS];
    size_t i = 0;
    UNROLL for (size_t r = 0; r < ROWS; r++) {
        UNROLL for (size_t c = 0; c < columns; c++) factor[r][c] = splat(p[r * rank + c]);
    }
    for (; i + WIDTH <= cols; i += WIDTH) {
        vec sum[COLS];
        UNROLL for (size_t c = 0; c < columns; c++) sum[c] = load(q + c * cols + i);
        UNROLL for (size_t r = 0; r < ROWS; r++) {
            vec value = load(m + r * cols + i);
            fetch(m + (r + ROWS) * cols + i);
            UNROLL for (size_t c = 0; c < columns; c++) sum[c] += factor[r][c] * value;
        }
        UNROLL for (size_t c = 0; c < columns; c++) store(q + c * cols + i, sum[c]);
    }
    for (; i < cols; i++)
        for (size_t r = 0; r < ROWS; r++)
            for (size_t c = 0; c < columns; c++) q[c * cols + i] += p[r * rank + c] * m[r * cols + i];
}

static size_t gather(const float *m, size_t rows, size_t cols, size_t rank, const float *p, float *q) {
    size_t i = 0;
    for (; i + ROWS <= rows; i += ROWS, m += ROWS * cols, p += ROWS * rank) {
        size_t c = 0;
        for (; c + COLS <= rank; c += COLS) gather_columns(COLS, m, cols, rank, p + c, q + c * cols);
        for (; c < rank; c++) gather_columns(1, m, cols, rank, p + c, q + c * cols);
    }
    return i;
}

INLINE void add_columns(size_t columns, float *m, size_t cols, size_t rank, const float *p, const float *q) {
    vec factor[ROWS][COLS];
    size_t i = 0;
    UNROLL for (size_t r = 0; r < ROWS; r++) {
        UNROLL for (size_t c = 0; c < columns; c++) factor[r][c] = splat(p[r * rank + c]);
    }
    for (; i + WIDTH <= cols; i += WIDTH) {
        vec column[COLS];
        UNROLL for (size_t c = 0; c < columns; c++) column[c] = load(q + c * cols + i);
        UNROLL for (size_t r = 0; r < ROWS; r++) {
            vec sum = load(m + r * cols + i);
            fetch(m + (r + ROWS) * cols + i);
            UNROLL for (size_t c = 0; c < columns; c++) sum += factor[r][c] * column[c];
            store(m + r * cols + i, sum);
        }
    }
    for (; i < cols; i++)
        for (size_t r = 0; r < ROWS; r++)
            for (size_t c = 0; c < columns; c++) m[r * cols + i] += p[r * rank + c] * q[c * cols + i];
}

static size_t add(float *m, size_t rows, size_t cols, size_t rank, const float *p, const float *q) {
    size_t i = 0;
    for (; i + ROWS <= rows; i += ROWS, m += ROWS * cols, p += ROWS * rank) {
        size_t c = 0;
        for (; c + COLS <= rank; c += COLS) add_columns(COLS, m, cols, rank, p + c, q + c * cols);
        for (; c < rank; c++) add_columns(1, m, cols, rank, p + c, q + c * cols);
    }
    return i;
}

const gw_low_rank_kernels TABLE = {.dots = dots, .gather = gather, .add = add};
