/* rate.h - the learning rate of a step. */
#ifndef GW_TRAIN_RATE_H
#define GW_TRAIN_RATE_H

#include <stdint.h>

#include "base/status.h"

typedef enum gw_rate_kind { GW_RATE_CONSTANT, GW_RATE_STEP, GW_RATE_COSINE, GW_RATE_LINEAR } gw_rate_kind;

typedef struct gw_rate {
    gw_rate_kind kind;
    double peak;     /* after the warm-up */
    double start;    /* before the first step of the warm-up */
    uint64_t warmup; /* steps of linear growth from start to peak, which the last of them has */
    uint64_t total;  /* cosine, linear: steps of the whole training, warm-up included */
    double last;     /* cosine, linear: the rate from total on */
    uint64_t every;  /* step: after so many steps, counted from the first of all, ... */
    double factor;   /* ... the rate is multiplied by this */
} gw_rate;

extern const char *const gw_rate_names[]; /* NULL at the end; the index is the kind */

gw_status gw_rate_kind_find(const char *name, gw_rate_kind *kind, gw_error *error);
/* step counts from 0. */
double gw_rate_at(const gw_rate *rate, uint64_t step);
/* The linear rule (Goyal et al. 2017): a rate found good for one batch, for another. */
double gw_rate_scaled(double rate, double batch_of_rate, double global_batch);

#endif
