/* shares.h - which server owns which part of which tensor.
 *
 * Tensors up to GW_SHARE_WHOLE_BYTES are owned whole, by the server that has least so far; larger ones are cut into one
 * part for each server, so that every server is busy whichever tensor travels. Parts are laid one after the other, in
 * tensor order, in what is called a server's space: neighbouring tensors of one type are neighbours there too. Nothing
 * here depends on how a schedule cuts or fuses. Pure. */
#ifndef GW_SERVER_SHARES_H
#define GW_SERVER_SHARES_H

#include "base/status.h"

#define GW_SHARE_WHOLE_BYTES (64 * 1024)

typedef struct gw_share_tensor {
    size_t count;   /* elements */
    size_t element; /* bytes of one */
    size_t grain;   /* it is cut at multiples of this many elements only; 0: not at all */
    int kind;       /* of its elements: spaces are aligned where it changes */
} gw_share_tensor;

/* A part of one tensor. */
typedef struct gw_share {
    int tensor, server;
    size_t first, count; /* elements */
    size_t at;           /* bytes, in the server's space */
} gw_share;

typedef struct gw_shares {
    int servers, tensors;
    gw_share *list;      /* by tensor, then by first element */
    int *first_of;       /* tensors + 1 entries: where a tensor's shares begin in the list */
    size_t *space_bytes; /* of each server */
} gw_shares;

gw_status gw_shares_open(gw_shares *shares, const gw_share_tensor *tensors, int count, int servers, gw_error *error);
void gw_shares_close(gw_shares *shares);

/* The rank that server runs on: spread evenly, so that hosts with several ranks get no more than their part. */
int gw_server_rank(int server, int servers, int world);
int gw_server_of_rank(int rank, int servers, int world); /* -1: it runs none */

#endif
