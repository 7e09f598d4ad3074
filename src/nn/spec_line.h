/* spec_line.h - splits one line of a model's description into words, and parses the words into settings. */
#ifndef GW_NN_SPEC_LINE_H
#define GW_NN_SPEC_LINE_H

#include "nn/layer.h"

#define GW_LINE_WORDS 16
#define GW_LINE_BYTES 256

typedef struct gw_spec_line {
    int number;               /* from 1 */
    char text[GW_LINE_BYTES]; /* cut at the blanks */
    char *words[GW_LINE_WORDS];
    int count; /* 0: an empty line or a comment */
} gw_spec_line;

/* Reads the line that begins at *text and moves on to the next. Too long a line: error. */
gw_status gw_spec_line_read(gw_spec_line *line, const char **text, gw_error *error);

/* Takes `name WORD` out of the line; *word is NULL if the line has no such name. A name without a word: error. */
gw_status gw_spec_line_take(gw_spec_line *line, const char *name, const char **word, gw_error *error);

/* Parses the words from the first-th on, by the kind's table. */
gw_status gw_spec_line_settings(const gw_spec_line *line, int first, const gw_layer_kind *kind, gw_settings *settings,
                                gw_error *error);

#endif
