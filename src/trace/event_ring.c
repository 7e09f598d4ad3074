/* event_ring.c - see event_ring.h. */
#include "trace/event_ring.h"

#include <stdlib.h>

bool gw_trace_ring_open(gw_trace_ring *ring, uint64_t slots) {
    ring->slots = aligned_alloc(64, slots * sizeof *ring->slots);
    if (!ring->slots) return false;
    for (uint64_t i = 0; i < slots; i++) {
        atomic_init(&ring->slots[i].sequence, i);
        ring->slots[i].event = (gw_trace_event){0}; /* page faults happen now, not while recording */
    }
    ring->mask = slots - 1;
    ring->tail = 0;
    atomic_init(&ring->head, 0);
    atomic_init(&ring->dropped, 0);
    return true;
}

void gw_trace_ring_close(gw_trace_ring *ring) {
    free(ring->slots);
    ring->slots = NULL;
}

bool gw_trace_ring_put(gw_trace_ring *ring, const gw_trace_event *event) {
    uint64_t at = atomic_load_explicit(&ring->head, memory_order_relaxed);
    for (;;) {
        gw_trace_slot *slot = &ring->slots[at & ring->mask];
        uint64_t sequence = atomic_load_explicit(&slot->sequence, memory_order_acquire);
        if (sequence < at) { /* still holds an event of the previous lap */
            atomic_fetch_add_explicit(&ring->dropped, 1, memory_order_relaxed);
            return false;
        }
        if (sequence > at) {
            at = atomic_load_explicit(&ring->head, memory_order_relaxed);
        } else if (atomic_compare_exchange_weak_explicit(&ring->head, &at, at + 1, memory_order_relaxed,
                                                         memory_order_relaxed)) {
            slot->event = *event;
            atomic_store_explicit(&slot->sequence, at + 1, memory_order_release);
            return (at & (ring->mask >> 1)) == 0;
        }
    }
}

bool gw_trace_ring_take(gw_trace_ring *ring, gw_trace_event *event) {
    gw_trace_slot *slot = &ring->slots[ring->tail & ring->mask];
    if (atomic_load_explicit(&slot->sequence, memory_order_acquire) != ring->tail + 1) return false;
    *event = slot->event;
    atomic_store_explicit(&slot->sequence, ring->tail + ring->mask + 1, memory_order_release);
    ring->tail++;
    return true;
}
