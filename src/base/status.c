/* status.c - filling in errors, and the texts of the status codes. */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>

static gw_status fail(gw_error *error, gw_status status, int rank, const char *format, va_list args) {
    if (error && error->status == GW_OK) {
        error->status = status;
        error->rank = rank;
        vsnprintf(error->text, sizeof error->text, format, args);
    }
    return status;
}

gw_status gw_fail(gw_error *error, gw_status status, const char *format, ...) {
    va_list args;
    va_start(args, format);
    fail(error, status, -1, format, args);
    va_end(args);
    return status;
}

gw_status gw_fail_rank(gw_error *error, gw_status status, int rank, const char *format, ...) {
    va_list args;
    va_start(args, format);
    fail(error, status, rank, format, args);
    va_end(args);
    return status;
}

const char *gw_status_text(gw_status status) {
    switch (status) {
#define GW_STATUS_TEXT(name, value, text)                                                                              \
    case GW_##name: return text;
        GW_STATUS_LIST(GW_STATUS_TEXT)
#undef GW_STATUS_TEXT
    }
    return "not a status of gradwire";
}
