/* stepper_ps_internal.h - what stepper_ps.c (the worker, letters), stepper_ps_bind.c (parcels, memory),
 * stepper_ps_serve.c (the server), stepper_ps_codec.c (parcels through a codec), stepper_ps_copy.c (replicas),
 * stepper_ps_state.c (what a server knows as bytes) and stepper_ps_move.c (other ranks) share. */
#ifndef GW_ENGINE_STEPPER_PS_INTERNAL_H
#define GW_ENGINE_STEPPER_PS_INTERNAL_H

#include "engine/mail.h"
#include "engine/stepper_internal.h"
#include "engine/stepper_ps.h"
#include "server/keeper.h"
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
    bool gone, answered; /* of these, what has happened */
    bool again;          /* to be pushed again: ranks have come together anew */
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
    GW_PS_LEAVE,  /* the worker makes no more pushes */
    GW_PS_OVER,   /* the server's reply to that: it sends no more answers */
    GW_PS_COPY,   /* a push that the server has used, or the sum of a round, for its replica */
    GW_PS_COPIED, /* the replica's reply to that */
    GW_PS_CLOSE,  /* to the replica: there will be no more copies */
    GW_PS_CLOSED, /* the replica's reply to that: its last letter */
    GW_PS_MADE    /* ranks have come together anew: the worker's next push of that parcel is of that step */
} gw_ps_letter;

_Static_assert(GW_PS_MADE < GW_MAIL_KINDS, "letters of different kinds do not wait for each other");

/* Of a letter: what it is, and for copies the worker whose push it was (-1: a round's sum). */
static inline gw_ps_letter gw_letter_kind(const gw_letter *letter) { return (gw_ps_letter)(letter->kind & 0xff); }
static inline int gw_letter_worker(const gw_letter *letter) { return (int)(letter->kind >> 8) - 1; }
static inline uint32_t gw_letter_of(gw_ps_letter kind, int worker) {
    return (uint32_t)kind | (uint32_t)(worker + 1) << 8;
}

/* What one server knows. */
typedef struct gw_shelf {
    int server; /* -1: none */
    bool known; /* it holds what the server knows; false: that is still to be handed over */
    gw_desk *desk;
    uint8_t *result;  /* its space: means */
    uint8_t *weights; /* its space, where weights live on servers */
} gw_shelf;

/* The state of a server from before ranks came together anew, to be given to whoever runs it now. */
typedef struct gw_kept_state {
    int server; /* -1: none */
    void *bytes;
    size_t count;
} gw_kept_state;

typedef struct gw_ps_codec gw_ps_codec;

