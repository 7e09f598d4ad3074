/* elastic.h - what becomes of a job when one of its ranks dies: it is started again, or the others go on without it.
 * Pure but for the choice of a free port. */
#ifndef GW_LAUNCH_ELASTIC_H
#define GW_LAUNCH_ELASTIC_H

#include "base/roll.h"
#include "launch/hosts.h"

typedef enum gw_elastic_fate {
    GW_ELASTIC_FINISHED, /* it ended well */
    GW_ELASTIC_AGAIN,    /* it is to be started again, in the round that has been called */
    GW_ELASTIC_WITHOUT,  /* the others go on without it, in the round that has been called */
    GW_ELASTIC_NOBODY,   /* nobody who works is left */
    GW_ELASTIC_UNSERVED, /* it was a server, and none takes its place */
} gw_elastic_fate;

typedef struct gw_elastic {
    const gw_hosts *hosts;
    int restarts;       /* left */
    int workers;        /* seats below this work, the others serve */
    bool *gone;         /* by seat: ended, for good */
    gw_roll roll;
    int base_port;      /* of round 0 */
} gw_elastic;

/* address, port: where rank 0 of the first round is met. */
gw_status gw_elastic_open(gw_elastic *elastic, const gw_hosts *hosts, int restarts, const char *address, int port,
                          gw_error *error);
void gw_elastic_close(gw_elastic *elastic);

/* A seat's process has ended. *roll is the roll from then on, unless FINISHED, NOBODY or UNSERVED. */
gw_elastic_fate gw_elastic_ended(gw_elastic *elastic, int seat, bool well);
/* Every seat that works has ended for good. */
bool gw_elastic_over(const gw_elastic *elastic);

#endif
