/* schedule.h - in what order, and in what pieces, the gradients of a step travel.
 *
 * A schedule cuts the tensors of a model into pieces: neighbouring small tensors fused, large ones sliced. It is told
 * when gradients are ready and when exchanges are over, and says which piece is to be started next. It is pure: no
 * clock, no memory after gw_schedule_open, no knowledge of who carries the pieces; the same calls give the same
 * answers on every machine. One thread at a time.
 *
 * Tensors are numbered in the order in which the forward pass needs them; backward produces them from the last to the
 * first, and pieces are listed in that order. A policy is one file and one line in registry.c. */
#ifndef GW_SCHEDULE_H
#define GW_SCHEDULE_H

#include "base/status.h"
#include "base/technique.h"

typedef struct gw_schedule_tensor {
    size_t count;     /* elements */
    size_t element;   /* bytes of one */
    int kind;         /* only tensors of one kind are fused */
    bool whole;       /* never cut */
} gw_schedule_tensor;

/* What a policy is set to, and a tuner may change between two steps. 0: does not apply. */
typedef struct gw_schedule_settings {
    size_t fuse_bytes;   /* small tensors are fused up to this */
    size_t slice_bytes;  /* tensors larger than this are cut */
    size_t credit_bytes; /* at most this is in flight, or a single piece */
    bool measured;       /* the policy wants facts: the cut is made anew once they are known */
    bool one_queue;      /* pieces are carried one at a time, so nothing overtakes (gw_machine's at_once) */
} gw_schedule_settings;

/* What has been measured; 0 and NULL where it has not. */
typedef struct gw_schedule_facts {
    double alpha_us, us_per_byte; /* an exchange of n bytes takes alpha + n * us_per_byte */
    const double *forward_us;     /* of each tensor: the compute that it unlocks. The caller's. */
    const double *backward_us;    /* of each tensor: from the one produced before it to this one. The caller's. */
} gw_schedule_facts;

/* A part of one tensor. */
typedef struct gw_span {
    int tensor;
    size_t first, count; /* elements */
} gw_span;

typedef enum gw_piece_state {
    GW_PIECE_GATHERING, /* not all of its gradients are ready */
    GW_PIECE_READY,
    GW_PIECE_MOVING,    /* being exchanged; by a policy that splits: being reduced and scattered */
    GW_PIECE_HALFWAY,   /* reduced and scattered */
    GW_PIECE_SPREADING, /* being gathered */
} gw_piece_state;

typedef struct gw_piece {
    int first_span, spans; /* tensors in forward order */
    size_t bytes;
    int priority;          /* lower is needed sooner */
    gw_piece_state state;
    int missing;           /* spans whose gradient is not ready */
    uint64_t readied;      /* how many steps it has been ready in */
    bool in_flight;        /* it holds credit */
} gw_piece;

typedef struct gw_schedule gw_schedule;

typedef struct gw_policy {
    gw_technique technique;
    bool reorders; /* what is next depends on what was ready when: ranks would disagree, so one decides for all */
    bool splits;   /* reduce-scatter and all-gather are started apart */
    /* From the values of the technique's parameters, in their order. */
    gw_schedule_settings (*settings)(const double *values);
    void (*cut)(gw_schedule *schedule);
    /* Which piece is to be started now, -1: none. */
    int (*next)(const gw_schedule *schedule);
    /* Ranks pieces after a cut; NULL: in forward order. */
    void (*rank)(gw_schedule *schedule);
} gw_policy;

extern const gw_policy gw_policy_fifo, gw_policy_wfbp, gw_policy_mgwfbp, gw_policy_p3, gw_policy_bytescheduler,
    gw_policy_tictac, gw_policy_dear;

/* All of them, NULL at the end; the default first. A policy begins with its technique. */
extern const gw_technique *const gw_schedule_techniques[];
const gw_policy *gw_policy_of(const gw_technique *technique);

#define GW_SLICE_BYTES_MIN (16 * 1024)

/* tensors are copied. Memory is taken for any settings with slices of at least GW_SLICE_BYTES_MIN. */
gw_status gw_schedule_open(gw_schedule **schedule, const gw_policy *policy, const gw_schedule_settings *settings,
                           const gw_schedule_tensor *tensors, int count, gw_error *error);
void gw_schedule_close(gw_schedule *schedule); /* NULL is fine */

/* Cuts anew; only while nothing is ready or in flight (gw_schedule_idle). facts may be NULL. */
void gw_schedule_cut(gw_schedule *schedule, const gw_schedule_settings *settings, const gw_schedule_facts *facts);
bool gw_schedule_idle(const gw_schedule *schedule);

const gw_policy *gw_schedule_policy(const gw_schedule *schedule);
const gw_schedule_settings *gw_schedule_set_to(const gw_schedule *schedule);
int gw_schedule_pieces(const gw_schedule *schedule);
int gw_schedule_pieces_max(const gw_schedule *schedule); /* of any cut */
const gw_piece *gw_schedule_piece(const gw_schedule *schedule, int piece);
const gw_span *gw_schedule_spans(const gw_schedule *schedule, int piece);
/* The pieces that hold a part of a tensor stand side by side. */
int gw_schedule_pieces_of(const gw_schedule *schedule, int tensor, int *first);
size_t gw_schedule_in_flight(const gw_schedule *schedule); /* bytes */

/* What happens. */
void gw_schedule_ready(gw_schedule *schedule, int tensor);
void gw_schedule_end(gw_schedule *schedule); /* every tensor has been ready in this step */
/* What to start next (-1: nothing now), and that it has been started. A follower starts what it is told, once it can
 * be. */
int gw_schedule_next(const gw_schedule *schedule);
bool gw_schedule_startable(const gw_schedule *schedule, int piece);
void gw_schedule_start(gw_schedule *schedule, int piece);
/* How urgent the messages of a piece are among those of others that are under way, 0 (not) to GW_URGENCY_MAX; of its
 * second half where a policy splits. Who carries them lets the more urgent overtake. */
#define GW_URGENCY_MAX 254
uint8_t gw_schedule_urgency(const gw_schedule *schedule, int piece, bool second);
/* What this rank gives to its exchange has left, so that its credit is free again; where others may start in another
 * order and nobody publishes one (servers), waiting for the answer as well could wait for ever. */
void gw_schedule_left(gw_schedule *schedule, int piece);
/* Its exchange is over; by a policy that splits: this half of it. True when nothing of it is left to do. */
bool gw_schedule_done(gw_schedule *schedule, int piece);

#endif
