/* stepper_ps_internal.h - what stepper_ps.c (the worker, letters), stepper_ps_bind.c (parcels, memory),
 * stepper_ps_serve.c (the server) and stepper_ps_codec.c (parcels through a codec) share. */
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
    uint64_t step;       /* the worker's: that its push is of */
    /* Through a codec. */
    bool coded;
    uint32_t rounds;     /* of pushes and answers in a step: 1, or those of a codec that is merged */
    size_t slot_at, slot_bytes; /* in a landing; without a codec at and bytes */
    size_t push_bytes, answer_bytes; /* at most, of all rounds; the answer where it is coded */
    size_t second_at;    /* where round 1 begins in the worker's slot */
    uint8_t *slot;       /* the worker's payloads */
} gw_parcel;

/* A consecutive part of one tensor. */
typedef gw_span gw_segment;

typedef enum gw_ps_letter {
    GW_PS_PUSH,
    GW_PS_ANSWER, /* values as they are */
    GW_PS_CODED_ANSWER,
    GW_PS_LEAVE, /* the worker makes no more pushes */
    GW_PS_OVER   /* the server's reply to that: it sends no more answers */
} gw_ps_letter;

typedef struct gw_ps_codec gw_ps_codec;

struct gw_ps {
    gw_stepper *stepper;
    int rank, world, servers, own; /* own: the server of this rank, -1: none */
    gw_sync_rule rule;
    bool weights_here;   /* servers keep weights and answer with them */
    size_t parcel_bytes; /* at most */
    gw_shares shares;
    size_t *space_at;    /* where each server's space begins in staging */
    gw_mail *mail;
    gw_ps_codec *codec;  /* NULL: values travel as they are */
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
    size_t landing_bytes;
    uint8_t **landing;   /* by worker: slots of the own space; NULL for the own worker, whose memory is used as it is */
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

/* stepper_ps_codec.c. Set-up: open, then shares with that grain, then serve; lay after each cut. */
gw_status gw_ps_codec_open(gw_ps *ps, gw_error *error);
gw_status gw_ps_codec_serve(gw_ps *ps, gw_error *error);
gw_status gw_ps_codec_lay(gw_ps *ps, gw_error *error);
void gw_ps_codec_close(gw_ps *ps);
size_t gw_ps_codec_grain(const gw_ps *ps, int tensor, size_t grain);
size_t gw_ps_codec_memory(const gw_ps *ps);
/* The worker's: before and after a piece's parcels are pushed, each of which is encoded into its slot; and a coded
 * answer that stands there. */
void gw_ps_codec_begin(gw_ps *ps, int piece, uint64_t step);
void gw_ps_codec_begun(gw_ps *ps, int piece);
uint8_t *gw_ps_codec_slot(const gw_parcel *parcel); /* of the round that comes next */
gw_status gw_ps_codec_encode(gw_ps *ps, const gw_parcel *parcel, uint64_t step, size_t *bytes, gw_error *error);
gw_status gw_ps_codec_answered(gw_ps *ps, const gw_parcel *parcel, int from, size_t bytes, uint64_t step,
                               gw_error *error);
/* The server's: a push came; one push alone, or all of a round, become a sum in ps->result; and an answer. */
void gw_ps_codec_note(gw_ps *ps, int parcel, int worker, uint64_t step, size_t bytes);
gw_status gw_ps_codec_decode(gw_ps *ps, int parcel, int worker, gw_error *error);
gw_status gw_ps_codec_sum(gw_ps *ps, int parcel, gw_error *error);
bool gw_ps_codec_answers(const gw_ps *ps, const gw_parcel *parcel, int worker); /* not plainly with values */
const uint8_t *gw_ps_codec_answer(gw_ps *ps, int parcel, int worker, gw_letter *letter, gw_error *error);

/* stepper_ps.c */
/* The answer stands in parcel->to, or where it is coded in the slot. */
void gw_ps_answered(gw_ps *ps, int from, const gw_letter *letter, gw_time now, gw_error *error);
void gw_ps_part_over(gw_ps *ps, int parcel);

#endif
