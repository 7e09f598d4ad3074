/* congestion.h - the congestion control of sockets. All begin without bbr; tcp may choose it later, by what it measures
 * (transport/tcp/tcp_congestion.h).
 *
 * If bbr is the system's default, a transfer on a fast link takes 1.4 times as long as with cubic, and a kernel timer
 * fires for every packet. A connection that was made with bbr keeps that timer after a switch to cubic, so sockets
 * switch before they listen or connect; an accepted socket inherits its listener's setting. */
#ifndef GW_BOOTSTRAP_CONGESTION_H
#define GW_BOOTSTRAP_CONGESTION_H

#include <stdbool.h>

#define GW_CONGESTION_BYTES 17 /* of a name, with its final zero */

/* The congestion control of a socket; "" if unknown. */
void gw_congestion_of(int fd, char name[GW_CONGESTION_BYTES]);
bool gw_congestion_is_bbr(int fd);
/* Switches from bbr to cubic, if that is available; leaves any other as it is. */
void gw_congestion_leave_bbr(int fd);
/* The congestion control of a new socket; "" if unknown. */
void gw_congestion_default(char name[GW_CONGESTION_BYTES]);

#endif
