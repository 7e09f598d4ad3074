/* vectors.h - vector loops that oneDNN does not have, compiled for each CPU level from one source. The results are
 * bit-identical at every level: sums use a fixed number of partial sums, and no multiply-add is fused. */
#ifndef GW_NN_VECTORS_H
#define GW_NN_VECTORS_H

#include <stddef.h>
#include <stdint.h>

/* One step of SGD on a part of one parameter. */
typedef struct gw_sgd_step {
    float rate, momentum, decay;
    float scale;                          /* of the gradient, applied first */
    float ratio;                          /* the trust ratio of LARS, else 1 */
    float gradient_share, velocity_share; /* factors in the direction: 0 and 1; Nesterov: 1 and momentum */
} gw_sgd_step;

/* One step of Adam, AdamW or LAMB on a part of one parameter. */
typedef struct gw_adam_step {
    float rate;
    float beta1, beta2, epsilon;
    float correction1, correction2; /* 1 / (1 - beta^step) */
    float coupled, decoupled;       /* weight decay: added to the gradient (Adam), or separate (AdamW, LAMB) */
    float scale;                    /* of the gradient, applied first */
} gw_adam_step;

typedef struct gw_vectors {
    void (*add)(float *to, const float *from, size_t count); /* to += from */
    void (*scale)(float *to, float factor, size_t count);
    void (*sum)(float *to, const float *a, const float *b, size_t count);
    void (*sum_relu)(float *to, const float *a, const float *b, size_t count);
    void (*mask)(float *gradient, const float *output, size_t count); /* backward of a relu with that output */
    /* Where from > best: best = from, chosen = index. */
    void (*take_larger)(float *best, int32_t *chosen, const float *from, int32_t index, size_t count);
    /* to += gradient where chosen == index. */
    void (*give_back)(float *to, const int32_t *chosen, const float *gradient, int32_t index, size_t count);
    double (*sum_squares)(const float *from, size_t count);
    /* to = softmax(factor * from); to may be from. Returns the logarithm of the sum of exp(factor * from). */
    float (*softmax)(float *to, const float *from, float factor, size_t count);
    /* In: the gradient of the probabilities; out: that of `from`. */
    void (*softmax_backward)(float *gradient, const float *probability, float factor, size_t count);
    void (*sgd)(float *weights, const float *gradient, float *velocity, const gw_sgd_step *step, size_t count);
    void (*adam)(float *weights, const float *gradient, float *m, float *v, const gw_adam_step *step, size_t count);
    /* Replaces the gradient by Adam's direction; the weights do not change. */
    void (*adam_direction)(const float *weights, float *gradient, float *m, float *v, const gw_adam_step *step,
                           size_t count);
    void (*descend)(float *weights, const float *direction, float rate, size_t count);
} gw_vectors;

/* The fastest version for this CPU. */
const gw_vectors *gw_vectors_get(void);

extern const gw_vectors gw_vectors_plain;
#if defined(__x86_64__)
extern const gw_vectors gw_vectors_avx2, gw_vectors_avx512;
#endif

#endif
