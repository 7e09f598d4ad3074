/* order.c - the two ways to choose the next piece that policies share. */
#include "schedule/schedule_internal.h"

int gw_order_produced(const gw_schedule *s) {
    if (s->piece_count == 0) return -1;
    return s->pieces[s->cursor].state == GW_PIECE_READY ? s->cursor : -1;
}

int gw_order_priority(const gw_schedule *s, size_t credit) {
    int best = -1;
    for (int p = 0; p < s->piece_count; p++)
        if (s->pieces[p].state == GW_PIECE_READY && (best < 0 || s->pieces[p].priority < s->pieces[best].priority))
            best = p;
    if (best >= 0 && s->in_flight && s->in_flight_bytes + s->pieces[best].bytes > credit) return -1;
    return best;
}
