/* registry.c - the one table of codecs, and setups: a codec's name and parameters as text. */
#include "compress/codec.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

const gw_codec *const gw_codecs[] = {
    &gw_codec_none, &gw_codec_fp16,     &gw_codec_bf16, &gw_codec_int8,    &gw_codec_onebit,
    &gw_codec_qsgd, &gw_codec_terngrad, &gw_codec_topk, &gw_codec_randomk, &gw_codec_threshold,
    &gw_codec_dgc,  &gw_codec_powersgd, NULL,
};

static const char *const feedback_words[] = {"none", "worker", "both", NULL};
static const gw_codec_param feedback_param = {.name = "feedback",
                                              .about = "who keeps what encoding lost",
                                              .highest = 2,
                                              .whole = true,
                                              .choices = feedback_words};

const gw_codec *gw_codec_find(const char *name) {
    for (int i = 0; gw_codecs[i]; i++) {
        if (strcmp(gw_codecs[i]->name, name) == 0) return gw_codecs[i];
    }
    return NULL;
}

gw_codec_setup gw_codec_default(const gw_codec *codec) {
    gw_codec_setup setup = {.codec = codec, .feedback = codec->feedback};
    for (int i = 0; codec->params && codec->params[i].name; i++) setup.value[i] = codec->params[i].preset;
    return setup;
}

static int param_index(const gw_codec *codec, const char *name) {
    for (int i = 0; codec->params && codec->params[i].name; i++) {
        if (strcmp(codec->params[i].name, name) == 0) return i;
    }
    return -1;
}

static gw_status read_choice(const gw_codec *codec, const gw_codec_param *param, const char *text, double *value,
                             gw_error *error) {
    char words[128] = "";
    for (int i = 0; param->choices[i]; i++) {
        if (strcmp(param->choices[i], text) == 0) {
            *value = i;
            return GW_OK;
        }
        snprintf(words + strlen(words), sizeof words - strlen(words), " %s", param->choices[i]);
    }
    return gw_fail(error, GW_INVALID, "%s: %s=%s is not possible, choose one of:%s", codec->name, param->name, text,
                   words);
}

static gw_status read_value(const gw_codec *codec, const gw_codec_param *param, const char *text, double *value,
                            gw_error *error) {
    if (param->choices) return read_choice(codec, param, text, value, error);
    char *end;
    double number = strtod(text, &end);
    bool read = *text && *end == 0 && isfinite(number) && (!param->whole || number == floor(number));
    if (!read || number < param->lowest || number > param->highest) {
        return gw_fail(error, GW_INVALID, "%s: %s=%s is not possible, give a %snumber from %g to %g", codec->name,
                       param->name, text, param->whole ? "whole " : "", param->lowest, param->highest);
    }
    *value = number;
    return GW_OK;
}

gw_status gw_codec_set(gw_codec_setup *setup, const char *param, const char *value, gw_error *error) {
    double number = 0;
    int index = param_index(setup->codec, param);
    if (index < 0 && strcmp(param, feedback_param.name) != 0) {
        return gw_fail(error, GW_INVALID, "%s has no parameter %s", setup->codec->name, param);
    }
    const gw_codec_param *known = index < 0 ? &feedback_param : &setup->codec->params[index];
    gw_status status = read_value(setup->codec, known, value ? value : "on", &number, error);
    if (status) return status;
    if (index < 0)
        setup->feedback = (gw_codec_feedback)number;
    else
        setup->value[index] = number;
    return GW_OK;
}

/* Sets "name=value,name=value" one after the other; words is taken apart. */
static gw_status set_words(gw_codec_setup *setup, char *words, gw_error *error) {
    gw_status status = GW_OK;
    char *rest = words;
    for (char *word; !status && (word = strsep(&rest, ",")) != NULL;) {
        char *value = strchr(word, '=');
        if (value) *value++ = 0;
        status = gw_codec_set(setup, word, value, error);
    }
    return status;
}

static gw_status parse_words(const char *name, char *words, gw_codec_setup *setup, gw_error *error) {
    const gw_codec *codec = gw_codec_find(name);
    if (!codec) return gw_fail(error, GW_INVALID, "there is no codec %s; `gradwire list` names them", name);
    *setup = gw_codec_default(codec);
    return words ? set_words(setup, words, error) : GW_OK;
}

/* doublesqueeze:codec=topk,ratio=0.01 */
static gw_status parse_double(char *words, gw_codec_setup *setup, gw_error *error) {
    const char *inner = "onebit";
    if (words && strncmp(words, "codec=", 6) == 0) {
        inner = words + 6;
        words = strchr(words, ',');
        if (words) *words++ = 0;
    }
    gw_status status = parse_words(inner, words, setup, error);
    if (!status) setup->feedback = GW_FEEDBACK_BOTH;
    return status;
}

gw_status gw_codec_parse(const char *text, gw_codec_setup *setup, gw_error *error) {
    char copy[256];
    gw_codec_setup read;
    if (strlen(text) >= sizeof copy)
        return gw_fail(error, GW_INVALID, "a codec of %zu letters is too long", strlen(text));
    strcpy(copy, text);
    char *words = strchr(copy, ':');
    if (words) *words++ = 0;
    bool twice = strcmp(copy, "doublesqueeze") == 0;
    gw_status status = twice ? parse_double(words, &read, error) : parse_words(copy, words, &read, error);
    if (!status) *setup = read;
    return status;
}

double gw_codec_value(const gw_codec_setup *setup, const char *param) {
    int index = param_index(setup->codec, param);
    assert(index >= 0);
    return setup->value[index];
}

gw_codec_setup gw_codec_second(const gw_codec_setup *first) {
    gw_codec_setup second = *first;
    if (first->codec->second) second = first->codec->second(first);
    bool kept = first->feedback == GW_FEEDBACK_BOTH;
    second.feedback = kept ? GW_FEEDBACK_WORKER : GW_FEEDBACK_NONE;
    return second;
}

gw_codec_setup gw_codec_exact(const gw_codec_setup *setup) {
    gw_codec_setup exact = gw_codec_default(&gw_codec_none);
    exact.feedback = gw_codec_residual(setup) ? GW_FEEDBACK_WORKER : GW_FEEDBACK_NONE;
    return exact;
}

const char *gw_codec_refuses(const gw_codec_setup *setup, const gw_codec_tensor *tensor, uint32_t world) {
    return setup->codec->refuses ? setup->codec->refuses(setup, tensor, world) : NULL;
}

uint32_t gw_codec_rounds(const gw_codec_setup *setup) { return setup->codec->rounds ? setup->codec->rounds(setup) : 1; }

bool gw_codec_merges(const gw_codec_setup *setup) {
    return setup->codec->merge && (!setup->codec->merges || setup->codec->merges(setup));
}

bool gw_codec_residual(const gw_codec_setup *setup) {
    return setup->codec->compensates || setup->feedback != GW_FEEDBACK_NONE;
}

bool gw_codec_stateful(const gw_codec_setup *setup) { return gw_codec_residual(setup) || setup->codec->own_count; }
