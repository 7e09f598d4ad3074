/* known_models.h - well-known models, written layer by layer. */
#ifndef GW_PROFILE_KNOWN_MODELS_H
#define GW_PROFILE_KNOWN_MODELS_H

#include "profile/profile_builder.h"

/* convolutional.c */
void gw_profile_builder_resnet50(gw_profile_builder *net);
void gw_profile_builder_densenet201(gw_profile_builder *net);
void gw_profile_builder_vgg16(gw_profile_builder *net);
void gw_profile_builder_inception4(gw_profile_builder *net);
/* transformers.c */
void gw_profile_builder_bert_base(gw_profile_builder *net);
void gw_profile_builder_bert_large(gw_profile_builder *net);
void gw_profile_builder_gpt2(gw_profile_builder *net);

#endif
