/* codec_registry.c - the codecs as techniques of the compress axis; setups (a codec with parameter values). */
#include "compress/codec.h"

#include <assert.h>

#define TECHNIQUE(name) &gw_codec_##name.technique,
const gw_technique *const gw_compress_techniques[] = {
    GW_CODECS(TECHNIQUE, TECHNIQUE) & gw_doublesqueeze,
    NULL,
};

#define POINTER(name) &gw_codec_##name,
const gw_codec *const gw_codecs[] = {GW_CODECS(POINTER, POINTER) NULL};

/* NULL: doublesqueeze, which is not a codec itself. */
static const gw_codec *codec_of(const gw_technique *technique) {
    return technique == &gw_doublesqueeze ? NULL : (const gw_codec *)technique;
}

const gw_codec *gw_codec_find(const char *name) {
    for (int i = 0; gw_compress_techniques[i]; i++) {
        if (strcmp(gw_compress_techniques[i]->name, name) == 0) return codec_of(gw_compress_techniques[i]);
    }
    return NULL;
}

void gw_codec_choose(const gw_technique *technique, double *values, const gw_codec_run *run) {
    const gw_codec *codec = codec_of(technique);
    if (codec && codec->choose) codec->choose(values, run);
}

static gw_codec_setup setup_of(const gw_codec *codec, const double *values) {
    gw_codec_setup setup = {.codec = codec};
    const gw_param *params = codec->technique.params;
    for (int i = 0; params && params[i].name; i++) {
        if (strcmp(params[i].name, "feedback") == 0) {
            setup.feedback = (gw_codec_feedback)values[i];
        } else if (strcmp(params[i].name, "form") == 0) {
            setup.form = (gw_coded_form)values[i];
        } else if (strcmp(params[i].name, "limit") == 0) {
            setup.limit = values[i];
        } else {
            assert(i < GW_CODEC_PARAMS_MAX && "a codec's own parameters come first");
            setup.value[i] = values[i];
        }
    }
    gw_codec_choose(&codec->technique, setup.value, &(gw_codec_run){0});
    return setup;
}

gw_codec_setup gw_codec_default(const gw_codec *codec) {
    double values[GW_TECHNIQUE_PARAMS_MAX];
    gw_technique_default(&codec->technique, values);
    return setup_of(codec, values);
}

gw_status gw_codec_from_setting(const gw_technique *technique, const double *values, gw_codec_setup *setup,
                                gw_error *error) {
    const gw_codec *codec = codec_of(technique);
    gw_codec_setup made = codec ? setup_of(codec, values) : gw_doublesqueeze_setup(values);
    gw_status status = gw_codec_check(&made, error);
    if (!status) *setup = made;
    return status;
}

gw_status gw_codec_parse(const char *text, gw_codec_setup *setup, gw_error *error) {
    char copy[256];
    const gw_technique *technique;
    double values[GW_TECHNIQUE_PARAMS_MAX];
    if (strlen(text) >= sizeof copy)
        return gw_fail(error, GW_INVALID, "a codec of %zu letters is too long", strlen(text));
    strcpy(copy, text);
    gw_status status = gw_technique_parse(gw_compress_techniques, "compress", copy, &technique, values, error);
    return status ? status : gw_codec_from_setting(technique, values, setup, error);
}

double gw_codec_value(const gw_codec_setup *setup, const char *param) {
    int index = gw_technique_param(&setup->codec->technique, param);
    assert(index >= 0 && strcmp(param, "feedback") != 0 && strcmp(param, "form") != 0 && strcmp(param, "limit") != 0);
    return setup->value[index];
}

double gw_codec_momentum(const gw_codec_setup *setup) {
    return gw_codec_has_need(setup, GW_NEEDS_GRADIENTS) ? gw_codec_value(setup, "momentum") : 0;
}

gw_codec_setup gw_codec_second(const gw_codec_setup *first) {
    gw_codec_setup second = *first;
    if (first->codec->second) second = first->codec->second(first);
    bool kept = first->feedback == GW_FEEDBACK_BOTH;
    second.feedback = kept ? GW_FEEDBACK_WORKER : GW_FEEDBACK_NONE;
    second.block = first->block;
    return second;
}

gw_codec_setup gw_codec_exact(const gw_codec_setup *setup) {
    gw_codec_setup exact = gw_codec_default(&gw_codec_none);
    exact.feedback = gw_codec_residual(setup) ? GW_FEEDBACK_WORKER : GW_FEEDBACK_NONE;
    return exact;
}

gw_codec_setup gw_codec_sliced(const gw_codec_setup *setup) {
    gw_codec_setup sliced = *setup;
    if (setup->codec->sliced_block) sliced.block = setup->codec->sliced_block(setup);
    return sliced;
}

uint32_t gw_codec_block(const gw_codec_setup *setup) { return setup->block ? setup->block : setup->codec->block; }

const char *gw_codec_refuses(const gw_codec_setup *setup, const gw_codec_tensor *tensor, uint32_t world) {
    return setup->codec->refuses ? setup->codec->refuses(setup, tensor, world) : NULL;
}

bool gw_codec_has_need(const gw_codec_setup *setup, gw_codec_needs need) {
    return setup->codec->needs && (setup->codec->needs(setup) & need);
}

uint32_t gw_codec_rounds(const gw_codec_setup *setup) { return setup->codec->rounds ? setup->codec->rounds(setup) : 1; }

bool gw_codec_merges(const gw_codec_setup *setup) {
    return setup->codec->merge && (!setup->codec->merges || setup->codec->merges(setup));
}

bool gw_codec_residual(const gw_codec_setup *setup) {
    return setup->codec->compensates || setup->feedback != GW_FEEDBACK_NONE;
}

bool gw_codec_stateful(const gw_codec_setup *setup) { return gw_codec_residual(setup) || setup->codec->own_count; }
