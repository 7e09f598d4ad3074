/* model_zoo.h - the built-in models, written in the language of model_spec.h. */
#ifndef GW_NN_MODEL_ZOO_H
#define GW_NN_MODEL_ZOO_H

#include "nn/model_spec.h"

/* The sizes of a built-in model that a caller may set; 0: the model's default. */
typedef struct gw_model_size {
    int height, width, channels; /* of the images */
    int classes;
    int layers, heads, embedding, context; /* of gpt */
} gw_model_size;

typedef struct gw_model_entry {
    const char *name;
    const char *about;
    gw_model_size size; /* defaults */
    /* Writes the description; false: the buffer is too small. */
    bool (*write)(const gw_model_size *size, char *text, size_t bytes);
} gw_model_entry;

#define GW_MODEL_TEXT_BYTES 65536

extern const gw_model_entry *const gw_models[]; /* NULL at the end */

/* The description of a built-in model, or of a file: a name with a `/` or a `.` is a path. text has
 * GW_MODEL_TEXT_BYTES. */
gw_status gw_model_text(const char *name, const gw_model_size *size, char *text, gw_error *error);
/* The same, parsed. */
gw_status gw_model_spec(const char *name, const gw_model_size *size, gw_spec **spec, gw_error *error);

#endif
