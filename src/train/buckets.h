/* buckets.h - gradients on their way while the backward pass still runs (wait-free backpropagation, Zhang et al. 2017).
 *
 * A model's gradients become complete from the last parameter to the first. They are cut into buckets of neighbouring
 * parameters, counted from the end; a bucket's all-reduce is started by the last gradient that completes it. The order
 * of the backward pass is the same on every rank, and so is that of the collectives. */
#ifndef GW_TRAIN_BUCKETS_H
#define GW_TRAIN_BUCKETS_H

#include "base/clock.h"
#include "train/model.h"

typedef struct gw_bucket {
    int first, parameters; /* in the model's table */
    size_t offset, count;  /* floats */
} gw_bucket;

typedef struct gw_buckets {
    gw_comm *comm;         /* the caller's */
    const gw_model *model; /* the caller's */
    gw_bucket *list;       /* in the order in which they are started: the model's last parameters first */
    gw_request **requests; /* of each; NULL: not started, or waited for */
    int count;
    int started;      /* in this step */
    gw_status status; /* of the first start that failed */
    gw_time starting; /* ns spent starting, in this step: communication that nothing hides */
} gw_buckets;

/* bytes: a bucket is closed once it has so many. */
gw_status gw_buckets_create(gw_comm *comm, const gw_model *model, size_t bytes, gw_buckets *buckets, gw_error *error);
/* Waits for what was started. */
void gw_buckets_destroy(gw_buckets *buckets);

void gw_buckets_begin(gw_buckets *buckets);
/* For gw_pass_hooks: ctx is the gw_buckets. */
void gw_buckets_ready(void *ctx, int parameter);
/* Starts what no backward pass has: a rank without examples takes part all the same. */
void gw_buckets_rest(gw_buckets *buckets);
/* Waits for the i-th to be the sum over all ranks; in the order of the list. */
gw_status gw_buckets_wait(gw_buckets *buckets, int i, gw_error *error);

#endif
