/* wait_times.c - see wait_times.h. */
#include "insight/wait_times.h"

#include <stdlib.h>

static void find_layers(const gw_insight *in, int rank, gw_time low, gw_time high, gw_intervals *layers) {
    static const gw_trace_kind kinds[] = {GW_TRACE_FORWARD, GW_TRACE_BACKWARD};
    size_t count;
    for (int k = 0; k < 2; k++) {
        const gw_insight_event *events = gw_insight_from(in, rank, kinds[k], low, &count);
        for (size_t i = 0; i < count && events[i].is.begin < high; i++)
            gw_intervals_add(layers, events[i].is.begin, events[i].is.end, low, high);
    }
    gw_intervals_join(layers);
}

/* op: the operation that was waited for; NULL: unknown, or this rank began it last. */
static void add_wait(gw_wait_times *w, const gw_operation *op, uint64_t *by_rank) {
    for (size_t i = 0; i < w->parts.count; i++) {
        gw_interval part = w->parts.list[i];
        gw_time until = !op ? part.begin : op->last_begin < part.end ? op->last_begin : part.end;
        gw_intervals_add(&w->all, part.begin, part.end, part.begin, part.end);
        gw_intervals_add(&w->for_ranks, part.begin, until, part.begin, part.end);
        if (by_rank && until > part.begin) by_rank[op->last_rank] += until - part.begin;
    }
}

bool gw_wait_times_find(const gw_insight *in, const gw_operations *ops, int rank, gw_time low, gw_time high,
                        gw_wait_times *w, uint64_t *by_rank) {
    size_t count;
    gw_intervals *all[] = {&w->all, &w->for_ranks, &w->layers, &w->parts};
    for (int i = 0; i < 4; i++) gw_intervals_clear(all[i]);
    const gw_insight_event *events = gw_insight_from(in, rank, GW_TRACE_WAITED, low, &count);
    for (size_t i = 0; i < count && events[i].is.begin < high; i++) {
        const gw_trace_event *is = &events[i].is;
        if (is->channel && !w->layers.count) find_layers(in, rank, low, high, &w->layers);
        gw_intervals_clear(&w->parts);
        gw_intervals_add(&w->parts, is->begin, is->end, low, high);
        if (is->channel) gw_intervals_subtract(&w->parts, &w->layers);
        const gw_operation *op = gw_operations_awaited(ops, rank, is, is->end);
        add_wait(w, op && op->last_rank != rank ? op : NULL, by_rank);
    }
    gw_intervals_join(&w->all);
    gw_intervals_join(&w->for_ranks);
    return !w->all.no_memory && !w->for_ranks.no_memory && !w->layers.no_memory && !w->parts.no_memory;
}

void gw_wait_times_free(gw_wait_times *w) {
    gw_intervals_free(&w->all);
    gw_intervals_free(&w->for_ranks);
    gw_intervals_free(&w->layers);
    gw_intervals_free(&w->parts);
}

uint64_t *gw_wait_times_matrix(const gw_insight *in, const gw_operations *ops) {
    size_t ranks = (size_t)in->rank_count;
    uint64_t *matrix = calloc(ranks * ranks + 1, sizeof *matrix);
    gw_wait_times w = {0};
    bool fits = matrix != NULL;
    for (size_t r = 0; fits && r < ranks; r++)
        fits = gw_wait_times_find(in, ops, (int)r, 0, in->end + 1, &w, matrix + r * ranks);
    gw_wait_times_free(&w);
    if (fits) return matrix;
    free(matrix);
    return NULL;
}
