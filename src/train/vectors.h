/* vectors.h - the loops that oneDNN does not have, compiled for each CPU level from one source. The bits are the same
 * at every level: sums run in a fixed number of lanes, and nothing is fused. */
#ifndef GW_TRAIN_VECTORS_H
#define GW_TRAIN_VECTORS_H

#include <stddef.h>
#include <stdint.h>

/* One step of SGD on a part of one parameter. */
typedef struct gw_sgd_step {
    float rate, momentum, decay;
    float scale;                          /* of the gradient, before all else */
    float ratio;                          /* of LARS, else 1 */
    float gradient_share, velocity_share; /* of the direction: 0 and 1, with Nesterov 1 and the momentum */
} gw_sgd_step;

/* One step of Adam and its kin on a part of one parameter. */
typedef struct gw_adam_step {
    float rate;
    float beta1, beta2, epsilon;
    float correction1, correction2; /* 1 / (1 - beta^step) */
    float coupled, decoupled;       /* weight decay into the gradient (Adam), or beside it (AdamW, LAMB) */
    float scale;                    /* of the gradient, before all else */
} gw_adam_step;

typedef struct gw_vectors {
    void (*add)(float *to, const float *from, size_t count); /* to += from */
    void (*scale)(float *to, float factor, size_t count);
    void (*sum)(float *to, const float *a, const float *b, size_t count);
    void (*sum_relu)(float *to, const float *a, const float *b, size_t count);
    void (*mask)(float *gradient, const float *output, size_t count); /* of a relu with that output */
    /* best, chosen = from, index where from is larger. */
    void (*take_larger)(float *best, int32_t *chosen, const float *from, int32_t index, size_t count);
    /* to += gradient where chosen is index. */
    void (*give_back)(float *to, const int32_t *chosen, const float *gradient, int32_t index, size_t count);
    double (*sum_squares)(const float *from, size_t count);
    /* to = softmax(factor * from), which may be the same; returns the logarithm of the sum of exp(factor * from). */
    float (*softmax)(float *to, const float *from, float factor, size_t count);
    /* gradient of factor * from, in place. */
    void (*softmax_backward)(float *gradient, const float *probability, float factor, size_t count);
    void (*sgd)(float *weights, const float *gradient, float *velocity, const gw_sgd_step *step, size_t count);
    void (*adam)(float *weights, const float *gradient, float *m, float *v, const gw_adam_step *step, size_t count);
    /* Adam's direction in place of the gradient; the weights stay. */
    void (*adam_direction)(const float *weights, float *gradient, float *m, float *v, const gw_adam_step *step,
                           size_t count);
    void (*descend)(float *weights, const float *direction, float rate, size_t count);
} gw_vectors;

/* The fastest that the CPU has. */
const gw_vectors *gw_vectors_get(void);

extern const gw_vectors gw_vectors_plain;
#if defined(__x86_64__)
extern const gw_vectors gw_vectors_avx2, gw_vectors_avx512;
#endif

#endif
