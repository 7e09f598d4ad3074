/* profiles.c - see profiles.h. */
#include "model/profiles.h"

#include <string.h>

#include "model/architectures.h"

/* Throughputs: ResNet-50 and BERT-Base as HKBU measured one GPU alone (2020-05-29); the others at the same operations a
 * second as the one of these two that is more like them. */
const gw_builtin_profile gw_builtin_profiles[] = {
    {"resnet50", "ResNet-50 on ImageNet", 64, 253.1},
    {"densenet201", "DenseNet-201 on ImageNet", 32, 241},
    {"inception4", "Inception-v4 on ImageNet", 64, 84.6},
    {"vgg16", "VGG-16 on ImageNet", 32, 67.2},
    {"bert-base", "BERT-Base, 64 words", 64, 212.8},
    {"bert-large", "BERT-Large, 64 words", 32, 69.5},
    {"gpt2", "GPT-2, 124 million parameters, 1024 words", 8, 10.3},
    {NULL, NULL, 0, 0},
};

static void (*const architectures[])(gw_network *) = {
    gw_network_resnet50,  gw_network_densenet201, gw_network_inception4, gw_network_vgg16,
    gw_network_bert_base, gw_network_bert_large,  gw_network_gpt2,
};

const gw_builtin_profile *gw_builtin_profile_find(const char *name) {
    for (const gw_builtin_profile *p = gw_builtin_profiles; p->name; p++)
        if (strcmp(p->name, name) == 0) return p;
    return NULL;
}

gw_status gw_builtin_profile_count(const gw_builtin_profile *builtin, gw_profile *profile, gw_error *error) {
    gw_profile made = {.batch = builtin->batch};
    gw_network net = {.profile = &made};
    snprintf(made.name, sizeof made.name, "%s", builtin->name);
    architectures[builtin - gw_builtin_profiles](&net);
    if (net.failed) {
        gw_profile_free(&made);
        return gw_fail(error, GW_MEMORY, "no memory for the layers of %s", builtin->name);
    }
    *profile = made;
    return GW_OK;
}

gw_status gw_builtin_profile_make(const gw_builtin_profile *builtin, int batch, double throughput, gw_profile *profile,
                                  gw_error *error) {
    gw_status status = gw_builtin_profile_count(builtin, profile, error);
    if (status) return status;
    if (batch) profile->batch = batch;
    double seconds = profile->batch / (throughput > 0 ? throughput : builtin->throughput);
    double scale = seconds / gw_profile_seconds(profile);
    for (int i = 0; i < profile->count; i++) {
        profile->layers[i].forward_us *= scale;
        profile->layers[i].backward_us *= scale;
    }
    return GW_OK;
}
