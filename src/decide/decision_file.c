/* decision_file.c - see decision_file.h. */
#include "decide/decision_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/units.h"

#define HEAD "gradwire-decisions 1"
#define FILE_MAX (1u << 20)
#define WHY_BYTES 16384

void gw_decisions_add(gw_decisions *d, uint64_t step, const gw_strategy *strategy, const char *why) {
    if (d->count == GW_DECISIONS_MAX) {
        free(d->entries[1].why);
        memmove(&d->entries[1], &d->entries[2], (GW_DECISIONS_MAX - 2) * sizeof d->entries[0]);
        d->count--;
    }
    d->entries[d->count++] = (gw_decision){step, *strategy, why && *why ? strdup(why) : NULL};
}

void gw_decisions_free(gw_decisions *d) {
    for (int i = 0; i < d->count; i++) free(d->entries[i].why);
    d->count = 0;
}

static void print_why(const char *why, FILE *out) {
    for (const char *at = why; at && *at;) {
        const char *end = strchr(at, '\n');
        int length = end ? (int)(end - at) : (int)strlen(at);
        fprintf(out, "# %.*s\n", length, at);
        at += length + (end != NULL);
    }
}

static void print(const void *ctx, FILE *out) {
    const gw_decisions *d = ctx;
    fprintf(out, HEAD "\nmodel %s\n", d->model);
    for (int i = 0; i < d->count; i++) {
        char line[GW_STRATEGY_PRINT_BYTES];
        gw_strategy_print(&d->entries[i].strategy, line, sizeof line);
        print_why(d->entries[i].why, out);
        fprintf(out, "step %llu %s\n", (unsigned long long)d->entries[i].step, line);
    }
}

gw_status gw_decisions_write(const gw_decisions *d, const char *path, gw_error *error) {
    return gw_file_replace(path, print, d, error);
}

typedef struct reading {
    gw_decisions *decisions;
    char why[WHY_BYTES]; /* comments before the next decision */
    const char *path;
    int number; /* of the line */
    gw_error *error;
} reading;

static gw_status read_step(reading *r, char *rest) {
    gw_strategy strategy;
    gw_error cause = {.rank = -1};
    gw_decisions *d = r->decisions;
    int64_t step = 0;
    char *line = strchr(rest, ' ');
    if (line) *line++ = 0;
    if (!line || !gw_integer_parse(rest, 0, INT64_MAX, &step) || gw_strategy_parse(line, &strategy, &cause))
        return gw_fail(r->error, GW_INVALID, "%s line %d: %s", r->path, r->number,
                       cause.status ? cause.text : "it is not \"step NUMBER STRATEGY\"");
    if (d->count && (uint64_t)step <= d->entries[d->count - 1].step)
        return gw_fail(r->error, GW_INVALID, "%s line %d: step %lld does not come after the one before", r->path,
                       r->number, (long long)step);
    if (d->count == GW_DECISIONS_MAX)
        return gw_fail(r->error, GW_INVALID, "%s has more than %d decisions", r->path, GW_DECISIONS_MAX);
    gw_decisions_add(d, (uint64_t)step, &strategy, r->why);
    r->why[0] = 0;
    return GW_OK;
}

static void keep_comment(reading *r, const char *line) {
    size_t used = strlen(r->why);
    snprintf(r->why + used, sizeof r->why - used, "%s\n", line + (line[1] == ' ' ? 2 : 1));
}

static gw_status read_line(reading *r, char *line) {
    gw_decisions *d = r->decisions;
    r->number++;
    if (r->number == 1 && strcmp(line, HEAD) != 0)
        return gw_fail(r->error, GW_INVALID, "%s is not a file of decisions: its first line is not \"" HEAD "\"",
                       r->path);
    if (*line == '#') keep_comment(r, line);
    if (r->number == 1 || !*line || *line == '#') return GW_OK;
    if (strncmp(line, "model ", 6) == 0 && !d->model[0]) {
        snprintf(d->model, sizeof d->model, "%s", line + 6);
        return GW_OK;
    }
    if (strncmp(line, "step ", 5) == 0) return read_step(r, line + 5);
    return gw_fail(r->error, GW_INVALID, "%s line %d: it begins with neither model nor step", r->path, r->number);
}

gw_status gw_decisions_read(gw_decisions *d, const char *path, gw_error *error) {
    char *bytes = NULL, *rest, *line;
    size_t size;
    reading r = {.decisions = d, .path = path, .error = error};
    memset(d, 0, sizeof *d);
    gw_status status = gw_file_read(path, FILE_MAX, &bytes, &size, error);
    char *text = status ? NULL : strndup(bytes, size);
    free(bytes);
    if (!status && !text) return gw_fail(error, GW_MEMORY, "out of memory for %s", path);
    rest = text;
    while (!status && (line = strsep(&rest, "\n"))) status = read_line(&r, line);
    free(text);
    if (!status && (!d->model[0] || !d->count))
        status = gw_fail(error, GW_INVALID, "%s names no model, or no strategy", path);
    if (status) gw_decisions_free(d);
    return status;
}
