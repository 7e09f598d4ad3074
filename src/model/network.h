/* network.h - layers one after the other, as profiles of well-known models are written. Times are first counted in
 * floating-point operations of one sample: backward takes twice as many as forward. */
#ifndef GW_MODEL_NETWORK_H
#define GW_MODEL_NETWORK_H

#include "model/profile.h"

typedef struct gw_network {
    gw_profile *profile;
    int room;            /* layers */
    int height, width;   /* of what the next layer sees */
    int channels;
    bool failed;         /* no memory */
} gw_network;

typedef struct gw_conv {
    int channels, height, width; /* out; of the kernel */
    int stride;                  /* 0: 1 */
    bool valid;                  /* no padding; else as much as keeps the size at stride 1 */
    bool bias;
} gw_conv;

/* Each appends a layer and moves on to what it gives. names are printf formats. */
void gw_network_conv(gw_network *net, gw_conv conv, const char *name, ...) __attribute__((format(printf, 3, 4)));
void gw_network_norm(gw_network *net, const char *name, ...) __attribute__((format(printf, 2, 3)));
/* A layer of `tokens` vectors: matrix and bias. */
void gw_network_dense(gw_network *net, int tokens, int inputs, int outputs, const char *name, ...)
    __attribute__((format(printf, 5, 6)));
void gw_network_layernorm(gw_network *net, int tokens, int width, const char *name, ...)
    __attribute__((format(printf, 4, 5)));
void gw_network_embedding(gw_network *net, int entries, int width, const char *name, ...)
    __attribute__((format(printf, 4, 5)));
/* A bias alone. */
void gw_network_bias(gw_network *net, int tokens, int width, const char *name, ...)
    __attribute__((format(printf, 4, 5)));
/* Operations without parameters, such as the products of an attention. */
void gw_network_work(gw_network *net, const char *kind, double operations, const char *name, ...)
    __attribute__((format(printf, 4, 5)));
/* Has no layer of its own: its operations are negligible. */
void gw_network_pool(gw_network *net, int size, int stride, bool valid);

#endif
