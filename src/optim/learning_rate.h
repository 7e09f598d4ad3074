/* learning_rate.h - the learning rate of a step. */
#ifndef GW_OPTIM_LEARNING_RATE_H
#define GW_OPTIM_LEARNING_RATE_H

#include <stdint.h>

#include "base/status.h"

typedef enum gw_learning_rate_kind {
    GW_RATE_CONSTANT,
    GW_RATE_STEP,
    GW_RATE_COSINE,
    GW_RATE_LINEAR
} gw_learning_rate_kind;

typedef struct gw_learning_rate {
    gw_learning_rate_kind kind;
    double peak;     /* after the warm-up */
    double start;    /* before the first step of the warm-up */
    uint64_t warmup; /* steps of linear growth from start; the last of them has the peak */
    uint64_t total;  /* cosine, linear: steps of the whole training, warm-up included */
    double last;     /* cosine, linear: the rate from total on */
    uint64_t every;  /* step: interval in steps, counted from step 0, ... */
    double factor;   /* ... after which the rate is multiplied by this */
} gw_learning_rate;

extern const char *const gw_learning_rate_names[]; /* NULL at the end; the index is the kind */

gw_status gw_learning_rate_find(const char *name, gw_learning_rate_kind *kind, gw_error *error);
/* step counts from 0. */
double gw_learning_rate_at(const gw_learning_rate *rate, uint64_t step);
/* The linear scaling rule (Goyal et al. 2017): converts a rate tuned for one batch size to another. */
double gw_learning_rate_scaled(double rate, double batch_of_rate, double global_batch);

#endif
