/* shm_transport.h - the transport among ranks of one host, and the memory they share (see peer_map.h).
 *
 * Memory of gw_shm_alloc is not copied: the receiver reads it in place. Any other payload is copied in parts into a
 * ring in the receiver's shared page, and reduced or copied from there. Reading across processes (process_vm_readv)
 * would need one copy instead of two, but took longer at every size: the kernel looks up every page, and copies with an
 * instruction that is slow on some CPUs (copy.h). */
#ifndef GW_TRANSPORT_SHM_SHM_TRANSPORT_H
#define GW_TRANSPORT_SHM_SHM_TRANSPORT_H

#include "shm/peer_map.h"
#include "transport/transport.h"

typedef struct gw_shm_config {
    int rank, world;
    uint32_t generation; /* the same on all ranks; reset() gives the next */
    gw_sink sink;
} gw_shm_config;

gw_status gw_shm_open(gw_transport **transport, const gw_shm_config *config, gw_error *error);
/* What peers need to attach to this rank. */
void gw_shm_endpoint(const gw_transport *transport, uint8_t endpoint[GW_SHM_ENDPOINT_BYTES]);
/* Before anything is sent to a peer. GW_UNSUPPORTED, and why, where the two cannot share memory. */
gw_status gw_shm_attach(gw_transport *transport, int peer, const uint8_t endpoint[GW_SHM_ENDPOINT_BYTES],
                        gw_error *error);

/* Page-aligned, zeroed memory; NULL and the error where there is none. */
void *gw_shm_alloc(gw_transport *transport, size_t bytes, gw_error *error);
void gw_shm_free(gw_transport *transport, void *memory); /* NULL is fine */

gw_peer_map *gw_shm_peer_map(gw_transport *transport);

#endif
