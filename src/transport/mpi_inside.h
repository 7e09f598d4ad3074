/* mpi_inside.h - the state of the MPI transport, shared by mpi.c (frames) and mpi_end.c (their end) only. Everything
 * belongs to the polling thread, which is the only one of gradwire's to call MPI. */
#ifndef GW_TRANSPORT_MPI_INSIDE_H
#define GW_TRANSPORT_MPI_INSIDE_H

#include "base/reduce.h"
#include "transport/mpi.h"
#include "transport/mpi_table.h"

/* The tags of a generation, counted from its first: frames, payloads, and its end. */
#define BODY_TAG 1
#define END_TAG 2
#define TAGS 3
#define MAILS 32 /* frames that MPI may deliver before we look */
#define MAIL_BYTES 4096 /* of a frame and the payload that rides along */
#define SMALL_BYTES (MAIL_BYTES - GW_FRAME_BYTES)

/* A frame that may come. */
typedef struct mail {
    gw_mpi_request request;
    bool posted;
    _Alignas(64) uint8_t bytes[MAIL_BYTES];
} mail;

/* A large payload on its way in. */
typedef struct parcel {
    struct parcel *next; /* of those that are awaited in order, or spare */
    gw_mpi_request request;
    int from;
    gw_frame frame; /* came before it */
    void *landing;  /* the engine's, lent until it has arrived or reset() */
} parcel;

/* A frame on its way out. */
typedef struct letter {
    struct letter *next;
    gw_mpi_request head, body;
    bool head_done, body_done; /* MPI has let go of it, or there is none */
    int to;
    gw_packet *packet; /* NULL: its payload was copied, or it is over */
    uint8_t bytes[MAIL_BYTES];
} letter;

struct gw_native_task {
    gw_native_task *next; /* of those under way, or spare */
    gw_mpi_request request;
    gw_reduction reduction;
    void *out;    /* the caller's, lent until it is done or reset() */
    size_t count; /* elements */
};

typedef struct peer {
    int parcels;        /* on their way from it */
    bool left, lost;    /* left: it said so, but what it sent before may still be coming */
    bool gone;          /* its process has ended, or it has left; stays so over generations */
    bool told, heard;   /* during reset(): that we read nothing of it any more; that it reads nothing of ours */
    gw_status broken;   /* to be told by poll() */
    char detail[GW_MPI_WHY_BYTES];
} peer;

typedef struct mpi {
    gw_transport base;
    int rank, world;
    const gw_mpi_table *table;
    gw_mpi *mpi;
    int tag;                   /* the first of this generation */
    int timer;                 /* timerfd: wakes who sleeps, since MPI cannot */
    bool closing;              /* only goodbyes are heard */
    bool stuck;                /* MPI holds memory that is not ours any more: it is never called again */
    bool unsettled;            /* some peer is broken or has left, and poll() has not said so */
    int next_mail;             /* they fill in this order */
    mail *mails;
    parcel *parcels, **last_parcel, *spare_parcels;
    letter *letters, **last_letter, *spare_letters;
    letter *orphans;           /* of earlier generations: MPI does not let go of them */
    gw_native_task *tasks, *spare_tasks;
    peer *peers;
} mpi;

/* mpi.c */
letter *gw_mpi_letter(mpi *m, int to);                       /* NULL: out of memory */
void gw_mpi_post_letter(mpi *m, letter *l, size_t bytes);    /* bytes of l->bytes, and the payload of l->packet */
bool gw_mpi_letter_gone(mpi *m, letter *l);                  /* MPI has let go of it */
void gw_mpi_post_mail(mpi *m, mail *slot);
bool gw_mpi_take_mail(mpi *m);
bool gw_mpi_test(mpi *m, gw_mpi_request *request, int peer); /* done; an error is the peer's */
void gw_mpi_drop_task(mpi *m, gw_native_task *task);

/* mpi_end.c */
void gw_mpi_reset(gw_transport *transport, uint32_t generation);
void gw_mpi_close(gw_transport *transport);

#endif
