/* loss.h - cross-entropy of scores against the right classes. */
#ifndef GW_TRAIN_LOSS_H
#define GW_TRAIN_LOSS_H

#include <stddef.h>
#include <stdint.h>

typedef struct gw_loss {
    double sum;      /* over the rows counted, in nats: the mean loss is sum / counted */
    int64_t correct; /* rows whose largest score is the right one's */
    int64_t counted; /* rows whose label is not negative */
} gw_loss;

/* scores: rows x classes. labels: 0..classes-1, or negative for rows that do not count. gradient: that of
 * scale * sum, NULL where only the loss is wanted; it may be scores itself. */
gw_loss gw_loss_cross_entropy(const float *scores, const int32_t *labels, int64_t rows, int classes, float scale,
                              float *gradient);

#endif
