/* sfb.c - see sfb.h. */
#include "arch/sfb.h"

#include <string.h>

#define PANEL 1024 /* columns: the part of a row stays in the L1 cache while all examples are added */

double gw_sfb_full(const gw_sfb_layer *l, int workers, int servers) {
    return 2.0 * (double)l->rows * (double)l->cols * (workers + servers - 2) / servers;
}

double gw_sfb_factors(const gw_sfb_layer *l, int workers) {
    return 2.0 * (double)l->batch * (workers - 1) * ((double)l->rows + (double)l->cols);
}

bool gw_sfb_chosen(const gw_sfb_layer *l, int workers, int servers) {
    return workers > 1 && gw_sfb_factors(l, workers) <= gw_sfb_full(l, workers, servers);
}

/* Four values at any address. */
typedef float lanes __attribute__((vector_size(16), aligned(4), may_alias));
#define LANES 4
#define EXAMPLES 4 /* examples added for each load and store of a value of the sum */

static lanes load(const float *values) { return *(const lanes *)values; }

/* Each value adds one example after the other, so the bits do not depend on how many are handled together. Written out:
 * compilers do not unroll a loop over the examples. */
static void add_rows(float *sum, const float *right, size_t stride, const float by[EXAMPLES], size_t count) {
    const float *a = right, *b = a + stride, *c = b + stride, *d = c + stride;
    size_t i = 0;
    for (; i + LANES <= count; i += LANES)
        *(lanes *)(sum + i) =
            load(sum + i) + by[0] * load(a + i) + by[1] * load(b + i) + by[2] * load(c + i) + by[3] * load(d + i);
    for (; i < count; i++) sum[i] = sum[i] + by[0] * a[i] + by[1] * b[i] + by[2] * c[i] + by[3] * d[i];
}

static void add_row(float *sum, const float *right, float by, size_t count) {
    for (size_t i = 0; i < count; i++) sum[i] += by * right[i];
}

/* left, right: where the column and the row of the first example begin in this part of the sum. */
static void add_examples(float *sum, const gw_sfb_layer *l, const float *left, const float *right, float scale,
                         size_t count) {
    size_t k = 0;
    for (; k + EXAMPLES <= l->batch; k += EXAMPLES) {
        float by[EXAMPLES];
        for (size_t e = 0; e < EXAMPLES; e++) by[e] = scale * left[(k + e) * l->rows];
        add_rows(sum, right + k * l->cols, l->cols, by, count);
    }
    for (; k < l->batch; k++) add_row(sum, right + k * l->cols, scale * left[k * l->rows], count);
}

void gw_sfb_sum(float *sum, size_t rows, size_t cols, const gw_sfb_worker *workers, int count, float scale) {
    for (size_t at = 0; at < cols; at += PANEL) {
        size_t width = cols - at < PANEL ? cols - at : PANEL;
        for (size_t r = 0; r < rows; r++) {
            float *part = sum + r * cols + at;
            memset(part, 0, width * sizeof *part);
            for (int w = 0; w < count; w++) {
                gw_sfb_layer layer = {rows, cols, workers[w].batch};
                add_examples(part, &layer, workers[w].left + r, workers[w].right + at, scale, width);
            }
        }
    }
}
