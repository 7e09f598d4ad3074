/* train_trace.h - trace events of a trainer (trace/trace.h): steps, layers and the loss. All calls do nothing unless a
 * recording is open. The reducer records gradients. */
#ifndef GW_TRAIN_TRAIN_TRACE_H
#define GW_TRAIN_TRAIN_TRACE_H

#include "gradwire/reducer.h"
#include "nn/parameters.h"
#include "trace/trace.h"

typedef struct gw_train_tracing {
    gw_trace *trace;  /* the context's, during a step; NULL: no recording */
    gw_time named_in; /* opening time of the recording that the names belong to */
    uint32_t *names;  /* name ids of the spec's layers; owned */
    uint32_t loss;    /* name id */
    uint64_t step;
    gw_time layer_began;
    bool stepping; /* the next step follows the last one; false: the training has paused */
} gw_train_tracing;

/* A step begins. Registers the names in a new recording. */
void gw_train_tracing_begin(gw_train_tracing *tracing, gw_comm *comm, const gw_model *model, uint64_t step);
/* The step ends, and the next begins. The recording may be closed before it. */
void gw_train_tracing_end(gw_train_tracing *tracing, gw_comm *comm, const gw_reducer *reducer);
/* The step failed. */
void gw_train_tracing_drop(gw_train_tracing *tracing);
/* Before an evaluation or a checkpoint, which belong to no step. */
void gw_train_tracing_pause(gw_train_tracing *tracing);
void gw_train_tracing_free(gw_train_tracing *tracing);

/* A pass begins; a layer of it has run; the loss of the step. */
void gw_train_tracing_pass(gw_train_tracing *tracing);
void gw_train_tracing_layer(gw_train_tracing *tracing, int node, bool backward);
void gw_train_tracing_loss(gw_train_tracing *tracing, double loss);

#endif
