/* profile.h - compute times and parameters of a model, layer by layer, in the order of the forward pass.
 *
 * A profile file is comma-separated text:
 *
 *     # resnet50, batch 128, one GPU
 *     layer,kind,parameter_bytes,forward_us,backward_us
 *     0,Conv2d,37632,9706,4551
 *     1,BatchNorm2d,512,2946,3113
 *
 * The first comment may give a name and, as "batch N", the samples per step. Times are microseconds on one device. A
 * layer's parameters are one tensor of f32; built-in profiles (builtin_profiles.h) have separate biases. A sixth column
 * may give the rows of a layer whose parameters are a matrix, else 0. */
#ifndef GW_PROFILE_PROFILE_H
#define GW_PROFILE_PROFILE_H

#include <stdio.h>

#include "base/status.h"

#define GW_PROFILE_NAME_BYTES 48
#define GW_PROFILE_LAYERS_MAX 65536

typedef struct gw_profile_layer {
    char name[GW_PROFILE_NAME_BYTES];
    char kind[GW_PROFILE_NAME_BYTES]; /* "Conv2d" */
    uint64_t parameter_bytes;         /* of f32, a multiple of 4; 0: no parameters */
    uint64_t bias_bytes;              /* the part of parameter_bytes that is a second tensor; 0: there is one tensor */
    uint64_t rows;                    /* of the first tensor as a matrix; 0: not a matrix */
    double forward_us, backward_us;   /* microseconds on one device */
} gw_profile_layer;

typedef struct gw_profile {
    char name[GW_PROFILE_NAME_BYTES];
    int batch;                /* samples per step on one device; 0: not known */
    int count;                /* layers, > 0 */
    gw_profile_layer *layers; /* count, owned */
    bool whole_steps;         /* times were scaled to a throughput, so they contain the optimiser's time */
} gw_profile;

/* Strict; errors name the line. `name` is the file's name, used in errors, and as the profile's name if the file gives
 * none. On success the caller owns *profile: gw_profile_free. */
gw_status gw_profile_parse(const char *bytes, size_t size, const char *name, gw_profile *profile, gw_error *error);
gw_status gw_profile_read(const char *path, gw_profile *profile, gw_error *error);
void gw_profile_free(gw_profile *profile);

/* Writes the format that gw_profile_parse reads, without rows. Biases become part of their layer's tensor. */
void gw_profile_print(const gw_profile *profile, FILE *out);
gw_status gw_profile_write(const gw_profile *profile, const char *path, gw_error *error);

int gw_profile_tensors(const gw_profile *profile);
uint64_t gw_profile_parameter_bytes(const gw_profile *profile);
/* Forward and backward together, seconds. */
double gw_profile_seconds(const gw_profile *profile);
/* Multiplies all times, so that forward and backward together take `seconds`. */
void gw_profile_scale(gw_profile *profile, double seconds);

#endif
