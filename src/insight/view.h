/* view.h - a capture and everything that is found out about it, made together. */
#ifndef GW_INSIGHT_VIEW_H
#define GW_INSIGHT_VIEW_H

#include "insight/links.h"
#include "insight/messages.h"
#include "insight/operations.h"
#include "insight/path.h"
#include "insight/steps.h"
#include "insight/totals.h"

#define GW_VIEW_BINS 120 /* pieces of time that links are looked at in */

typedef struct gw_view {
    gw_insight *insight;
    gw_messages messages;
    gw_operations operations;
    gw_steps steps;
    gw_links links;
    uint64_t *waits; /* of gw_operations_waits */
} gw_view;

/* Takes over the insight, on failure too. */
gw_status gw_view_make(gw_insight *insight, gw_view *view, gw_error *error);
gw_status gw_view_load(const char *path, gw_view *view, gw_error *error);
void gw_view_free(gw_view *view);

/* Of a step; NULL: of everything. */
gw_status gw_view_path(const gw_view *view, const gw_step_times *step, gw_path *path, gw_error *error);
/* ns that other ranks waited for this one, and that it waited for others. */
void gw_view_blame(const gw_view *view, int rank, gw_time *caused, gw_time *suffered);

#endif
