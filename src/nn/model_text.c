/* model_text.c - see model_text.h. */
#include "nn/model_text.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct writer {
    char *text;
    size_t bytes, used;
} writer;

static void put(writer *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(writer *w, const char *format, ...) {
    if (w->used >= w->bytes) return;
    va_list list;
    va_start(list, format);
    w->used += (size_t)vsnprintf(w->text + w->used, w->bytes - w->used, format, list);
    va_end(list);
}

static writer image(const gw_model_size *s, char *text, size_t bytes) {
    writer w = {.text = text, .bytes = bytes};
    put(&w, "input %d %d %d\n", s->height, s->width, s->channels);
    return w;
}

static bool finish(const writer *w) { return w->used < w->bytes; }

static bool write_mlp(const gw_model_size *s, char *text, size_t bytes) {
    writer w = image(s, text, bytes);
    put(&w, "flatten\ndense 256 relu\ndense 128 relu\ndense %d\n", s->classes);
    return finish(&w);
}

static bool write_lenet(const gw_model_size *s, char *text, size_t bytes) {
    writer w = image(s, text, bytes);
    put(&w,
        "conv 6 5 relu\nmaxpool 2\nconv 16 5 pad 0 relu\nmaxpool 2\nflatten\n"
        "dense 120 relu\ndense 84 relu\ndense %d\n",
        s->classes);
    return finish(&w);
}

static bool write_cnn(const gw_model_size *s, char *text, size_t bytes) {
    writer w = image(s, text, bytes);
    put(&w, "conv 32 3 relu\nmaxpool 2\nconv 64 3 relu\nmaxpool 2\nflatten\ndense 128 relu\ndense %d\n", s->classes);
    return finish(&w);
}

/* A branch of few parameters comes after one of many, so forward order is not the best one for transfers. */
static bool write_branches(const gw_model_size *s, char *text, size_t bytes) {
    writer w = image(s, text, bytes);
    put(&w, "conv 16 3 relu\nmaxpool 2 as stem\n");
    put(&w, "conv 64 5 relu\nconv 32 5 relu as wide\n");
    put(&w, "conv 32 1 relu from stem\nconv 32 3 relu\nadd wide relu\n");
    put(&w, "maxpool 2\nflatten\ndense 128 relu\ndense %d\n", s->classes);
    return finish(&w);
}

/* Two convolutions and a shortcut; where the size changes, the shortcut is a 1x1 convolution. */
static void residual_block(writer *w, int block, int channels, int stride) {
    put(w, "conv %d 3 stride %d nobias from x%d\nbatchnorm relu\nconv %d 3 nobias\n", channels, stride, block,
        channels);
    if (stride == 1) {
        put(w, "batchnorm\nadd x%d relu as x%d\n", block, block + 1);
        return;
    }
    put(w, "batchnorm as y%d\nconv %d 1 stride %d nobias from x%d\nbatchnorm\nadd y%d relu as x%d\n", block, channels,
        stride, block, block, block + 1);
}

static bool write_resnet20(const gw_model_size *s, char *text, size_t bytes) {
    writer w = image(s, text, bytes);
    put(&w, "conv 16 3 nobias\nbatchnorm relu as x0\n");
    for (int block = 0; block < 9; block++)
        residual_block(&w, block, 16 << block / 3, block == 3 || block == 6 ? 2 : 1);
    put(&w, "globalpool\ndense %d\n", s->classes);
    return finish(&w);
}

static bool write_vgg11(const gw_model_size *s, char *text, size_t bytes) {
    static const int channels[] = {64, 128, 256, 256, 512, 512, 512, 512};
    writer w = image(s, text, bytes);
    for (int i = 0; i < 8; i++) {
        put(&w, "conv %d 3 nobias\nbatchnorm relu\n", channels[i]);
        if (i < 2 || i % 2) put(&w, "maxpool 2\n");
    }
    put(&w, "flatten\ndense %d\n", s->classes);
    return finish(&w);
}

static bool write_gpt(const gw_model_size *s, char *text, size_t bytes) {
    writer w = {.text = text, .bytes = bytes};
    int width = s->embedding;
    put(&w, "input tokens %d %d\nembedding %d\npositions as x0\n", s->context, s->classes, width);
    for (int i = 0; i < s->layers; i++) {
        put(&w, "layernorm\ndense %d\nattention %d\ndense %d\nadd x%d as y%d\n", 3 * width, s->heads, width, i, i);
        put(&w, "layernorm\ndense %d\ngelu\ndense %d\nadd y%d as x%d\n", 4 * width, width, i, i + 1);
    }
    put(&w, "layernorm\ndense %d\n", s->classes);
    return finish(&w);
}

#define MNIST                                                                                                          \
    { .height = 28, .width = 28, .channels = 1, .classes = 10 }
#define CIFAR                                                                                                          \
    { .height = 32, .width = 32, .channels = 3, .classes = 10 }

typedef struct entry {
    const char *name;
    gw_model_size size; /* defaults */
    /* Writes the description; false: the buffer is too small. */
    bool (*write)(const gw_model_size *size, char *text, size_t bytes);
} entry;

/* Every model of the zoo that trains. */
static const entry entries[] = {
    {"mlp", MNIST, write_mlp},
    {"lenet", MNIST, write_lenet},
    {"cnn", MNIST, write_cnn},
    {"branches", MNIST, write_branches},
    {"resnet20", CIFAR, write_resnet20},
    {"vgg11", CIFAR, write_vgg11},
    {"gpt", {.classes = 256, .layers = 4, .heads = 4, .embedding = 128, .context = 64}, write_gpt},
};

static const entry *find(const char *name) {
    size_t i = 0;
    while (i < sizeof entries / sizeof entries[0] && strcmp(entries[i].name, name) != 0) i++;
    assert(i < sizeof entries / sizeof entries[0] && "a model of the zoo that trains has a description");
    return &entries[i];
}

static gw_status read_text(const char *path, char *text, gw_error *error) {
    FILE *file = fopen(path, "r");
    if (!file) return gw_fail(error, GW_SYSTEM, "the model %s cannot be read: %s", path, strerror(errno));
    size_t used = fread(text, 1, GW_MODEL_TEXT_BYTES, file);
    int failed = ferror(file) ? errno : 0;
    fclose(file);
    if (failed) return gw_fail(error, GW_SYSTEM, "the model %s cannot be read: %s", path, strerror(failed));
    if (used == GW_MODEL_TEXT_BYTES)
        return gw_fail(error, GW_INVALID, "the model %s is longer than %d bytes", path, GW_MODEL_TEXT_BYTES - 1);
    text[used] = 0;
    if (strlen(text) != used) return gw_fail(error, GW_INVALID, "the model %s is not a text", path);
    return GW_OK;
}

static int either(int given, int otherwise) { return given ? given : otherwise; }

gw_status gw_model_text(const char *name, const gw_model_size *size, char *text, gw_error *error) {
    if (gw_zoo_is_path(name)) return read_text(name, text, error);
    gw_status status = gw_zoo_check_trains(name, error);
    if (status) return status;
    const entry *model = find(name);
    const gw_model_size *d = &model->size, none = {0}, *g = size ? size : &none;
    gw_model_size full = {
        .height = either(g->height, d->height),
        .width = either(g->width, d->width),
        .channels = either(g->channels, d->channels),
        .classes = either(g->classes, d->classes),
        .layers = either(g->layers, d->layers),
        .heads = either(g->heads, d->heads),
        .embedding = either(g->embedding, d->embedding),
        .context = either(g->context, d->context),
    };
    if (!model->write(&full, text, GW_MODEL_TEXT_BYTES))
        return gw_fail(error, GW_INVALID, "a %s of %d layers is too long a description", name, full.layers);
    return GW_OK;
}

gw_status gw_model_spec(const char *name, const gw_model_size *size, gw_spec **spec, gw_error *error) {
    char *text = malloc(GW_MODEL_TEXT_BYTES);
    if (!text) return gw_fail(error, GW_MEMORY, "no memory for a model");
    gw_status status = gw_model_text(name, size, text, error);
    if (status == GW_OK) status = gw_spec_parse(text, name, spec, error);
    free(text);
    return status;
}
