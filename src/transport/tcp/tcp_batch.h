/* tcp_batch.h - the records that a guarded connection sends next.
 *
 * A record is protected once, in the order of the stream, and must then be sent to its end before any other. So a batch
 * is filled, sent in as many calls as the socket wants, and only then filled again. Urgent packets cannot overtake what
 * is in it: it holds one large record, or several where the socket takes them as fast as they come. Payloads are sent
 * from where they lie, or with tls from a copy that encrypting makes. */
#ifndef GW_TRANSPORT_TCP_TCP_BATCH_H
#define GW_TRANSPORT_TCP_TCP_BATCH_H

#include "transport/tcp/tcp_guard.h"
#include "transport/transport.h"

#include <sys/types.h>

typedef struct gw_tcp_batch gw_tcp_batch;

/* For a connection with this guard. NULL: out of memory. */
gw_tcp_batch *gw_tcp_batch_make(const gw_tcp_guard *guard);
void gw_tcp_batch_free(gw_tcp_batch *batch); /* NULL is fine */

size_t gw_tcp_batch_unsent(const gw_tcp_batch *batch); /* bytes */
/* Protects what comes next of this packet and those after it, up to `room` bytes of payloads (a record or more; tls
 * takes one), and counts it in their progress; the batch must be empty, and the first packet not at its end. Their data
 * is needed until the batch is sent. False: libcrypto failed. */
bool gw_tcp_batch_fill(gw_tcp_batch *batch, gw_tcp_guard *guard, gw_packet *packet, size_t room);
/* One sendmsg; returns what it did. */
ssize_t gw_tcp_batch_send(gw_tcp_batch *batch, int fd);

#endif
