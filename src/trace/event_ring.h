/* event_ring.h - a bounded queue of events: any thread may put, one thread takes, no thread blocks. When it is full,
 * events are dropped and counted. After D. Vyukov's bounded queue: every slot has the sequence number of its next use.
 *
 * Cost: one compare-and-swap and one cache line an event. */
#ifndef GW_TRACE_EVENT_RING_H
#define GW_TRACE_EVENT_RING_H

#include <stdatomic.h>
#include <stdbool.h>

#include "trace/event.h"

typedef struct gw_trace_slot {
    _Atomic uint64_t sequence;
    gw_trace_event event;
} gw_trace_slot;

typedef struct gw_trace_ring {
    gw_trace_slot *slots;
    uint64_t mask;                      /* slots - 1; the number of slots is a power of two */
    _Alignas(64) _Atomic uint64_t head; /* next to put */
    _Alignas(64) uint64_t tail;         /* next to take; used by the taking thread only */
    _Atomic uint64_t dropped;
} gw_trace_ring;

/* slots is a power of two. False: no memory. */
bool gw_trace_ring_open(gw_trace_ring *ring, uint64_t slots);
void gw_trace_ring_close(gw_trace_ring *ring);
/* True once for every half ring of events: wake the taking thread. */
bool gw_trace_ring_put(gw_trace_ring *ring, const gw_trace_event *event);
bool gw_trace_ring_take(gw_trace_ring *ring, gw_trace_event *event);

#endif
