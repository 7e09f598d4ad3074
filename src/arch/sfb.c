/* sfb.c - see sfb.h. */
#include "arch/sfb.h"

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

/* Each value adds one example after the other, so the bits do not depend on how many are handled together. */
static void add_rows(float *sum, const float *right, size_t stride, const float by[EXAMPLES], size_t count) {
    size_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        lanes s = *(lanes *)(sum + i);
        for (size_t k = 0; k < EXAMPLES; k++) s += by[k] * *(const lanes *)(right + k * stride + i);
        *(lanes *)(sum + i) = s;
    }
    for (; i < count; i++)
        for (size_t k = 0; k < EXAMPLES; k++) sum[i] += by[k] * right[k * stride + i];
}

static void add_row(float *sum, const float *right, float by, size_t count) {
    for (size_t i = 0; i < count; i++) sum[i] += by * right[i];
}

static void add_panel(float *sum, const gw_sfb_layer *l, size_t row, const float *left, const float *right, float scale,
                      size_t count) {
    size_t k = 0;
    for (; k + EXAMPLES <= l->batch; k += EXAMPLES) {
        float by[EXAMPLES];
        for (size_t e = 0; e < EXAMPLES; e++) by[e] = scale * left[(k + e) * l->rows + row];
        add_rows(sum, right + k * l->cols, l->cols, by, count);
    }
    for (; k < l->batch; k++) add_row(sum, right + k * l->cols, scale * left[k * l->rows + row], count);
}

void gw_sfb_add(float *sum, const gw_sfb_layer *l, const float *left, const float *right, float scale) {
    for (size_t at = 0; at < l->cols; at += PANEL) {
        size_t count = l->cols - at < PANEL ? l->cols - at : PANEL;
        for (size_t r = 0; r < l->rows; r++) add_panel(sum + r * l->cols + at, l, r, left, right + at, scale, count);
    }
}
