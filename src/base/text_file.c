/* text_file.c - see text_file.h. */
#include "base/text_file.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

gw_status gw_text_wrong(const gw_text *lines, const char *format, ...) {
    char text[GW_ERROR_TEXT_BYTES];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    return gw_fail(lines->error, GW_INVALID, "%s line %d: %s", lines->name, lines->number, text);
}

static bool printable(const char *text) {
    for (; *text; text++)
        if ((unsigned char)*text < ' ' || *text == 127) return false;
    return true;
}

static gw_status take_line(gw_text *lines) {
    const char *newline = memchr(lines->at, '\n', (size_t)(lines->end - lines->at));
    size_t length = (size_t)((newline ? newline : lines->end) - lines->at);
    lines->number++;
    lines->count = 0;
    if (length >= sizeof lines->line)
        return gw_text_wrong(lines, "it is longer than %d letters", GW_TEXT_LINE_BYTES - 1);
    memcpy(lines->line, lines->at, length);
    lines->line[length] = 0;
    lines->at = newline ? newline + 1 : lines->end;
    bool whole = strlen(lines->line) == length;
    if (length && lines->line[length - 1] == '\r') lines->line[length - 1] = 0;
    return whole && printable(lines->line) ? GW_OK : gw_text_wrong(lines, "there are bytes in it that are no text");
}

static gw_status split(gw_text *lines) {
    char *rest = lines->line, *field, separator[2] = {lines->separator, 0};
    while ((field = strsep(&rest, separator))) {
        if (lines->count == GW_TEXT_FIELDS) return gw_text_wrong(lines, "it has more than %d fields", GW_TEXT_FIELDS);
        if (!field[0]) return gw_text_wrong(lines, "field %d is empty", lines->count + 1);
        lines->fields[lines->count++] = field;
    }
    return GW_OK;
}

gw_status gw_text_next_any(gw_text *lines, bool *more) {
    do {
        *more = lines->at < lines->end;
        if (!*more) return GW_OK;
        gw_status status = take_line(lines);
        if (status) return status;
    } while (!lines->line[0]);
    return lines->line[0] == '#' ? GW_OK : split(lines);
}

gw_status gw_text_next(gw_text *lines, bool *more) {
    gw_status status;
    do status = gw_text_next_any(lines, more);
    while (!status && *more && lines->count == 0);
    return status;
}

bool gw_text_decimal(const char *text, double highest, double *value) {
    char *end;
    if (!text[0] || text[strspn(text, "0123456789.e+-")] != 0 || text[0] == '-') return false;
    double number = strtod(text, &end);
    if (*end || !isfinite(number) || number < 0 || number > highest) return false;
    *value = number;
    return true;
}
