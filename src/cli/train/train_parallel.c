/* train_parallel.c - parses --parallel of gradwire train: data, or pipeline:stages=2,micro=8. */
#include <stdio.h>
#include <string.h>

#include "base/param.h"
#include "base/suggest.h"
#include "cli/train/train_request.h"

enum { TEXT_BYTES = 128 };

static const gw_param params[] = {
    {.name = "stages", .about = "ranks that the layers of one model are split over", .kind = GW_PARAM_INTEGER,
     .preset = 2, .lowest = 1, .highest = GW_STAGES_MAX},
    {.name = "micro", .about = "micro-batches of a batch", .kind = GW_PARAM_INTEGER,
     .preset = 8, .lowest = 1, .highest = GW_MICRO_MAX},
    {.name = NULL},
};

/* The index in the table; -1 and an error if there is none. */
static int find(const char *name, gw_error *error) {
    static const char *const names[] = {"stages", "micro", NULL};
    char quoted[GW_QUOTE_BYTES], hint[GW_HINT_BYTES];
    for (int i = 0; names[i]; i++)
        if (strcmp(name, names[i]) == 0) return i;
    gw_fail(error, GW_INVALID, "pipeline has no parameter %s (%s)", gw_suggest_quote(name, quoted),
            gw_suggest_hint(name, names, hint));
    return -1;
}

gw_status gw_train_parallel(const char *text, gw_pipeline_settings *settings, gw_error *error) {
    static const char *const ways[] = {"data", "pipeline", NULL};
    char copy[TEXT_BYTES], quoted[GW_QUOTE_BYTES], hint[GW_HINT_BYTES], *next = copy;
    double values[] = {params[0].preset, params[1].preset};
    snprintf(copy, sizeof copy, "%s", text);
    char *way = strsep(&next, ":");
    if (strcmp(way, "data") == 0 && !next) {
        *settings = (gw_pipeline_settings){0};
        return GW_OK;
    }
    if (strcmp(way, "pipeline") != 0 || strlen(text) >= sizeof copy)
        return gw_fail(error, GW_INVALID, "--parallel cannot be %s (%s; such as pipeline:stages=2,micro=8)",
                       gw_suggest_quote(text, quoted), gw_suggest_hint(way, ways, hint));
    while (next) {
        char *value = strsep(&next, ","), *name = strsep(&value, "=");
        int i = find(name, error);
        if (i < 0 || gw_param_parse(&params[i], "--parallel pipeline", value, &values[i], error) != GW_OK)
            return GW_INVALID;
    }
    *settings = (gw_pipeline_settings){.stages = (int)values[0], .micro = (int)values[1]};
    return GW_OK;
}
