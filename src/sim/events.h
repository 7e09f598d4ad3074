/* events.h - a virtual clock and its event queue. An event is a member of the struct that it concerns, so it needs no
 * allocation. A pending event can be moved to another time. Events of the same time happen in the order in which they
 * were set. Time is in seconds from the beginning. */
#ifndef GW_SIM_EVENTS_H
#define GW_SIM_EVENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct gw_event gw_event;
typedef void gw_event_fn(gw_event *event, void *ctx);

struct gw_event {
    double at;      /* seconds */
    uint64_t order; /* among events of the same time */
    size_t place;   /* index in the heap, from 1; 0: not pending */
    gw_event_fn *act;
};

typedef struct gw_events {
    double now;
    uint64_t set, happened;
    gw_event **heap; /* [1 .. count], owned */
    size_t count, room;
    bool failed; /* out of memory: no further event happens */
    void *ctx;   /* passed to every act */
} gw_events;

void gw_events_free(gw_events *events);
/* Sets an event, or moves a pending one. A time in the past means now. */
void gw_event_set(gw_events *events, gw_event *event, double at);
void gw_event_cancel(gw_events *events, gw_event *event);
/* Time of the next event; negative: none is pending. */
double gw_events_next(const gw_events *events);
/* Advances the clock to the next event and runs it; false: none is pending. */
bool gw_events_step(gw_events *events);

#endif
