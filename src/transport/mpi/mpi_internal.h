/* mpi_internal.h - the state of the MPI transport, shared by mpi_transport.c (frames) and mpi_drain.c (ending) only.
 * Everything belongs to the polling thread, which is gradwire's only thread that calls MPI. */
#ifndef GW_TRANSPORT_MPI_MPI_INTERNAL_H
#define GW_TRANSPORT_MPI_MPI_INTERNAL_H

#include "base/reduce.h"
#include "transport/mpi/mpi_table.h"
#include "transport/mpi/mpi_transport.h"

/* The tags of a generation, relative to its first: frames (0), payloads, and its end. */
#define BODY_TAG 1
#define END_TAG 2
#define TAGS 3
#define RECV_SLOTS 32        /* posted receives for frames */
#define RECV_SLOT_BYTES 4096 /* of a frame and a small payload */
#define SMALL_BYTES (RECV_SLOT_BYTES - GW_FRAME_BYTES)

/* A posted receive for a frame. */
typedef struct recv_slot {
    gw_mpi_request request;
    bool posted;
    _Alignas(64) uint8_t bytes[RECV_SLOT_BYTES];
} recv_slot;

/* An incoming large payload. */
typedef struct body_slot {
    struct body_slot *next; /* in the list of those awaited, or of spare ones */
    gw_mpi_request request;
    int from;
    gw_frame frame;    /* it came first */
    void *recv_buffer; /* the engine's, lent until the payload has arrived or reset() */
} body_slot;

/* An outgoing frame. */
typedef struct send_slot {
    struct send_slot *next;
    gw_mpi_request head, body;
    bool head_done, body_done; /* MPI no longer uses it, or there is none */
    int to;
    gw_packet *packet; /* NULL: its payload was copied, or it was dropped */
    uint8_t bytes[RECV_SLOT_BYTES];
} send_slot;

struct gw_native_task {
    gw_native_task *next; /* in the list of running or of spare ones */
    gw_mpi_request request;
    gw_reduction reduction;
    void *out;    /* the caller's, lent until it is done or reset() */
    size_t count; /* elements */
};

typedef struct peer {
    int bodies;        /* incoming payloads from it */
    bool left, lost;   /* left: it said goodbye, but earlier messages may still arrive */
    bool gone;         /* its process has ended, or it has left; also in later generations */
    bool end_sent;     /* during reset(): END is sent to it: we receive none of its payloads any more */
    bool end_received; /* during reset(): its END has arrived */
    gw_status broken;  /* poll() must report it */
    char detail[GW_MPI_WHY_BYTES];
} peer;

typedef struct mpi {
    gw_transport base;
    int rank, world;
    const gw_mpi_table *table;
    gw_mpi *mpi;
    int tag;            /* the first of this generation */
    int timer;          /* timerfd: wakes a sleeper, since MPI cannot */
    bool closing;       /* only goodbyes are handled */
    bool stuck;         /* MPI still uses memory that is not ours any more, so MPI is never called again */
    bool unsettled;     /* some peer is broken or has left, and poll() has not reported it */
    int next_recv_slot; /* the oldest posted receive: receives complete in the order posted */
    recv_slot *recv_slots;
    body_slot *bodies, **last_body_slot, *spare_bodies;
    send_slot *sends, **last_send_slot, *spare_sends;
    send_slot *orphans; /* of earlier generations: MPI has not completed them */
    gw_native_task *tasks, *spare_tasks;
    peer *peers;
} mpi;

/* mpi_transport.c */
send_slot *gw_mpi_new_send(mpi *m, int to);                /* NULL: out of memory */
void gw_mpi_post_send(mpi *m, send_slot *l, size_t bytes); /* bytes of l->bytes, and the payload of l->packet */
bool gw_mpi_send_done(mpi *m, send_slot *l);               /* MPI has completed it */
void gw_mpi_post_receive(mpi *m, recv_slot *slot);
bool gw_mpi_poll_receives(mpi *m);
bool gw_mpi_test(mpi *m, gw_mpi_request *request, int peer); /* true: done; an error fails this peer */
void gw_mpi_drop_task(mpi *m, gw_native_task *task);

/* mpi_drain.c */
void gw_mpi_reset(gw_transport *transport, uint32_t generation);
void gw_mpi_close(gw_transport *transport);

#endif
