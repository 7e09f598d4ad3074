/* step_times.c - see step_times.h. */
#include "insight/step_times.h"

#include <stdlib.h>

typedef struct work {
    gw_intervals compute, communication, waits, for_ranks;
} work;

static void add_kind(const gw_insight *in, gw_trace_kind kind, const gw_step_part *p, gw_intervals *to) {
    size_t count;
    const gw_insight_event *events = gw_insight_from(in, p->rank, kind, p->begin, &count);
    for (size_t i = 0; i < count && events[i].is.begin < p->end; i++)
        gw_intervals_add(to, events[i].is.begin, events[i].is.end, p->begin, p->end);
}

static bool fill_part(const gw_insight *in, const gw_wait_times *waiting, work *w, gw_step_part *p) {
    static const gw_trace_kind own[] = {GW_TRACE_FORWARD, GW_TRACE_BACKWARD, GW_TRACE_APPLIED,
                                        GW_TRACE_ENCODED, GW_TRACE_DECODED,  GW_TRACE_REDUCED};
    gw_intervals *all[] = {&w->compute, &w->communication, &w->waits, &w->for_ranks};
    bool fits = true;
    for (int i = 0; i < 4; i++) gw_intervals_clear(all[i]);
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) add_kind(in, own[i], p, &w->compute);
    add_kind(in, GW_TRACE_OPERATION, p, &w->communication);
    gw_intervals_join(&w->compute);
    gw_intervals_join(&w->communication);
    gw_intervals_append_within(&w->waits, &waiting->all[p->rank], p->begin, p->end);
    gw_intervals_append_within(&w->for_ranks, &waiting->for_ranks[p->rank], p->begin, p->end);
    for (int i = 0; i < 4; i++) fits &= !all[i]->no_memory;
    p->compute = gw_intervals_length(&w->compute) - gw_intervals_common(&w->compute, &w->waits);
    p->waiting = gw_intervals_length(&w->waits);
    p->for_ranks = gw_intervals_length(&w->for_ranks);
    p->exposed = p->waiting - p->for_ranks;
    p->other = p->end - p->begin - p->compute - p->waiting;
    p->hidden = gw_intervals_length(&w->communication) - gw_intervals_common(&w->communication, &w->waits);
    return fits;
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
    step->first |= e->is.index != 0;
    step->strategy = e->is.name;
}

static void average(gw_step_times *step, int ranks) {
    gw_step_part *mean = &step->mean;
    uint64_t n = step->recorded ? step->recorded : 1;
    *mean = (gw_step_part){.rank = -1, .begin = step->begin, .end = step->end};
    for (int r = 0; r < ranks; r++) {
        const gw_step_part *p = &step->ranks[r];
        if (p->rank < 0) continue;
        mean->compute += p->compute / n;
        mean->waiting += p->waiting / n;
        mean->for_ranks += p->for_ranks / n;
        mean->other += p->other / n;
        mean->hidden += p->hidden / n;
    }
    mean->exposed = mean->waiting - mean->for_ranks;
    step->length = mean->compute + mean->waiting + mean->other;
}

gw_status gw_steps_make(const gw_insight *in, const gw_wait_times *waiting, gw_steps *steps, gw_error *error) {
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
        if (steps->parts[i].rank >= 0) fits = fill_part(in, waiting, &w, &steps->parts[i]);
    for (size_t i = 0; i < steps->count; i++) {
        average(&steps->list[i], in->rank_count);
        steps->whole += !steps->list[i].first;
    }
    gw_intervals_free(&w.compute);
    gw_intervals_free(&w.communication);
    gw_intervals_free(&w.waits);
    gw_intervals_free(&w.for_ranks);
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

bool gw_steps_count(const gw_steps *steps, const gw_step_times *step) { return !step->first || !steps->whole; }

uint64_t gw_steps_sum(const gw_steps *steps, int rank, gw_step_part *sum) {
    uint64_t counted = 0;
    *sum = (gw_step_part){.rank = rank};
    for (size_t i = 0; i < steps->count; i++) {
        const gw_step_part *p = &steps->list[i].ranks[rank];
        if (p->rank < 0 || !gw_steps_count(steps, &steps->list[i])) continue;
        counted++;
        sum->end += p->end - p->begin;
        sum->compute += p->compute;
        sum->waiting += p->waiting;
        sum->for_ranks += p->for_ranks;
        sum->exposed += p->exposed;
        sum->other += p->other;
        sum->hidden += p->hidden;
    }
    return counted;
}

const gw_step_times *gw_steps_median(const gw_steps *steps) {
    const gw_step_times **sorted = calloc(steps->count + 1, sizeof *sorted), *median = NULL;
    size_t counted = 0;
    for (size_t i = 0; sorted && i < steps->count; i++)
        if (gw_steps_count(steps, &steps->list[i])) sorted[counted++] = &steps->list[i];
    if (counted) {
        qsort(sorted, counted, sizeof *sorted, by_length);
        median = sorted[counted / 2];
    }
    free(sorted);
    return median;
}
