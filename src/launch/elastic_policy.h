/* elastic_policy.h - what an elastic job does when one of its ranks dies: restart it, or go on without it. Has no side
 * effects, except that it probes for a free port. */
#ifndef GW_LAUNCH_ELASTIC_POLICY_H
#define GW_LAUNCH_ELASTIC_POLICY_H

#include "base/clock.h"
#include "base/roster.h"
#include "launch/hosts.h"

typedef enum gw_elastic_fate {
    GW_ELASTIC_FINISHED, /* it ended without an error */
    GW_ELASTIC_RESTART,  /* restart it, in the new generation */
    GW_ELASTIC_WITHOUT,  /* the others go on without it, in the new generation */
    GW_ELASTIC_NOBODY,   /* no worker is left */
    GW_ELASTIC_UNSERVED, /* it was a server, and no other can replace it */
} gw_elastic_fate;

typedef struct gw_elastic_member {
    bool gone;                       /* ended, and not restarted */
    char address[GW_ROSTER_ADDRESS]; /* where its peers last reached it; "": not known */
    int asks;                        /* it waits in gw_regroup for this generation */
    int blames;                      /* the rank whose loss ended its last generation; -1: not known */
    int condemned;                   /* the generation for which it was last killed as late; 0: none */
    gw_time backoff;                 /* the delay before its last restart */
} gw_elastic_member;

typedef struct gw_elastic_options {
    const gw_hosts *hosts;
    int restarts;
    const char *address;     /* rendezvous address of the first generation: that of rank 0 */
    int port;                /* port of that address */
    int port_low, port_high; /* ports that ranks may listen on; 0: any */
    gw_time deadline;        /* how long the others wait for a restarted rank */
} gw_elastic_options;

typedef struct gw_elastic {
    gw_elastic_options options;
    int restarts;               /* restarts left */
    int workers;                /* members below this are workers, the others servers */
    gw_elastic_member *members; /* owned; by member id */
    gw_roster roster;           /* of the current generation */
    bool by_name;               /* the rendezvous address is a host name: the address of the new rank 0 is unknown */
    bool finishing;             /* a worker has finished: a restarted one would be alone, so none is restarted */
    gw_time asked_since;        /* when the first rank asked for the next generation; 0: none has */
} gw_elastic;

/* What to do when ranks ask for the next generation though no rank has died. */
typedef enum gw_elastic_answer {
    GW_ELASTIC_NOTHING,   /* no rank asks, or not all do yet */
    GW_ELASTIC_REGROUPED, /* all ask, and no host is cut off: a new generation has begun */
    GW_ELASTIC_LATE,      /* kill member *which: the others wait, and it does not ask */
    GW_ELASTIC_CUT        /* give up host *which: it is cut off from the others */
} gw_elastic_answer;

gw_status gw_elastic_open(gw_elastic *elastic, const gw_elastic_options *options, gw_error *error);
void gw_elastic_close(gw_elastic *elastic);

/* A member's process has ended. elastic->roster is the new roster, unless FINISHED, NOBODY or UNSERVED is returned. */
gw_elastic_fate gw_elastic_ended(gw_elastic *elastic, int member, bool well);
/* A host was lost with all its members: nothing is started there any more. FINISHED: all of them had ended before. */
gw_elastic_fate gw_elastic_host_lost(gw_elastic *elastic, const gw_host *host);
/* The delay before this member is restarted, after its process ran for `up`. The delay doubles with each early death,
 * up to half the deadline. */
gw_time gw_elastic_backoff(gw_elastic *elastic, int member, gw_time up);
/* Sets the address at which the peers reach a rank. True: it is the new rendezvous address, in a new roster. */
bool gw_elastic_set_address(gw_elastic *elastic, int member, const char *address, size_t bytes);
/* A rank waits in gw_regroup for that generation, because it lost rank `blamed` (-1: not known). */
void gw_elastic_wants_generation(gw_elastic *elastic, int member, int generation, int blamed);
gw_elastic_answer gw_elastic_answer_all(gw_elastic *elastic, gw_time now, int *which);
/* All workers have ended, and none is restarted. */
bool gw_elastic_over(const gw_elastic *elastic);

#endif
