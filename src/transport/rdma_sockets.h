/* rdma_sockets.h - the sockets that libfabric's tcp provider makes, and their congestion control.
 *
 * They take the system's, and where that is bbr a transfer on a fast link takes 1.4 times as long as with cubic
 * (tcp.h). libfabric has no call to change it, but the sockets are this process's, and known by their addresses. */
#ifndef GW_TRANSPORT_RDMA_SOCKETS_H
#define GW_TRANSPORT_RDMA_SOCKETS_H

#include "transport/rdma_fabric.h"

/* The socket where an endpoint listens; what it accepts is as it is. Nothing happens with providers without sockets. */
void gw_rdma_tune_own(const gw_rdma_fabric *fabric);
/* Those connected to a peer's endpoint. */
void gw_rdma_tune_to(const gw_rdma_fabric *fabric, const void *address, size_t bytes);

#endif
