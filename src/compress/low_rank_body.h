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
typedef int ints __attribute__((vector_size(VECTOR_BYTES)));

INLINE vec load(const float *from) {
    vec value;
    memcpy(&value, from, sizeof value);
    return value;
}

INLINE void store(float *to, vec value) { memcpy(to, &value, sizeof value); }
INLINE vec splat(float x) { return x - (vec){0}; }

/* Prefetches the same place of the next group of rows, which may be too far away for the first level of cache. */
INLINE void fetch(const float *x) { __builtin_prefetch(x, 0, 2); }

INLINE vec cleared(vec x) {
    ints bits = (ints)x;
    return (vec)(bits & ((bits & 0x7fffffff) < (int)GW_INFINITY_BITS));
}

/* The sum of the squares that are in lanes. */
INLINE double lanes_sum(const vec squares[PARTS]) {
    float lane[GW_KERNEL_LANES];
    UNROLL for (size_t part = 0; part < PARTS; part++) store(lane + part * WIDTH, squares[part]);
    return gw_lanes_sum(lane, GW_KERNEL_LANES);
}

INLINE void squares_add(vec squares[PARTS], size_t i, float x) {
    squares[i % GW_KERNEL_LANES / WIDTH][i % WIDTH] += x * x;
}

/* Sums of products over one stretch, in lanes. next: as much memory as the stretch of all rows has, which is
 * prefetched.
 */
