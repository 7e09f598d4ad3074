/* tcp.h - the transport over TCP: one connection for each peer and stream, made when first used.
 *
 * The connection manager listens, dials and proves the job token. This transport asks it for a connection with gw_dial
 * and gets an authenticated one by gw_tcp_adopt. Frames go both ways over a connection. A rank sends on the first that
 * it gets, dialled by itself or by the peer, and stays with it, so that frames keep their order. The lower rank of a
 * pair dials at once, the higher one after a moment. If both dial all the same, they have two connections, read both,
 * and each sends on one.
 *
 * With several streams DATA frames are spread by frame.index and the transport is not `ordered`; all other frames take
 * stream 0. A frame without payload needs no buffer: arrived() is called at once, with data NULL.
 *
 * Everything but gw_tcp_adopt and gw_tcp_refused belongs to the one thread that polls. lost() is called from within
 * poll() only. reset() and close() must not be called from within a callback; send() may be. */
#ifndef GW_TRANSPORT_TCP_TCP_H
#define GW_TRANSPORT_TCP_TCP_H

#include "base/param.h"
#include "transport/transport.h"

typedef struct gw_tcp_options {
    int rank, world;
    int streams;            /* connections for each peer, 1..64 */
    const char *congestion; /* "auto" (cubic where the system's default is bbr, see congestion.h), "system" (its
                             * default), "cubic", "bbr" or "reno"; NULL is "auto" */
    size_t socket_buffer;   /* bytes, for each direction; 0: the kernel tunes them. Below 128 KiB loopback is very
                             * slow, because its segments are 64 KiB */
} gw_tcp_options;

/* Parameters of the strategy line: streams and congestion, in this order. transport=auto has the same. */
extern const gw_param gw_tcp_params[];

/* The generation is 0 until reset() gives another. */
gw_status gw_tcp_open(gw_transport **out, const gw_tcp_options *options, gw_sink sink, gw_dial dial, void *dial_ctx,
                      gw_error *error);

/* Hands over an authenticated, non-blocking socket, dialled by this rank or by the peer. Any thread, until close().
 * The transport owns the socket from now on, also if this fails; it wakes a sleeping poller. A connection of an older
 * generation than the current one is closed; one of a newer generation waits for reset(). */
void gw_tcp_adopt(gw_transport *transport, int peer, int stream, uint32_t generation, int fd, bool dialled,
                  const gw_traffic_keys *keys);
/* The peer could not be reached: it is lost for this reason, unless it has connected to us meanwhile. Any thread, until
 * close(). A refusal of an older generation is ignored. detail is copied. */
void gw_tcp_refused(gw_transport *transport, int peer, uint32_t generation, gw_status status, const char *detail);

#endif
