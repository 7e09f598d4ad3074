/* loss.c - see loss.h. */
#include "nn/loss.h"

#include <math.h>
#include <string.h>

#include "nn/vectors.h"

static int largest(const float *scores, int classes) {
    int best = 0;
    for (int c = 1; c < classes; c++)
        if (scores[c] > scores[best]) best = c;
    return best;
}

/* The logarithm of the sum of exp(score), used when the probabilities are not needed. */
static double log_sum(const float *scores, int classes, float most) {
    double total = 0;
    for (int c = 0; c < classes; c++) total += exp((double)scores[c] - most);
    return most + log(total);
}

gw_loss gw_loss_cross_entropy(const float *scores, const int32_t *labels, int64_t rows, int classes, float scale,
                              float *gradient) {
    const gw_vectors *v = gw_vectors_get();
    gw_loss loss = {0};
    for (int64_t r = 0; r < rows; r++) {
        const float *row = scores + r * classes;
        float *to = gradient ? gradient + r * classes : NULL;
        if (labels[r] < 0) {
            if (to) memset(to, 0, (size_t)classes * sizeof(float));
            continue;
        }
        int best = largest(row, classes);
        double right = row[labels[r]];
        loss.correct += best == labels[r];
        loss.counted++;
        if (to) {
            loss.sum += v->softmax(to, row, 1, (size_t)classes) - right;
            to[labels[r]] -= 1;
            v->scale(to, scale, (size_t)classes);
        } else {
            loss.sum += log_sum(row, classes, row[best]) - right;
        }
    }
    return loss;
}
