/* clock_table.h - which worker has pushed what to a server, and which may be answered.
 *
 * A server's shards are sent in partitions. Each partition has a clock for every worker, so its answers do not depend
 * on other partitions. The rule (gw_sync_rule) decides when a push is answered. By rounds (bsp, backup): a round is
 * complete when all workers but the `spare` slowest have pushed. At once (asp, ssp): an answer is held back while its
 * worker is ahead of the slowest by more pushes than the rule allows. A push of a round that is over is late: it is not
 * used, and answered at once. A straggler's push is late too if its peers have passed that step, so that too few would
 * join its round.
 *
 * Pushes are numbered: by rounds with the number of the round, at once with the count of the worker's own pushes of the
 * partition. A worker that lost an answer with a connection pushes again under the same number; it is answered, and the
 * push is not used twice. A table can be saved, and restored for another set of workers. If the saved state is old (a
 * snapshot), the numbers of later pushes show how many pushes have been lost since.
 *
 * It also measures how long answers to each worker were held back, and how long others were held back because of it.
 * Pure: the time is an argument. */
#ifndef GW_PS_CLOCK_TABLE_H
#define GW_PS_CLOCK_TABLE_H

#include "base/clock.h"
#include "base/status.h"
#include "sync/sync.h"

typedef enum gw_push {
    GW_PUSH_KEPT,  /* of a round that is not complete */
    GW_PUSH_LAST,  /* it completes its round: gw_clock_table_in says which workers are in it, gw_clock_table_next begins
                      the next */
    GW_PUSH_APPLY, /* apply it now, by itself */
    GW_PUSH_LATE,  /* of a round that is over, or that too few workers would join: do not use it */
    GW_PUSH_AGAIN, /* it has been used before: only answer it */
    GW_PUSH_WRONG  /* of a round that has not begun, or before the last push was answered */
} gw_push;

typedef struct gw_clock_table gw_clock_table;

gw_status gw_clock_table_open(gw_clock_table **clocks, const gw_sync_rule *rule, int workers, int partitions,
                              gw_error *error);
void gw_clock_table_close(gw_clock_table *clocks); /* NULL is fine */

/* step: the worker's own number of the step that it pushes. */
gw_push gw_clock_table_push(gw_clock_table *clocks, int partition, int worker, uint64_t round, uint64_t step,
                            gw_time now);
/* Whether the worker's push is in the current round. */
bool gw_clock_table_in(const gw_clock_table *clocks, int partition, int worker);
void gw_clock_table_next(gw_clock_table *clocks, int partition, gw_time now);
uint64_t gw_clock_table_round(const gw_clock_table *clocks, int partition);
int gw_clock_table_joined(const gw_clock_table *clocks, int partition); /* workers in the last complete round */
/* The number of the worker's next push, which its answer contains. */
uint64_t gw_clock_table_number(const gw_clock_table *clocks, int partition, int worker);
/* The number of the worker's pushes that were used. */
uint64_t gw_clock_table_clock(const gw_clock_table *clocks, int partition, int worker);

/* The next worker whose answer is due, -1: none. It counts as answered from now on. */
int gw_clock_table_due(gw_clock_table *clocks, int partition, gw_time now);

/* After a table was restored: the worker will push step `next` next. Answers may become due. */
void gw_clock_table_worker_at_step(gw_clock_table *clocks, int partition, int worker, uint64_t next, gw_time now);

/* A worker makes no more steps, and holds nobody back. Rounds may become complete, and answers due. */
void gw_clock_table_leave(gw_clock_table *clocks, int worker, gw_time now);
bool gw_clock_table_left(const gw_clock_table *clocks, int worker);
bool gw_clock_table_complete(const gw_clock_table *clocks, int partition); /* enough workers are in the round */
bool gw_clock_table_idle(const gw_clock_table *clocks);                    /* no answer is owed */

/* With a replica: an answer is held back from the moment the push is used (gw_clock_table_push, gw_clock_table_next)
 * until the replica has a copy. unsafe begins this time, safe ends it. By rounds worker is -1: the whole round. */
void gw_clock_table_unsafe(gw_clock_table *clocks, int partition, int worker);
void gw_clock_table_safe(gw_clock_table *clocks, int partition, int worker);

/* Clocks and rounds as bytes. restore: memory is aligned for uint64_t; worker w was the from[w]-th of the saved ones,
 * or none of them (-1); partitions are the same. old: pushes that were used after the save are lost. No answer is owed
 * afterwards. False: the bytes do not fit. */
size_t gw_clock_table_saved_bytes(const gw_clock_table *clocks);
void gw_clock_table_save(const gw_clock_table *clocks, void *memory);
bool gw_clock_table_restore(gw_clock_table *clocks, const void *memory, size_t bytes, const int *from, bool old);
/* A restarted worker joins, with that many pushes on its clock. */
void gw_clock_table_admit(gw_clock_table *clocks, int worker, uint64_t clock);
/* For a replica's table: the server has used that push of the worker, or (-1) that round of so many workers. */
void gw_clock_table_used(gw_clock_table *clocks, int partition, int worker, uint64_t number, int joined);
/* Steps of that worker that were used and are lost, in the partition that lost most. */
uint64_t gw_clock_table_lost(const gw_clock_table *clocks, int worker);
/* How many pairs of partition and worker have had a push since it was restored. */
int gw_clock_table_pushed_since_restore(const gw_clock_table *clocks);

/* Whether other workers are held back now until this one pushes. */
bool gw_clock_table_awaits(const gw_clock_table *clocks, int worker);

typedef struct gw_clock_table_times {
    uint64_t pushes, late; /* late ones are among the pushes */
    gw_time held;          /* time that an answer to it was held back */
    gw_time held_others;   /* time that others were held back because of it */
} gw_clock_table_times;
gw_clock_table_times gw_clock_table_timed(const gw_clock_table *clocks, int worker, gw_time now);
/* Copies times from a table with another number of partitions. */
void gw_clock_table_adopt(gw_clock_table *clocks, const gw_clock_table *old, gw_time now);

#endif
