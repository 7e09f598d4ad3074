/* stepper_internal.h - what stepper_open.c (memory, checks), stepper.c (the caller's side and the driver's loop),
 * stepper_carry.c (a piece on its way) and stepper_state.c (what is saved) share. */
#ifndef GW_ENGINE_STEPPER_INTERNAL_H
#define GW_ENGINE_STEPPER_INTERNAL_H

#include "engine/publish.h"
#include "engine/stepper.h"
#include "engine/stepper_factors.h"

typedef struct gw_stepper_tensor {
    gw_step_tensor what;            /* the name is a copy */
    gw_stepper *stepper;
    gw_sync_tensor view;
    gw_factors *factors;       /* NULL: it travels as it is */
    size_t offset;             /* bytes, in the flat memory: tensors one after the other */
    uint64_t readied;          /* (C) steps it has been ready in */
    _Atomic uint64_t done;     /* of these, over */
    _Atomic uint64_t reached;  /* the step after the last one whose combination was applied; the driver writes */
    int left;                  /* pieces of it still under way; the driver's */
    uint64_t applying;         /* the step whose update is applied now; by whoever holds the tensor */
    uint32_t trace_name;       /* (C) of the recording stepper->named_in */
    gw_time ready_at;          /* (C) while recording */
} gw_stepper_tensor;

/* A piece on its way. The driver's. */
typedef struct gw_run {
    bool active;
    gw_op *op;             /* dense */
    gw_exchange *exchange; /* coded; NULL: dense */
    gw_team *team;         /* the exchange's */
    gw_stepper_tensor *factored; /* travels as factors; NULL: not */
    uint8_t *data;         /* dense: where its elements stand together */
    bool copies;           /* in the flat memory, not where the tensors lie */
    size_t count;
    gw_dtype dtype;
    float **values;        /* coded: what travels of each tensor, and where the mean is put */
    uint32_t label;        /* what the recording opened at labelled_in calls it */
    gw_time labelled_in;
} gw_run;

struct gw_stepper {
    gw_stepper_config config;
    gw_schedule *schedule;
    gw_stepper_tensor *tensors;
    gw_run *runs;              /* one for each piece that a cut may have */
    float **values;            /* memory of gw_run.values */
    size_t *counts;            /* team size entries: parts of a piece for reduce-scatter and all-gather */
    gw_publisher *publisher;   /* NULL: the order is fixed */
    struct gw_ps *ps;          /* NULL: no servers */
    _Atomic bool leaving;      /* (C) no more steps will be made */
    float *kept;               /* anchors, momentum and copies that travel */
    uint64_t steps;            /* (C) ended */
    int *awaited;              /* (C) of each piece: gradients that are not ready in this step */
    int *ring;                 /* tensors that are ready, or STEP_OVER, from the caller to the driver */
    uint32_t ring_mask;
    _Atomic uint32_t ring_head; /* (C) writes */
    _Atomic uint32_t ring_tail; /* the driver writes */
    _Atomic int under_way;     /* tensors handed over and not yet done */
    _Atomic int owed;          /* pieces that have all of their gradients and are not over: the driver has work */
    int arrived;               /* clipping: tensors of this step that wait for the norm; the driver's */
    double scale;              /* of the gradients being applied */
    gw_error error;            /* the first; written once by the driver before failed */
    _Atomic bool failed;
    uint32_t generation;       /* of the job, to which its team belongs */
    bool joined;               /* steps were made before its first, among other ranks */
    void *kept_codec;          /* while parted: codec state, as gw_stepper_state_save writes it. Owned; NULL: none */
    size_t kept_codec_bytes;
    size_t memory;             /* bytes taken when it was opened */
    size_t flat_bytes;         /* of config.flat, if there is one */
    _Atomic gw_time named_in;  /* when the recording was opened that tensors have names in; 0: none */
};

#define GW_STEP_OVER (-1)

static inline uint64_t gw_stepper_step(const gw_stepper *s, uint64_t readied) {
    return s->config.options.first_step + readied;
}

/* stepper_open.c. What depends on the team: schedule, ring, runs, factors and their memory, for config.tensors. */
gw_status gw_stepper_build(gw_stepper *stepper, gw_error *error);
void gw_stepper_raze(gw_stepper *stepper); /* the contrary; its operations are done, or the engine has failed */

/* stepper_state.c. Into a stepper of another team, without steps yet: what this rank's codecs held back, exactly; what
 * it held back as an owner is added to what it holds back as a worker. */
gw_status gw_stepper_state_carry_over(gw_stepper *stepper, const void *memory, size_t bytes, gw_error *error);

/* stepper.c. After a cut: no gradient of any piece is ready. */
void gw_stepper_await_all(gw_stepper *stepper);
/* The driver's. Takes what the caller has handed over; true if there was anything. */
bool gw_stepper_take_ready(gw_stepper *stepper);

/* stepper_carry.c. The driver's. */
gw_status gw_carry_bind(gw_stepper *stepper, gw_error *error); /* after a cut: memory and codecs of each piece */
/* A team of the same ranks, for one that starts operations in an order of its own. */
gw_status gw_carry_team(const gw_stepper_config *config, uint32_t id, gw_team **team, gw_error *error);
void gw_carry_unbind(gw_run *runs, int count);
/* Codec state of the old pieces passes to the new ones, by name. */
void gw_carry_adopt(gw_run *runs, int count, const gw_run *old, int old_count);
/* Of the learning rate since the step before, as codecs want to know it (gw_codec_call). */
float gw_carry_rate_growth(const gw_stepper *stepper, uint64_t step);
void gw_carry_start(gw_stepper *stepper, int piece, bool second_half, gw_time now, gw_error *error);
/* True when this half of it is over. */
bool gw_carry_over(gw_stepper *stepper, int piece, gw_time now, gw_error *error);
void gw_carry_finish(gw_stepper *stepper, int piece); /* copies back what was packed */

/* stepper_trace.c: what a recording is told, if there is one. (C) ready; the others are the driver's. */
void gw_stepper_trace_ready(gw_stepper *stepper, gw_stepper_tensor *tensor, uint64_t step);
/* A piece starts to travel: its name there, 0 without a recording. */
uint32_t gw_stepper_trace_start(gw_stepper *stepper, int piece);
gw_time gw_stepper_trace_arrived(const gw_stepper *stepper, const gw_stepper_tensor *tensor);
void gw_stepper_trace_applied(const gw_stepper *stepper, const gw_stepper_tensor *tensor, gw_time begun);

#endif
