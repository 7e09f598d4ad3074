/* tracing.h - what a trainer tells a recording (trace/trace.h): layers and the loss. Everything here is nothing
 * where nothing is recorded. Steps and gradients are told of by the step API itself. */
#ifndef GW_TRAIN_TRACING_H
#define GW_TRAIN_TRACING_H

#include "trace/trace.h"
#include "train/model.h"

typedef struct gw_train_tracing {
    gw_trace *trace;   /* the engine's, during a step; NULL: nothing is recorded */
    gw_time named_in;  /* when the recording was opened that the names are of */
    uint32_t *names;   /* of the spec's layers; owned */
    uint32_t loss;     /* its name */
    uint64_t step;
    gw_time layer_began;
} gw_train_tracing;

/* A step begins, in this recording or none; names are given to it where it is new. */
void gw_train_tracing_begin(gw_train_tracing *tracing, gw_trace *trace, const gw_model *model, uint64_t step);
/* It is over: the recording may be ended before the next. */
void gw_train_tracing_end(gw_train_tracing *tracing);
void gw_train_tracing_free(gw_train_tracing *tracing);

/* A pass begins; a layer of it is done. */
void gw_train_tracing_pass(gw_train_tracing *tracing);
void gw_train_tracing_layer(gw_train_tracing *tracing, int node, bool backward);
void gw_train_tracing_loss(gw_train_tracing *tracing, double loss);

#endif
