/* shm_page.h - the inside of the shared memory transport: what lies in harbours, and what a rank keeps for itself. The
 * protocol is told in shm.c. */
#ifndef GW_TRANSPORT_SHM_PAGE_H
#define GW_TRANSPORT_SHM_PAGE_H

#include "transport/shm.h"

#define SLOTS 128                  /* frames of one ring */
#define INLINE_RING (256 << 10)    /* bytes of small payloads of one ring */
#define LOANS 32                   /* payloads lent to one peer at a time */
#define CHUNKS 16                  /* of the staging area, for all peers together */
#define CHUNK_BYTES (64 << 10)
#define READ_BYTES_MIN (64 << 10) /* below, two copies through the cache are as fast as the system call */
#define POLL_BYTES ((size_t)1 << 20)   /* of large payloads from one peer in one poll */
#define SWEEP_POLLS 4096           /* polls between two looks for memory that peers have freed */

typedef enum carriage { INLINE, SHOWN, READ, STAGED } carriage;

typedef struct slot {
    alignas(GW_LINE) _Atomic uint64_t turn; /* generation << 32 | position + 1 */
    uint32_t carriage;
    uint32_t place;    /* INLINE: offset in the ring's bytes; SHOWN, READ: loan; STAGED: chunk */
    gw_shared where;   /* SHOWN */
    uint64_t address;  /* READ: in the sender; STAGED: the lease */
    uint64_t position; /* STAGED: of this chunk in the payload */
    gw_frame frame;
} slot;

typedef struct ring {
    alignas(GW_LINE) _Atomic uint64_t consumed; /* generation << 32 | slots; the owner's */
    _Atomic uint32_t reads;                     /* the owner may read the peer's memory across processes */
    alignas(GW_LINE) _Atomic uint64_t returned; /* generation << 32 | loans of the owner that the peer gives back */
    slot slots[SLOTS];
    alignas(GW_LINE) uint8_t bytes[INLINE_RING];
} ring;

/* What follows a harbour's page: the staging area, then a ring for each rank of the job (pages exist when used). */
typedef struct quay {
    struct {
        alignas(GW_LINE) _Atomic uint64_t lease; /* 0: free */
    } chunks[CHUNKS];
    alignas(4096) uint8_t staged[CHUNKS][CHUNK_BYTES];
    alignas(4096) ring rings[];
} quay;

typedef struct link {
    int rank;
    ring *out; /* in the peer's harbour */
    ring *in;  /* in ours */
    quay *peer_quay;

    gw_packet *head, *tail; /* to be sent, first in first out */
    uint32_t produced;      /* slots written */
    uint32_t bytes_at;      /* where the next inline payload may begin; runs on, modulo INLINE_RING */
    uint32_t bytes_after[SLOTS];
    gw_packet *lent[LOANS]; /* NULL: the place is free */

    uint32_t consumed;
    uint8_t *landing;        /* of the payload that is coming in pieces */
    uint64_t landed;         /* bytes of it */
    gw_mapping *seen[LOANS]; /* the peer's loans shown to the engine */
    bool broken;
} link;

typedef struct shm {
    gw_transport base;
    gw_harbour *harbour;
    quay *own;
    uint32_t generation;
    uint64_t leases; /* given out so far */
    const link *borrower[CHUNKS];
    uint32_t polls;
    int links_count;
    link **links;   /* those attached, in the order of attaching */
    link **by_rank; /* NULL: not attached */
} shm;

static inline uint64_t tagged(const shm *self, uint32_t value) { return (uint64_t)self->generation << 32 | value; }

/* shm_send.c */
void gw_shm_send(gw_transport *transport, int peer, gw_packet *packet);
bool gw_shm_pump(shm *self, link *to);     /* sends what there is room for; true if anything */
bool gw_shm_can_send(shm *self, link *to); /* something waits, and there is room for it */
bool gw_shm_collect(shm *self, link *to);  /* takes loans that have come back */

/* shm_receive.c */
bool gw_shm_receive(shm *self, link *from); /* true if anything came */
void gw_shm_release(gw_transport *transport, int peer, uint64_t ticket);

#endif
