/* shm.h - the transport among ranks of one host, and memory they share (see harbour.h).
 *
 * How a payload travels: memory of gw_shm_alloc is shown to the receiver where it lies; all else is copied in pieces
 * into the receiver's harbour, and added up or copied from there. Reading across processes (process_vm_readv) would
 * need one copy instead of two, but took longer at every size: the kernel looks up every page, and copies by an
 * instruction that some CPUs carry out slowly (copy.h). */
#ifndef GW_TRANSPORT_SHM_H
#define GW_TRANSPORT_SHM_H

#include "transport/harbour.h"
#include "transport/transport.h"

typedef struct gw_shm_config {
    int rank, world;
    uint32_t generation; /* the same on all ranks; reset() gives the next */
    gw_sink sink;
} gw_shm_config;

gw_status gw_shm_open(gw_transport **transport, const gw_shm_config *config, gw_error *error);
/* What this rank tells the others about itself. */
void gw_shm_endpoint(const gw_transport *transport, uint8_t endpoint[GW_SHM_ENDPOINT_BYTES]);
/* Before anything is sent to a peer. GW_UNSUPPORTED, and why, where the two cannot share memory. */
gw_status gw_shm_attach(gw_transport *transport, int peer, const uint8_t endpoint[GW_SHM_ENDPOINT_BYTES],
                        gw_error *error);
bool gw_shm_reaches(const gw_transport *transport, int peer);

/* Page-aligned, zeroed memory; NULL and the error where there is none. */
void *gw_shm_alloc(gw_transport *transport, size_t bytes, gw_error *error);
void gw_shm_free(gw_transport *transport, void *memory); /* NULL is fine */

gw_harbour *gw_shm_harbour(gw_transport *transport);

#endif
