/* sfb.c - see sfb.h. */
#include "arch/sfb.h"

#define PANEL 1024 /* columns: a row's part of the sum stays in the first cache while examples go over it */

double gw_sfb_full(const gw_sfb_layer *l, int workers, int servers) {
    return 2.0 * (double)l->rows * (double)l->cols * (workers + servers - 2) / servers;
}

double gw_sfb_factors(const gw_sfb_layer *l, int workers) {
    return 2.0 * (double)l->batch * (workers - 1) * ((double)l->rows + (double)l->cols);
}

bool gw_sfb_chosen(const gw_sfb_layer *l, int workers, int servers) {
    return workers > 1 && gw_sfb_factors(l, workers) <= gw_sfb_full(l, workers, servers);
}

__attribute__((optimize("O3"))) static void add_row(float *restrict sum, const float *restrict right, float by,
                                                    size_t count) {
    for (size_t i = 0; i < count; i++) sum[i] += by * right[i];
}

void gw_sfb_add(float *sum, const gw_sfb_layer *l, const float *left, const float *right, float scale) {
    for (size_t at = 0; at < l->cols; at += PANEL) {
        size_t count = l->cols - at < PANEL ? l->cols - at : PANEL;
        for (size_t r = 0; r < l->rows; r++)
            for (size_t k = 0; k < l->batch; k++)
                add_row(sum + r * l->cols + at, right + k * l->cols + at, scale * left[k * l->rows + r], count);
    }
}
