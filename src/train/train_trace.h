/* train_trace.h - trace events of a trainer (trace/trace.h): layers and the loss. All calls do nothing unless a
 * recording is open. The reducer records steps and gradients. */
#ifndef GW_TRAIN_TRAIN_TRACE_H
#define GW_TRAIN_TRAIN_TRACE_H

#include "nn/parameters.h"
#include "trace/trace.h"

typedef struct gw_train_tracing {
    gw_trace *trace;  /* the context's, during a step; NULL: no recording */
    gw_time named_in; /* opening time of the recording that the names belong to */
    uint32_t *names;  /* name ids of the spec's layers; owned */
    uint32_t loss;    /* name id */
    uint64_t step;
    gw_time layer_began;
} gw_train_tracing;

/* A step begins; trace may be NULL. Registers the names in a new recording. */
void gw_train_tracing_begin(gw_train_tracing *tracing, gw_trace *trace, const gw_model *model, uint64_t step);
/* The step ends. The recording may be closed before the next step. */
void gw_train_tracing_end(gw_train_tracing *tracing);
void gw_train_tracing_free(gw_train_tracing *tracing);

/* A pass begins; a layer of it has run; the loss of the step. */
void gw_train_tracing_pass(gw_train_tracing *tracing);
void gw_train_tracing_layer(gw_train_tracing *tracing, int node, bool backward);
void gw_train_tracing_loss(gw_train_tracing *tracing, double loss);

#endif
