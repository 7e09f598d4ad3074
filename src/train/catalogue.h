/* catalogue.h - the models that have a name, written in the language of spec.h. */
#ifndef GW_TRAIN_CATALOGUE_H
#define GW_TRAIN_CATALOGUE_H

#include "train/spec.h"

/* What may be said about a model beside its name; 0: its own default. */
typedef struct gw_model_size {
    int height, width, channels; /* of the images */
    int classes;
    int layers, heads, embedding, context; /* of gpt */
} gw_model_size;

typedef struct gw_model_entry {
    const char *name;
    const char *about;
    gw_model_size size; /* defaults */
    /* Writes the description; false: it did not fit. */
    bool (*write)(const gw_model_size *size, char *text, size_t bytes);
} gw_model_entry;

#define GW_MODEL_TEXT_BYTES 65536

extern const gw_model_entry *const gw_models[]; /* NULL at the end */

/* A model by its name, or from a file: whatever has a `/` or a `.` is one. The text needs GW_MODEL_TEXT_BYTES. */
gw_status gw_model_text(const char *name, const gw_model_size *size, char *text, gw_error *error);
/* The same, read. */
gw_status gw_model_spec(const char *name, const gw_model_size *size, gw_spec **spec, gw_error *error);

#endif
