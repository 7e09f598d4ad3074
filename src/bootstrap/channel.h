/* channel.h - a socket after its handshake, for the rendezvous and the control plane, which carry little: a stream of
 * bytes, in sealed records (seal.h) where the connection's keys say so.
 *
 *     record: length of the body (4 bytes), body (1 to 4096 bytes), tag (16 bytes)
 *
 * Non-blocking; one thread at a time. Cost: 1 us for a record of 512 bytes on either side, 2 us for one of 4096. */
#ifndef GW_BOOTSTRAP_CHANNEL_H
#define GW_BOOTSTRAP_CHANNEL_H

#include <sys/types.h>

#include "bootstrap/seal.h"

typedef struct gw_channel gw_channel;

/* Takes the socket, also on failure; the keys are not needed any more. */
gw_status gw_channel_open(gw_channel **channel, int fd, const gw_traffic_keys *keys, gw_error *error);
/* Closes the socket. NULL is fine. */
void gw_channel_close(gw_channel *channel);
int gw_channel_fd(const gw_channel *channel); /* to wait on; -1 for NULL */

/* As send(): the number of bytes taken, which may be fewer; -1 and errno, EAGAIN among them. Bytes taken may still have
 * to be sent: see gw_channel_flush. */
ssize_t gw_channel_send(gw_channel *channel, const void *bytes, size_t count);
/* Sends what was taken before. True: nothing is left, or the connection is broken, which receive reports. */
bool gw_channel_flush(gw_channel *channel);
/* As recv(): EBADMSG means that these are not the bytes that the peer has sent. */
ssize_t gw_channel_receive(gw_channel *channel, void *into, size_t room);

/* An errno of these functions, as a clause for people. */
const char *gw_channel_why(int code);

#endif
