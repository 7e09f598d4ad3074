/* profile_builder.h - builds the profile of a well-known model layer by layer. Times are counted in floating-point
 * operations of one sample; backward takes twice as many as forward. */
#ifndef GW_PROFILE_PROFILE_BUILDER_H
#define GW_PROFILE_PROFILE_BUILDER_H

#include "profile/profile.h"

typedef struct gw_profile_builder {
    gw_profile *profile;
    int room;          /* allocated layers */
    int height, width; /* of the next layer's input */
    int channels;
    bool failed; /* no memory */
} gw_profile_builder;

typedef struct gw_conv {
    int channels, height, width; /* output channels; size of the kernel */
    int stride;                  /* 0 means 1 */
    bool valid;                  /* no padding; otherwise "same" padding */
    bool bias;
} gw_conv;

/* Each appends a layer; its output becomes the next layer's input. Names are printf formats. */
void gw_profile_builder_conv(gw_profile_builder *net, gw_conv conv, const char *name, ...)
    __attribute__((format(printf, 3, 4)));
void gw_profile_builder_norm(gw_profile_builder *net, const char *name, ...) __attribute__((format(printf, 2, 3)));
/* A linear layer, matrix and bias, on `tokens` vectors. */
void gw_profile_builder_dense(gw_profile_builder *net, int tokens, int inputs, int outputs, const char *name, ...)
    __attribute__((format(printf, 5, 6)));
void gw_profile_builder_layernorm(gw_profile_builder *net, int tokens, int width, const char *name, ...)
    __attribute__((format(printf, 4, 5)));
void gw_profile_builder_embedding(gw_profile_builder *net, int entries, int width, const char *name, ...)
    __attribute__((format(printf, 4, 5)));
/* A bias alone. */
void gw_profile_builder_bias(gw_profile_builder *net, int tokens, int width, const char *name, ...)
    __attribute__((format(printf, 4, 5)));
/* A layer without parameters, such as the matrix products of attention. */
void gw_profile_builder_compute(gw_profile_builder *net, const char *kind, double operations, const char *name, ...)
    __attribute__((format(printf, 4, 5)));
/* Appends no layer, because the operations of pooling are negligible. */
void gw_profile_builder_pool(gw_profile_builder *net, int size, int stride, bool valid);

#endif
