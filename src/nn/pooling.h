/* pooling.h - shared by the pooling kinds: the words of their lines, and shapes. */
#ifndef GW_NN_POOLING_H
#define GW_NN_POOLING_H

#include "nn/layer.h"

extern const gw_word gw_pool_words[];
gw_status gw_pool_configure(gw_spec *spec, gw_graph_node *node, gw_error *error);

#endif
