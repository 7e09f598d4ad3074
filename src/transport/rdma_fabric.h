/* rdma_fabric.h - a libfabric provider, opened: what it is, what it demands, and one endpoint on it at a time. */
#ifndef GW_TRANSPORT_RDMA_FABRIC_H
#define GW_TRANSPORT_RDMA_FABRIC_H

#include "transport/rdma.h"
#include "transport/rdma_library.h"
#include "transport/rdma_wire.h"

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
    bool register_local;           /* what is sent must be registered */
    bool bind_memory;              /* registrations are bound to the endpoint */
    bool pinned;                   /* a registration is of pages, and wrong when the mapping has changed */
    bool takes_receive;            /* immediate data uses up a posted receive */
    bool may_wait;                 /* a wait object may be asked for */
    int immediate_bytes;           /* 0, 4 or 8 */
    bool in_order;                 /* a message is received after the bytes of the writes before it */
    bool stamps;                   /* immediate data goes by memory (rdma_stamp.c) */
    size_t message_max, inject_max;
    int receives;                  /* to be posted */

    /* From start to stop. */
    struct fid_ep *endpoint;
    struct fid_av *peers;
    struct fid_cq *completions;
    int wait_fd; /* -1: the provider has none */
    uint8_t address[GW_RDMA_ADDRESS_BYTES];
    size_t address_bytes;
} gw_rdma_fabric;

gw_status gw_rdma_fabric_open(gw_rdma_fabric *fabric, const gw_rdma_options *options, gw_error *error);
/* A fresh endpoint with an address of its own. */
gw_status gw_rdma_fabric_start(gw_rdma_fabric *fabric, gw_error *error);
/* foreign.h, where the provider uses sockets: of its own address, or those connected to another. */
void gw_rdma_fabric_leave_bbr(const gw_rdma_fabric *fabric, const void *address, size_t bytes, bool own);
/* A process that was killed leaves its part of the shm provider behind, under a name: removes what has this address. */
void gw_rdma_fabric_bury(const gw_rdma_fabric *fabric, const void *address, size_t bytes);
void gw_rdma_fabric_stop(gw_rdma_fabric *fabric);
void gw_rdma_fabric_close(gw_rdma_fabric *fabric); /* and stop */

#endif
