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
    int asks;                      /* it waits in gw_regroup for this round */
    int blames;                    /* the rank that it lost in the last; -1: not known */
    int condemned;                 /* the round in which it was last found to hold up the others; 0: never */
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
    bool by_name;        /* the meeting is at a host by its name: nobody has met the new rank 0 there yet */
    bool finishing;      /* a worker has ended well: nobody is started again, to begin alone */
    gw_time asked_since; /* when the first rank asked for the next round; 0: none has */
} gw_elastic;

/* What to do when ranks ask for the next round and nobody has died. */
typedef enum gw_elastic_answer {
    GW_ELASTIC_NOTHING, /* nobody asks, or not all do yet */
    GW_ELASTIC_CALLED,  /* all ask, and agree on what happened: they have been called together again */
    GW_ELASTIC_LATE,    /* *which is a seat that does not ask, while the others wait for it: to be killed */
    GW_ELASTIC_CUT      /* *which is a host, cut off from the others: to be given up */
} gw_elastic_answer;

gw_status gw_elastic_open(gw_elastic *elastic, const gw_elastic_options *options, gw_error *error);
void gw_elastic_close(gw_elastic *elastic);

/* A seat's process has ended. *roll is the roll from then on, unless FINISHED, NOBODY or UNSERVED. */
gw_elastic_fate gw_elastic_ended(gw_elastic *elastic, int seat, bool well);
/* A host was lost, with all its seats: nothing is started there any more. FINISHED: it had nothing left to do. */
gw_elastic_fate gw_elastic_host_lost(gw_elastic *elastic, const gw_host *host);
/* How long to wait before this seat is started again, having been up for so long. Ranks that end again and again wait
 * longer each time, up to half the deadline. */
gw_time gw_elastic_backoff(gw_elastic *elastic, int seat, gw_time up);
/* A rank listens there, as the others see it. True: they are to meet there, and *roll is another. */
bool gw_elastic_met(gw_elastic *elastic, int seat, const char *address, size_t bytes);
/* A rank waits in gw_regroup for that round. */
void gw_elastic_asked(gw_elastic *elastic, int seat, int round, int blamed);
gw_elastic_answer gw_elastic_answer_all(gw_elastic *elastic, gw_time now, int *which);
/* Every seat that works has ended for good. */
bool gw_elastic_over(const gw_elastic *elastic);

#endif
