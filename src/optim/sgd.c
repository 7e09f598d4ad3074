/* sgd.c - stochastic gradient descent with momentum; LARS (You, Gitman, Ginsburg 2017) scales each parameter's gradient
 * by eta * norm(w) / (norm(g) + decay * norm(w)), except biases and normalisation parameters. The paper's eta of 0.001
 * needs a rate of 8 or more, at which biases diverge in models without batch norm; eta = 0.02 works with the rates of
 * SGD. */
#include <math.h>

#include "nn/vectors.h"
#include "optim/optimiser.h"

static void apply_with(const gw_optimiser_settings *s, gw_parameter_part part, const gw_update *update, double ratio) {
    gw_vectors_get()->sgd(part.weights, part.gradients, part.state[0],
                          &(gw_sgd_step){.rate = (float)update->rate,
                                         .momentum = (float)s->momentum,
                                         .decay = part.decay ? (float)s->decay : 0,
                                         .scale = (float)update->scale,
                                         .ratio = (float)ratio,
                                         .gradient_share = s->nesterov ? 1 : 0,
                                         .velocity_share = s->nesterov ? (float)s->momentum : 1},
                          part.count);
}

/* The velocity is that of the decay alone: the gradient brings its own. */
static void apply_after_momentum(const gw_optimiser_settings *s, gw_parameter_part part, const gw_update *update) {
    float momentum = (float)s->momentum, decay = part.decay ? (float)s->decay : 0;
    float rate = (float)update->rate, scale = (float)update->scale;
    for (size_t i = 0; i < part.count; i++) {
        float v = momentum * part.state[0][i] + decay * part.weights[i];
        part.state[0][i] = v;
        part.weights[i] -= rate * (v + scale * part.gradients[i]);
    }
}

static void sgd_apply(const gw_optimiser_settings *s, gw_parameter_part part, const gw_update *update) {
    if (update->has_momentum) apply_after_momentum(s, part, update);
    else apply_with(s, part, update, 1);
}

static void lars_prepare(const gw_optimiser_settings *s, gw_parameter_part part, const gw_update *update) {
    (void)s;
    if (!part.decay) return;
    const gw_vectors *v = gw_vectors_get();
    part.norms[0] += v->sum_squares(part.weights, part.count);
    part.norms[1] += v->sum_squares(part.gradients, part.count) * update->scale * update->scale;
}

static void lars_apply(const gw_optimiser_settings *s, gw_parameter_part part, const gw_update *update) {
    double weights = sqrt(part.norms[0]), gradient = sqrt(part.norms[1]);
    bool scales = part.decay && weights > 0 && gradient > 0;
    apply_with(s, part, update, scales ? s->eta * weights / (gradient + s->decay * weights) : 1);
}

const gw_optimiser_kind gw_sgd = {
    .name = "sgd",
    .about = "gradient descent with momentum",
    .states = 1,
    .plain_momentum = true,
    .defaults = {.momentum = 0.9},
    .apply = sgd_apply,
};

const gw_optimiser_kind gw_lars = {
    .name = "lars",
    .about = "sgd with the step scaled by each layer's weight norm, for large batches",
    .states = 1,
    .defaults = {.momentum = 0.9, .decay = 1e-4, .eta = 0.02},
    .prepare = lars_prepare,
    .apply = lars_apply,
};
