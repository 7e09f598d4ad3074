/* profile_builder.c - see profile_builder.h. */
#include "profile/profile_builder.h"

#include <stdarg.h>
#include <stdlib.h>

static void append(gw_profile_builder *net, gw_profile_layer layer, double operations, const char *name, va_list list) {
    gw_profile *p = net->profile;
    if (p->count == net->room) {
        int room = net->room ? 2 * net->room : 256;
        gw_profile_layer *grown = realloc(p->layers, (size_t)room * sizeof *grown);
        net->failed |= !grown;
        if (!grown) return;
        p->layers = grown;
        net->room = room;
    }
    vsnprintf(layer.name, sizeof layer.name, name, list);
    layer.forward_us = operations;
    layer.backward_us = 2 * operations;
    p->layers[p->count++] = layer;
}

static int after(int size, int kernel, int stride, bool valid) {
    return valid ? (size - kernel) / stride + 1 : (size + stride - 1) / stride;
}

static double elements(const gw_profile_builder *net) { return (double)net->height * net->width * net->channels; }

static gw_profile_layer parameters(const char *kind, uint64_t rows, uint64_t columns, uint64_t bias) {
    gw_profile_layer layer = {.parameter_bytes = 4 * (rows * columns + bias), .bias_bytes = 4 * bias,
                              .rows = rows > 1 && columns > 1 ? rows : 0};
    snprintf(layer.kind, sizeof layer.kind, "%s", kind);
    return layer;
}

void gw_profile_builder_conv(gw_profile_builder *net, gw_conv conv, const char *name, ...) {
    int stride = conv.stride ? conv.stride : 1, inputs = net->channels;
    uint64_t columns = (uint64_t)inputs * (uint64_t)conv.height * (uint64_t)conv.width;
    net->height = after(net->height, conv.height, stride, conv.valid);
    net->width = after(net->width, conv.width, stride, conv.valid);
    net->channels = conv.channels;
    uint64_t bias = conv.bias ? (uint64_t)conv.channels : 0;
    va_list list;
    va_start(list, name);
    append(net, parameters("Conv2d", (uint64_t)conv.channels, columns, bias), 2 * elements(net) * (double)columns, name,
           list);
    va_end(list);
}

void gw_profile_builder_norm(gw_profile_builder *net, const char *name, ...) {
    uint64_t channels = (uint64_t)net->channels;
    va_list list;
    va_start(list, name);
    append(net, parameters("BatchNorm2d", 1, channels, channels), 2 * elements(net), name, list);
    va_end(list);
}

void gw_profile_builder_dense(gw_profile_builder *net, int tokens, int inputs, int outputs, const char *name, ...) {
    va_list list;
    va_start(list, name);
    append(net, parameters("Linear", (uint64_t)outputs, (uint64_t)inputs, (uint64_t)outputs),
           2.0 * tokens * inputs * outputs, name, list);
    va_end(list);
}

void gw_profile_builder_layernorm(gw_profile_builder *net, int tokens, int width, const char *name, ...) {
    va_list list;
    va_start(list, name);
    append(net, parameters("LayerNorm", 1, (uint64_t)width, (uint64_t)width), 8.0 * tokens * width, name, list);
    va_end(list);
}

void gw_profile_builder_embedding(gw_profile_builder *net, int entries, int width, const char *name, ...) {
    va_list list;
    va_start(list, name);
    append(net, parameters("Embedding", (uint64_t)entries, (uint64_t)width, 0), 0, name, list);
    va_end(list);
}

void gw_profile_builder_bias(gw_profile_builder *net, int tokens, int width, const char *name, ...) {
    va_list list;
    va_start(list, name);
    append(net, parameters("Bias", 1, (uint64_t)width, 0), (double)tokens * width, name, list);
    va_end(list);
}

void gw_profile_builder_compute(gw_profile_builder *net, const char *kind, double operations, const char *name, ...) {
    va_list list;
    va_start(list, name);
    append(net, parameters(kind, 0, 0, 0), operations, name, list);
    va_end(list);
}

void gw_profile_builder_pool(gw_profile_builder *net, int size, int stride, bool valid) {
    net->height = after(net->height, size, stride, valid);
    net->width = after(net->width, size, stride, valid);
}
