/* stepper_ps_internal.h - what stepper_ps.c (the worker, letters), stepper_ps_bind.c (parcels, memory) and
 * stepper_ps_serve.c (the server) share. */
#ifndef GW_ENGINE_STEPPER_PS_INTERNAL_H
#define GW_ENGINE_STEPPER_PS_INTERNAL_H

#include "engine/mail.h"
#include "engine/stepper_internal.h"
#include "engine/stepper_ps.h"
#include "server/shares.h"

/* What of one piece goes to one server in one message: consecutive in the server's space. */
typedef struct gw_parcel {
    int piece, server;
    size_t at, bytes;    /* in the server's space */
    size_t count;        /* elements */
    gw_dtype dtype;
    int segments, first; /* of gw_ps.segments */
    uint8_t *from, *to;  /* the worker's: what is pushed, where the answer is put */
    bool packs, unpacks; /* from, to are in gw_ps.staging */
    uint64_t round;      /* that the worker's next push belongs to */
    int left;            /* the worker's: events until it is over */
} gw_parcel;

/* A consecutive part of one tensor. */
typedef gw_span gw_segment;

typedef enum gw_ps_letter {
    GW_PS_PUSH,
    GW_PS_ANSWER,
    GW_PS_LEAVE, /* the worker makes no more pushes */
    GW_PS_OVER   /* the server's reply to that: it sends no more answers */
} gw_ps_letter;

struct gw_ps {
    gw_stepper *stepper;
    int rank, world, servers, own; /* own: the server of this rank, -1: none */
    gw_sync_rule rule;
    bool weights_here;   /* servers keep weights and answer with them */
    size_t parcel_bytes; /* at most */
    gw_shares shares;
    size_t *space_at;    /* where each server's space begins in staging */
    gw_mail *mail;
    gw_parcel *parcels;
    int parcel_count, parcel_room;
    gw_segment *segments;
    int *first_parcel;   /* of each piece, pieces + 1 entries */
    int *piece_left;     /* parcels of each piece that are not over */
    int *piece_here;     /* of these, such as have not left yet */
    uint8_t *staging;    /* all spaces, one after the other; NULL: nothing needs packing */
    size_t staging_bytes;
    int *answers_due;    /* by rank of a server: answers that this worker waits for */
    int *ends_due;       /* by rank: LEAVE and OVER letters still to come */
    bool leaving, said_leave;
    /* The server's. */
    gw_desk *desk;
    uint8_t **landing;   /* by worker: the own space; NULL for the own worker, whose memory is used as it is */
    uint8_t *result;     /* the own space: means */
    uint8_t *weights;    /* the own space, where weights live here */
    const void **sources; /* world entries, scratch */
};

/* stepper_ps_bind.c */
gw_status gw_ps_cut(gw_ps *ps, gw_error *error);
size_t gw_parcel_segment_bytes(const gw_ps *ps, const gw_segment *segment);
uint8_t *gw_ps_tensor_at(const gw_ps *ps, const gw_segment *segment, bool weights);

/* stepper_ps_serve.c */
gw_status gw_ps_serve_open(gw_ps *ps, gw_error *error);
void gw_ps_serve_close(gw_ps *ps);
size_t gw_ps_serve_bytes(const gw_ps *ps);
void gw_ps_pushed(gw_ps *ps, int parcel, int worker, uint64_t round, uint64_t step, gw_time now, gw_error *error);
void gw_ps_left(gw_ps *ps, int worker, gw_time now, gw_error *error);

/* stepper_ps.c */
void gw_ps_answered(gw_ps *ps, int parcel, uint64_t round); /* the answer stands in parcel->to */
void gw_ps_part_over(gw_ps *ps, int parcel);

#endif
