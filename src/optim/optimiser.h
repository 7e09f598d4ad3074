/* optimiser.h - updates weights from gradients, on any range of a model's parameters, so that a bucket can be applied
 * as soon as its gradients have arrived. Each kind is an entry in a table.
 *
 * LARS and LAMB need the norm of a whole parameter: `prepare` adds a range's contribution, `apply` uses it. Where ranks
 * hold parts of a parameter, the caller sums the norms over ranks in between. The other kinds need no `prepare`. */
#ifndef GW_OPTIM_OPTIMISER_H
#define GW_OPTIM_OPTIMISER_H

#include <stdint.h>

#include "nn/layer.h"

#define GW_OPTIMISER_STATES 2

typedef struct gw_optimiser gw_optimiser;

typedef struct gw_optimiser_settings {
    double momentum;              /* sgd, lars */
    bool nesterov;                /* sgd, lars */
    double decay;                 /* weight decay: added to the gradient (sgd, adam, lars) or separate (adamw, lamb) */
    double beta1, beta2, epsilon; /* adam, adamw, lamb */
    double eta;                   /* lars: trust coefficient */
} gw_optimiser_settings;

typedef struct gw_update {
    uint64_t step; /* from 1 */
    double rate;
    double scale;      /* of the gradients, applied first: 1 / accumulated batches, clipping */
    bool has_momentum; /* the gradients have had their momentum already: only weight decay gets one here */
} gw_update;

/* A part of one parameter. */
typedef struct gw_parameter_part {
    bool decay;
    double *norms; /* two, squared: of the parameter's weights, and of its gradient or direction */
    float *weights, *gradients, *state[GW_OPTIMISER_STATES];
    size_t count;
} gw_parameter_part;

typedef struct gw_optimiser_kind {
    const char *name;
    const char *about;
    int states;          /* floats kept for each weight */
    bool plain_momentum; /* it takes gradients that have had their momentum (gw_update.has_momentum) */
    gw_optimiser_settings defaults;
    /* NULL: nothing to prepare. */
    void (*prepare)(const gw_optimiser_settings *settings, gw_parameter_part part, const gw_update *update);
    void (*apply)(const gw_optimiser_settings *settings, gw_parameter_part part, const gw_update *update);
} gw_optimiser_kind;

extern const gw_optimiser_kind gw_sgd, gw_lars, gw_adam, gw_adamw, gw_lamb;
extern const gw_optimiser_kind *const gw_optimiser_kinds[]; /* NULL at the end */

/* NULL: no such kind; the error lists the kinds. */
const gw_optimiser_kind *gw_optimiser_find(const char *name, gw_error *error);

/* table: the model's; it must outlive the optimiser. */
gw_status gw_optimiser_create(const gw_optimiser_kind *kind, const gw_optimiser_settings *settings,
                              const gw_parameter *table, int parameters, gw_optimiser **optimiser, gw_error *error);
void gw_optimiser_destroy(gw_optimiser *optimiser); /* NULL is fine */

/* Whole parameters: first .. first + parameters - 1. Gradients may be overwritten. */
void gw_optimiser_step(gw_optimiser *optimiser, float *weights, float *gradients, int first, int parameters,
                       const gw_update *update);

/* Elements first .. first + count - 1 of one parameter. weights and gradients point to these elements. LARS and LAMB
 * use the norm of this part, so they are exact only for a whole parameter. */
void gw_optimiser_update(gw_optimiser *optimiser, int parameter, size_t first, size_t count, float *weights,
                         float *gradients, const gw_update *update);

/* The same in phases, for floats offset .. offset + count - 1: forget_norms sets the norms to zero, prepare, (sum the
 * norms over ranks,) apply. */
void gw_optimiser_forget_norms(gw_optimiser *optimiser, int first, int parameters);
void gw_optimiser_prepare(gw_optimiser *optimiser, float *weights, float *gradients, size_t offset, size_t count,
                          const gw_update *update);
void gw_optimiser_apply(gw_optimiser *optimiser, float *weights, float *gradients, size_t offset, size_t count,
                        const gw_update *update);
bool gw_optimiser_needs_norms(const gw_optimiser *optimiser);
double *gw_optimiser_norms(gw_optimiser *optimiser); /* two for each parameter, squared */

/* For checkpoints: one float per weight of the model; NULL if state is not below the kind's number of states. */
float *gw_optimiser_state(gw_optimiser *optimiser, int state);
size_t gw_optimiser_bytes(const gw_optimiser *optimiser);

#endif
