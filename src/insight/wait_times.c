/* wait_times.c - see wait_times.h. */
#include "insight/wait_times.h"

#include <stdlib.h>

/* The layers of one rank, and what is left of one of its waits. */
typedef struct scratch {
    gw_intervals layers, parts;
} scratch;

static void find_layers(const gw_insight *in, int rank, gw_intervals *layers) {
    static const gw_trace_kind kinds[] = {GW_TRACE_FORWARD, GW_TRACE_BACKWARD};
    size_t count;
    gw_intervals_clear(layers);
    for (int k = 0; k < 2; k++) {
        const gw_insight_event *events = gw_insight_of(in, rank, kinds[k], &count);
        for (size_t i = 0; i < count; i++)
            gw_intervals_add(layers, events[i].is.begin, events[i].is.end, 0, events[i].is.end);
    }
    gw_intervals_join(layers);
}

/* The parts of a wait, up to `until`, in which its caller waited. */
static void find_parts(const gw_trace_event *wait, gw_time until, scratch *s) {
    gw_intervals_clear(&s->parts);
    gw_intervals_add(&s->parts, wait->begin, wait->end, wait->begin, until);
    if (wait->channel) gw_intervals_subtract(&s->parts, &s->layers);
}

static void add_all(const gw_insight *in, int rank, scratch *s, gw_wait_times *w) {
    size_t count;
    const gw_insight_event *waits = gw_insight_of(in, rank, GW_TRACE_WAITED, &count);
    find_layers(in, rank, &s->layers);
    for (size_t i = 0; i < count; i++) {
        find_parts(&waits[i].is, waits[i].is.end, s);
        gw_intervals_append(&w->all[rank], &s->parts);
    }
    gw_intervals_join(&w->all[rank]);
}

/* The waits of all ranks are known. */
static void add_for_ranks(const gw_insight *in, const gw_operations *ops, int rank, scratch *s, gw_wait_times *w) {
    size_t count;
    const gw_insight_event *waits = gw_insight_of(in, rank, GW_TRACE_WAITED, &count);
    find_layers(in, rank, &s->layers);
    for (size_t i = 0; i < count; i++) {
        const gw_operation *op = gw_operations_awaited(ops, rank, &waits[i].is, waits[i].is.end);
        if (!op || op->last_rank == rank) continue;
        find_parts(&waits[i].is, op->last_begin, s);
        gw_intervals_subtract(&s->parts, &w->all[op->last_rank]);
        gw_intervals_append(&w->for_ranks[rank], &s->parts);
        w->matrix[(size_t)rank * (size_t)w->ranks + (size_t)op->last_rank] += gw_intervals_length(&s->parts);
    }
    gw_intervals_join(&w->for_ranks[rank]);
}

gw_status gw_wait_times_make(const gw_insight *in, const gw_operations *ops, gw_wait_times *w, gw_error *error) {
    size_t ranks = (size_t)in->rank_count;
    scratch s = {0};
    *w = (gw_wait_times){.ranks = in->rank_count, .all = calloc(ranks + 1, sizeof *w->all),
                         .for_ranks = calloc(ranks + 1, sizeof *w->for_ranks),
                         .matrix = calloc(ranks * ranks + 1, sizeof *w->matrix)};
    bool fits = w->all && w->for_ranks && w->matrix;
    for (int r = 0; fits && r < w->ranks; r++) add_all(in, r, &s, w);
    for (int r = 0; fits && r < w->ranks; r++) add_for_ranks(in, ops, r, &s, w);
    for (int r = 0; fits && r < w->ranks; r++) fits = !w->all[r].no_memory && !w->for_ranks[r].no_memory;
    fits = fits && !s.layers.no_memory && !s.parts.no_memory;
    gw_intervals_free(&s.layers);
    gw_intervals_free(&s.parts);
    if (fits) return GW_OK;
    gw_wait_times_free(w);
    return gw_fail(error, GW_MEMORY, "no memory for the waiting of %d ranks", in->rank_count);
}

void gw_wait_times_free(gw_wait_times *w) {
    for (int r = 0; r < w->ranks; r++) {
        if (w->all) gw_intervals_free(&w->all[r]);
        if (w->for_ranks) gw_intervals_free(&w->for_ranks[r]);
    }
    free(w->all);
    free(w->for_ranks);
    free(w->matrix);
    *w = (gw_wait_times){0};
}
