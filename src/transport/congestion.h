/* congestion.h - the congestion control of sockets.
 *
 * Where bbr is the system's default a transfer on a fast link takes 1.4 times as long as with cubic, and a timer of the
 * kernel fires for every packet. A connection that was made with bbr keeps that timer when it leaves bbr, so sockets
 * leave it before they listen or connect; one that is accepted begins as its listener is. */
#ifndef GW_TRANSPORT_CONGESTION_H
#define GW_TRANSPORT_CONGESTION_H

#include <stdbool.h>

#define GW_CONGESTION_BYTES 17 /* of a name, with its end */

bool gw_congestion_is_bbr(int fd);
/* From bbr to cubic, if there is cubic; any other is left alone. */
void gw_congestion_leave_bbr(int fd);
/* What a new socket has; "" if that cannot be told. */
void gw_congestion_default(char name[GW_CONGESTION_BYTES]);

#endif
