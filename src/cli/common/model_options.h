/* model_options.h - options for the size of a built-in model. */
#ifndef GW_CLI_COMMON_MODEL_OPTIONS_H
#define GW_CLI_COMMON_MODEL_OPTIONS_H

#include "cli/common/args.h"
#include "zoo/zoo.h"

/* As given on the command line; 0: the model's default. */
typedef struct gw_model_size_options {
    int64_t height, width, channels, classes, layers, heads, embedding, context;
} gw_model_size_options;

#define GW_SIZE_OPTION(option, field, most, text)                                                                      \
    { .name = option, .kind = GW_OPTION_INTEGER, .integer = &(field), .lowest = 1, .highest = most, .about = text }

/* Rows of an option table; given is a gw_model_size_options. */
#define GW_SIZE_OPTIONS(given)                                                                                         \
    GW_SIZE_OPTION("height", (given).height, 4096, "height of the images in pixels"),                                  \
        GW_SIZE_OPTION("width", (given).width, 4096, "width of the images in pixels"),                                 \
        GW_SIZE_OPTION("channels", (given).channels, 4096, "channels of the images"),                                  \
        GW_SIZE_OPTION("classes", (given).classes, 1 << 20, "classes of the output"),                                  \
        GW_SIZE_OPTION("layers", (given).layers, 256, "gpt: transformer blocks (default: 4)"),                         \
        GW_SIZE_OPTION("heads", (given).heads, 1024, "gpt: attention heads (default: 4)"),                             \
        GW_SIZE_OPTION("embedding", (given).embedding, 16384, "gpt: width of the model (default: 128)"),               \
        GW_SIZE_OPTION("context", (given).context, 65536, "gpt: positions (default: 64)")

static inline gw_model_size gw_model_size_of(const gw_model_size_options *given) {
    return (gw_model_size){.height = (int)given->height, .width = (int)given->width, .channels = (int)given->channels,
                           .classes = (int)given->classes, .layers = (int)given->layers, .heads = (int)given->heads,
                           .embedding = (int)given->embedding, .context = (int)given->context};
}

#endif
