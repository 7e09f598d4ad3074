/* steps.h - where the time of a training step goes.
 *
 *   compute   layers, coding, updates: what the caller did itself
 *   waiting   it waited, and another rank had not begun the operation yet
 *   exposed   it waited although all had begun: communication that nothing hid
 *   other     the rest: loading data, the loss, whatever was not recorded
 *   hidden    communication under way while the caller computed; not part of the sum */
#ifndef GW_INSIGHT_STEPS_H
#define GW_INSIGHT_STEPS_H

#include "insight/operations.h"

typedef struct gw_step_part {
    int rank;            /* -1: it did not record this step */
    gw_time begin, end;
    gw_time compute, waiting, exposed, other, hidden;
} gw_step_part;

typedef struct gw_step_times {
    uint64_t number;
    gw_time begin, end;  /* from its first rank to its last */
    gw_time length;      /* mean over the ranks: what a step costs */
    gw_step_part mean;   /* over the ranks; begin and end are those of the step */
    gw_step_part *ranks; /* rank_count entries, of gw_steps.parts */
    size_t recorded;     /* ranks that did */
} gw_step_times;

typedef struct gw_steps {
    gw_step_times *list; /* by number */
    size_t count;
    gw_step_part *parts;
} gw_steps;

gw_status gw_steps_make(const gw_insight *insight, const gw_operations *operations, gw_steps *steps, gw_error *error);
void gw_steps_free(gw_steps *steps);
/* The step of median length; NULL: there is none. */
const gw_step_times *gw_steps_median(const gw_steps *steps);

#endif
