/* ring.h - a bounded queue of events: any thread puts, one thread takes, nobody waits. When it is full an event is
 * dropped and counted. After D. Vyukov's bounded queue: every place carries the turn at which it may be used next.
 *
 * Cost: one compare-and-swap and one cache line an event. */
#ifndef GW_TRACE_RING_H
#define GW_TRACE_RING_H

#include <stdatomic.h>
#include <stdbool.h>

#include "trace/event.h"

typedef struct gw_trace_place {
    _Atomic uint64_t turn;
    gw_trace_event event;
} gw_trace_place;

typedef struct gw_trace_ring {
    gw_trace_place *places;
    uint64_t mask;                      /* places - 1, a power of two less one */
    _Alignas(64) _Atomic uint64_t head; /* the next to be put */
    _Alignas(64) uint64_t tail;         /* the next to be taken; the taker's */
    _Atomic uint64_t dropped;
} gw_trace_ring;

/* places is a power of two. False: no memory. */
bool gw_trace_ring_open(gw_trace_ring *ring, uint64_t places);
void gw_trace_ring_close(gw_trace_ring *ring);
/* True where this event is the first of a new half: the taker should be told. */
bool gw_trace_ring_put(gw_trace_ring *ring, const gw_trace_event *event);
bool gw_trace_ring_take(gw_trace_ring *ring, gw_trace_event *event);

#endif
