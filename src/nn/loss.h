/* loss.h - cross-entropy loss of scores (logits) against class labels. */
#ifndef GW_NN_LOSS_H
#define GW_NN_LOSS_H

#include <stddef.h>
#include <stdint.h>

typedef struct gw_loss {
    double sum;      /* over the rows counted, in nats: the mean loss is sum / counted */
    int64_t correct; /* rows whose largest score is that of the label */
    int64_t counted; /* rows whose label is not negative */
} gw_loss;

/* scores: rows x classes. labels: 0..classes-1; negative: the row is ignored. gradient: receives the gradient of
 * scale * sum; NULL: only the loss is computed. It may be scores itself. */
gw_loss gw_loss_cross_entropy(const float *scores, const int32_t *labels, int64_t rows, int classes, float scale,
                              float *gradient);

#endif