struct gw_ps {
    gw_stepper *stepper;
    int rank, world, servers, own; /* own: the server of this rank, -1: none */
    gw_placement placement;
    int workers;         /* ranks that work */
    uint64_t base;       /* the number of the job's first step: rounds are counted from there */
    gw_sync_rule rule;
    bool weights_here;   /* servers keep weights and answer with them */
    bool additive;       /* these servers cannot run the caller's update: differences of weights are pushed */
    uint8_t *moved;      /* additive, a worker's: weights after the update, of the largest parcel */
    size_t moved_bytes;
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
    bool repeats;        /* ranks have come together anew: parcels are to be pushed again, or told of (GW_PS_MADE) */
    /* The server's. */
    gw_shelf shelf;
    size_t landing_bytes;
    uint8_t **landing;   /* by worker: slots of the own space; NULL for the own worker, whose memory is used as it is */
    const void **sources; /* world entries, scratch */
    gw_keeper *keeper;   /* of snapshots; NULL: none are written */
    uint64_t used;       /* parcels used since the last was taken */
    void *snapshot;      /* memory to take one in */
    int own_parcels;     /* how many are the own server's */
    int known_workers;   /* that were there when it was restored from a snapshot */
    bool tells_lost;     /* restored from a snapshot: what was lost is still to be told */
    /* A replica of another server here, and the replica of the own server elsewhere. */
    gw_shelf copy;
    uint8_t *copy_landing; /* its space */
    int *copy_queue;     /* by own parcel, workers entries each: whose pushes are to be copied, in order */
    uint64_t *copy_step; /* by own parcel and worker: the step of its push */
    int *copy_waiting;   /* by parcel: how many of them; the first is on its way */
    uint8_t *scratch;    /* of the largest parcel, where the own server has a replica */
    int copies_due;      /* on their way, or queued */
    bool said_close;
    gw_kept_state kept[2];
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
void gw_ps_made(gw_ps *ps, int parcel, int worker, uint64_t next, gw_time now, gw_error *error);
void gw_ps_answer_due(gw_ps *ps, int parcel, gw_time now, gw_error *error);
const uint8_t *gw_ps_pushed_by(const gw_ps *ps, const gw_parcel *parcel, int worker);
/* The caller's optimiser, on a server's weights. */
void gw_ps_update(gw_ps *ps, gw_shelf *shelf, const gw_parcel *parcel, const uint8_t *gradient, uint64_t step,
                  double scale);
double gw_ps_scale(const gw_ps *ps); /* of one worker's push: what all push in a step adds up to one of the mean */
/* Additive: the worker runs the caller's update on a copy of its weights, and the difference takes the gradient's
 * place. */
void gw_ps_take_difference(gw_ps *ps, const gw_parcel *parcel, uint64_t step);
gw_status gw_shelf_open(gw_ps *ps, gw_shelf *shelf, int server, gw_error *error);
void gw_shelf_close(gw_shelf *shelf);
gw_status gw_ps_open_desks(gw_ps *ps, gw_error *error); /* for the parcels as they are cut now */

/* stepper_ps_copy.c: replicas. */
gw_status gw_ps_copy_open(gw_ps *ps, gw_error *error);
void gw_ps_copy_close(gw_ps *ps);
void gw_ps_copy_clear(gw_ps *ps); /* nothing is being copied: parcels will be others */
bool gw_ps_copies(const gw_ps *ps); /* the own server has a replica */
/* A push has been used, or a round (worker -1): its answers wait until the replica has it too. */
void gw_ps_copy_out(gw_ps *ps, int parcel, int worker, uint64_t number, uint64_t step, gw_time now, gw_error *error);
void gw_ps_copy_came(gw_ps *ps, int from, const gw_letter *letter, gw_time now, gw_error *error);
void gw_ps_copied(gw_ps *ps, const gw_letter *letter, gw_time now, gw_error *error);
bool gw_ps_copy_end(gw_ps *ps, gw_time now, gw_error *error); /* the last letter to the replica; true if it went */

/* stepper_ps_state.c */
size_t gw_ps_state_bytes(const gw_ps *ps, const gw_shelf *shelf);
void gw_ps_state_save(const gw_ps *ps, const gw_shelf *shelf, void *memory);
gw_status gw_ps_state_restore(gw_ps *ps, gw_shelf *shelf, const void *memory, size_t bytes, bool old,
                              gw_error *error);

/* stepper_ps_keep.c: snapshots. */
gw_status gw_ps_keep_open(gw_ps *ps, gw_error *error);
void gw_ps_keep_close(gw_ps *ps);
void gw_ps_keep_used(gw_ps *ps);   /* a parcel has been used: a snapshot may be due */
void gw_ps_keep_heard(gw_ps *ps);  /* a push came: what was lost may be known now */

/* stepper_ps_codec.c. Set-up: open, then shares with that grain, then serve; lay after each cut. */
gw_status gw_ps_codec_open(gw_ps *ps, gw_error *error);
gw_status gw_ps_codec_serve(gw_ps *ps, gw_error *error);
gw_status gw_ps_codec_lay(gw_ps *ps, gw_error *error);
void gw_ps_codec_close(gw_ps *ps);
size_t gw_ps_codec_parcel(const gw_ps *ps); /* bytes of values, at most */
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
/* The server's: a push came; one push alone, or all of a round, become a sum in the shelf's result; and an answer. */
void gw_ps_codec_note(gw_ps *ps, int worker, const gw_letter *letter);
gw_status gw_ps_codec_decode(gw_ps *ps, int parcel, int worker, gw_error *error);
gw_status gw_ps_codec_sum(gw_ps *ps, int parcel, gw_error *error);
bool gw_ps_codec_answers(const gw_ps *ps, const gw_parcel *parcel, int worker); /* not plainly with values */
const uint8_t *gw_ps_codec_answer(gw_ps *ps, int parcel, int worker, gw_letter *letter, gw_error *error);

/* stepper_ps.c */
/* The answer stands in parcel->to, or where it is coded in the slot. */
void gw_ps_answered(gw_ps *ps, int from, const gw_letter *letter, gw_time now, gw_error *error);
void gw_ps_part_over(gw_ps *ps, int parcel);
void gw_ps_parcel_gone(gw_ps *ps, int parcel); /* its memory has been read */
gw_status gw_ps_seat_all(gw_ps *ps, gw_error *error); /* memory and links for the ranks as they are */
void gw_ps_unseat_all(gw_ps *ps);
int gw_ps_server_rank(const gw_ps *ps, int server);
void gw_ps_listen(gw_ps *ps); /* to whomever letters will come from */

#endif
