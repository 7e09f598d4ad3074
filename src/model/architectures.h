/* architectures.h - well-known models, written layer by layer. */
#ifndef GW_MODEL_ARCHITECTURES_H
#define GW_MODEL_ARCHITECTURES_H

#include "model/network.h"

/* convolutional.c */
void gw_network_resnet50(gw_network *net);
void gw_network_densenet201(gw_network *net);
void gw_network_vgg16(gw_network *net);
void gw_network_inception4(gw_network *net);
/* transformers.c */
void gw_network_bert_base(gw_network *net);
void gw_network_bert_large(gw_network *net);
void gw_network_gpt2(gw_network *net);

#endif
