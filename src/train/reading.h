/* reading.h - one line of a model's description as words, and the words as settings. */
#ifndef GW_TRAIN_READING_H
#define GW_TRAIN_READING_H

#include "train/layer.h"

#define GW_LINE_WORDS 16
#define GW_LINE_BYTES 256

typedef struct gw_line {
    int number;               /* from 1 */
    char text[GW_LINE_BYTES]; /* cut at the blanks */
    char *words[GW_LINE_WORDS];
    int count; /* 0: nothing but a comment */
} gw_line;

/* Reads the line that begins at *text and moves on to the next. Too long a line: error. */
gw_status gw_line_read(gw_line *line, const char **text, gw_error *error);

/* Takes `name WORD` out of the line; NULL where it is not there. A name without a word: error. */
gw_status gw_line_take(gw_line *line, const char *name, const char **word, gw_error *error);

/* The words from the first-th on, after the kind's table. */
gw_status gw_line_settings(const gw_line *line, int first, const gw_layer_kind *kind, gw_settings *settings,
                           gw_error *error);

#endif
