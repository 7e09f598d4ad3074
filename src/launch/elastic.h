/* elastic.h - what becomes of a job when one of its ranks dies: it is started again, or the others go on without it.
 * Pure but for the choice of a free port. */
#ifndef GW_LAUNCH_ELASTIC_H
#define GW_LAUNCH_ELASTIC_H

#include "base/clock.h"
#include "base/roll.h"
#include "launch/hosts.h"

typedef enum gw_elastic_fate {
    GW_ELASTIC_FINISHED, /* it ended well */
    GW_ELASTIC_AGAIN,    /* it is to be started again, in the round that has been called */
    GW_ELASTIC_WITHOUT,  /* the others go on without it, in the round that has been called */
    GW_ELASTIC_NOBODY,   /* nobody who works is left */
    GW_ELASTIC_UNSERVED, /* it was a server, and none takes its place */
} gw_elastic_fate;

typedef struct gw_elastic_seat {
    bool gone;                     /* ended, for good */
    char address[GW_ROLL_ADDRESS]; /* where its rank was last met; "": not known */
    gw_time backoff;               /* how long it waited before it was last started again */
} gw_elastic_seat;

typedef struct gw_elastic_options {
    const gw_hosts *hosts;
    int restarts;
    const char *address;     /* where rank 0 of the first round is met */
    int port;                /* likewise */
    int port_low, port_high; /* where ranks may listen; 0: anywhere */
    gw_time deadline;        /* for how long the others wait for a rank that is started again */
} gw_elastic_options;

typedef struct gw_elastic {
    gw_elastic_options options;
    int restarts;           /* left */
    int workers;            /* seats below this work, the others serve */
    gw_elastic_seat *seats; /* owned */
    gw_roll roll;
} gw_elastic;

gw_status gw_elastic_open(gw_elastic *elastic, const gw_elastic_options *options, gw_error *error);
void gw_elastic_close(gw_elastic *elastic);

/* A seat's process has ended. *roll is the roll from then on, unless FINISHED, NOBODY or UNSERVED. */
gw_elastic_fate gw_elastic_ended(gw_elastic *elastic, int seat, bool well);
/* A host was lost, with all its seats: nothing is started there any more. FINISHED: it had nothing left to do. */
gw_elastic_fate gw_elastic_host_lost(gw_elastic *elastic, const gw_host *host);
/* How long to wait before this seat is started again, having been up for so long. Ranks that end again and again wait
 * longer each time, up to half the deadline. */
gw_time gw_elastic_backoff(gw_elastic *elastic, int seat, gw_time up);
/* A rank listens there, as the others see it. */
void gw_elastic_met(gw_elastic *elastic, int seat, const char *address, size_t bytes);
/* Every seat that works has ended for good. */
bool gw_elastic_over(const gw_elastic *elastic);

#endif
