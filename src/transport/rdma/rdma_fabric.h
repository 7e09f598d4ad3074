/* rdma_fabric.h - an opened libfabric provider: its requirements, and one endpoint at a time. */
#ifndef GW_TRANSPORT_RDMA_RDMA_FABRIC_H
#define GW_TRANSPORT_RDMA_RDMA_FABRIC_H

#include "transport/rdma/rdma.h"
#include "transport/rdma/rdma_library.h"
#include "transport/rdma/rdma_wire.h"

#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

typedef struct gw_rdma_fabric {
    /* From open to close. */
    gw_rdma_library library;
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    char name[GW_RDMA_NAME_BYTES]; /* the provider's own */
    bool virtual_addresses;        /* a write names the target's address; else its offset in the region */
    bool provider_keys;            /* the provider chooses keys */
    bool register_local;           /* source memory must be registered */
    bool bind_memory;              /* registrations are bound to the endpoint */
    bool pinned;                   /* a registration pins pages, and is wrong when the mapping has changed */
    bool takes_receive;            /* immediate data uses up a posted receive */
    bool may_wait;                 /* a wait object may be asked for */
    int immediate_bytes;           /* 0, 4 or 8 */
    bool in_order;                 /* a message arrives after the bytes of the writes before it */
    bool stamps;                   /* immediate data goes through memory (rdma_immediate.c) */
    size_t message_max, inject_max;
    int receives; /* to be posted */

    /* From start to stop. */
    struct fid_ep *endpoint;
    struct fid_av *peers;
    struct fid_cq *completions;
    int wait_fd; /* -1: the provider has none */
    uint8_t address[GW_RDMA_ADDRESS_BYTES];
    size_t address_bytes;
} gw_rdma_fabric;

gw_status gw_rdma_fabric_open(gw_rdma_fabric *fabric, const gw_rdma_options *options, gw_error *error);
/* A new endpoint with its own address. */
gw_status gw_rdma_fabric_start(gw_rdma_fabric *fabric, gw_error *error);
/* For a provider that uses sockets: switches those bound to the address (own), or those connected to it, from bbr to
 * cubic (library_sockets.h). */
void gw_rdma_fabric_leave_bbr(const gw_rdma_fabric *fabric, const void *address, size_t bytes, bool own);
/* A killed process leaves its named segment of the shm provider behind: removes the one of this address. */
void gw_rdma_fabric_unlink(const gw_rdma_fabric *fabric, const void *address, size_t bytes);
void gw_rdma_fabric_stop(gw_rdma_fabric *fabric);
void gw_rdma_fabric_close(gw_rdma_fabric *fabric); /* stops, too */

#endif
