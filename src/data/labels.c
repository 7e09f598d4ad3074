/* labels.c - labels as a JSON list of small whole numbers. */
#include <stdlib.h>

#include "data/images.h"

typedef struct text_cursor {
    const uint8_t *at, *end;
} text_cursor;

static void skip_space(text_cursor *text) {
    while (text->at < text->end && (*text->at == ' ' || *text->at == '\n' || *text->at == '\r' || *text->at == '\t'))
        text->at++;
}

/* Consumes the character if it is next. */
static bool take(text_cursor *text, char letter) {
    skip_space(text);
    if (text->at == text->end || *text->at != (uint8_t)letter) return false;
    text->at++;
    return true;
}

/* -1: no number up to 255 comes next. */
static int take_label(text_cursor *text) {
    skip_space(text);
    int value = -1;
    while (text->at < text->end && *text->at >= '0' && *text->at <= '9') {
        value = (value < 0 ? 0 : value) * 10 + (*text->at++ - '0');
        if (value > 255) return -1;
    }
    return value;
}

static bool parse(text_cursor *text, gw_blob *labels) {
    if (!take(text, '[')) return false;
    do {
        int label = take_label(text);
        if (label < 0) return false;
        labels->data[labels->size++] = (uint8_t)label;
    } while (take(text, ','));
    if (!take(text, ']')) return false;
    skip_space(text);
    return text->at == text->end;
}

gw_status gw_labels_parse(const uint8_t *text, size_t size, const char *name, gw_blob *labels, gw_error *error) {
    gw_blob parsed;
    gw_status status = gw_blob_allocate(size / 2 + 1, &parsed, error); /* a label takes at least two characters */
    if (status != GW_OK) return status;
    parsed.size = 0;
    text_cursor cursor = {.at = text, .end = text + size};
    if (parse(&cursor, &parsed)) {
        *labels = parsed;
        return GW_OK;
    }
    gw_blob_free(&parsed);
    size_t where = (size_t)(cursor.at - text);
    if (where == size) return gw_fail(error, GW_INVALID, "%s is truncated: a list of labels ends with ]", name);
    return gw_fail(error, GW_INVALID,
                   "%s is not a list of labels at byte %zu; expected was [3,8,...] with numbers from 0 to 255", name,
                   where);
}
