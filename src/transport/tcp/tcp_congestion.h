/* tcp_congestion.h - congestion=auto: which congestion control a connection needs, by what the kernel measures on it.
 *
 * On a short path without loss the one that loss drives (cubic) is faster: bbr sends on a timer, one interrupt for each
 * packet (docs/explanation/transports.md). Where the path has delay, or loses packets at random, bbr is many times as
 * fast. So a connection starts with the former, and changes to bbr when the path shows that it needs it; back, when bbr
 * brings less, or delay and loss have gone. */
#ifndef GW_TRANSPORT_TCP_TCP_CONGESTION_H
#define GW_TRANSPORT_TCP_TCP_CONGESTION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "bootstrap/congestion.h"

/* What the kernel has measured; all but rtt and min_rtt are totals since the connection was made. */
typedef struct gw_tcp_measured {
    uint64_t rtt, min_rtt;            /* ns */
    uint64_t segments, retransmitted; /* with payload; sent, and sent again */
    uint64_t acked;                   /* bytes */
    uint64_t busy;                    /* ns with data in flight or waiting */
} gw_tcp_measured;

/* Owner: the thread that polls. */
typedef struct gw_tcp_congestion {
    bool automatic;                  /* nobody asked for one, and bbr may be used */
    bool bbr;                        /* it is in use */
    char usual[GW_CONGESTION_BYTES]; /* the one for short paths */
    gw_tcp_measured last;            /* at the beginning of the present window */
    gw_time window, changed;         /* when that began; when the control changed last */
    int lossy;                       /* windows with loss, one after the other */
    double usual_rate;               /* bytes per second of busy time before bbr took over; 0: unknown */
    gw_time barred;                  /* bbr brought less: not before this time again */
} gw_tcp_congestion;

/* The pure part: true if the other control is to be used from now on. */
bool gw_tcp_congestion_judge(gw_tcp_congestion *c, const gw_tcp_measured *m, gw_time now);

/* Begins to watch a connection, which uses its usual congestion control. */
void gw_tcp_congestion_begin(gw_tcp_congestion *c, int fd);
/* Looks at the connection and changes its congestion control where it has to. rank: our own, for the log. */
void gw_tcp_congestion_look(gw_tcp_congestion *c, int fd, gw_time now, int rank, int peer);

#endif
