/* low_rank.c - see low_rank.h. */
#include "compress/low_rank.h"

#include "base/cpu.h"
#include "compress/kernels.h"

/* NULL: the plain functions do everything. */
static const gw_low_rank_kernels *fast(void) {
#if defined(__x86_64__)
    if (gw_cpu() >= GW_CPU_AVX512) return &gw_low_rank_avx512;
    if (gw_cpu() >= GW_CPU_AVX2) return &gw_low_rank_avx2;
#endif
    return NULL;
}

static void add_row(float *row, size_t cols, size_t rank, const float *p, const float *q) {
    for (size_t c = 0; c < rank; c++) gw_kernel_axpy(row, q + c * cols, p[c], cols);
}

void gw_low_rank_dots(const float *m, size_t rows, size_t cols, size_t rank, const float *q, float *p,
                      const float *next) {
    size_t i = fast() ? fast()->dots(m, rows, cols, rank, q, p, next) : 0;
    for (; i < rows; i++)
        for (size_t c = 0; c < rank; c++) p[i * rank + c] = (float)gw_kernel_dot(m + i * cols, q + c * cols, cols);
}

void gw_low_rank_gather(const float *m, size_t rows, size_t cols, size_t width, size_t rank, const float *p, float *q) {
    size_t i = fast() ? fast()->gather(m, rows, cols, width, rank, p, q) : 0;
    for (; i < rows; i++)
        for (size_t c = 0; c < rank; c++) gw_kernel_axpy(q + c * cols, m + i * cols, p[i * rank + c], width);
}

void gw_low_rank_add(float *m, size_t rows, size_t cols, size_t rank, const float *p, const float *q) {
    size_t i = fast() ? fast()->add(m, rows, cols, rank, p, q) : 0;
    for (; i < rows; i++) add_row(m + i * cols, cols, rank, p + i * rank, q);
}

double gw_low_rank_add_clear(float *m, size_t rows, size_t cols, size_t rank, const float *p, const float *q) {
    double left = 0;
    size_t i = fast() ? fast()->add_clear(m, rows, cols, rank, p, q, &left) : 0;
    for (; i < rows; i++) {
        float *row = m + i * cols;
        add_row(row, cols, rank, p + i * rank, q);
        gw_kernel_sanitise(row, cols);
        left += gw_kernel_dot(row, row, cols);
    }
    return left;
}
