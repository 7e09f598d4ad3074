/* sync.h - when may a worker go on, and what do ranks exchange?
 *
 * A synchronization decides for every step whether updates are sent at all and whether the next forward pass waits for
 * them. It also defines what happens to a tensor when its gradient is ready (leave), when the combined updates of all
 * ranks have arrived (arrive), and when all ranks must have the shared weights (settle). Pure: it touches only the
 * arrays it is given, and does not know how updates are sent. */
#ifndef GW_SYNC_H
#define GW_SYNC_H

#include <stddef.h>

#include "base/status.h"
#include "base/technique.h"
#include "sync/sync_table.h"

/* Applies the caller's optimiser: weights += f(gradient). passing: a later update replaces this one. */
typedef void gw_sync_apply_fn(void *ctx, float *weights, const float *gradient, bool passing);

/* One tensor, or one server's part of it. */
typedef struct gw_sync_tensor {
    size_t count;
    float *weights;  /* the caller's; NULL where the caller updates by itself: bsp only */
    float *gradient; /* the caller's own gradient */
    float *travels;  /* what is exchanged, and later its mean over all ranks; may be the memory of the gradient */
    float *anchor;   /* the weights that all ranks had in common last; NULL unless keeps_anchor */
    float *momentum; /* of the outer or local optimiser; zero at first; NULL unless keeps_momentum */
    bool anchored;   /* anchor has been filled */
    double scale;    /* of the gradient that leave or arrive uses: clipping. Set before each of them; 1: not clipped */
    gw_sync_apply_fn *apply;
    void *ctx;
} gw_sync_tensor;

/* Whose norm is limited where gradients are clipped (gw_reducer_options.clip). */
typedef enum gw_sync_norm {
    GW_NORM_OWN = 1, /* that of this rank's gradients, before they leave */
    GW_NORM_MEAN = 2 /* that of the combined gradients, after all have arrived */
} gw_sync_norm;

/* When a server answers a push. */
typedef struct gw_sync_rule {
    bool at_once;       /* a push is applied when it arrives; otherwise in rounds, when all workers have pushed */
    uint64_t staleness; /* at once: an answer waits while its worker leads the slowest by more pushes than this */
    int spare;          /* in rounds: a round does not wait for this many workers */
} gw_sync_rule;

typedef struct gw_sync {
    gw_technique technique;
    /* Servers hold the weights, apply updates by this rule and answer with weights. NULL: any architecture combines the
     * exchanged values over all ranks; a server then answers with the mean when all workers have pushed. */
    gw_sync_rule (*rule)(const double *values);
    bool synchronous;  /* every step applies the mean of all gradients, on every rank: the same computation as in one
                          process */
    bool needs_update; /* the step must run the optimiser */
    bool local;        /* every rank runs its own optimiser: between exchanges their weights differ */
    bool keeps_anchor;
    bool travels_apart; /* the exchanged values need memory of their own, not that of the gradient */
    bool (*keeps_momentum)(const double *values); /* NULL: no */
    const char *(*refuses)(const double *values); /* why these values have no meaning; NULL: they have, all of them */
    bool (*exchanges)(const double *values, uint64_t step);  /* NULL: in every step */
    bool (*runs_ahead)(const double *values, uint64_t step); /* the next forward pass does not wait. NULL: never */
    /* What is clipped in a step: a set of gw_sync_norm. NULL: GW_NORM_MEAN in every step. */
    unsigned (*norms)(const double *values, uint64_t step);
    void (*leave)(const double *values, uint64_t step, gw_sync_tensor *tensor); /* NULL: nothing to do */
    void (*arrive)(const double *values, uint64_t step, gw_sync_tensor *tensor);
    void (*settle)(gw_sync_tensor *tensor); /* NULL: nothing to do */
} gw_sync;

#define GW_SYNC_DECLARE(name) extern const gw_sync gw_sync_##name;
GW_SYNCS(GW_SYNC_DECLARE)

/* Servers keep the weights, and none of them waits for all workers: one that was restarted can come back. */
static inline bool gw_sync_takes_back(const gw_sync *sync, const double *values) {
    gw_sync_rule rule = sync->rule ? sync->rule(values) : (gw_sync_rule){0};
    return rule.at_once || rule.spare > 0;
}

/* Of a synchronization whose weights come from servers. No server has all of a gradient, and each part of it is used at
 * another moment: so workers clip their own. When weights arrive there is nothing to do: they are in place. */
unsigned gw_sync_norms_pulled(const double *values, uint64_t step);
void gw_sync_leave_pulled(const double *values, uint64_t step, gw_sync_tensor *tensor);
void gw_sync_arrive_pulled(const double *values, uint64_t step, gw_sync_tensor *tensor);

/* In the order of the table, NULL at the end. A synchronization begins with its technique. */
extern const gw_technique *const gw_sync_techniques[];
const gw_sync *gw_sync_of(const gw_technique *technique);

#endif
