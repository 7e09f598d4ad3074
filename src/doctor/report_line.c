/* report_line.c - see report_line.h. */
#include "doctor/report_line.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/units.h"

bool gw_report_line_is(const char *line, const char *word) {
    size_t length = strlen(word);
    return strncmp(line, word, length) == 0 && (line[length] == ' ' || line[length] == 0);
}

/* The value of a key and its length; NULL: no such key. */
static const char *find(const char *line, const char *key, size_t *length) {
    size_t key_length = strlen(key);
    for (const char *at = strchr(line, ' '); at; at = strchr(at, ' ')) {
        at++;
        bool rest = strncmp(at, "text=", 5) == 0; /* the rest of the line has no keys */
        if (strncmp(at, key, key_length) == 0 && at[key_length] == '=') {
            at += key_length + 1;
            *length = rest ? strlen(at) : strcspn(at, " ");
            return at;
        }
        if (rest) return NULL;
    }
    return NULL;
}

bool gw_report_line_text(const char *line, const char *key, char *value, size_t bytes) {
    size_t length;
    const char *found = find(line, key, &length);
    if (!found || length >= bytes) return false;
    memcpy(value, found, length);
    value[length] = 0;
    return true;
}

bool gw_report_line_integer(const char *line, const char *key, int64_t low, int64_t high, int *value) {
    return gw_report_line_list(line, key, low, high, value, 1) == 1;
}

bool gw_report_line_number(const char *line, const char *key, double *value) {
    char text[64], *end;
    if (!gw_report_line_text(line, key, text, sizeof text) || !text[0]) return false;
    double number = strtod(text, &end);
    if (*end || !isfinite(number)) return false;
    *value = number;
    return true;
}

int gw_report_line_list(const char *line, const char *key, int64_t low, int64_t high, int *values, int room) {
    char text[256], *rest = text, *word;
    int count = 0;
    if (!gw_report_line_text(line, key, text, sizeof text)) return 0;
    while ((word = strsep(&rest, ","))) {
        int64_t number;
        if (count == room || !gw_integer_parse(word, low, high, &number)) return 0;
        values[count++] = (int)number;
    }
    return count;
}
