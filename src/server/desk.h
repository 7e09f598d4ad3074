/* desk.h - who has pushed what to a server, and who may be answered.
 *
 * What a server owns travels in parcels; each has a clock for every worker, so that a parcel is answered without
 * looking at any other. A rule (sync.h) says when: by rounds, which are complete when all workers but the spare slowest
 * have pushed (bsp, backup), or at once, where an answer is held back while its worker leads the slowest by more than
 * `lead` pushes (asp, ssp). A push of a round that is over is late: it is not used, and answered at once. So is that of
 * a worker that was left behind, and would wait for such as have made its step before.
 *
 * Pushes have numbers: by rounds that of the round, at once that of the worker's own pushes of that parcel. A worker
 * whose answer was lost with a connection pushes again under the same number, and is answered without being used twice.
 * What a desk knows can be saved, and restored by a desk of other workers; one that was restored from something old
 * (a snapshot) is told by the numbers what has been lost since.
 *
 * It also keeps the time: how long answers to each worker were held back, and how long others were held back because of
 * it. Pure: the time is an argument. */
#ifndef GW_SERVER_DESK_H
#define GW_SERVER_DESK_H

#include "base/clock.h"
#include "base/status.h"
#include "sync/sync.h"

typedef enum gw_push {
    GW_PUSH_KEPT,  /* of a round that is not complete */
    GW_PUSH_LAST,  /* it makes its round complete: gw_desk_in says who is in it, gw_desk_next begins the next */
    GW_PUSH_APPLY, /* to be applied now, by itself */
    GW_PUSH_LATE,  /* of a round that is over, or that too few would come to: not to be used */
    GW_PUSH_AGAIN, /* it has been used before: not to be used, only answered */
    GW_PUSH_WRONG  /* of a round that has not begun, or before the answer to the last */
} gw_push;

typedef struct gw_desk gw_desk;

gw_status gw_desk_open(gw_desk **desk, const gw_sync_rule *rule, int workers, int parcels, gw_error *error);
void gw_desk_close(gw_desk *desk); /* NULL is fine */

/* step: the worker's own, which its push is of. */
gw_push gw_desk_push(gw_desk *desk, int parcel, int worker, uint64_t round, uint64_t step, gw_time now);
bool gw_desk_in(const gw_desk *desk, int parcel, int worker); /* its push is in the round under way */
void gw_desk_next(gw_desk *desk, int parcel, gw_time now);
uint64_t gw_desk_round(const gw_desk *desk, int parcel);
/* The number of the worker's next push, as its answer tells it. */
uint64_t gw_desk_number(const gw_desk *desk, int parcel, int worker);
uint64_t gw_desk_clock(const gw_desk *desk, int parcel, int worker); /* pushes of it that were used */

/* The next worker whose answer is due, -1: none. It counts as answered. */
int gw_desk_due(gw_desk *desk, int parcel, gw_time now);

/* A worker says, after a desk was restored, which step it will push next. Answers may be due because of that. */
void gw_desk_made(gw_desk *desk, int parcel, int worker, uint64_t next, gw_time now);

/* A worker makes no more steps: it holds nobody back. Rounds may be complete because of that, and answers due. */
void gw_desk_leave(gw_desk *desk, int worker, gw_time now);
bool gw_desk_left(const gw_desk *desk, int worker);
bool gw_desk_complete(const gw_desk *desk, int parcel); /* enough workers are in the round */
bool gw_desk_idle(const gw_desk *desk);                 /* no answer is owed to anybody */

/* A push is not answered before somebody else has a copy of it (a replica): to be held back from the moment it is used
 * (gw_desk_push, gw_desk_next), until it is safe. By rounds worker is -1: the whole round. */
void gw_desk_unsafe(gw_desk *desk, int parcel, int worker);
void gw_desk_safe(gw_desk *desk, int parcel, int worker);

/* Clocks and rounds as bytes. restore: from memory that is aligned for uint64_t; worker w was the from[w]-th of those
 * saved, or none of them (-1); of the same parcels. old: what has been used since it was saved is lost. Nobody's answer
 * is owed afterwards. */
size_t gw_desk_saved_bytes(const gw_desk *desk);
void gw_desk_save(const gw_desk *desk, void *memory);
bool gw_desk_restore(gw_desk *desk, const void *memory, size_t bytes, const int *from, bool old);
/* The worker comes anew: it is counted as having made that many pushes. */
void gw_desk_admit(gw_desk *desk, int worker, uint64_t clock);
/* A replica's desk is told what the server has used: that push of the worker, or (-1) that round. */
void gw_desk_used(gw_desk *desk, int parcel, int worker, uint64_t number);
/* Of pushes that were used and are lost: steps of that worker, in the parcel that lost most. */
uint64_t gw_desk_lost(const gw_desk *desk, int worker);
/* How many parcels of workers have been pushed since it was restored. */
int gw_desk_heard(const gw_desk *desk);

/* Others are held back at present until this worker pushes. */
bool gw_desk_awaits(const gw_desk *desk, int worker);

typedef struct gw_desk_times {
    uint64_t pushes, late;   /* late ones are among the pushes */
    gw_time held;            /* while an answer to it was held back */
    gw_time held_others;     /* while others were held back because of it */
} gw_desk_times;
gw_desk_times gw_desk_timed(const gw_desk *desk, int worker, gw_time now);
/* Carries times over from a desk with another number of parcels. */
void gw_desk_adopt(gw_desk *desk, const gw_desk *old, gw_time now);

#endif
