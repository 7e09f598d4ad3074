/* profile.c - see profile.h. */
#include "profile/profile.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/suggest.h"
#include "base/text_file.h"
#include "base/units.h"

#define HEADER "layer,kind,parameter_bytes,forward_us,backward_us"
#define PARAMETER_BYTES_MAX (INT64_C(1) << 50)
#define US_MAX 1e12

enum { FIELDS = 5, ROWS = FIELDS }; /* the column of rows may be left out */

/* "# resnet50, batch 128, one GPU": takes the name up to the first comma, and the batch, if they are given. */
static void read_comment(const char *line, gw_profile *profile) {
    const char *text = line + 1 + strspn(line + 1, " "), *batch = strstr(text, "batch ");
    size_t length = strcspn(text, ", ");
    if (length && length < sizeof profile->name) {
        memcpy(profile->name, text, length);
        profile->name[length] = 0;
    }
    char *end;
    long samples = batch ? strtol(batch + strlen("batch "), &end, 10) : 0;
    if (samples > 0 && samples <= 1 << 24) profile->batch = (int)samples;
}

static gw_status expect_header(const gw_text *lines) {
    static const char *const names[] = {"layer", "kind", "parameter_bytes", "forward_us", "backward_us", "rows"};
    bool good = lines->count == FIELDS || lines->count == FIELDS + 1;
    for (int i = 0; good && i < lines->count; i++) good = strcmp(lines->fields[i], names[i]) == 0;
    return good ? GW_OK : gw_text_wrong(lines, "a profile begins with the header %s", HEADER);
}

static gw_status copy_name(const gw_text *lines, const char *what, const char *text, char *to) {
    if (strlen(text) >= GW_PROFILE_NAME_BYTES)
        return gw_text_wrong(lines, "the %s is longer than %d letters", what, GW_PROFILE_NAME_BYTES - 1);
    strcpy(to, text);
    return GW_OK;
}

static gw_status read_time(const gw_text *lines, const char *what, const char *text, double *us) {
    char quoted[GW_QUOTE_BYTES];
    if (gw_text_decimal(text, US_MAX, us)) return GW_OK;
    return gw_text_wrong(lines, "%s is %s, not a number of microseconds", what, gw_suggest_quote(text, quoted));
}

static gw_status read_rows(const gw_text *lines, gw_profile_layer *layer) {
    int64_t rows, count = (int64_t)(layer->parameter_bytes / 4);
    char quoted[GW_QUOTE_BYTES];
    if (!gw_integer_parse(lines->fields[ROWS], 0, PARAMETER_BYTES_MAX, &rows) || (rows && count % rows))
        return gw_text_wrong(lines, "rows is %s, not a divisor of %lld parameters, or 0",
                             gw_suggest_quote(lines->fields[ROWS], quoted), (long long)count);
    layer->rows = (uint64_t)rows;
    return GW_OK;
}

/* fields: of the header. */
static gw_status read_layer(const gw_text *lines, int fields, gw_profile_layer *layer) {
    char quoted[GW_QUOTE_BYTES];
    int64_t bytes;
    if (lines->count != fields)
        return gw_text_wrong(lines, "it has %d fields, not %d (%s)", lines->count, fields, HEADER);
    *layer = (gw_profile_layer){.rows = 0};
    gw_status status = copy_name(lines, "layer", lines->fields[0], layer->name);
    if (!status) status = copy_name(lines, "kind", lines->fields[1], layer->kind);
    if (status) return status;
    if (!gw_integer_parse(lines->fields[2], 0, PARAMETER_BYTES_MAX, &bytes) || bytes % 4 != 0)
        return gw_text_wrong(lines, "parameter_bytes is %s, not a multiple of 4 (parameters are f32)",
                             gw_suggest_quote(lines->fields[2], quoted));
    layer->parameter_bytes = (uint64_t)bytes;
    status = read_time(lines, "forward_us", lines->fields[3], &layer->forward_us);
    if (!status) status = read_time(lines, "backward_us", lines->fields[4], &layer->backward_us);
    return status || fields == FIELDS ? status : read_rows(lines, layer);
}

