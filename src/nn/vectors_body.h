/* vectors_body.h - the loops of vectors.h, written for the compiler to vectorise. The including file sets TABLE and the
 * target. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "nn/vectors.h"

#define INLINE static inline __attribute__((always_inline))
#define LANES 16 /* partial sums: one AVX-512 register of f32 */

static void add(float *restrict to, const float *restrict from, size_t count) {
    for (size_t i = 0; i < count; i++) to[i] += from[i];
}

static void scale(float *to, float factor, size_t count) {
    for (size_t i = 0; i < count; i++) to[i] *= factor;
}

static void sum(float *restrict to, const float *restrict a, const float *restrict b, size_t count) {
    for (size_t i = 0; i < count; i++) to[i] = a[i] + b[i];
}

static void sum_relu(float *restrict to, const float *restrict a, const float *restrict b, size_t count) {
    for (size_t i = 0; i < count; i++) {
        float x = a[i] + b[i];
        to[i] = x > 0 ? x : 0;
    }
}

static void mask(float *restrict gradient, const float *restrict output, size_t count) {
    for (size_t i = 0; i < count; i++) gradient[i] = output[i] > 0 ? gradient[i] : 0;
}

static void take_larger(float *restrict best, int32_t *restrict chosen, const float *restrict from, int32_t index,
                        size_t count) {
    for (size_t i = 0; i < count; i++) {
        int larger = from[i] > best[i];
        best[i] = larger ? from[i] : best[i];
        chosen[i] = larger ? index : chosen[i];
    }
}

static void give_back(float *restrict to, const int32_t *restrict chosen, const float *restrict gradient, int32_t index,
                      size_t count) {
    for (size_t i = 0; i < count; i++) to[i] += chosen[i] == index ? gradient[i] : 0;
}

static double sum_squares(const float *from, size_t count) {
    double lanes[LANES] = {0}, total = 0;
    size_t whole = count / LANES * LANES;
    for (size_t i = 0; i < whole; i += LANES)
        for (size_t l = 0; l < LANES; l++) lanes[l] += (double)from[i + l] * (double)from[i + l];
    for (size_t i = whole; i < count; i++) lanes[i - whole] += (double)from[i] * (double)from[i];
    for (size_t l = 0; l < LANES; l++) total += lanes[l];
    return total;
}

INLINE float add_lanes(const float lanes[LANES]) {
    float half[LANES / 2];
    for (int l = 0; l < LANES / 2; l++) half[l] = lanes[l] + lanes[l + LANES / 2];
    return ((half[0] + half[1]) + (half[2] + half[3])) + ((half[4] + half[5]) + (half[6] + half[7]));
}

/* exp for x <= 0, to about 1 ulp: x = n ln 2 + r, and a polynomial for exp(r); 0 below the smallest normal number.
 * Adding 1.5 * 2^23 rounds to a whole number. */
INLINE float exp_negative(float x) {
    const float magic = 12582912.0f, log2_e = 1.44269504f, ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;
    float clamped = x > -87.0f ? x : -87.0f;
    float whole = (clamped * log2_e + magic) - magic;
    float r = (clamped - whole * ln2_high) - whole * ln2_low;
    float p = 1.0f / 5040;
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r * r + r + 1.0f;
    int32_t bits = ((int32_t)whole + 127) << 23;
    float power;
    memcpy(&power, &bits, sizeof power);
    return x > -87.0f ? p * power : 0.0f;
}

static float largest(const float *from, float factor, size_t count) {
    float lanes[LANES];
    for (int l = 0; l < LANES; l++) lanes[l] = -INFINITY;
    size_t whole = count / LANES * LANES;
    for (size_t i = 0; i < whole; i += LANES)
        for (size_t l = 0; l < LANES; l++) {
            float x = factor * from[i + l];
            lanes[l] = x > lanes[l] ? x : lanes[l];
        }
    float most = -INFINITY;
    for (size_t i = whole; i < count; i++) most = factor * from[i] > most ? factor * from[i] : most;
    for (int l = 0; l < LANES; l++) most = lanes[l] > most ? lanes[l] : most;
    return most;
}

static float softmax(float *to, const float *from, float factor, size_t count) {
    float most = largest(from, factor, count), lanes[LANES] = {0};
    for (size_t i = 0; i < count; i++) to[i] = exp_negative(factor * from[i] - most);
    size_t whole = count / LANES * LANES;
    for (size_t i = 0; i < whole; i += LANES)
        for (size_t l = 0; l < LANES; l++) lanes[l] += to[i + l];
    for (size_t i = whole; i < count; i++) lanes[i - whole] += to[i];
    float total = add_lanes(lanes);
    scale(to, 1 / total, count);
    return most + logf(total);
}

static void softmax_backward(float *restrict gradient, const float *restrict probability, float factor, size_t count) {
    float lanes[LANES] = {0};
    size_t whole = count / LANES * LANES;
    for (size_t i = 0; i < whole; i += LANES)
        for (size_t l = 0; l < LANES; l++) lanes[l] += gradient[i + l] * probability[i + l];
    for (size_t i = whole; i < count; i++) lanes[i - whole] += gradient[i] * probability[i];
    float mean = add_lanes(lanes);
    for (size_t i = 0; i < count; i++) gradient[i] = factor * probability[i] * (gradient[i] - mean);
}

static void sgd(float *restrict weights, const float *restrict gradient, float *restrict velocity,
                const gw_sgd_step *step, size_t count) {
    const gw_sgd_step s = *step;
    for (size_t i = 0; i < count; i++) {
        float g = s.ratio * (s.scale * gradient[i] + s.decay * weights[i]);
        float v = s.momentum * velocity[i] + g;
        velocity[i] = v;
        weights[i] -= s.rate * (s.gradient_share * g + s.velocity_share * v);
    }
}

INLINE float adam_one(float weight, float gradient, float *m, float *v, gw_adam_step s) {
    float g = s.scale * gradient + s.coupled * weight;
    *m = s.beta1 * *m + (1 - s.beta1) * g;
    *v = s.beta2 * *v + (1 - s.beta2) * g * g;
    return (*m * s.correction1) / (sqrtf(*v * s.correction2) + s.epsilon) + s.decoupled * weight;
}

static void adam(float *restrict weights, const float *restrict gradient, float *restrict m, float *restrict v,
                 const gw_adam_step *step, size_t count) {
    const gw_adam_step s = *step;
    for (size_t i = 0; i < count; i++) weights[i] -= s.rate * adam_one(weights[i], gradient[i], m + i, v + i, s);
}

static void adam_direction(const float *restrict weights, float *restrict gradient, float *restrict m,
                           float *restrict v, const gw_adam_step *step, size_t count) {
    const gw_adam_step s = *step;
    for (size_t i = 0; i < count; i++) gradient[i] = adam_one(weights[i], gradient[i], m + i, v + i, s);
}

static void descend(float *restrict weights, const float *restrict direction, float rate, size_t count) {
    for (size_t i = 0; i < count; i++) weights[i] -= rate * direction[i];
}

const gw_vectors TABLE = {
    .add = add,
    .scale = scale,
    .sum = sum,
    .sum_relu = sum_relu,
    .mask = mask,
    .take_larger = take_larger,
    .give_back = give_back,
    .sum_squares = sum_squares,
    .softmax = softmax,
    .softmax_backward = softmax_backward,
    .sgd = sgd,
    .adam = adam,
    .adam_direction = adam_direction,
    .descend = descend,
};
