/* analyses.h - a capture with all its analyses. */
#ifndef GW_INSIGHT_ANALYSES_H
#define GW_INSIGHT_ANALYSES_H

#include "insight/critical_path.h"
#include "insight/messages.h"
#include "insight/operations.h"
#include "insight/step_times.h"
#include "insight/totals.h"
#include "insight/traffic.h"

#define GW_VIEW_BINS 120 /* time bins of the traffic */

typedef struct gw_view {
    gw_insight *insight;
    gw_messages messages;
    gw_operations operations;
    gw_wait_times waiting;
    gw_steps steps;
    gw_traffic links;
} gw_view;

/* Takes ownership of the insight, also on failure. */
gw_status gw_view_make(gw_insight *insight, gw_view *view, gw_error *error);
gw_status gw_view_load(const char *path, gw_view *view, gw_error *error);
void gw_view_free(gw_view *view);

/* The strategy line of the last step, and how often it changed before; without steps that of the job. "": unknown. */
const char *gw_view_strategy(const gw_view *view, size_t *changes);
/* The critical path of a step; NULL: of the whole recording. */
gw_status gw_view_path(const gw_view *view, const gw_step_times *step, gw_critical_path *path, gw_error *error);
/* caused: ns that other ranks waited for this one; suffered: ns that it waited for others. */
void gw_view_blame(const gw_view *view, int rank, gw_time *caused, gw_time *suffered);

#endif
