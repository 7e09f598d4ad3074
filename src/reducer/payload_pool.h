/* payload_pool.h - memory for the payloads of coded buckets in flight. A bucket asks for it when it is started, and
 * gives it back when its coded hop is over.
 *
 * Memory is given in the order in which it was asked for, and a bucket that fits never overtakes one that does not. All
 * ranks start buckets in one order, so the first bucket that is not over has its memory on every rank: ranks that wait
 * for memory never wait for each other. The driver's; open allocates all memory. */
#ifndef GW_REDUCER_PAYLOAD_POOL_H
#define GW_REDUCER_PAYLOAD_POOL_H

#include "base/status.h"

#define GW_PAYLOAD_ALIGNMENT 64 /* bytes; payloads in one lease are aligned to it too */

/* One bucket's. The caller owns it and clears it before its first use. */
typedef struct gw_payload_lease {
    struct gw_payload_lease *next; /* held: by offset; waiting: in the order of asking */
    size_t offset, bytes;
    bool held;
} gw_payload_lease;

typedef struct gw_payload_pool gw_payload_pool;

/* leases: held at a time, at most. */
gw_status gw_payload_pool_open(gw_payload_pool **pool, size_t bytes, int leases, gw_error *error);
void gw_payload_pool_close(gw_payload_pool *pool); /* NULL is fine */
size_t gw_payload_pool_bytes(const gw_payload_pool *pool);

/* bytes: at most those of the pool. */
void gw_payload_pool_ask(gw_payload_pool *pool, gw_payload_lease *lease, size_t bytes);
uint8_t *gw_payload_pool_memory(const gw_payload_pool *pool, const gw_payload_lease *lease); /* NULL: it waits */
void gw_payload_pool_give_back(gw_payload_pool *pool, gw_payload_lease *lease);
uint64_t gw_payload_pool_given(const gw_payload_pool *pool); /* leases so far */

#endif
