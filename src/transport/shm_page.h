/* shm_page.h - the inside of the shared memory transport: what lies in harbours, and what a rank keeps for itself. The
 * protocol is told in shm.c. */
#ifndef GW_TRANSPORT_SHM_PAGE_H
#define GW_TRANSPORT_SHM_PAGE_H

#include "transport/queue.h"
#include "transport/shm.h"

#define SLOTS 128                 /* frames of one ring */
#define RING_BYTES (1u << 20)     /* of payloads in one ring; a power of two, see shm_link.span */
#define SPANS_BYTES (1u << 20)    /* of all rings that one rank writes; see SPAN_MIN */
#define SPAN_MIN (2 * PIECE_BYTES) /* of one of them, however many they are */
#define PIECE_BYTES (64u << 10)   /* of a payload at a time; whole elements of any type */
#define SHOWN_BYTES_MIN (32u << 10) /* below, copying takes no longer than giving back what was lent */
#define LOANS 32                  /* payloads lent to one peer at a time */
#define FRAME_COST (2u << 10)     /* a frame without payload takes as long as copying so many bytes */
#define RETURN_BYTES PIECE_BYTES  /* taken before the sender is told that it has room again */
#define POLL_BYTES (256u << 10)   /* taken from one peer in one poll */
#define SWEEP_POLLS 4096          /* polls between two looks for memory that peers have freed */

typedef enum carriage { COPIED, SHOWN } carriage;

/* What a slot says. Written by the sender; the receiver works on a copy of its own. */
typedef struct notice {
    uint32_t carriage;
    uint32_t place;    /* COPIED: offset in the ring's bytes; SHOWN: loan */
    gw_shared where;   /* SHOWN */
    uint64_t position; /* COPIED: of this piece in the payload */
    gw_frame frame;
} notice;

typedef struct slot {
    alignas(GW_LINE) _Atomic uint64_t turn; /* generation << 32 | position + 1; the sender's */
    notice what;
} slot;

/* From one peer to the owner of the harbour it lies in. */
typedef struct ring {
    alignas(GW_LINE) _Atomic uint64_t consumed; /* generation << 32 | slots; the owner's */
    alignas(GW_LINE) _Atomic uint64_t returned; /* generation << 32 | loans of the owner that the peer gives back */
    slot slots[SLOTS];                          /* the peer's */
    alignas(4096) uint8_t bytes[RING_BYTES];    /* the peer's */
} ring;

typedef struct shm_link {
    int rank;
    ring *out; /* in the peer's harbour */
    ring *in;  /* in ours */

    gw_packet_queue queue;  /* to be sent */
    uint32_t produced;      /* slots written */
    uint32_t span;          /* bytes of the ring in use, a power of two, kept from the first frame on */
    uint32_t bytes_at;      /* where the next piece may begin; runs on, modulo span */
    uint32_t bytes_after[SLOTS];
    gw_packet *lent[LOANS]; /* NULL: the place is free */

    uint32_t consumed;
    bool partial;            /* a payload has come in part */
    bool passed_on;          /* the engine takes it piece by piece, else it goes to its landing */
    gw_frame coming;         /* its frame, which the peer can no longer change */
    uint8_t *landing;
    uint64_t landed;         /* bytes of it that have come */
    gw_mapping *seen[LOANS]; /* the peer's loans shown to the engine */
    bool broken;
} shm_link;

typedef struct shm {
    gw_transport base;
    gw_harbour *harbour;
    ring *own; /* behind the harbour's page: one for each rank of the job (pages exist when used) */
    uint32_t generation;
    uint32_t polls;
    int links_count;
    shm_link **links;   /* those attached, in the order of attaching */
    shm_link **by_rank; /* NULL: not attached */
} shm;

static inline uint64_t tagged(const shm *self, uint32_t value) { return (uint64_t)self->generation << 32 | value; }

/* shm_send.c */
void gw_shm_send(gw_transport *transport, int peer, gw_packet *packet);
bool gw_shm_pump(shm *self, shm_link *to);     /* sends what there is room for; true if anything */
bool gw_shm_can_send(shm *self, shm_link *to); /* something waits, and there is room for it */
bool gw_shm_collect(shm *self, shm_link *to);  /* takes loans that have come back */

/* shm_receive.c */
bool gw_shm_receive(shm *self, shm_link *from); /* true if anything came */
void gw_shm_release(gw_transport *transport, int peer, uint64_t ticket);

#endif