static gw_status append(gw_profile *profile, int *room, const gw_profile_layer *layer, const gw_text *lines) {
    if (profile->count == GW_PROFILE_LAYERS_MAX)
        return gw_text_wrong(lines, "there are more than %d layers", GW_PROFILE_LAYERS_MAX);
    if (profile->count == *room) {
        int more = *room ? 2 * *room : 64;
        gw_profile_layer *grown = realloc(profile->layers, (size_t)more * sizeof *grown);
        if (!grown) return gw_fail(lines->error, GW_MEMORY, "no memory for the layers of %s", lines->name);
        profile->layers = grown;
        *room = more;
    }
    profile->layers[profile->count++] = *layer;
    return GW_OK;
}

static gw_status read_layers(gw_text *lines, gw_profile *profile) {
    bool more, comment = false;
    int room = 0, fields = 0;
    for (;;) {
        gw_status status = gw_text_next_any(lines, &more);
        if (status || !more) return status;
        gw_profile_layer layer;
        if (lines->count == 0) {
            if (!comment) read_comment(lines->line, profile);
            comment = true;
        } else if (!fields) {
            status = expect_header(lines);
            fields = lines->count;
        } else {
            status = read_layer(lines, fields, &layer);
            if (!status) status = append(profile, &room, &layer, lines);
        }
        if (status) return status;
    }
}

static void name_after_file(const char *path, gw_profile *profile) {
    const char *slash = strrchr(path, '/');
    size_t length = strcspn(slash ? slash + 1 : path, ".");
    if (length >= sizeof profile->name) length = sizeof profile->name - 1;
    memcpy(profile->name, slash ? slash + 1 : path, length);
}

gw_status gw_profile_parse(const char *bytes, size_t size, const char *name, gw_profile *profile, gw_error *error) {
    gw_text lines = {.at = bytes, .end = bytes + size, .name = name, .separator = ',', .error = error};
    gw_profile made = {.count = 0};
    name_after_file(name, &made);
    gw_status status = read_layers(&lines, &made);
    if (!status && !made.count) status = gw_fail(error, GW_INVALID, "%s has no layers; a profile is: %s", name, HEADER);
    if (status) gw_profile_free(&made);
    else *profile = made;
    return status;
}

gw_status gw_profile_read(const char *path, gw_profile *profile, gw_error *error) {
    char *bytes;
    size_t size;
    gw_status status = gw_file_read(path, GW_TEXT_FILE_MAX, &bytes, &size, error);
    if (status) return status;
    status = gw_profile_parse(bytes, size, path, profile, error);
    free(bytes);
    return status;
}

void gw_profile_free(gw_profile *profile) {
    free(profile->layers);
    *profile = (gw_profile){.count = 0};
}

void gw_profile_print(const gw_profile *profile, FILE *out) {
    fprintf(out, "# %s", profile->name);
    if (profile->batch) fprintf(out, ", batch %d", profile->batch);
    fputs("\n" HEADER "\n", out);
    for (int i = 0; i < profile->count; i++) {
        const gw_profile_layer *layer = &profile->layers[i];
        fprintf(out, "%s,%s,%" PRIu64 ",%.9g,%.9g\n", layer->name, layer->kind, layer->parameter_bytes,
                layer->forward_us, layer->backward_us);
    }
}

static void print(const void *profile, FILE *out) { gw_profile_print(profile, out); }

gw_status gw_profile_write(const gw_profile *profile, const char *path, gw_error *error) {
    return gw_file_replace(path, print, profile, error);
}

int gw_profile_tensors(const gw_profile *profile) {
    int tensors = 0;
    for (int i = 0; i < profile->count; i++)
        tensors += (profile->layers[i].parameter_bytes > 0) + (profile->layers[i].bias_bytes > 0);
    return tensors;
}

uint64_t gw_profile_parameter_bytes(const gw_profile *profile) {
    uint64_t bytes = 0;
    for (int i = 0; i < profile->count; i++) bytes += profile->layers[i].parameter_bytes;
    return bytes;
}

double gw_profile_seconds(const gw_profile *profile) {
    double us = 0;
    for (int i = 0; i < profile->count; i++) us += profile->layers[i].forward_us + profile->layers[i].backward_us;
    return us / 1e6;
}

void gw_profile_scale(gw_profile *profile, double seconds) {
    double scale = seconds / gw_profile_seconds(profile);
    for (int i = 0; i < profile->count; i++) {
        profile->layers[i].forward_us *= scale;
        profile->layers[i].backward_us *= scale;
    }
}
