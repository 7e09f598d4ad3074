/* trace_commands.h - the parts of gradwire trace: tables (trace_tables.c, trace_path.c), files (trace_export.c). */
#ifndef GW_CLI_TRACE_TRACE_COMMANDS_H
#define GW_CLI_TRACE_TRACE_COMMANDS_H

#include "insight/analyses.h"

typedef struct gw_trace_request {
    const char *title;  /* the capture's name */
    const char *output; /* -o; NULL: not given */
    const char *format; /* csv, chrome; NULL: from the output's name */
    int64_t step;       /* -1: the step of median length */
    int64_t limit;      /* lines; 0: all */
    bool json;
} gw_trace_request;

/* Each prints, and returns the exit code. */
int gw_trace_summary(const gw_view *view, const gw_trace_request *request);
int gw_trace_matrix(const gw_view *view, const gw_trace_request *request);
int gw_trace_messages(const gw_view *view, const gw_trace_request *request);
int gw_trace_path(const gw_view *view, const gw_trace_request *request);
int gw_trace_export(const gw_view *view, const gw_trace_request *request);
int gw_trace_report(const gw_view *view, const gw_trace_request *request);

/* Prints the error, and returns the exit code. */
int gw_trace_complain(const gw_error *error);
/* Formats ns as "12.3 ms". */
const char *gw_trace_time(gw_time ns, char text[32]);

#endif
