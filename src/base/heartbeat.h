/* heartbeat.h - lets the supervisor of an elastic job's host see that its ranks are alive: the progress thread of each
 * rank counts in its slot of the memory that holds the roster. A process that computes for minutes still beats; one
 * that is stopped, or whose progress thread hangs, does not. */
#ifndef GW_BASE_HEARTBEAT_H
#define GW_BASE_HEARTBEAT_H

#include <stdatomic.h>
#include <sys/types.h>

#include "base/clock.h"
#include "base/roster.h"

#define GW_HEARTBEAT_AT                                                                                                \
    (64u << 10) /* bytes of the roster's file before the first slot; more than any roster's text                       \
                 */
#define GW_HEARTBEAT_ADDRESS 72

/* One slot per member. The rank writes, the supervisor reads. The program's library and the supervisor may be of
 * different versions: fields keep their offsets, and new ones take space from the reserve, where 0 means unknown. */
typedef struct gw_heartbeat_slot {
    _Atomic uint32_t pid;         /* of the process that beats */
    _Atomic uint32_t joined;      /* memberships of that process: one, or two while it regroups; 0: no beat is due */
    _Atomic uint32_t beats;       /* counter; wraps */
    _Atomic uint32_t deadline_ms; /* the process's own deadline */
    _Atomic int asks;             /* it waits in gw_regroup for this generation or a later one; 0: it does not wait */
    _Atomic int blames;           /* the rank whose loss ended its last generation; -1: not known */
    char address[GW_HEARTBEAT_ADDRESS]; /* where it listens, as text; "": not known yet. A reader may see half of it */
    char reserve[160];
} gw_heartbeat_slot;

#define GW_HEARTBEAT_FILE_BYTES (GW_HEARTBEAT_AT + GW_ROSTER_MEMBERS_MAX * sizeof(gw_heartbeat_slot))

/* A process's handle of its slot. */
typedef struct gw_heartbeat {
    gw_heartbeat_slot *slot; /* NULL: nobody watches, and all calls do nothing */
    void *memory;            /* the whole file, mapped */
    pid_t owner;             /* which process opened it; a forked child does not end the membership */
} gw_heartbeat;

/* Beats are due from now on. If the file cannot be opened for writing, nobody watches. */
void gw_heartbeat_open(gw_heartbeat *heartbeat, const char *roster_path, int member, gw_time deadline);
/* Any thread. */
void gw_heartbeat_beat(const gw_heartbeat *heartbeat);
void gw_heartbeat_publish(const gw_heartbeat *heartbeat, const char *address);
/* The process waits for this generation or a later one. blamed: the rank whose loss ended the last (-1: not known). */
void gw_heartbeat_await(const gw_heartbeat *heartbeat, int generation, int blamed);
/* No beat is due for this membership any more, and none may follow. A second call does nothing. */
void gw_heartbeat_close(gw_heartbeat *heartbeat);

/* The supervisor's side: makes the file large enough and maps it. Returns the slots by member id, or NULL and errno. */
gw_heartbeat_slot *gw_heartbeat_map(int file);
void gw_heartbeat_unmap(gw_heartbeat_slot *slots);

#endif
