/* zoo.c - see zoo.h. Throughputs: ResNet-50 and BERT-Base as HKBU measured them on one GPU (2020-05-29). Every other
 * model with layer times is assumed to reach the operations per second of the more similar of these two. */
#include "zoo/zoo.h"

#include <stdio.h>
#include <string.h>

#include "base/suggest.h"

const gw_zoo_model gw_zoo[] = {
    {"mlp", "three dense layers", 6, 235146, true, 0, 0},
    {"lenet", "LeNet-5 with relu and max pooling", 10, 61706, true, 0, 0},
    {"cnn", "two convolutions and two dense layers, for Fashion-MNIST", 8, 421642, true, 0, 0},
    {"branches", "two branches of convolutions, one with most of the parameters", 14, 288970, true, 0, 0},
    {"resnet20", "ResNet-20 for CIFAR-10 (He et al. 2016)", 65, 272474, true, 0, 0},
    {"vgg11", "VGG-11 with batch norm, for CIFAR-10", 26, 9228362, true, 0, 0},
    {"gpt", "a transformer that reads bytes", 54, 867328, true, 0, 0},
    {"resnet50", "ResNet-50 on ImageNet", 161, 25557032, false, 64, 253.1},
    {"densenet201", "DenseNet-201 on ImageNet", 604, 20013928, false, 32, 241},
    {"inception4", "Inception-v4 on ImageNet", 449, 42679816, false, 64, 84.6},
    {"vgg16", "VGG-16 on ImageNet", 32, 138357544, false, 32, 67.2},
    {"bert-base", "BERT-Base, 64 words", 206, 110111042, false, 64, 212.8},
    {"bert-large", "BERT-Large, 64 words", 398, 336232258, false, 32, 69.5},
    {"gpt2", "GPT-2, 124 million parameters, 1024 words", 148, 124439808, false, 8, 10.3},
    {NULL, NULL, 0, 0, false, 0, 0},
};

#define MODELS (sizeof gw_zoo / sizeof gw_zoo[0])

const gw_zoo_model *gw_zoo_find(const char *name) {
    for (const gw_zoo_model *m = gw_zoo; m->name; m++)
        if (strcmp(m->name, name) == 0) return m;
    return NULL;
}

bool gw_zoo_is_path(const char *name) { return strpbrk(name, "./") != NULL; }

gw_status gw_zoo_unknown(const char *name, gw_error *error) {
    char quoted[GW_QUOTE_BYTES], hint[GW_HINT_BYTES];
    const char *names[MODELS];
    for (size_t i = 0; i < MODELS; i++) names[i] = gw_zoo[i].name;
    return gw_fail(error, GW_INVALID, "no model is called %s (%s; or a file, whose name has a / or a .)",
                   gw_suggest_quote(name, quoted), gw_suggest_hint(name, names, hint));
}

static const char *list_trained(char *text, size_t bytes) {
    size_t used = 0;
    for (const gw_zoo_model *m = gw_zoo; m->name; m++)
        if (m->trains && used < bytes)
            used += (size_t)snprintf(text + used, bytes - used, "%s%s", used ? ", " : "", m->name);
    return text;
}

gw_status gw_zoo_check_trains(const char *name, gw_error *error) {
    char trained[GW_HINT_BYTES];
    if (gw_zoo_is_path(name)) return GW_OK;
    const gw_zoo_model *model = gw_zoo_find(name);
    if (!model) return gw_zoo_unknown(name, error);
    if (model->trains) return GW_OK;
    return gw_fail(error, GW_INVALID,
                   "%s cannot run here: gradwire knows its layers and their times, for gradwire predict and bench step "
                   "only; models that can run: %s, or a description in a file",
                   name, list_trained(trained, sizeof trained));
}
