/* model_size.h - the options by which commands ask for a model of a certain size. */
#ifndef GW_CLI_MODEL_SIZE_H
#define GW_CLI_MODEL_SIZE_H

#include "cli/args.h"
#include "train/catalogue.h"

/* As they were given; 0: the model's own. */
typedef struct gw_size_given {
    int64_t height, width, channels, classes, layers, heads, embedding, context;
} gw_size_given;

#define GW_SIZE_OPTION(option, field, most, text)                                                                      \
    { .name = option, .kind = GW_OPTION_INTEGER, .integer = &(field), .lowest = 1, .highest = most, .about = text }

/* Entries of a table of options; given is a gw_size_given. */
#define GW_SIZE_OPTIONS(given)                                                                                         \
    GW_SIZE_OPTION("height", (given).height, 4096, "of the images"),                                                   \
        GW_SIZE_OPTION("width", (given).width, 4096, "of the images"),                                                 \
        GW_SIZE_OPTION("channels", (given).channels, 4096, "of the images"),                                           \
        GW_SIZE_OPTION("classes", (given).classes, 1 << 20, "of the output"),                                          \
        GW_SIZE_OPTION("layers", (given).layers, 256, "gpt: transformer blocks (4)"),                                  \
        GW_SIZE_OPTION("heads", (given).heads, 1024, "gpt: attention heads (4)"),                                      \
        GW_SIZE_OPTION("embedding", (given).embedding, 16384, "gpt: width of the model (128)"),                        \
        GW_SIZE_OPTION("context", (given).context, 65536, "gpt: positions (64)")

static inline gw_model_size gw_size_of(const gw_size_given *given) {
    return (gw_model_size){.height = (int)given->height, .width = (int)given->width, .channels = (int)given->channels,
                           .classes = (int)given->classes, .layers = (int)given->layers, .heads = (int)given->heads,
                           .embedding = (int)given->embedding, .context = (int)given->context};
}

#endif
