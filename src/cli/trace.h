/* trace.h - the parts of gradwire trace: tables (trace_tables.c, trace_path.c), files (trace_export.c). */
#ifndef GW_CLI_TRACE_H
#define GW_CLI_TRACE_H

#include "insight/view.h"

typedef struct gw_trace_request {
    const char *title;  /* the capture's name */
    const char *output; /* -o; NULL: not given */
    const char *format; /* csv, chrome; NULL: by the output's name */
    int64_t step;       /* -1: the median one */
    int64_t limit;      /* lines; 0: all */
    bool json;
} gw_trace_request;

/* Each prints, and gives the exit code. */
int gw_trace_summary(const gw_view *view, const gw_trace_request *request);
int gw_trace_matrix(const gw_view *view, const gw_trace_request *request);
int gw_trace_messages(const gw_view *view, const gw_trace_request *request);
int gw_trace_path(const gw_view *view, const gw_trace_request *request);
int gw_trace_export(const gw_view *view, const gw_trace_request *request);
int gw_trace_report(const gw_view *view, const gw_trace_request *request);

/* Says what went wrong, and returns the exit code. */
int gw_trace_complain(const gw_error *error);
/* "12.3 ms" and the like of ns. */
const char *gw_trace_time(gw_time ns, char text[32]);

#endif
