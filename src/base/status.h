/* status.h - an error is a status and a sentence: who, what, where, and what to do. */
#ifndef GW_BASE_STATUS_H
#define GW_BASE_STATUS_H

#include "gradwire.h"

#define GW_ERROR_TEXT_BYTES 512

typedef struct gw_error {
    gw_status status;               /* GW_OK: there is none, and text is empty */
    int rank;                       /* the rank that caused it, -1 if none did */
    char text[GW_ERROR_TEXT_BYTES]; /* one sentence, no newline */
} gw_error;

/* Writes an error unless *error already holds one (the first cause wins), and returns status. error may be NULL. */
gw_status gw_fail(gw_error *error, gw_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* The same, naming the rank that is to blame. */
gw_status gw_fail_rank(gw_error *error, gw_status status, int rank, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* The statuses that a rank gets when another is lost, whether it is notified or waits in vain. */
static inline bool gw_status_is_loss(gw_status status) {
    return status == GW_PEER_LOST || status == GW_TIMEOUT || status == GW_ABORTED;
}

#endif
