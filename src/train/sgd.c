/* sgd.c - stochastic gradient descent with momentum; LARS (You, Gitman, Ginsburg 2017) scales each parameter's gradient
 * by eta * norm(w) / (norm(g) + decay * norm(w)), biases and norms excepted. The paper's eta of 0.001 needs a rate of 8
 * and more, which biases do not survive in models without batch norm; with 0.02 LARS takes the rates of SGD. */
#include <math.h>

#include "train/optimiser.h"
#include "train/vectors.h"

static void apply_with(const gw_optimiser_settings *s, gw_parameter_part piece, const gw_update *update, double ratio) {
    gw_vectors_get()->sgd(piece.weights, piece.gradients, piece.state[0],
                          &(gw_sgd_step){.rate = (float)update->rate,
                                         .momentum = (float)s->momentum,
                                         .decay = piece.decay ? (float)s->decay : 0,
                                         .scale = (float)update->scale,
                                         .ratio = (float)ratio,
                                         .gradient_share = s->nesterov ? 1 : 0,
                                         .velocity_share = s->nesterov ? (float)s->momentum : 1},
                          piece.count);
}

static void sgd_apply(const gw_optimiser_settings *s, gw_parameter_part piece, const gw_update *update) {
    apply_with(s, piece, update, 1);
}

static void lars_prepare(const gw_optimiser_settings *s, gw_parameter_part piece, const gw_update *update) {
    (void)s;
    if (!piece.decay) return;
    const gw_vectors *v = gw_vectors_get();
    piece.norms[0] += v->sum_squares(piece.weights, piece.count);
    piece.norms[1] += v->sum_squares(piece.gradients, piece.count) * update->scale * update->scale;
}

static void lars_apply(const gw_optimiser_settings *s, gw_parameter_part piece, const gw_update *update) {
    double weights = sqrt(piece.norms[0]), gradient = sqrt(piece.norms[1]);
    bool scales = piece.decay && weights > 0 && gradient > 0;
    apply_with(s, piece, update, scales ? s->eta * weights / (gradient + s->decay * weights) : 1);
}

const gw_optimiser_kind gw_sgd = {
    .name = "sgd",
    .about = "gradient descent with momentum",
    .states = 1,
    .defaults = {.momentum = 0.9},
    .apply = sgd_apply,
};

const gw_optimiser_kind gw_lars = {
    .name = "lars",
    .about = "sgd whose step is in proportion to each layer's norm, for large batches",
    .states = 1,
    .defaults = {.momentum = 0.9, .decay = 1e-4, .eta = 0.02},
    .prepare = lars_prepare,
    .apply = lars_apply,
};
