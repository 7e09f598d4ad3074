/* verdict.h - why a job ended: the first cause, as one sentence and an exit code. */
#ifndef GW_LAUNCH_VERDICT_H
#define GW_LAUNCH_VERDICT_H

#include <stdint.h>

#include "launch/host_connection.h"
#include "launch/launch_protocol.h"

/* Reports arrive in the order of the network, not of the events: ranks that fail because a peer died may be reported
 * before that peer. So a weightier cause that arrives within a second replaces the first. */
typedef enum gw_verdict_weight {
    GW_VERDICT_NONE,
    GW_VERDICT_FOLLOWED,  /* a rank exited and said that another is the cause (GW_JOB_FOLLOWED) */
    GW_VERDICT_EXIT_CODE, /* a rank exited with an error */
    GW_VERDICT_DEATH,     /* a rank was killed, or its host was lost */
    GW_VERDICT_FINAL      /* no rank is the cause: counts only if it is the first, and nothing replaces it */
} gw_verdict_weight;

typedef struct gw_verdict {
    gw_verdict_weight weight;
    int code; /* exit code of the launcher */
    char text[GW_ERROR_TEXT_BYTES];
} gw_verdict;

/* The name of a rank in messages: "rank 3" or "server 0". */
typedef struct gw_rank_text {
    char text[32];
} gw_rank_text;
gw_rank_text gw_rank_name(int rank, int workers);

/* Sets the cause if it is weightier than the current one. */
void gw_verdict_set(gw_verdict *verdict, gw_verdict_weight weight, int code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* A rank (`who`: gw_rank_name) exited with this wait status; false: without an error. */
bool gw_verdict_exited(gw_verdict *verdict, const char *who, const char *host, int status, uint32_t after_ms);
void gw_verdict_no_start(gw_verdict *verdict, const char *who, const char *host, gw_start_step step, int number,
                         const char *program, const char *directory);
/* The connection to a host has ended, or was given up. */
void gw_verdict_host_lost(gw_verdict *verdict, const gw_host_connection *connection, const char *remote_path);

#endif
