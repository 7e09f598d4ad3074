/* parse.c - from text to a strategy. A word is `axis=technique` or `axis=technique:name=value,name=value,flag`.
 * base/technique.h reads the text after the =. Two words are none of an axis: `strategy=auto` and `accuracy=exact`. */
#include <stdio.h>
#include <string.h>

#include "base/suggest.h"
#include "strategy/strategy.h"

#define WORD_BYTES 512 /* the longest word, with its NUL */
#define BLANKS " \t\n\v\f\r"

void gw_strategy_default(gw_strategy *strategy) {
    *strategy = (gw_strategy){.accuracy = GW_ACCURACY_EXACT};
    for (int axis = 0; axis < GW_AXES; axis++) {
        gw_setting *setting = &strategy->axes[axis];
        setting->technique = gw_techniques((gw_axis)axis)[0];
        gw_technique_default(setting->technique, setting->values);
    }
}

/* What is set beside the axes: words of two values each, the first the default. */
enum { CHOICE, ACCURACY, MODES };
static const char *const mode_names[] = {"strategy", "accuracy", NULL};
static const char *const mode_values[MODES][3] = {
    [CHOICE] = {"auto", "fixed", NULL}, [ACCURACY] = {"exact", "safe", NULL}};

static int index_of(const char *const *names, const char *name) {
    for (int i = 0; names[i]; i++)
        if (strcmp(names[i], name) == 0) return i;
    return -1;
}

static gw_status axis_find(const char *name, gw_axis *axis, gw_error *error) {
    char quoted[GW_QUOTE_BYTES], hint[GW_HINT_BYTES];
    const char *names[GW_AXES + MODES + 1] = {NULL};
    if (gw_axis_parse(name, axis)) return GW_OK;
    memcpy(names, gw_axis_names, GW_AXES * sizeof *names);
    memcpy(names + GW_AXES, mode_names, MODES * sizeof *names);
    return gw_fail(error, GW_INVALID, "unknown axis %s (%s)", gw_suggest_quote(name, quoted),
                   gw_suggest_hint(name, names, hint));
}

static gw_status see(unsigned *seen, int place, const char *name, gw_error *error) {
    if (*seen & 1u << place) return gw_fail(error, GW_INVALID, "%s is given twice; name each axis once", name);
    *seen |= 1u << place;
    return GW_OK;
}

static gw_status mode_parse(gw_strategy *strategy, unsigned *seen, int mode, const char *value, gw_error *error) {
    char quoted[GW_QUOTE_BYTES], hint[GW_HINT_BYTES];
    int chosen = index_of(mode_values[mode], value);
    if (chosen < 0)
        return gw_fail(error, GW_INVALID, "%s cannot be %s (%s)", mode_names[mode], gw_suggest_quote(value, quoted),
                       gw_suggest_hint(value, mode_values[mode], hint));
    if (mode == CHOICE) strategy->fixed = chosen;
    else strategy->accuracy = (gw_accuracy)chosen;
    return see(seen, GW_AXES + mode, mode_names[mode], error);
}

/* Where what should be an axis is a parameter of a technique that the line has named before. */
static gw_status misplaced(const gw_strategy *strategy, const char *param, gw_error *error) {
    for (int axis = 0; axis < GW_AXES; axis++) {
        const gw_technique *named = strategy->named & 1u << axis ? strategy->axes[axis].technique : NULL;
        if (named && gw_technique_param(named, param) >= 0)
            return gw_fail(error, GW_INVALID, "%s is a parameter: it follows %s=%s after a colon or a comma", param,
                           gw_axis_names[axis], named->name);
    }
    return GW_OK;
}

static gw_status axis_set(gw_strategy *strategy, unsigned *seen, const char *name, char *technique, gw_error *error) {
    gw_axis axis;
    gw_status status = gw_axis_parse(name, &axis) ? GW_OK : misplaced(strategy, name, error);
    if (!status) status = axis_find(name, &axis, error);
    if (!status) status = see(seen, axis, name, error);
    if (status) return status;
    gw_setting *setting = &strategy->axes[axis];
    strategy->named |= 1u << axis;
    return gw_technique_parse(gw_techniques(axis), name, technique, &setting->technique, setting->values, error);
}

/* Sets the axis that a word names; changes the word in place. */
static gw_status word_parse(gw_strategy *strategy, unsigned *seen, char *word, gw_error *error) {
    char quoted[GW_QUOTE_BYTES];
    char *value = strchr(word, '=');
    if (!value && index_of(mode_values[CHOICE], word) >= 0) return mode_parse(strategy, seen, CHOICE, word, error);
    if (!value)
        return gw_fail(error, GW_INVALID,
                       "%s is not axis=technique, such as arch=ring; the axes are arch, sync, "
                       "compress, schedule and transport",
                       gw_suggest_quote(word, quoted));
    *value++ = '\0';
    int mode = index_of(mode_names, word);
    return mode < 0 ? axis_set(strategy, seen, word, value, error) : mode_parse(strategy, seen, mode, value, error);
}

/* Moves *at to the next word and returns its length, 0 at the end of the text. Counts the lines it passes. */
static size_t word_next(const char **at, int *line) {
    for (;;) {
        while (**at && strchr(BLANKS, **at)) *line += *(*at)++ == '\n';
        if (**at != '#') return strcspn(*at, BLANKS);
        *at += strcspn(*at, "\n");
    }
}

static gw_status words_parse(gw_strategy *strategy, const char *text, int *line, gw_error *error) {
    unsigned seen = 0;
    *line = 1;
    for (size_t length; (length = word_next(&text, line)) > 0; text += length) {
        char word[WORD_BYTES], quoted[GW_QUOTE_BYTES];
        snprintf(word, sizeof word, "%.*s", (int)length, text);
        if (length >= sizeof word)
            return gw_fail(error, GW_INVALID, "the word that begins %s has %zu bytes, more than the %d allowed",
                           gw_suggest_quote(word, quoted), length, WORD_BYTES - 1);
        gw_status status = word_parse(strategy, &seen, word, error);
        if (status) return status;
    }
    return GW_OK;
}

gw_status gw_strategy_overlay(gw_strategy *strategy, const char *text, const char *source, gw_error *error) {
    gw_strategy next = *strategy;
    gw_error cause = {.status = GW_OK};
    char where[GW_QUOTE_BYTES] = "";
    int line = 0; /* 0: the error is about the whole text */
    if (strnlen(text, GW_STRATEGY_INPUT_MAX + 1) > GW_STRATEGY_INPUT_MAX)
        gw_fail(&cause, GW_INVALID, "a strategy of more than %d bytes is not read", GW_STRATEGY_INPUT_MAX);
    else if (words_parse(&next, text, &line, &cause) == GW_OK) *strategy = next;
    if (cause.status == GW_OK) return GW_OK;
    if (line && strchr(text, '\n')) snprintf(where, sizeof where, "line %d: ", line);
    return gw_fail(error, cause.status, "%s%s%s%s", source ? source : "", source ? ": " : "", where, cause.text);
}

gw_status gw_strategy_parse(const char *text, gw_strategy *strategy, gw_error *error) {
    gw_strategy parsed;
    gw_strategy_default(&parsed);
    gw_status status = gw_strategy_overlay(&parsed, text, NULL, error);
    if (status == GW_OK) *strategy = parsed;
    return status;
}
