/* verdict.h - why a job ended: the first cause, as one sentence and an exit code. */
#ifndef GW_LAUNCH_VERDICT_H
#define GW_LAUNCH_VERDICT_H

#include <stdint.h>

#include "launch/outpost.h"
#include "launch/wire.h"

/* News arrive in the order of the network, not of events: ranks that end with an error because a peer died may be heard
 * of before the peer. A weightier cause that comes within a second is therefore taken for the first. */
typedef enum gw_verdict_weight {
    GW_VERDICT_NONE,
    GW_VERDICT_EXIT_CODE, /* a rank ended with an error */
    GW_VERDICT_DEATH,     /* a rank was killed, or its host was lost */
    GW_VERDICT_FINAL      /* not a rank's doing: counts only as the first, and nothing later does */
} gw_verdict_weight;

typedef struct gw_verdict {
    gw_verdict_weight weight;
    int code; /* exit code of the launcher */
    char text[GW_ERROR_TEXT_BYTES];
} gw_verdict;

/* What a rank is called where people read it. */
typedef struct gw_rank_text {
    char text[32];
} gw_rank_text;
gw_rank_text gw_rank_name(int rank, int workers);

/* Takes the cause if it is weightier than what is known. */
void gw_verdict_set(gw_verdict *verdict, gw_verdict_weight weight, int code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* A rank ("rank 3", "server 0") ended with this wait status; false: all is well. */
bool gw_verdict_exited(gw_verdict *verdict, const char *who, const char *host, int status, uint32_t after_ms);
void gw_verdict_no_start(gw_verdict *verdict, const char *who, const char *host, gw_start_step step, int number,
                         const char *program, const char *directory);
/* The connection to a host has ended, or was given up. */
void gw_verdict_host_lost(gw_verdict *verdict, const gw_outpost *outpost, const char *remote_path);

#endif
