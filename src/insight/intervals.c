/* intervals.c - see intervals.h. */
#include "insight/intervals.h"

#include <stdlib.h>
#include <string.h>

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

/* The first interval of a joined set that ends after `time`. */
static size_t first_after(const gw_intervals *s, gw_time time) {
    size_t low = 0, high = s->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (s->list[middle].end <= time) low = middle + 1;
        else high = middle;
    }
    return low;
}

void gw_intervals_append(gw_intervals *s, const gw_intervals *others) {
    for (size_t i = 0; i < others->count; i++)
        gw_intervals_add(s, others->list[i].begin, others->list[i].end, 0, others->list[i].end);
}

void gw_intervals_append_within(gw_intervals *s, const gw_intervals *joined, gw_time low, gw_time high) {
    for (size_t i = first_after(joined, low); i < joined->count && joined->list[i].begin < high; i++)
        gw_intervals_add(s, joined->list[i].begin, joined->list[i].end, low, high);
}

/* What is left is added behind the set, and then takes its place. */
void gw_intervals_subtract(gw_intervals *s, const gw_intervals *joined) {
    size_t before = s->count;
    if (!before) return;
    for (size_t k = 0; k < before; k++) {
        gw_interval rest = s->list[k];
        for (size_t i = first_after(joined, rest.begin); i < joined->count && joined->list[i].begin < rest.end; i++) {
            gw_intervals_add(s, rest.begin, joined->list[i].begin, rest.begin, rest.end);
            rest.begin = joined->list[i].end;
        }
        gw_intervals_add(s, rest.begin, rest.end, rest.begin, rest.end);
    }
    s->count -= before;
    memmove(s->list, s->list + before, s->count * sizeof *s->list);
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
