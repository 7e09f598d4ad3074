/* layer_times.h - how long the layers of a model took on this rank, over a training: for predictions of other
 * strategies (predict/forecast.h). Two readings of the clock a layer and step. */
#ifndef GW_TRAIN_LAYER_TIMES_H
#define GW_TRAIN_LAYER_TIMES_H

#include "base/clock.h"
#include "base/status.h"

typedef struct gw_layer_times {
    int count;                    /* layers: nodes of the model's spec */
    uint64_t *forward, *backward; /* ns, over all steps but the first, which creates the kernels; owned */
    uint64_t steps;
    gw_time since; /* the layer that runs */
} gw_layer_times;

gw_status gw_layer_times_open(gw_layer_times *times, int count, gw_error *error);
void gw_layer_times_close(gw_layer_times *times);
/* A pass begins, or goes on after a wait; a layer has run; a step has ended. */
void gw_layer_times_pass(gw_layer_times *times);
void gw_layer_times_layer(gw_layer_times *times, int layer, bool backward);
void gw_layer_times_step(gw_layer_times *times);

#endif
