/* parameter_graph.h - on which parameters' layers the layer of each parameter builds: what a schedule has to know of a
 * model with branches. Layers without parameters are skipped: what follows them builds on what they build on. */
#ifndef GW_NN_PARAMETER_GRAPH_H
#define GW_NN_PARAMETER_GRAPH_H

#include "nn/model_spec.h"

typedef struct gw_parameter_graph {
    int count;   /* parameters */
    int *begin;  /* of each, in `before`; one more for the end */
    int *before; /* parameters, numbered from the first one */
} gw_parameter_graph;

/* Of nodes [first, end). A second parameter of a layer builds on the one before it. On failure *graph is untouched. */
gw_status gw_parameter_graph_make(const gw_spec *spec, int first, int end, gw_parameter_graph *graph, gw_error *error);
void gw_parameter_graph_free(gw_parameter_graph *graph);

#endif
