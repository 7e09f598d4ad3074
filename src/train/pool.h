/* pool.h - what the kinds of pooling share: the words of their lines, and shapes. */
#ifndef GW_TRAIN_POOL_H
#define GW_TRAIN_POOL_H

#include "train/layer.h"

extern const gw_word gw_pool_words[];
gw_status gw_pool_configure(gw_spec *spec, gw_node *node, gw_error *error);

#endif
