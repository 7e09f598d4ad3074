/* layer_kinds.c - the table of layer kinds. */
#include <string.h>

#include "nn/layer.h"

const gw_layer_kind *const gw_layer_kinds[] = {
    &gw_conv,       &gw_dense,   &gw_batchnorm, &gw_layernorm, &gw_relu,      &gw_gelu,      &gw_maxpool, &gw_avgpool,
    &gw_globalpool, &gw_flatten, &gw_softmax,   &gw_attention, &gw_embedding, &gw_positions, &gw_add,     NULL,
};

const gw_layer_kind *gw_layer_kind_find(const char *name) {
    for (int i = 0; gw_layer_kinds[i]; i++)
        if (strcmp(name, gw_layer_kinds[i]->name) == 0) return gw_layer_kinds[i];
    return NULL;
}
