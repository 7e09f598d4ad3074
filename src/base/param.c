/* param.c - see param.h. */
#include "base/param.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/suggest.h"
#include "base/units.h"

const char *gw_param_kind_name(gw_param_kind kind) {
    static const char *const names[] = {"integer", "bytes", "number", "choice", "flag"};
    return names[kind];
}

/* Strategies use a decimal point, whatever the locale of the host program. */
static locale_t use_c_locale(void) { return uselocale(newlocale(LC_ALL_MASK, "C", NULL)); }

static void restore_locale(locale_t before) { freelocale(uselocale(before)); }

static bool number_parse(const char *text, double *value) {
    if (text[strspn(text, "0123456789.eE+-")] != '\0') return false;
    char *end;
    locale_t before = use_c_locale();
    *value = strtod(text, &end);
    restore_locale(before);
    return end != text && *end == '\0';
}

/* The shortest digits that read back as the same number; 1000, not 1e+03. */
static void number_print(double value, char text[GW_PARAM_TEXT_BYTES]) {
    locale_t before = use_c_locale();
    for (int digits = value == trunc(value) ? 6 : 1; digits <= 17; digits++) {
        snprintf(text, GW_PARAM_TEXT_BYTES, "%.*g", digits, value);
        if (strtod(text, NULL) == value) break;
    }
    restore_locale(before);
}

static bool choice_parse(const char *const *choices, const char *text, double *value) {
    for (int i = 0; choices[i]; i++) {
        if (strcmp(choices[i], text) != 0) continue;
        *value = i;
        return true;
    }
    return false;
}

static bool value_parse(const gw_param *param, const char *text, double *value) {
    int64_t whole;
    uint64_t bytes;
    switch (param->kind) {
    case GW_PARAM_INTEGER:
        if (!gw_integer_parse(text, (int64_t)param->lowest, (int64_t)param->highest, &whole)) return false;
        *value = (double)whole;
        return true;
    case GW_PARAM_BYTES:
        if (!gw_bytes_parse(text, &bytes)) return false;
        *value = (double)bytes;
        return *value >= param->lowest && *value <= param->highest;
    case GW_PARAM_NUMBER: return number_parse(text, value) && *value >= param->lowest && *value <= param->highest;
    case GW_PARAM_CHOICE: return choice_parse(param->choices, text, value);
    case GW_PARAM_FLAG: return false;
    }
    return false;
}

static gw_status value_wrong(const gw_param *param, const char *owner, const char *text, gw_error *error) {
    char allowed[GW_PARAM_ALLOWED_BYTES], quoted[GW_QUOTE_BYTES], hint[GW_HINT_BYTES];
    gw_suggest_quote(text, quoted);
    if (param->kind == GW_PARAM_FLAG)
        return gw_fail(error, GW_INVALID, "%s: %s is a flag and takes no value, but %s is given", owner, param->name,
                       quoted);
    if (param->kind == GW_PARAM_CHOICE)
        return gw_fail(error, GW_INVALID, "%s: %s cannot be %s (%s)", owner, param->name, quoted,
                       gw_suggest_hint(text, param->choices, hint));
    return gw_fail(error, GW_INVALID, "%s: %s cannot be %s (allowed: %s)", owner, param->name, quoted,
                   gw_param_allowed(param, allowed));
}

gw_status gw_param_parse(const gw_param *param, const char *owner, const char *text, double *value, gw_error *error) {
    char allowed[GW_PARAM_ALLOWED_BYTES];
    double read = 0;
    if (param->kind == GW_PARAM_FLAG && !text) {
        read = 1;
    } else if (param->kind != GW_PARAM_FLAG && (!text || *text == '\0')) {
        return gw_fail(error, GW_INVALID, "%s: %s needs a value (allowed: %s)", owner, param->name,
                       gw_param_allowed(param, allowed));
    } else if (param->automatic && strcmp(text, "auto") == 0) {
        read = param->auto_value;
    } else if (!value_parse(param, text, &read)) {
        return value_wrong(param, owner, text, error);
    }
    *value = read;
    return GW_OK;
}

/* In the largest unit that leaves a whole number: exact, unlike the rounded sizes meant for reports. */
static void bytes_print(uint64_t bytes, char text[GW_PARAM_TEXT_BYTES]) {
    static const char units[] = "\0KMG";
    int unit = 0;
    while (unit < 3 && bytes && bytes % 1024 == 0) {
        bytes /= 1024;
        unit++;
    }
    snprintf(text, GW_PARAM_TEXT_BYTES, "%llu%.1s", (unsigned long long)bytes, &units[unit]);
}

const char *gw_param_print(const gw_param *param, double value, char text[GW_PARAM_TEXT_BYTES]) {
    const char *word = NULL;
    if (param->kind == GW_PARAM_FLAG) word = value != 0 ? "yes" : "no";
    else if (param->kind == GW_PARAM_CHOICE) word = param->choices[(int)value];
    else if (param->automatic && value == param->auto_value) word = "auto";

    if (word) snprintf(text, GW_PARAM_TEXT_BYTES, "%s", word);
    else if (param->kind == GW_PARAM_BYTES) bytes_print((uint64_t)value, text);
    else if (param->kind == GW_PARAM_INTEGER) snprintf(text, GW_PARAM_TEXT_BYTES, "%lld", (long long)value);
    else number_print(value, text);
    return text;
}

const char *gw_param_allowed(const gw_param *param, char text[GW_PARAM_ALLOWED_BYTES]) {
    char lowest[GW_PARAM_TEXT_BYTES], highest[GW_PARAM_TEXT_BYTES];
    if (param->kind == GW_PARAM_FLAG) {
        snprintf(text, GW_PARAM_ALLOWED_BYTES, "no value");
    } else if (param->kind == GW_PARAM_CHOICE) {
        int used = 0;
        for (int i = 0; param->choices[i] && used < GW_PARAM_ALLOWED_BYTES; i++)
            used += snprintf(text + used, (size_t)(GW_PARAM_ALLOWED_BYTES - used), "%s%s", i ? ", " : "",
                             param->choices[i]);
    } else {
        snprintf(text, GW_PARAM_ALLOWED_BYTES, "%s to %s%s", gw_param_print(param, param->lowest, lowest),
                 gw_param_print(param, param->highest, highest), param->automatic ? ", or auto" : "");
    }
    return text;
}
