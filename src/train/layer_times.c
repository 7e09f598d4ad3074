/* layer_times.c - see layer_times.h. */
#include "train/layer_times.h"

#include <stdlib.h>
#include <string.h>

gw_status gw_layer_times_open(gw_layer_times *t, int count, gw_error *error) {
    size_t layers = (size_t)count;
    *t = (gw_layer_times){.count = count, .forward = calloc(2 * layers + 1, sizeof *t->forward)};
    if (!t->forward) return gw_fail(error, GW_MEMORY, "no memory for the times of %d layers", count);
    t->backward = t->forward + layers;
    return GW_OK;
}

void gw_layer_times_close(gw_layer_times *t) {
    free(t->forward);
    *t = (gw_layer_times){0};
}

void gw_layer_times_pass(gw_layer_times *t) { t->since = gw_clock_now(); }

void gw_layer_times_layer(gw_layer_times *t, int layer, bool backward) {
    gw_time now = gw_clock_now();
    (backward ? t->backward : t->forward)[layer] += now - t->since;
    t->since = now;
}

void gw_layer_times_step(gw_layer_times *t) {
    if (!t->steps++) memset(t->forward, 0, 2 * (size_t)t->count * sizeof *t->forward);
}
