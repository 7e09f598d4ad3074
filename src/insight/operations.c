/* operations.c - see operations.h. */
#include "insight/operations.h"

#include <stdlib.h>

static int by_number(const void *a, const void *b) {
    const gw_insight_event *x = *(const gw_insight_event *const *)a, *y = *(const gw_insight_event *const *)b;
    if (x->is.comm != y->is.comm) return x->is.comm < y->is.comm ? -1 : 1;
    if (x->is.number != y->is.number) return x->is.number < y->is.number ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

static int by_end(const void *a, const void *b) {
    const gw_insight_event *x = *(const gw_insight_event *const *)a, *y = *(const gw_insight_event *const *)b;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    return x->is.end < y->is.end ? -1 : x->is.end > y->is.end;
}

static size_t collect(const gw_insight *in, const gw_insight_event **list) {
    size_t count = 0, n;
    for (int r = 0; r < in->rank_count; r++) {
        const gw_insight_event *events = gw_insight_of(in, r, GW_TRACE_OPERATION, &n);
        for (size_t i = 0; i < n; i++) {
            if (events[i].is.comm & GW_TRACE_PAIR) continue;
            if (list) list[count] = &events[i];
            count++;
        }
    }
    return count;
}

static void add(gw_operation *op, const gw_insight_event *e) {
    if (e->is.begin < op->first_begin) op->first_begin = e->is.begin;
    if (e->is.end > op->end) op->end = e->is.end;
    op->ranks++;
    if (e->is.begin < op->last_begin) return;
    op->last_begin = e->is.begin;
    op->last_rank = e->rank;
}

gw_status gw_operations_make(const gw_insight *in, gw_operations *ops, gw_error *error) {
    size_t count = collect(in, NULL);
    *ops = (gw_operations){.list = calloc(count + 1, sizeof *ops->list),
                           .events = calloc(count + 1, sizeof *ops->events),
                           .ended = calloc(count + 1, sizeof *ops->ended), .event_count = count};
    if (!ops->list || !ops->events || !ops->ended) {
        gw_operations_free(ops);
        return gw_fail(error, GW_MEMORY, "no memory for %zu operations", count);
    }
    collect(in, ops->events);
    collect(in, ops->ended);
    qsort(ops->events, count, sizeof *ops->events, by_number);
    qsort(ops->ended, count, sizeof *ops->ended, by_end);
    for (size_t i = 0; i < count; i++) {
        const gw_trace_event *is = &ops->events[i]->is;
        gw_operation *last = ops->count ? &ops->list[ops->count - 1] : NULL;
        if (!last || last->comm != is->comm || last->number != is->number) {
            last = &ops->list[ops->count++];
            *last = (gw_operation){.comm = is->comm, .number = is->number, .name = is->index ? is->index : is->name,
                                   .bytes = is->bytes, .first_begin = is->begin, .at = i};
        }
        add(last, ops->events[i]);
    }
    return GW_OK;
}

void gw_operations_free(gw_operations *ops) {
    free(ops->list);
    free(ops->events);
    free(ops->ended);
    *ops = (gw_operations){0};
}

const gw_operation *gw_operations_find(const gw_operations *ops, uint32_t comm, uint64_t number) {
    size_t low = 0, high = ops->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        const gw_operation *op = &ops->list[middle];
        if (op->comm == comm && op->number == number) return op;
        if (op->comm < comm || (op->comm == comm && op->number < number)) low = middle + 1;
        else high = middle;
    }
    return NULL;
}

const gw_operation *gw_operations_awaited(const gw_operations *ops, int rank, const gw_trace_event *wait, gw_time by) {
    if (wait->comm) return gw_operations_find(ops, wait->comm, wait->number);
    size_t low = 0, high = ops->event_count;
    if (by > wait->end) by = wait->end;
    while (low < high) { /* finds the first that ended later */
        size_t middle = (low + high) / 2;
        const gw_insight_event *e = ops->ended[middle];
        if (e->rank < rank || (e->rank == rank && e->is.end <= by)) low = middle + 1;
        else high = middle;
    }
    const gw_insight_event *last = low ? ops->ended[low - 1] : NULL;
    if (!last || last->rank != rank || last->is.end < wait->begin) return NULL;
    return gw_operations_find(ops, last->is.comm, last->is.number);
}

bool gw_operation_begun(const gw_operations *ops, const gw_operation *op, int rank, gw_time *begin) {
    for (size_t i = op->at; i < op->at + (size_t)op->ranks; i++) {
        if (ops->events[i]->rank != rank) continue;
        *begin = ops->events[i]->is.begin;
        return true;
    }
    return false;
}
