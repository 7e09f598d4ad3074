/* zoo.h - the models that have a name: one table for all commands. A model can be trained, if nn/model_text.c has its
 * description; it has layer times, if profile/builtin_profiles.c has its layers; tests compare both with this table. */
#ifndef GW_ZOO_ZOO_H
#define GW_ZOO_ZOO_H

#include "base/status.h"

typedef struct gw_zoo_model {
    const char *name, *about;
    int tensors;
    uint64_t parameters; /* with the default sizes */
    bool trains;         /* gradwire train can train it, and gradwire profile can time its layers */
    /* Built-in layer times: samples per step and per second of one device; 0: there are none. */
    int batch;
    double throughput;
} gw_zoo_model;

/* The sizes of a model that a caller may set; 0: the model's default. */
typedef struct gw_model_size {
    int height, width, channels; /* of the images */
    int classes;
    int layers, heads, embedding, context; /* of gpt */
} gw_model_size;

extern const gw_zoo_model gw_zoo[]; /* a NULL name at the end */
const gw_zoo_model *gw_zoo_find(const char *name);
/* Whether a model's name is a path: it has a `/` or a `.`. */
bool gw_zoo_is_path(const char *name);

/* GW_INVALID, with the names that there are. */
gw_status gw_zoo_unknown(const char *name, gw_error *error);
/* GW_OK for a path and for a model that can be trained. */
gw_status gw_zoo_check_trains(const char *name, gw_error *error);

#endif
