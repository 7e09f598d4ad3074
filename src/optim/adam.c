/* adam.c - Adam (Kingma, Ba 2015); AdamW, which decouples weight decay from the gradient (Loshchilov, Hutter 2019);
 * LAMB (You et al. 2020), which scales each parameter's direction by norm(w) / norm(direction), except biases and
 * normalisation parameters. */
#include <math.h>

#include "nn/vectors.h"
#include "optim/optimiser.h"

#define RATIO_LOWEST 0.01
#define RATIO_HIGHEST 10.0

static gw_adam_step step_of(const gw_optimiser_settings *s, bool decay, bool decoupled, const gw_update *update) {
    double amount = decay ? s->decay : 0;
    return (gw_adam_step){.rate = (float)update->rate,
                          .beta1 = (float)s->beta1,
                          .beta2 = (float)s->beta2,
                          .epsilon = (float)s->epsilon,
                          .correction1 = (float)(1 / (1 - pow(s->beta1, (double)update->step))),
                          .correction2 = (float)(1 / (1 - pow(s->beta2, (double)update->step))),
                          .coupled = decoupled ? 0 : (float)amount,
                          .decoupled = decoupled ? (float)amount : 0,
                          .scale = (float)update->scale};
}

static void adam_apply(const gw_optimiser_settings *s, gw_parameter_part p, const gw_update *update) {
    gw_adam_step step = step_of(s, p.decay, false, update);
    gw_vectors_get()->adam(p.weights, p.gradients, p.state[0], p.state[1], &step, p.count);
}

static void adamw_apply(const gw_optimiser_settings *s, gw_parameter_part p, const gw_update *update) {
    gw_adam_step step = step_of(s, p.decay, true, update);
    gw_vectors_get()->adam(p.weights, p.gradients, p.state[0], p.state[1], &step, p.count);
}

/* Writes the direction over the gradient; apply reads it there. */
static void lamb_prepare(const gw_optimiser_settings *s, gw_parameter_part p, const gw_update *update) {
    const gw_vectors *v = gw_vectors_get();
    gw_adam_step step = step_of(s, p.decay, true, update);
    v->adam_direction(p.weights, p.gradients, p.state[0], p.state[1], &step, p.count);
    if (!p.decay) return;
    p.norms[0] += v->sum_squares(p.weights, p.count);
    p.norms[1] += v->sum_squares(p.gradients, p.count);
}

static void lamb_apply(const gw_optimiser_settings *s, gw_parameter_part p, const gw_update *update) {
    (void)s;
    double weights = sqrt(p.norms[0]), direction = sqrt(p.norms[1]);
    double ratio = p.decay && weights > 0 && direction > 0 ? weights / direction : 1;
    if (p.decay) ratio = fmin(fmax(ratio, RATIO_LOWEST), RATIO_HIGHEST);
    gw_vectors_get()->descend(p.weights, p.gradients, (float)(update->rate * ratio), p.count);
}

#define BETAS .beta1 = 0.9, .beta2 = 0.999

const gw_optimiser_kind gw_adam = {
    .name = "adam",
    .about = "steps scaled by running means of each weight's gradient and its square",
    .states = 2,
    .defaults = {BETAS, .epsilon = 1e-8},
    .apply = adam_apply,
};

const gw_optimiser_kind gw_adamw = {
    .name = "adamw",
    .about = "adam with decoupled weight decay",
    .states = 2,
    .defaults = {BETAS, .epsilon = 1e-8, .decay = 0.01},
    .apply = adamw_apply,
};

const gw_optimiser_kind gw_lamb = {
    .name = "lamb",
    .about = "adamw with the step scaled by each layer's weight norm, for large batches",
    .states = 2,
    .defaults = {BETAS, .epsilon = 1e-6, .decay = 0.01},
    .prepare = lamb_prepare,
    .apply = lamb_apply,
};
