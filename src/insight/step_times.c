/* step_times.c - see step_times.h. */
#include "insight/step_times.h"

#include <stdlib.h>

#include "insight/intervals.h"

typedef struct work {
    gw_intervals compute, waits, late, communication;
} work;

static void add_kind(const gw_insight *in, int rank, gw_trace_kind kind, const gw_step_part *p, gw_intervals *to) {
    size_t count;
    const gw_insight_event *events = gw_insight_from(in, rank, kind, p->begin, &count);
    for (size_t i = 0; i < count && events[i].is.begin < p->end; i++)
        gw_intervals_add(to, events[i].is.begin, events[i].is.end, p->begin, p->end);
}

/* Adds, for each wait for a collective, the time until the last rank had begun it. */
static void add_late(const gw_insight *in, const gw_operations *ops, const gw_step_part *p, gw_intervals *to) {
    size_t count;
    const gw_insight_event *events = gw_insight_from(in, p->rank, GW_TRACE_WAITED, p->begin, &count);
    for (size_t i = 0; i < count && events[i].is.begin < p->end; i++) {
        const gw_trace_event *is = &events[i].is;
        const gw_operation *op = is->end > p->begin ? gw_operations_awaited(ops, p->rank, is, is->end) : NULL;
        if (!op || op->last_rank == p->rank) continue;
        gw_intervals_add(to, is->begin, op->last_begin < is->end ? op->last_begin : is->end, p->begin, p->end);
    }
}

static bool fill_part(const gw_insight *in, const gw_operations *ops, work *w, gw_step_part *p) {
    static const gw_trace_kind own[] = {GW_TRACE_FORWARD, GW_TRACE_BACKWARD, GW_TRACE_APPLIED,
                                        GW_TRACE_ENCODED, GW_TRACE_DECODED,  GW_TRACE_REDUCED};
    gw_intervals *all[] = {&w->compute, &w->waits, &w->late, &w->communication};
    for (int i = 0; i < 4; i++) gw_intervals_clear(all[i]);
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) add_kind(in, p->rank, own[i], p, &w->compute);
    add_kind(in, p->rank, GW_TRACE_WAITED, p, &w->waits);
    add_kind(in, p->rank, GW_TRACE_OPERATION, p, &w->communication);
    add_late(in, ops, p, &w->late);
    bool failed = false;
    for (int i = 0; i < 4; i++) {
        gw_intervals_join(all[i]);
        failed |= all[i]->no_memory;
    }
    gw_time took = p->end - p->begin, waited = gw_intervals_length(&w->waits);
    p->compute = gw_intervals_length(&w->compute) - gw_intervals_common(&w->compute, &w->waits);
    p->waiting = gw_intervals_common(&w->waits, &w->late);
    p->exposed = waited - p->waiting;
    p->other = took > p->compute + waited ? took - p->compute - waited : 0;
    p->hidden = gw_intervals_length(&w->communication) - gw_intervals_common(&w->communication, &w->waits);
    return !failed;
}

static int by_number(const void *a, const void *b) {
    const gw_step_times *x = a, *y = b;
    return x->number < y->number ? -1 : x->number > y->number;
}

/* Every step number once, sorted. */
static size_t list_numbers(const gw_insight *in, gw_step_times *list) {
    size_t count = 0, kept = 0, n;
    for (int r = 0; r < in->rank_count; r++) {
        const gw_insight_event *events = gw_insight_of(in, r, GW_TRACE_STEP, &n);
        for (size_t i = 0; i < n; i++) list[count++].number = events[i].is.number;
    }
    if (count) qsort(list, count, sizeof *list, by_number);
    for (size_t i = 0; i < count; i++)
        if (!kept || list[kept - 1].number != list[i].number) list[kept++] = list[i];
    return kept;
}

static void place_part(gw_steps *steps, const gw_insight_event *e) {
    gw_step_times wanted = {.number = e->is.number};
    gw_step_times *step = bsearch(&wanted, steps->list, steps->count, sizeof *steps->list, by_number);
    gw_step_part *part = &step->ranks[e->rank];
    if (part->rank >= 0) return; /* a repeated number: the first counts */
    *part = (gw_step_part){.rank = e->rank, .begin = e->is.begin, .end = e->is.end};
    if (!step->recorded++ || e->is.begin < step->begin) step->begin = e->is.begin;
    if (e->is.end > step->end) step->end = e->is.end;
}

static void average(gw_step_times *step, int ranks) {
    gw_step_part *mean = &step->mean;
    uint64_t n = step->recorded ? step->recorded : 1;
    *mean = (gw_step_part){.rank = -1, .begin = step->begin, .end = step->end};
    for (int r = 0; r < ranks; r++) {
        const gw_step_part *p = &step->ranks[r];
        if (p->rank < 0) continue;
        step->length += (p->end - p->begin) / n;
        mean->compute += p->compute / n;
        mean->waiting += p->waiting / n;
        mean->exposed += p->exposed / n;
        mean->other += p->other / n;
        mean->hidden += p->hidden / n;
    }
}

gw_status gw_steps_make(const gw_insight *in, const gw_operations *ops, gw_steps *steps, gw_error *error) {
    size_t total = 0, n;
    size_t ranks = (size_t)in->rank_count;
    work w = {0};
    bool fits = true;
    for (int r = 0; r < in->rank_count; r++) {
        gw_insight_of(in, r, GW_TRACE_STEP, &n);
        total += n;
    }
    *steps = (gw_steps){.list = calloc(total + 1, sizeof *steps->list)};
    if (steps->list) steps->count = list_numbers(in, steps->list);
    steps->parts = calloc(steps->count * ranks + 1, sizeof *steps->parts);
    if (!steps->list || !steps->parts) goto memory;
    for (size_t i = 0; i < steps->count; i++) {
        steps->list[i].ranks = steps->parts + i * ranks;
        for (size_t r = 0; r < ranks; r++) steps->list[i].ranks[r].rank = -1;
    }
    for (int r = 0; r < in->rank_count; r++) {
        const gw_insight_event *events = gw_insight_of(in, r, GW_TRACE_STEP, &n);
        for (size_t i = 0; i < n; i++) place_part(steps, &events[i]);
    }
    for (size_t i = 0; fits && i < steps->count * ranks; i++)
        if (steps->parts[i].rank >= 0) fits = fill_part(in, ops, &w, &steps->parts[i]);
    for (size_t i = 0; i < steps->count; i++) average(&steps->list[i], in->rank_count);
    gw_intervals_free(&w.compute);
    gw_intervals_free(&w.waits);
    gw_intervals_free(&w.late);
    gw_intervals_free(&w.communication);
    if (fits) return GW_OK;
memory:
    gw_steps_free(steps);
    return gw_fail(error, GW_MEMORY, "no memory for %zu steps", total);
}

void gw_steps_free(gw_steps *steps) {
    free(steps->list);
    free(steps->parts);
    *steps = (gw_steps){0};
}

static int by_length(const void *a, const void *b) {
    const gw_step_times *x = *(const gw_step_times *const *)a, *y = *(const gw_step_times *const *)b;
    return x->length < y->length ? -1 : x->length > y->length;
}

const gw_step_times *gw_steps_median(const gw_steps *steps) {
    const gw_step_times **sorted = calloc(steps->count + 1, sizeof *sorted), *median = NULL;
    for (size_t i = 0; sorted && i < steps->count; i++) sorted[i] = &steps->list[i];
    if (sorted && steps->count) {
        qsort(sorted, steps->count, sizeof *sorted, by_length);
        median = sorted[steps->count / 2];
    }
    free(sorted);
    return median;
}
