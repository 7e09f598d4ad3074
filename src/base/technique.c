/* technique.c - see technique.h. Nothing is allocated. Every error is one sentence that names the wrong word and the
 * allowed ones. */
#include "base/technique.h"

#include <stdio.h>
#include <string.h>

#include "base/suggest.h"

void gw_technique_default(const gw_technique *technique, double values[GW_TECHNIQUE_PARAMS_MAX]) {
    memset(values, 0, GW_TECHNIQUE_PARAMS_MAX * sizeof *values);
    for (int i = 0; technique->params && technique->params[i].name; i++) values[i] = technique->params[i].preset;
}

const char *gw_technique_example(const gw_technique *technique, int index, char text[GW_TECHNIQUE_TEXT_BYTES]) {
    static const char *const presets[] = {"", NULL};
    const char *const *examples = technique->examples ? technique->examples : presets;
    for (int i = 0; i <= index; i++)
        if (!examples[i]) return NULL;
    snprintf(text, GW_TECHNIQUE_TEXT_BYTES, "%s%s%s", technique->name, *examples[index] ? ":" : "", examples[index]);
    return text;
}

int gw_technique_param(const gw_technique *technique, const char *name) {
    for (int i = 0; technique->params && technique->params[i].name; i++)
        if (strcmp(technique->params[i].name, name) == 0) return i;
    return -1;
}

/* "topk,ratio=0.1" */
static bool has_comma_for_colon(const gw_technique *technique, const char *word) {
    char param[32];
    size_t length = strlen(technique->name);
    if (strncmp(word, technique->name, length) != 0 || word[length] != ',') return false;
    snprintf(param, sizeof param, "%.*s", (int)strcspn(word + length + 1, "=,"), word + length + 1);
    return gw_technique_param(technique, param) >= 0;
}

/* NULL and an error if there is none of that name. */
static const gw_technique *technique_find(const gw_technique *const *table, const char *axis, const char *name,
                                          gw_error *error) {
    const char *names[GW_TECHNIQUES_MAX + 1] = {NULL};
    for (int i = 0; table[i]; i++) {
        names[i] = table[i]->name;
        if (strcmp(name, names[i]) == 0) return table[i];
    }
    char quoted[GW_QUOTE_BYTES], hint[GW_HINT_BYTES];
    for (int i = 0; table[i]; i++)
        if (has_comma_for_colon(table[i], name)) {
            gw_fail(error, GW_INVALID, "parameters follow %s=%s after a colon, not a comma", axis, names[i]);
            return NULL;
        }
    gw_suggest_hint(name, names, hint);
    if (*name == '\0') gw_fail(error, GW_INVALID, "%s= names no technique (%s)", axis, hint);
    else gw_fail(error, GW_INVALID, "unknown %s %s (%s)", axis, gw_suggest_quote(name, quoted), hint);
    return NULL;
}

static gw_status param_unknown(const gw_technique *technique, const char *owner, const char *name, gw_error *error) {
    const char *names[GW_TECHNIQUE_PARAMS_MAX + 1] = {NULL};
    for (int i = 0; technique->params[i].name; i++) names[i] = technique->params[i].name;
    char quoted[GW_QUOTE_BYTES], hint[GW_HINT_BYTES];
    gw_suggest_hint(name, names, hint);
    if (*name == '\0') return gw_fail(error, GW_INVALID, "%s: a parameter without a name (%s)", owner, hint);
    return gw_fail(error, GW_INVALID, "%s has no parameter %s (%s)", owner, gw_suggest_quote(name, quoted), hint);
}

/* text: the part after the colon; modified in place. */
static gw_status params_parse(const gw_technique *technique, const char *owner, char *text, double *values,
                              gw_error *error) {
    char quoted[GW_QUOTE_BYTES];
    unsigned seen = 0;
    if (!technique->params)
        return gw_fail(error, GW_INVALID, "%s takes no parameters, but %s is given", owner,
                       gw_suggest_quote(text, quoted));
    for (char *next = text; next;) {
        char *name = strsep(&next, ",");
        char *value = name;
        strsep(&value, "=");
        int index = gw_technique_param(technique, name);
        if (index < 0) return param_unknown(technique, owner, name, error);
        if (seen & 1u << index) return gw_fail(error, GW_INVALID, "%s: %s is given twice; give it once", owner, name);
        seen |= 1u << index;
        gw_status status = gw_param_parse(&technique->params[index], owner, value, &values[index], error);
        if (status) return status;
    }
    return GW_OK;
}

gw_status gw_technique_parse(const gw_technique *const *table, const char *axis, char *text,
                             const gw_technique **technique, double values[GW_TECHNIQUE_PARAMS_MAX], gw_error *error) {
    char owner[GW_QUOTE_BYTES];
    char *params = text;
    char *name = strsep(&params, ":");
    const gw_technique *found = technique_find(table, axis, name, error);
    if (!found) return GW_INVALID;
    gw_technique_default(found, values);
    snprintf(owner, sizeof owner, "%s=%s", axis, found->name);
    gw_status status = params ? params_parse(found, owner, params, values, error) : GW_OK;
    if (status == GW_OK) *technique = found;
    return status;
}
