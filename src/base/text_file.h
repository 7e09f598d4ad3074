/* text_file.h - parses a small text file line by line; every error names the line. */
#ifndef GW_BASE_TEXT_FILE_H
#define GW_BASE_TEXT_FILE_H

#include "base/status.h"

#define GW_TEXT_LINE_BYTES 512
#define GW_TEXT_FIELDS 16
#define GW_TEXT_FILE_MAX (4u << 20)

typedef struct gw_text {
    const char *at, *end; /* the bytes left */
    const char *name;     /* of the file, for errors */
    char separator;       /* between fields; exactly one */
    int number;           /* of the line last read, from 1 */
    char line[GW_TEXT_LINE_BYTES];
    char *fields[GW_TEXT_FIELDS]; /* of that line, in place */
    int count;                    /* of fields */
    gw_error *error;
} gw_text;

/* Goes to the next line that is neither empty nor a comment (first letter #), and splits it. *more is false at the end.
 * Drops a carriage return at the end of a line; the last line need not end with a newline. */
gw_status gw_text_next(gw_text *lines, bool *more);
/* The same, but stops at comments too: count is 0, and `line` holds the whole comment. */
gw_status gw_text_next_any(gw_text *lines, bool *more);

/* "FILE line N: ..." */
gw_status gw_text_wrong(const gw_text *lines, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The whole text must be a finite decimal number from 0 to highest. */
bool gw_text_decimal(const char *text, double highest, double *value);

#endif
