/* builtin_profiles.c - see builtin_profiles.h. */
#include "profile/builtin_profiles.h"

#include <string.h>

#include "profile/known_models.h"

/* Throughputs: ResNet-50 and BERT-Base as HKBU measured them on one GPU (2020-05-29). Every other model is assumed to
 * reach the operations per second of the more similar of these two. */
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

static void (*const architectures[])(gw_profile_builder *) = {
    gw_profile_builder_resnet50, gw_profile_builder_densenet201, gw_profile_builder_inception4,
    gw_profile_builder_vgg16,    gw_profile_builder_bert_base,   gw_profile_builder_bert_large,
    gw_profile_builder_gpt2,
};

const gw_builtin_profile *gw_builtin_profile_find(const char *name) {
    for (const gw_builtin_profile *p = gw_builtin_profiles; p->name; p++)
        if (strcmp(p->name, name) == 0) return p;
    return NULL;
}

gw_status gw_builtin_profile_flops(const gw_builtin_profile *builtin, gw_profile *profile, gw_error *error) {
    gw_profile made = {.batch = builtin->batch};
    gw_profile_builder net = {.profile = &made};
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
    gw_status status = gw_builtin_profile_flops(builtin, profile, error);
    if (status) return status;
    if (batch) profile->batch = batch;
    double seconds = profile->batch / (throughput > 0 ? throughput : builtin->throughput);
    double scale = seconds / gw_profile_seconds(profile);
    profile->whole_steps = true;
    for (int i = 0; i < profile->count; i++) {
        profile->layers[i].forward_us *= scale;
        profile->layers[i].backward_us *= scale;
    }
    return GW_OK;
}
