/* step_times.h - where the time of a training step goes.
 *
 *   compute   the caller's own work: layers, coding, updates
 *   waiting   the caller waited, and another rank had not begun the operation yet
 *   exposed   the caller waited and all ranks had begun: communication that nothing hid
 *   other     the rest: loading data, the loss, everything not recorded
 *   hidden    communication while the caller computed; not part of the sum */
#ifndef GW_INSIGHT_STEP_TIMES_H
#define GW_INSIGHT_STEP_TIMES_H

#include "insight/operations.h"

typedef struct gw_step_part {
    int rank; /* -1: the rank did not record this step */
    gw_time begin, end;
    gw_time compute, waiting, exposed, other, hidden;
} gw_step_part;

typedef struct gw_step_times {
    uint64_t number;
    gw_time begin, end;  /* from the first rank's begin to the last rank's end */
    gw_time length;      /* mean over the ranks */
    gw_step_part mean;   /* over the ranks; begin and end of the step */
    gw_step_part *ranks; /* rank_count entries, in gw_steps.parts */
    size_t recorded;     /* ranks that recorded it */
} gw_step_times;

typedef struct gw_steps {
    gw_step_times *list; /* by number */
    size_t count;
    gw_step_part *parts;
} gw_steps;

gw_status gw_steps_make(const gw_insight *insight, const gw_operations *operations, gw_steps *steps, gw_error *error);
void gw_steps_free(gw_steps *steps);
/* The step of median length; NULL: no steps. */
const gw_step_times *gw_steps_median(const gw_steps *steps);

#endif
