/* rdma_immediate.c - immediate data that goes through memory.
 *
 * When an incoming write with immediate data breaks off, ofi_rxm takes the error for one of its own messages and reads
 * through a null pointer (rxm_handle_comp_error, libfabric 1.17 and later; over tcp, the only provider that reports
 * such errors). With this provider the eight bytes of immediate data, called a stamp, follow the payload in the same
 * write. They go into a table that each rank opens to the others, with one place for every receive buffer. tcp fills
 * memory in stream order, so a stamp is never there before its payload. Its nonce, which is not 0, comes last: half a
 * stamp is never taken for a whole one.
 *
 * Cost: no extra message, and no completion at the receiver, which polls the places of its open receive buffers. */
#include "transport/rdma/rdma_internal.h"

#include "base/little_endian.h"

#include <stdlib.h>

#define STAMP_BYTES 8

static size_t table_bytes(const rdma *r) { return (size_t)r->world * r->slots_max * STAMP_BYTES; }

gw_status gw_rdma_stamps_make(rdma *r, gw_error *error) {
    if (!r->fabric.stamps) return GW_OK;
    r->stamps = calloc(1, table_bytes(r));
    r->awaited = calloc((size_t)r->world, sizeof *r->awaited);
    if (r->stamps && r->awaited) return GW_OK;
    return gw_fail(error, GW_MEMORY, "rdma: no memory for the stamps of %d peers", r->world);
}

gw_status gw_rdma_stamps_open(rdma *r, gw_error *error) {
    r->awaited_count = 0;
    if (!r->fabric.stamps) return GW_OK;
    r->stamp_memory = gw_rdma_memory_take(&r->cache, r->stamps, table_bytes(r), FI_REMOTE_WRITE, error);
    return r->stamp_memory ? GW_OK : error->status;
}

/* ---- sending ---- */

ssize_t gw_rdma_write_stamped(rdma *r, record *rec, const gw_rdma_recv_buffer *recv_buffer, uint64_t stamp) {
    const gw_packet *packet = rec->packet;
    const peer *p = &r->peers[rec->peer];
    uint64_t place, bytes = packet->frame.length;
    unsigned credits;
    uint32_t nonce;
    gw_rdma_immediate_read(stamp, &place, &credits, &nonce);
    gw_le_put(rec->buffer, stamp, STAMP_BYTES);
    struct iovec pieces[2] = {{(void *)(uintptr_t)packet->data, bytes}, {rec->buffer, STAMP_BYTES}};
    struct fi_rma_iov where[2] = {{.addr = recv_buffer->address, .len = bytes, .key = recv_buffer->key},
                                  {.addr = p->stamps_address + place * STAMP_BYTES, .len = STAMP_BYTES,
                                   .key = p->stamps_key}};
    void *descriptors[2] = {rec->source ? rec->source->descriptor : NULL,
                            r->buffer_memory ? r->buffer_memory->descriptor : NULL};
    struct fi_msg_rma message = {.msg_iov = pieces, .desc = descriptors, .iov_count = 2, .addr = p->address,
                                 .rma_iov = where, .rma_iov_count = 2, .context = rec};
    return fi_writemsg(r->fabric.endpoint, &message, FI_COMPLETION);
}

/* ---- receiving ---- */

static uint8_t *place_of(const rdma *r, int rank, uint32_t slot_number) {
    return r->stamps + ((size_t)slot_number * (size_t)r->world + (size_t)rank) * STAMP_BYTES;
}

void gw_rdma_stamp_await(rdma *r, int rank, uint32_t slot_number) {
    peer *p = &r->peers[rank];
    if (!r->stamps || p->summed) return; /* WRITTEN messages tell of writes with a sum */
    gw_le_put(place_of(r, rank, slot_number), 0, STAMP_BYTES);
    if (p->awaited) return;
    p->awaited = true;
    r->awaited[r->awaited_count++] = rank;
}

/* The place of a receive buffer that this peer has stamped; NULL: none. */
static uint8_t *find_stamp(const rdma *r, int rank) {
    const peer *p = &r->peers[rank];
    for (uint32_t i = 0; i < p->slot_room; i++) {
        uint8_t *place = place_of(r, rank, i);
        if (p->slots[i].used && gw_le_get64(place) >> 32 == p->slots[i].recv_buffer.nonce) return place;
    }
    return NULL;
}

bool gw_rdma_stamps_wait(const rdma *r) {
    for (int i = 0; i < r->awaited_count; i++)
        if (find_stamp(r, r->awaited[i])) return true;
    return false;
}

bool gw_rdma_stamps_read(rdma *r) {
    bool any = false;
    for (int i = 0; i < r->awaited_count;) {
        int rank = r->awaited[i];
        for (uint8_t *place; (place = find_stamp(r, rank)); any = true) {
            uint64_t stamp = gw_le_get64(place);
            gw_le_put(place, 0, STAMP_BYTES); /* a stamp is read once, also where it is ignored */
            gw_rdma_written(r, stamp);
        }
        if (r->peers[rank].slots_used) {
            i++;
            continue;
        }
        r->peers[rank].awaited = false;
        r->awaited[i] = r->awaited[--r->awaited_count];
    }
    return any;
}
