/* ring.c - see ring.h. */
#include "trace/ring.h"

#include <stdlib.h>

bool gw_trace_ring_open(gw_trace_ring *ring, uint64_t places) {
    ring->places = aligned_alloc(64, places * sizeof *ring->places);
    if (!ring->places) return false;
    for (uint64_t i = 0; i < places; i++) {
        atomic_init(&ring->places[i].turn, i);
        ring->places[i].event = (gw_trace_event){0}; /* touched now, not while somebody is being timed */
    }
    ring->mask = places - 1;
    ring->tail = 0;
    atomic_init(&ring->head, 0);
    atomic_init(&ring->dropped, 0);
    return true;
}

void gw_trace_ring_close(gw_trace_ring *ring) {
    free(ring->places);
    ring->places = NULL;
}

bool gw_trace_ring_put(gw_trace_ring *ring, const gw_trace_event *event) {
    uint64_t at = atomic_load_explicit(&ring->head, memory_order_relaxed);
    for (;;) {
        gw_trace_place *place = &ring->places[at & ring->mask];
        uint64_t turn = atomic_load_explicit(&place->turn, memory_order_acquire);
        if (turn < at) { /* still holds an event of the round before */
            atomic_fetch_add_explicit(&ring->dropped, 1, memory_order_relaxed);
            return false;
        }
        if (turn > at) {
            at = atomic_load_explicit(&ring->head, memory_order_relaxed);
        } else if (atomic_compare_exchange_weak_explicit(&ring->head, &at, at + 1, memory_order_relaxed,
                                                         memory_order_relaxed)) {
            place->event = *event;
            atomic_store_explicit(&place->turn, at + 1, memory_order_release);
            return (at & (ring->mask >> 1)) == 0;
        }
    }
}

bool gw_trace_ring_take(gw_trace_ring *ring, gw_trace_event *event) {
    gw_trace_place *place = &ring->places[ring->tail & ring->mask];
    if (atomic_load_explicit(&place->turn, memory_order_acquire) != ring->tail + 1) return false;
    *event = place->event;
    atomic_store_explicit(&place->turn, ring->tail + ring->mask + 1, memory_order_release);
    ring->tail++;
    return true;
}
