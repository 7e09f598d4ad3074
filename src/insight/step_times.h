/* step_times.h - where the time of a training step goes: its length is compute + waiting + other.
 *
 *   compute    the caller's own work: layers, coding, updates
 *   waiting    the caller waited (wait_times.h)
 *   for_ranks  the part of waiting in which another rank held this one up
 *   exposed    the rest of waiting: communication that nothing hid
 *   other      everything else: loading data, the loss, an optimiser outside of the library
 *   hidden     communication while the caller computed; not part of the sum
 *
 * The first step of a recording and the first after a pause have no step before them (trace/step_mark.h): nobody knows
 * when they began, and they wait for nothing of a step before. They are listed, but figures of a step leave them out,
 * unless there are no others. */
#ifndef GW_INSIGHT_STEP_TIMES_H
#define GW_INSIGHT_STEP_TIMES_H

#include "insight/wait_times.h"

typedef struct gw_step_part {
    int rank; /* -1: the rank did not record this step */
    gw_time begin, end;
    gw_time compute, waiting, for_ranks, exposed, other, hidden;
} gw_step_part;

typedef struct gw_step_times {
    uint64_t number;
    gw_time begin, end;  /* from the first rank's begin to the last rank's end */
    gw_time length;      /* mean over the ranks */
    gw_step_part mean;   /* over the ranks; begin and end of the step */
    gw_step_part *ranks; /* rank_count entries, in gw_steps.parts */
    size_t recorded;     /* ranks that recorded it */
    bool first;          /* no step ended where it began, on one rank or more */
    uint32_t strategy;   /* name of its line; 0: not recorded */
} gw_step_times;

typedef struct gw_steps {
    gw_step_times *list; /* by number */
    size_t count;
    size_t whole; /* how many are not `first` */
    gw_step_part *parts;
} gw_steps;

gw_status gw_steps_make(const gw_insight *insight, const gw_wait_times *waiting, gw_steps *steps, gw_error *error);
void gw_steps_free(gw_steps *steps);
/* Whether figures of a step take it into account. */
bool gw_steps_count(const gw_steps *steps, const gw_step_times *step);
/* The figures of a rank, summed over the steps that count; begin is 0 and end the sum of lengths. Returns how many. */
uint64_t gw_steps_sum(const gw_steps *steps, int rank, gw_step_part *sum);
/* Of the steps that count, the one of median length; NULL: no steps. */
const gw_step_times *gw_steps_median(const gw_steps *steps);

#endif
