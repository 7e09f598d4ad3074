/* text.h - small text files, read whole and gone through line by line; every complaint names the line. */
#ifndef GW_MODEL_TEXT_H
#define GW_MODEL_TEXT_H

#include "base/status.h"

#define GW_TEXT_LINE_BYTES 512
#define GW_TEXT_FIELDS 16
#define GW_TEXT_FILE_MAX (4u << 20)

typedef struct gw_text {
    const char *at, *end; /* what is left */
    const char *name;     /* of the file, for complaints */
    char separator;       /* between fields; exactly one */
    int number;           /* of the line last read, from 1 */
    char line[GW_TEXT_LINE_BYTES];
    char *fields[GW_TEXT_FIELDS]; /* of that line, in place */
    int count;                    /* of fields */
    gw_error *error;
} gw_text;

/* Goes on to the next line that is neither empty nor a comment (its first letter is #), and splits it. *more is false
 * at the end. A carriage return before the line's end is left out, and the last line may lack its end. */
gw_status gw_text_next(gw_text *lines, bool *more);
/* The same, but stops at comments too: they have no fields (count 0) and stand whole in `line`. */
gw_status gw_text_next_any(gw_text *lines, bool *more);

/* "FILE line N: ..." */
gw_status gw_text_wrong(const gw_text *lines, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A finite number from 0 to highest, in decimal; the whole text. */
bool gw_text_decimal(const char *text, double highest, double *value);

#endif
