/* shards.h - which server owns which elements of which tensor.
 *
 * A tensor of up to GW_SHARD_WHOLE_BYTES is owned whole, by the least loaded server. The elements of a larger one are
 * dealt out to all servers in stripes (arch/owners.h), so that every server is busy whichever slice is sent. What a
 * server owns of a tensor lies together in its space, stripe by stripe; tensors follow each other in their order:
 * neighbouring tensors of one type are neighbours there too. Nothing here depends on how a schedule cuts or fuses.
 * Pure. */
#ifndef GW_PS_SHARDS_H
#define GW_PS_SHARDS_H

#include "base/status.h"
#include "base/stripes.h"

#define GW_SHARD_WHOLE_BYTES (64 * 1024)

typedef struct gw_shard_tensor {
    size_t count;   /* elements */
    size_t element; /* bytes of one */
    size_t grain;   /* it is cut only at multiples of this many elements; 0: never */
    int kind;       /* of its elements: spaces are aligned where it changes */
} gw_shard_tensor;

/* What a server owns of one tensor. */
typedef struct gw_shard {
    int tensor, server;
    gw_stripes covers; /* elements of the tensor */
    size_t at;         /* bytes, in the server's space: these elements, one after the other */
} gw_shard;

typedef struct gw_shards {
    int servers, tensors;
    gw_shard *list;      /* by tensor; of servers that own something of it */
    int *first_of;       /* tensors + 1 entries: where a tensor's shards begin in the list */
    size_t *space_bytes; /* of each server */
} gw_shards;

gw_status gw_shards_open(gw_shards *shards, const gw_shard_tensor *tensors, int count, int servers, gw_error *error);
void gw_shards_close(gw_shards *shards);

/* The rank that runs a server: servers are spread evenly, so that a host with several ranks has its part of them. */
int gw_server_rank(int server, int servers, int world);
int gw_server_of_rank(int rank, int servers, int world); /* -1: it runs none */

#endif
