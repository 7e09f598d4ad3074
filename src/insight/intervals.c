/* intervals.c - see intervals.h. */
#include "insight/intervals.h"

#include <stdlib.h>

void gw_intervals_add(gw_intervals *s, gw_time begin, gw_time end, gw_time low, gw_time high) {
    if (begin < low) begin = low;
    if (end > high) end = high;
    if (begin >= end) return;
    if (s->count == s->capacity) {
        size_t capacity = s->capacity ? 2 * s->capacity : 64;
        gw_interval *list = realloc(s->list, capacity * sizeof *list);
        s->no_memory |= !list;
        if (!list) return;
        s->list = list;
        s->capacity = capacity;
    }
    s->list[s->count++] = (gw_interval){begin, end};
}

static int by_begin(const void *a, const void *b) {
    const gw_interval *x = a, *y = b;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

void gw_intervals_join(gw_intervals *s) {
    size_t kept = 0;
    if (s->count) qsort(s->list, s->count, sizeof *s->list, by_begin);
    for (size_t i = 0; i < s->count; i++) {
        gw_interval *last = kept ? &s->list[kept - 1] : NULL;
        if (!last || s->list[i].begin > last->end) s->list[kept++] = s->list[i];
        else if (s->list[i].end > last->end) last->end = s->list[i].end;
    }
    s->count = kept;
}

gw_time gw_intervals_length(const gw_intervals *s) {
    gw_time length = 0;
    for (size_t i = 0; i < s->count; i++) length += s->list[i].end - s->list[i].begin;
    return length;
}

gw_time gw_intervals_common(const gw_intervals *a, const gw_intervals *b) {
    gw_time length = 0;
    for (size_t i = 0, k = 0; i < a->count && k < b->count;) {
        gw_time low = a->list[i].begin > b->list[k].begin ? a->list[i].begin : b->list[k].begin;
        gw_time high = a->list[i].end < b->list[k].end ? a->list[i].end : b->list[k].end;
        if (low < high) length += high - low;
        if (a->list[i].end < b->list[k].end) i++;
        else k++;
    }
    return length;
}

void gw_intervals_clear(gw_intervals *s) { s->count = 0; }

void gw_intervals_free(gw_intervals *s) {
    free(s->list);
    *s = (gw_intervals){0};
}
