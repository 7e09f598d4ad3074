/* clock_table_internal.h - what clock_table.c (pushes, answers, times) and clock_table_state.c (saved state, restarted
 * workers) share. */
#ifndef GW_PS_CLOCK_TABLE_INTERNAL_H
#define GW_PS_CLOCK_TABLE_INTERNAL_H

#include "ps/clock_table.h"

/* One worker's state in one partition. */
typedef struct gw_clock_table_entry {
    uint64_t clock;     /* pushes of it that were used, or are in the current round */
    uint64_t next;      /* by rounds: one more than the last round in which its push was used */
    uint64_t made;      /* by rounds: one more than the last step that the worker pushed; 0: none, or not known */
    bool in;            /* its push is in the current round */
    bool waiting;       /* an answer is owed, when the rule allows it */
    bool unsafe;        /* its answer also waits until the replica has the push */
    bool no_push_yet;   /* it has not pushed since the table was restored */
    bool clock_unknown; /* it is not in the restored state either: its next push sets its clock */
} gw_clock_table_entry;

/* Time that passes while a count is not 0. */
typedef struct gw_stopwatch {
    int count;
    gw_time since, total;
} gw_stopwatch;

typedef struct gw_clock_table_worker {
    bool left; /* it makes no more steps */
    uint64_t pushes, late, lost;
    gw_stopwatch held;    /* partitions whose answer is held back */
    gw_stopwatch awaited; /* partitions in which others are held back because of it */
} gw_clock_table_worker;

struct gw_clock_table {
    gw_sync_rule rule;
    int workers, partitions;
    int present; /* workers that have not left */
    gw_clock_table_worker *per_worker;
    gw_clock_table_entry *entries; /* one for each worker, partition by partition */
    uint64_t *round;               /* of each partition */
    int *joined;                   /* of each partition: workers in the last complete round */
    bool old;                      /* restored from a state that is behind what the workers have seen */
    int heard;                     /* entries with a push since the table was restored */
};

static inline gw_clock_table_entry *gw_clock_table_at(const gw_clock_table *t, int partition, int w) {
    return &t->entries[(size_t)partition * (size_t)t->workers + (size_t)w];
}

#endif
