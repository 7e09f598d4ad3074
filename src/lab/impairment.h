/* impairment.h - what the network of a lab does to packets: delay, jitter, loss, reordering, duplication, corruption.
 *
 * Every decision is a pure function of the seed, the pair of hosts and the number of the packet on that way (of the
 * time, for jitter). Runs with the same traffic repeat exactly, others as far as their traffic does. */
#ifndef GW_LAB_IMPAIRMENT_H
#define GW_LAB_IMPAIRMENT_H

#include <stdbool.h>

#include "base/clock.h"

/* A reordered packet is this late: packets that follow within that time overtake it. */
#define GW_LATE_MIN (1 * GW_MILLISECOND)
#define GW_LATE_MAX (3 * GW_MILLISECOND)

typedef struct gw_impairment {
    gw_time delay;                            /* one way, from any host to any other */
    gw_time jitter;                           /* the delay wanders between delay - jitter and delay + jitter */
    double loss, reorder, duplicate, corrupt; /* shares of the packets, 0 to 1; a TCP segment is a packet */
    bool sums_right;                          /* corrupt packets get the checksum of what they contain now */
    uint64_t seed;
} gw_impairment;

typedef struct gw_fate {
    bool lost, duplicate, corrupt;
    gw_time late; /* beyond the delay; 0: in order */
    uint32_t bit; /* corrupt: which one flips, to be taken modulo the bits of the payload */
} gw_fate;

/* False: packets are only to be carried at the link's rate. */
bool gw_impairment_any(const gw_impairment *impairment);
/* What happens to packet `number` of those that host `from` sends to host `to`. */
gw_fate gw_impairment_fate(const gw_impairment *impairment, int from, int to, uint64_t number);
/* The delay at this time. It changes slowly enough that packets keep their order. */
gw_time gw_impairment_delay(const gw_impairment *impairment, int from, int to, gw_time now);

#endif
