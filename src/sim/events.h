/* events.h - a virtual clock and what happens on it. An event is a member of what it is about (no memory is taken for
 * it), may be moved to another time while it waits, and those of one moment happen in the order in which they were set.
 * Time is in seconds from the beginning. */
#ifndef GW_SIM_EVENTS_H
#define GW_SIM_EVENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct gw_event gw_event;
typedef void gw_event_fn(gw_event *event, void *ctx);

struct gw_event {
    double at;       /* seconds */
    uint64_t order;  /* among those of one moment */
    size_t place;    /* in the heap, from 1; 0: it does not wait */
    gw_event_fn *act;
};

typedef struct gw_events {
    double now;
    uint64_t set, happened;
    gw_event **heap; /* [1 .. count], owned */
    size_t count, room;
    bool failed; /* there was no memory: nothing more happens */
    void *ctx;   /* of every act */
} gw_events;

void gw_events_free(gw_events *events);
/* Sets an event, or moves one that waits, to a time that is not before now. */
void gw_event_set(gw_events *events, gw_event *event, double at);
void gw_event_cancel(gw_events *events, gw_event *event);
/* The next moment; a negative number where nothing waits. */
double gw_events_next(const gw_events *events);
/* Goes to the next moment and lets its first event happen; false where nothing waits. */
bool gw_events_step(gw_events *events);

#endif
