/* fit_steps.c - see fit.h: reads measured steps. */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/suggest.h"
#include "base/text_file.h"
#include "base/units.h"
#include "predict/fit.h"
#include "profile/builtin_profiles.h"
#include "profile/profile_load.h"

#define HEADER "profile,ranks,per_host,step_ms,strategy"

enum { FIELDS = 5 };

/* Reading. */

/* "bert-large batch=8 throughput=49", or what gw_profile_load takes. */
static gw_status load_profile(char *text, gw_profile *profile, gw_error *error) {
    const char *name = strsep(&text, " "), *word;
    const gw_zoo_model *model = gw_zoo_is_path(name) ? NULL : gw_zoo_find(name);
    int64_t batch = 0;
    double throughput = 0;
    if (!text) return gw_profile_load(name, profile, error);
    while ((word = strsep(&text, " "))) {
        bool known =
            (strncmp(word, "batch=", 6) == 0 && gw_integer_parse(word + 6, 1, 1 << 24, &batch)) ||
            (strncmp(word, "throughput=", 11) == 0 && gw_text_decimal(word + 11, 1e9, &throughput) && throughput > 0);
        if (!known || !model || !model->batch)
            return gw_fail(error, GW_INVALID,
                           "a built-in profile may be followed by batch=N and throughput=X, more than 0; a file by "
                           "nothing");
    }
    return gw_builtin_profile_make(model, (int)batch, throughput, profile, error);
}

/* The last field is a strategy, which may contain commas: joins its parts again. */
static void join_strategy(gw_text *lines) {
    for (int i = FIELDS; i < lines->count; i++) lines->fields[i][-1] = ',';
    if (lines->count > FIELDS) lines->count = FIELDS;
}

static gw_status read_step(gw_text *lines, gw_fit_step *step) {
    int64_t ranks, per_host;
    double ms;
    join_strategy(lines);
    if (lines->count != FIELDS)
        return gw_text_wrong(lines, "it has %d fields, not %d (" HEADER ")", lines->count, FIELDS);
    if (!gw_integer_parse(lines->fields[1], 1, GW_PREDICT_RANKS_MAX, &ranks) ||
        !gw_integer_parse(lines->fields[2], 1, ranks, &per_host) || ranks % per_host)
        return gw_text_wrong(lines, "ranks and per_host are whole numbers, and hosts are full");
    if (!gw_text_decimal(lines->fields[3], 1e9, &ms) || ms <= 0)
        return gw_text_wrong(lines, "step_ms is a number of milliseconds, more than 0");
    gw_error why = {.rank = -1};
    if (gw_strategy_parse(lines->fields[4], &step->strategy, &why) ||
        load_profile(lines->fields[0], &step->profile, &why))
        return gw_text_wrong(lines, "%s", why.text);
    step->ranks = (int)ranks;
    step->per_host = (int)per_host;
    step->measured = ms / 1e3;
    return GW_OK;
}

gw_status gw_fit_steps_parse(const char *bytes, size_t size, const char *name, gw_fit_steps *steps, gw_error *error) {
    gw_text lines = {.at = bytes, .end = bytes + size, .name = name, .separator = ',', .error = error};
    gw_fit_steps made = {.steps = calloc(GW_FIT_STEPS_MAX, sizeof *made.steps)};
    bool more, header = false;
    gw_status status = made.steps ? GW_OK : gw_fail(error, GW_MEMORY, "out of memory for measured steps");
    while (!status && !(status = gw_text_next(&lines, &more)) && more) {
        if (!header) {
            header = true;
            if (lines.count != FIELDS || strcmp(lines.fields[0], "profile") != 0 ||
                strcmp(lines.fields[4], "strategy") != 0)
                status = gw_text_wrong(&lines, "measured steps begin with the header " HEADER);
        } else if (made.count == GW_FIT_STEPS_MAX) {
            status = gw_text_wrong(&lines, "there are more than %d steps", GW_FIT_STEPS_MAX);
        } else {
            status = read_step(&lines, &made.steps[made.count]);
            if (!status) made.count++;
        }
    }
    if (!status && !made.count) status = gw_fail(error, GW_INVALID, "%s has no measured steps", name);
    if (status) gw_fit_steps_free(&made);
    else *steps = made;
    return status;
}

gw_status gw_fit_steps_read(const char *path, gw_fit_steps *steps, gw_error *error) {
    char *bytes;
    size_t size;
    gw_status status = gw_file_read(path, GW_TEXT_FILE_MAX, &bytes, &size, error);
    if (status) return status;
    status = gw_fit_steps_parse(bytes, size, path, steps, error);
    free(bytes);
    return status;
}

void gw_fit_steps_free(gw_fit_steps *steps) {
    for (int i = 0; i < steps->count; i++) gw_profile_free(&steps->steps[i].profile);
    free(steps->steps);
    *steps = (gw_fit_steps){.count = 0};
}
