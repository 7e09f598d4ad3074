/* pulse.h - how the supervisor of an elastic job's host sees that its ranks are alive: the progress thread of each rank
 * counts up its slot of the memory that holds the roll. A process that computes for minutes still beats; one that is
 * stopped, or whose progress thread hangs, does not. */
#ifndef GW_BASE_PULSE_H
#define GW_BASE_PULSE_H

#include <stdatomic.h>
#include <sys/types.h>

#include "base/clock.h"
#include "base/roll.h"

#define GW_PULSE_AT (64u << 10) /* bytes of the roll's file before the first slot; more than any roll's text */
#define GW_PULSE_ADDRESS 72

/* One slot a seat. The rank writes, the supervisor reads. The program's library and the supervisor may be of different
 * versions: fields keep their places, and new ones take room from the reserve, where 0 means that they are unknown. */
typedef struct gw_pulse_slot {
    _Atomic uint32_t pid;         /* of the process that beats */
    _Atomic uint32_t joined;      /* its memberships: one, or two while it regroups. 0: no beat is due */
    _Atomic uint32_t beats;       /* counts, and wraps */
    _Atomic uint32_t deadline_ms; /* the process's own */
    _Atomic int asks;             /* it waits in gw_regroup for this round, or a later one; 0: it does not */
    _Atomic int blames;           /* the rank that its last round was lost by; -1: not known */
    char address[GW_PULSE_ADDRESS]; /* where it listens, as text; "": not known yet. A reader may see half of it */
    char reserve[160];
} gw_pulse_slot;

#define GW_PULSE_FILE_BYTES (GW_PULSE_AT + GW_ROLL_SEATS_MAX * sizeof(gw_pulse_slot))

/* A process's hold of its slot. */
typedef struct gw_pulse {
    gw_pulse_slot *slot; /* NULL: nobody watches, and nothing is done */
    void *memory;        /* the whole file, mapped */
    pid_t owner;         /* a forked child has no part in it */
} gw_pulse;

/* Beats are due from now on. Where the file cannot be opened for writing nobody watches. */
void gw_pulse_open(gw_pulse *pulse, const char *roll_path, int seat, gw_time deadline);
/* Any thread. */
void gw_pulse_beat(const gw_pulse *pulse);
void gw_pulse_publish(const gw_pulse *pulse, const char *address);
/* The process waits for a round of at least that number, having lost that rank of the last (-1: not known). */
void gw_pulse_ask(const gw_pulse *pulse, int round, int blamed);
/* No beat is due for this membership any more, and none may come. A second call does nothing. */
void gw_pulse_close(gw_pulse *pulse);

/* The supervisor's side: makes the file large enough and maps it; the slots by seat, or NULL and errno. */
gw_pulse_slot *gw_pulse_map(int file);
void gw_pulse_unmap(gw_pulse_slot *slots);

#endif