INLINE void dot_stretch(size_t columns, const float *m, size_t cols, const float *q, size_t length, double *sums,
                        size_t rank, const float *next) {
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
        UNROLL for (size_t r = 0; r < DOT_ROWS; r++) fetch(next + i * DOT_ROWS + r * GW_KERNEL_LANES);
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

INLINE void dot_columns(size_t columns, const float *m, size_t cols, size_t rank, const float *q, float *p,
                        const float *next) {
    double sums[DOT_ROWS * DOT_COLS] = {0};
    for (size_t at = 0; at < cols; at += GW_KERNEL_STRETCH) {
        size_t length = cols - at < GW_KERNEL_STRETCH ? cols - at : GW_KERNEL_STRETCH;
        dot_stretch(columns, m + at, cols, q + at, length, sums, columns, next + at * DOT_ROWS);
    }
    for (size_t r = 0; r < DOT_ROWS; r++)
        for (size_t c = 0; c < columns; c++) p[r * rank + c] = (float)sums[r * columns + c];
}

static size_t dots(const float *m, size_t rows, size_t cols, size_t rank, const float *q, float *p, const float *next) {
    size_t i = 0, group = DOT_ROWS * cols;
    for (; i + DOT_ROWS <= rows; i += DOT_ROWS, m += group, next += group, p += DOT_ROWS * rank) {
        size_t c = 0;
        for (; c + DOT_COLS <= rank; c += DOT_COLS) dot_columns(DOT_COLS, m, cols, rank, q + c * cols, p + c, next);
        for (; c < rank; c++) dot_columns(1, m, cols, rank, q + c * cols, p + c, next);
    }
    return i;
}

INLINE void gather_columns(size_t columns, const float *m, size_t cols, size_t width, size_t rank, const float *p,
                           float *q) {
    vec factor[ROWS][COLS];
    size_t i = 0;
    UNROLL for (size_t r = 0; r < ROWS; r++) {
        UNROLL for (size_t c = 0; c < columns; c++) factor[r][c] = splat(p[r * rank + c]);
    }
    for (; i + WIDTH <= width; i += WIDTH) {
        vec sum[COLS];
        UNROLL for (size_t c = 0; c < columns; c++) sum[c] = load(q + c * cols + i);
        UNROLL for (size_t r = 0; r < ROWS; r++) {
            vec value = load(m + r * cols + i);
            fetch(m + (r + ROWS) * cols + i);
            UNROLL for (size_t c = 0; c < columns; c++) sum[c] += factor[r][c] * value;
        }
        UNROLL for (size_t c = 0; c < columns; c++) store(q + c * cols + i, sum[c]);
    }
    for (; i < width; i++)
        for (size_t r = 0; r < ROWS; r++)
            for (size_t c = 0; c < columns; c++) q[c * cols + i] += p[r * rank + c] * m[r * cols + i];
}

static size_t gather(const float *m, size_t rows, size_t cols, size_t width, size_t rank, const float *p, float *q) {
    size_t i = 0;
    for (; i + ROWS <= rows; i += ROWS, m += ROWS * cols, p += ROWS * rank) {
        size_t c = 0;
        for (; c + COLS <= rank; c += COLS) gather_columns(COLS, m, cols, width, rank, p + c, q + c * cols);
        for (; c < rank; c++) gather_columns(1, m, cols, width, rank, p + c, q + c * cols);
    }
    return i;
}

/* Columns [from, end) of a group of rows. left not NULL: clears what is not finite, and adds the squares of each row.
 */
INLINE void add_stretch(size_t columns, float *m, size_t cols, const float *q, size_t from, size_t end,
                        vec factor[ROWS][COLS], double *left) {
    vec squares[ROWS][PARTS] = {{{0}}};
    for (size_t i = from; i + GW_KERNEL_LANES <= end; i += GW_KERNEL_LANES) {
        UNROLL for (size_t part = 0; part < PARTS; part++) {
            vec column[COLS];
            size_t at = i + part * WIDTH;
            UNROLL for (size_t c = 0; c < columns; c++) column[c] = load(q + c * cols + at);
            UNROLL for (size_t r = 0; r < ROWS; r++) {
                vec sum = load(m + r * cols + at);
                fetch(m + (r + ROWS) * cols + at);
                UNROLL for (size_t c = 0; c < columns; c++) sum += factor[r][c] * column[c];
                if (left) sum = cleared(sum);
                if (left) squares[r][part] += sum * sum;
                store(m + r * cols + at, sum);
            }
        }
    }
    for (size_t r = 0; r < ROWS; r++) {
        for (size_t k = end - (end - from) % GW_KERNEL_LANES; k < end; k++) {
            float *x = m + r * cols + k;
            for (size_t c = 0; c < columns; c++) *x += factor[r][c][0] * q[c * cols + k];
            if (left && gw_magnitude_bits(*x) >= GW_INFINITY_BITS) *x = 0;
            if (left) squares_add(squares[r], k - from, *x);
        }
        if (left) left[r] += lanes_sum(squares[r]);
    }
}

INLINE void add_columns(size_t columns, float *m, size_t cols, size_t rank, const float *p, const float *q,
                        double *left) {
    vec factor[ROWS][COLS];
    UNROLL for (size_t r = 0; r < ROWS; r++) {
        UNROLL for (size_t c = 0; c < columns; c++) factor[r][c] = splat(p[r * rank + c]);
    }
    double squares[ROWS] = {0};
    for (size_t at = 0; at < cols; at += GW_KERNEL_STRETCH) {
        size_t end = cols - at < GW_KERNEL_STRETCH ? cols : at + GW_KERNEL_STRETCH;
        add_stretch(columns, m, cols, q, at, end, factor, left ? squares : NULL);
    }
    for (size_t r = 0; left && r < ROWS; r++) *left += squares[r];
}

INLINE size_t add_of(float *m, size_t rows, size_t cols, size_t rank, const float *p, const float *q, double *left) {
    size_t i = 0, last = rank % COLS ? rank - 1 : rank - COLS; /* the columns that are added last */
    for (; i + ROWS <= rows; i += ROWS, m += ROWS * cols, p += ROWS * rank) {
        size_t c = 0;
        for (; c + COLS <= rank && c < last; c += COLS) add_columns(COLS, m, cols, rank, p + c, q + c * cols, NULL);
        for (; c < last; c++) add_columns(1, m, cols, rank, p + c, q + c * cols, NULL);
        if (rank % COLS) add_columns(1, m, cols, rank, p + c, q + c * cols, left);
        else add_columns(COLS, m, cols, rank, p + c, q + c * cols, left);
    }
    return i;
}

static size_t add(float *m, size_t rows, size_t cols, size_t rank, const float *p, const float *q) {
    return add_of(m, rows, cols, rank, p, q, NULL);
}

static size_t add_clear(float *m, size_t rows, size_t cols, size_t rank, const float *p, const float *q, double *left) {
    return add_of(m, rows, cols, rank, p, q, left);
}

const gw_low_rank_kernels TABLE = {.dots = dots, .gather = gather, .add = add, .add_clear = add_clear};
