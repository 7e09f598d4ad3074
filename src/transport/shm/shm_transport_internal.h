/* shm_transport_internal.h - the state of the shm transport: in shared pages, and private to a rank. shm_transport.c
 * describes the protocol. */
#ifndef GW_TRANSPORT_SHM_SHM_TRANSPORT_INTERNAL_H
#define GW_TRANSPORT_SHM_SHM_TRANSPORT_INTERNAL_H

#include "transport/send_queue.h"
#include "transport/shm/shm_transport.h"

#define SLOTS 128                  /* frames of one ring */
#define RING_BYTES (1u << 20)      /* of payloads in one ring; a power of two, see shm_link.span */
#define SPANS_BYTES (1u << 20)     /* of all rings that one rank writes; see SPAN_MIN */
#define SPAN_MIN (2 * PART_BYTES)  /* of one such ring, for any number of rings */
#define PART_BYTES (64u << 10)     /* of one part of a payload; whole elements of any type */
#define LENT_BYTES_MIN (32u << 10) /* below, copying takes no longer than returning a loan */
#define LOANS 32                   /* payloads lent to one peer at a time */
#define FRAME_COST (2u << 10)      /* handling a frame takes as long as copying this many bytes */
#define RETURN_BYTES PART_BYTES    /* consumed before slots are returned to the sender */
#define POLL_BYTES (256u << 10)    /* received from one peer in one poll */
#define SWEEP_POLLS 4096           /* polls between two searches for memory that peers have freed */

typedef enum transfer { COPIED, IN_PLACE } transfer;

/* The content of a slot. Written by the sender; the receiver works on its own copy. */
typedef struct slot_content {
    uint32_t transfer;
    uint32_t place;    /* COPIED: offset in the ring's bytes; IN_PLACE: loan */
    gw_shm_ref where;  /* IN_PLACE */
    uint64_t position; /* COPIED: of this part in the payload */
    gw_frame frame;
} slot_content;

typedef struct slot {
    alignas(GW_CACHE_LINE) _Atomic uint64_t turn; /* generation << 32 | position + 1; the sender's */
    slot_content what;
} slot;

/* From one peer to the owner of the shared page that holds it. */
typedef struct ring {
    alignas(GW_CACHE_LINE) _Atomic uint64_t consumed; /* generation << 32 | slots; the owner's */
    alignas(GW_CACHE_LINE) _Atomic uint64_t returned; /* generation << 32 | bits: loans that the peer has returned */
    slot slots[SLOTS];                                /* the peer's */
    alignas(4096) uint8_t bytes[RING_BYTES];          /* the peer's */
} ring;

typedef struct shm_link {
    int rank;
    ring *out; /* in the peer's shared page */
    ring *in;  /* in ours */

    gw_packet_queue queue; /* to be sent */
    uint32_t produced;     /* slots written */
    uint32_t span;         /* bytes of the ring in use, a power of two, kept from the first frame on */
    uint32_t bytes_at;     /* where the next part may begin: only grows; its offset is this modulo span */
    uint32_t bytes_after[SLOTS];
    gw_packet *lent[LOANS]; /* NULL: the place is free */

    uint32_t consumed;
    bool partial;    /* a payload has arrived in part */
    bool by_parts;   /* the engine takes its parts, else they go to recv_buffer */
    gw_frame coming; /* our copy of its frame, which the peer can no longer change */
    uint8_t *recv_buffer;
    uint64_t arrived_bytes;  /* bytes of it that have arrived */
    gw_mapping *seen[LOANS]; /* the peer's loans that the engine reads */
    bool broken;
} shm_link;

typedef struct shm {
    gw_transport base;
    gw_peer_map *peer_map;
    ring *own; /* after the shared page's header: one for each rank of the job (pages exist when used) */
    uint32_t generation;
    uint32_t polls;
    int links_count;
    shm_link **links;   /* those attached, in the order of attaching */
    shm_link **by_rank; /* NULL: not attached */
} shm;

static inline uint64_t tagged(const shm *self, uint32_t value) { return (uint64_t)self->generation << 32 | value; }

/* shm_send.c */
void gw_shm_send(gw_transport *transport, int peer, gw_packet *packet);
bool gw_shm_pump(shm *self, shm_link *to);     /* sends packets while there is room; true if it sent any */
bool gw_shm_can_send(shm *self, shm_link *to); /* something waits, and there is room for it */
bool gw_shm_collect(shm *self, shm_link *to);  /* takes loans that peers have returned */

/* shm_receive.c */
bool gw_shm_receive(shm *self, shm_link *from); /* true if anything came */
void gw_shm_release(gw_transport *transport, int peer, uint64_t ticket);

#endif
