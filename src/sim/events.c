/* events.c - see events.h. A binary heap. */
#include "sim/events.h"

#include <stdlib.h>

static bool before(const gw_event *a, const gw_event *b) {
    return a->at < b->at || (a->at == b->at && a->order < b->order);
}

static void put(gw_events *events, size_t place, gw_event *event) {
    events->heap[place] = event;
    event->place = place;
}

static void rise(gw_events *events, size_t place) {
    gw_event *event = events->heap[place];
    for (; place > 1 && before(event, events->heap[place / 2]); place /= 2) put(events, place, events->heap[place / 2]);
    put(events, place, event);
}

static void sink(gw_events *events, size_t place) {
    gw_event *event = events->heap[place];
    for (;;) {
        size_t child = 2 * place;
        if (child > events->count) break;
        if (child < events->count && before(events->heap[child + 1], events->heap[child])) child++;
        if (!before(events->heap[child], event)) break;
        put(events, place, events->heap[child]);
        place = child;
    }
    put(events, place, event);
}

static bool grow(gw_events *events) {
    if (events->count + 1 < events->room) return true;
    size_t room = events->room ? 2 * events->room : 1024;
    gw_event **heap = realloc(events->heap, room * sizeof(gw_event *));
    if (!heap) {
        events->failed = true;
        return false;
    }
    events->heap = heap;
    events->room = room;
    return true;
}

void gw_event_set(gw_events *events, gw_event *event, double at) {
    event->at = at < events->now ? events->now : at;
    event->order = events->set++;
    if (event->place) {
        sink(events, event->place);
        rise(events, event->place);
    } else if (grow(events)) {
        put(events, ++events->count, event);
        rise(events, events->count);
    }
}

void gw_event_cancel(gw_events *events, gw_event *event) {
    size_t place = event->place;
    if (!place) return;
    gw_event *last = events->heap[events->count--];
    event->place = 0;
    if (last == event) return;
    put(events, place, last);
    sink(events, place);
    rise(events, last->place);
}

double gw_events_next(const gw_events *events) { return events->count ? events->heap[1]->at : -1; }

bool gw_events_step(gw_events *events) {
    if (!events->count || events->failed) return false;
    gw_event *event = events->heap[1];
    gw_event_cancel(events, event);
    events->now = event->at;
    events->happened++;
    event->act(event, events->ctx);
    return true;
}

void gw_events_free(gw_events *events) {
    free(events->heap);
    *events = (gw_events){.heap = NULL};
}
