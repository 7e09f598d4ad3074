/* report_line.h - the lines that the doctor and its probes exchange: a word, then key=value separated by single blanks;
 * the value of `text` is the rest of the line. Values hold no blanks, and keys occur once. */
#ifndef GW_DOCTOR_REPORT_LINE_H
#define GW_DOCTOR_REPORT_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GW_DOCTOR_LINE_BYTES                                                                                           \
    2048 /* with its newline; at most PIPE_BUF, so that lines of several threads do not mix                            \
          */

bool gw_report_line_is(const char *line, const char *word);
/* False if the key is missing or its value does not fit; `value` is then untouched. */
bool gw_report_line_text(const char *line, const char *key, char *value, size_t bytes);
bool gw_report_line_integer(const char *line, const char *key, int64_t low, int64_t high, int *value);
bool gw_report_line_number(const char *line, const char *key, double *value);
/* Reads numbers separated by commas. Returns their number; 0: no such list, or too long. */
int gw_report_line_list(const char *line, const char *key, int64_t low, int64_t high, int *values, int room);

#endif
