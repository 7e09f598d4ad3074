/* crossing.h - packets on their way between the hosts of a lab: kept until they arrive at the receiver's link, then
 * queued there, and handed out at its rate. The clock is the caller's, so tests run it on a virtual one.
 *
 * A link is a token bucket in front of a bounded queue, as the kernel's tbf: gw_link_burst and gw_link_queue say how
 * large. All memory is allocated by open: what does not fit is dropped, as by a full queue. One thread. */
#ifndef GW_LAB_CROSSING_H
#define GW_LAB_CROSSING_H

#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/status.h"

typedef struct gw_crossing gw_crossing;

typedef struct gw_crossed {
    int from, to;
    uint8_t *bytes;
    size_t length;
} gw_crossed;

/* Bytes at this rate (bits per second): the bucket has 1 ms of them, but at least the largest packet plus 16 KiB; the
 * queue 5 ms, but at least four buckets. */
double gw_link_burst(double rate);
double gw_link_queue(double rate);

/* delay_max: the longest that a packet is under way before it arrives at a link. */
gw_status gw_crossing_open(gw_crossing **crossing, int hosts, double rate, gw_time delay_max, gw_error *error);
void gw_crossing_close(gw_crossing *crossing); /* NULL is fine */

/* Room for a packet of host `from`, which the caller fills and sends before it asks for more; NULL: there is none. */
uint8_t *gw_crossing_room(gw_crossing *crossing, int from, size_t length);
/* It reaches the link of host `to` at this time, and takes `wire` bytes there. */
void gw_crossing_send(gw_crossing *crossing, int from, int to, size_t length, size_t wire, gw_time arrival);

/* The next packet that has left its link by now; valid until the next call. False: none. */
bool gw_crossing_take(gw_crossing *crossing, gw_time now, gw_crossed *packet);
/* When something happens next; UINT64_MAX: nothing is under way. */
gw_time gw_crossing_next(const gw_crossing *crossing);

#endif
