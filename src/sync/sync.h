/* sync.h - when may a worker go on, and what is it that ranks exchange?
 *
 * A synchrony says of every step whether updates travel at all, whether the next forward pass waits for them, and what
 * is done with a tensor when its gradient is there (leave), when the combination of all ranks' updates has come back
 * (arrive), and when everything has to stand on the weights that all ranks share (settle). Pure: it touches only the
 * arrays it is given. It does not know who carries the updates. */
#ifndef GW_SYNC_H
#define GW_SYNC_H

#include <stddef.h>

#include "base/status.h"
#include "base/technique.h"

/* Applies the caller's optimiser: weights += f(gradient). passing: an update that a later one replaces. */
typedef void gw_sync_apply_fn(void *ctx, float *weights, const float *gradient, bool passing);

/* One tensor, or one server's part of it. */
typedef struct gw_sync_tensor {
    size_t count;
    float *weights;   /* the caller's; NULL where the caller updates by itself: bsp only */
    float *gradient;  /* the caller's own gradient */
    float *travels;   /* what is exchanged, and then the mean of it over all ranks; may be the gradient's memory */
    float *anchor;    /* the weights that all ranks shared last; NULL unless keeps_anchor */
    float *momentum;  /* of the outer optimiser; zero at first; NULL unless keeps_momentum */
    bool anchored;    /* anchor has been filled */
    gw_sync_apply_fn *apply;
    void *ctx;
} gw_sync_tensor;

/* When a server answers a push. */
typedef struct gw_sync_rule {
    bool at_once;  /* a push is applied when it comes; otherwise by rounds, when all have pushed */
    uint64_t lead; /* at once: an answer is held back while its worker leads the slowest by more pushes than this */
    int spare;     /* by rounds: so many workers are not waited for */
} gw_sync_rule;

typedef struct gw_sync {
    gw_technique technique;
    /* Weights live on servers, which apply updates by this rule and answer with weights. NULL: what is exchanged is
     * combined over all ranks, whoever carries it; a server answers with the mean when all have pushed. */
    gw_sync_rule (*rule)(const double *values);
    bool needs_update;   /* the step has to run the optimiser */
    bool local;          /* ranks run optimisers of their own: between exchanges their weights differ */
    bool keeps_anchor;
    bool travels_apart;  /* what is exchanged may not lie in the gradient's memory */
    bool (*keeps_momentum)(const double *values); /* NULL: no */
    bool (*exchanges)(const double *values, uint64_t step);  /* NULL: in every step */
    bool (*runs_ahead)(const double *values, uint64_t step); /* the forward pass after it does not wait. NULL: never */
    void (*leave)(const double *values, uint64_t step, gw_sync_tensor *tensor); /* NULL: nothing to do */
    void (*arrive)(const double *values, uint64_t step, gw_sync_tensor *tensor);
    void (*settle)(gw_sync_tensor *tensor);                                     /* NULL: nothing to do */
} gw_sync;

extern const gw_sync gw_sync_bsp, gw_sync_asp, gw_sync_ssp, gw_sync_backup, gw_sync_delayed, gw_sync_periodic;

/* The arrive of a synchrony whose weights come from servers: they are here. */
void gw_sync_pulled(const double *values, uint64_t step, gw_sync_tensor *tensor);

/* All of them, NULL at the end; the default first. A synchrony begins with its technique. */
extern const gw_technique *const gw_sync_techniques[];
const gw_sync *gw_sync_of(const gw_technique *technique);

#endif
