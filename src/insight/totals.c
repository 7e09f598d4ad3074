/* totals.c - see totals.h. */
#include "insight/totals.h"

#include <stdlib.h>

static int by_time(const void *a, const void *b) {
    const gw_total *x = a, *y = b;
    if (x->kind != y->kind) return x->kind < y->kind ? -1 : 1;
    if (x->time != y->time) return x->time > y->time ? -1 : 1;
    return x->name < y->name ? -1 : x->name > y->name;
}

gw_status gw_totals_make(const gw_insight *in, bool by_name, gw_totals *totals, gw_error *error) {
    size_t names = by_name ? in->name_count : 1, cells = names * GW_TRACE_KINDS, kept = 0;
    gw_total *list = calloc(cells + 1, sizeof *list);
    if (!list) return gw_fail(error, GW_MEMORY, "no memory for %zu totals", cells);
    for (size_t i = 0; i < in->event_count; i++) {
        const gw_trace_event *is = &in->events[i].is;
        uint32_t name = is->kind == GW_TRACE_OPERATION && is->index ? is->index : is->name;
        gw_total *total = &list[(size_t)is->kind * names + (by_name && name < names ? name : 0)];
        total->kind = (gw_trace_kind)is->kind;
        total->name = by_name ? name : 0;
        total->count++;
        total->bytes += is->kind == GW_TRACE_VALUE ? 0 : is->bytes;
        total->time += is->end - is->begin;
        if (is->end - is->begin > total->longest) total->longest = is->end - is->begin;
    }
    for (size_t i = 0; i < cells; i++)
        if (list[i].count) list[kept++] = list[i];
    qsort(list, kept, sizeof *list, by_time);
    *totals = (gw_totals){.list = list, .count = kept};
    return GW_OK;
}

void gw_totals_free(gw_totals *totals) {
    free(totals->list);
    *totals = (gw_totals){0};
}
