/* desk_internal.h - what desk.c (pushes, answers, times) and desk_state.c (saving, coming anew) share. */
#ifndef GW_SERVER_DESK_INTERNAL_H
#define GW_SERVER_DESK_INTERNAL_H

#include "server/desk.h"

/* One worker's part in one parcel. */
typedef struct gw_desk_seat {
    uint64_t clock;
    uint64_t next; /* by rounds: the one after the last in which its push was used */
    uint64_t made; /* by rounds: the worker's own step after the last that it pushed; 0 also: not known */
    bool in;       /* its push is in the round under way */
    bool waiting;  /* an answer is owed, when the rule allows it */
    bool unsafe;   /* and when somebody else has a copy of the push */
    bool unheard;  /* it has not pushed since the desk was restored */
    bool unknown;  /* nor was it there when what was restored was saved: its next push tells its clock */
} gw_desk_seat;

/* Time that passes while a count is not 0. */
typedef struct gw_stopwatch {
    int count;
    gw_time since, total;
} gw_stopwatch;

typedef struct gw_desk_worker {
    bool left;
    uint64_t pushes, late, lost;
    gw_stopwatch held;    /* parcels whose answer is held back */
    gw_stopwatch awaited; /* parcels that others are held back in because of it */
} gw_desk_worker;

struct gw_desk {
    gw_sync_rule rule;
    int workers, parcels, present;
    gw_desk_worker *who;
    gw_desk_seat *seats; /* workers entries for each parcel */
    uint64_t *round;     /* of each parcel */
    bool old;        /* restored from a state that is behind what the workers have seen */
    int heard;       /* seats that were unheard */
};

static inline gw_desk_seat *gw_desk_at(const gw_desk *d, int parcel, int w) {
    return &d->seats[(size_t)parcel * (size_t)d->workers + (size_t)w];
}

#endif
