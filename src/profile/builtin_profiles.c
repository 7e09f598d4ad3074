/* builtin_profiles.c - see builtin_profiles.h. */
#include "profile/builtin_profiles.h"

#include <assert.h>
#include <string.h>

#include "profile/known_models.h"

/* Every model of the zoo that has layer times. */
static const struct {
    const char *name;
    void (*build)(gw_profile_builder *);
} architectures[] = {
    {"resnet50", gw_profile_builder_resnet50},
    {"densenet201", gw_profile_builder_densenet201},
    {"inception4", gw_profile_builder_inception4},
    {"vgg16", gw_profile_builder_vgg16},
    {"bert-base", gw_profile_builder_bert_base},
    {"bert-large", gw_profile_builder_bert_large},
    {"gpt2", gw_profile_builder_gpt2},
};

static void build(const char *name, gw_profile_builder *net) {
    size_t i = 0;
    while (i < sizeof architectures / sizeof architectures[0] && strcmp(architectures[i].name, name) != 0) i++;
    assert(i < sizeof architectures / sizeof architectures[0] && "a model of the zoo with layer times has its layers");
    architectures[i].build(net);
}

gw_status gw_builtin_profile_flops(const gw_zoo_model *model, gw_profile *profile, gw_error *error) {
    gw_profile made = {.batch = model->batch};
    gw_profile_builder net = {.profile = &made};
    snprintf(made.name, sizeof made.name, "%s", model->name);
    build(model->name, &net);
    if (net.failed) {
        gw_profile_free(&made);
        return gw_fail(error, GW_MEMORY, "no memory for the layers of %s", model->name);
    }
    *profile = made;
    return GW_OK;
}

gw_status gw_builtin_profile_make(const gw_zoo_model *model, int batch, double throughput, gw_profile *profile,
                                  gw_error *error) {
    gw_status status = gw_builtin_profile_flops(model, profile, error);
    if (status) return status;
    if (batch) profile->batch = batch;
    double seconds = profile->batch / (throughput > 0 ? throughput : model->throughput);
    gw_profile_scale(profile, seconds);
    profile->whole_steps = true;
    return GW_OK;
}
