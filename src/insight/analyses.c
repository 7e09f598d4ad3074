/* analyses.c - see analyses.h. */
#include "insight/analyses.h"

#include <stdlib.h>

gw_status gw_view_make(gw_insight *in, gw_view *view, gw_error *error) {
    *view = (gw_view){.insight = in};
    gw_status status = gw_messages_make(in, &view->messages, error);
    if (!status) status = gw_operations_make(in, &view->operations, error);
    if (!status) status = gw_wait_times_make(in, &view->operations, &view->waiting, error);
    if (!status) status = gw_steps_make(in, &view->waiting, &view->steps, error);
    if (!status) status = gw_traffic_make(&view->messages, in->end, GW_VIEW_BINS, &view->links, error);
    if (status) gw_view_free(view);
    return status;
}

gw_status gw_view_load(const char *path, gw_view *view, gw_error *error) {
    gw_insight *in = NULL;
    gw_status status = gw_insight_load(path, &in, error);
    return status ? status : gw_view_make(in, view, error);
}

void gw_view_free(gw_view *view) {
    gw_messages_free(&view->messages);
    gw_operations_free(&view->operations);
    gw_steps_free(&view->steps);
    gw_traffic_free(&view->links);
    gw_wait_times_free(&view->waiting);
    gw_insight_close(view->insight);
    *view = (gw_view){0};
}

static const char *job_strategy(const gw_insight *in) {
    for (int r = 0; r < in->rank_count; r++)
        if (in->ranks[r].introduced) return in->ranks[r].about.strategy;
    return "";
}

const char *gw_view_strategy(const gw_view *view, size_t *changes) {
    uint32_t line = 0;
    *changes = 0;
    for (size_t i = 0; i < view->steps.count; i++) {
        uint32_t of_step = view->steps.list[i].strategy;
        *changes += line && of_step && of_step != line;
        if (of_step) line = of_step;
    }
    return line ? gw_insight_name(view->insight, line) : job_strategy(view->insight);
}

/* The latest end of any event, and its rank. */
static gw_time last_end(const gw_insight *in, int *rank) {
    static const gw_trace_kind kinds[] = {GW_TRACE_STEP, GW_TRACE_WAITED, GW_TRACE_OPERATION};
    gw_time end = 0;
    for (int r = 0; r < in->rank_count; r++)
        for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
            size_t last = in->first[(size_t)r * GW_TRACE_KINDS + kinds[k] + 1];
            if (last == in->first[(size_t)r * GW_TRACE_KINDS + kinds[k]] || in->reach[last - 1] <= end) continue;
            end = in->reach[last - 1];
            *rank = r;
        }
    return end;
}

gw_status gw_view_path(const gw_view *view, const gw_step_times *step, gw_critical_path *path, gw_error *error) {
    const gw_insight *in = view->insight;
    int rank = 0;
    gw_time begin = step ? step->begin : 0, end = step ? step->end : last_end(in, &rank);
    for (int r = 0; step && r < in->rank_count; r++)
        if (step->ranks[r].rank >= 0 && step->ranks[r].end == step->end) rank = r;
    return gw_critical_path_find(in, &view->operations, &view->messages, rank, begin, end, path, error);
}

void gw_view_blame(const gw_view *view, int rank, gw_time *caused, gw_time *suffered) {
    size_t ranks = (size_t)view->insight->rank_count;
    *caused = *suffered = 0;
    for (size_t r = 0; r < ranks; r++) {
        *caused += view->waiting.matrix[r * ranks + (size_t)rank];
        *suffered += view->waiting.matrix[(size_t)rank * ranks + r];
    }
}
