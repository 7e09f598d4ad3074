/* step_engine_internal.h - types and functions that these files share: step_engine_open.c (checks, memory),
 * step_engine.c (the caller's side and the driver's loop), step_engine_resume.c (another team), transfer_open.c (the
 * route and memory of a bucket), payload_memory.c (what payloads in flight need), dispatch.c (a bucket on its route),
 * hop.c (one hop), step_engine_save.c (saved state), step_engine_change.c (another strategy), step_clip.c,
 * step_finite.c and step_trace.c. */
#ifndef GW_REDUCER_STEP_ENGINE_INTERNAL_H
#define GW_REDUCER_STEP_ENGINE_INTERNAL_H

#include "arch/owners.h"
#include "arch/route.h"
#include "reducer/factors.h"
#include "reducer/payload_pool.h"
#include "reducer/start_order.h"
#include "reducer/step_engine.h"

typedef struct gw_step_engine_tensor {
    gw_reducer_tensor what; /* the name is a copy */
    gw_step_engine *step_engine;
    gw_sync_tensor view;
    gw_factors *factors;      /* NULL: it is not sent as factors */
    size_t offset;            /* bytes, in the pack buffer: tensors one after the other */
    uint64_t readied;         /* (C) steps in which it has been ready */
    _Atomic uint64_t done;    /* of these, the completed ones */
    _Atomic uint64_t reached; /* one more than the last step that was applied; the driver writes */
    float *carried;           /* (C) residual of a former codec, added to the next gradient. Owned; NULL: none */
    int left;                 /* its buckets still in flight; the driver's */
    uint64_t applying;        /* the step whose update is applied now; owned with the tensor's memory */
    uint32_t trace_name;      /* (C) in the recording step_engine->named_in */
    gw_time ready_at;         /* (C) while recording */
} gw_step_engine_tensor;

/* A bucket's part of one lane that this rank has. Its team has operations of this bucket only: ranks may start hops of
 * several buckets in different orders. */
typedef struct gw_transfer_lane {
    gw_team *team;
    gw_coded_exchange *exchange; /* coded; NULL: dense */
    gw_op *op;                   /* dense */
    float **values;              /* coded: what the lane has of each range; the result is written to the same place */
    bool over;                   /* in the current hop */
} gw_transfer_lane;

/* A bucket in flight. The driver's. */
typedef struct gw_transfer {
    bool active;
    gw_route route;
    int hop;                 /* of the route */
    bool second;             /* in its second half */
    bool waits;              /* for its turn or for memory: the hop has not been started */
    gw_payload_lease lease;  /* coded: of payload memory, for each half */
    size_t payload_bytes;    /* coded: of that */
    uint64_t turn;           /* of its all-gather in the host */
    gw_op *op;               /* of a hop among all ranks or in the host */
    gw_team *rack_team;      /* the rank with this local number on each host of the rack; NULL: none */
    gw_transfer_lane *lanes; /* of this rank; NULL: none */
    int lane_count;
    gw_step_engine_tensor *factored; /* sent as factors; NULL: not */
    uint8_t *data;                   /* dense: its elements, contiguous */
    bool copies;                     /* data is in the pack buffer, not in the tensors */
    size_t count;                    /* dense: elements */
    gw_dtype dtype;
    float *by_lane;   /* coded in two levels: the elements of each lane, lane_room for each; in lane_memory */
    size_t lane_room; /* elements */
    uint32_t labels[GW_HOPS_MAX]; /* names of its hops in the recording that was opened at labelled_in; 0: none */
    gw_time labelled_in;
} gw_transfer;

struct gw_step_engine {
    gw_step_engine_config config;
    gw_schedule *schedule;
    gw_step_engine_tensor *tensors;
    gw_transfer *transfers;   /* one for each bucket that a cut may have */
    gw_coded_tensor *coded;   /* one for each tensor; of those that are not coded without state. NULL: none */
    gw_coding coding;         /* that they are named with */
    gw_coded_watched watched; /* if config.watch_accuracy */
    gw_lanes lanes;           /* of routes in two levels, and of coded ones */
    gw_team *host_teams[2];   /* the ranks of this host: for reduce-scatters, for all-gathers. NULL: not needed */
    struct gw_shm_coll *host_colls[2]; /* theirs; NULL: they send messages */
    float *lane_memory;          /* of all buckets that are coded in two levels; from config.sharing if there is one */
    uint64_t next_turn, turn;    /* all-gathers in the host are started in the order in which their halves were: the
                                    next to be given; the next to be started */
    gw_payload_pool *payloads;   /* NULL: no bucket is coded */
    size_t payload_in_flight;    /* bytes that the busiest rank sends and receives for buckets that fit there */
    size_t *counts;              /* team size entries: parts of a bucket for reduce-scatter and all-gather */
    gw_start_order *start_order; /* NULL: the order is fixed */
    struct gw_ps *ps;            /* NULL: no servers */
    _Atomic bool leaving;        /* (C) no more steps will be made */
    float *kept;                 /* anchors and outer momentum */
    uint64_t steps;              /* (C) ended */
    bool accumulates;            /* (C) in a micro-step, whose gradients stay the caller's */
    int *awaited;                /* (C) of each bucket: gradients that are not ready in this step */
    int *ring;                   /* from the caller to the driver: tensors that are ready, or GW_STEP_OVER */
    uint32_t ring_mask;
    _Atomic uint32_t ring_head; /* (C) writes */
    _Atomic uint32_t ring_tail; /* the driver writes */
    _Atomic int under_way;      /* tensors handed over and not yet done */
    _Atomic int owed;           /* buckets that have all of their gradients and are not over: the driver has work */
    int *held;                  /* (C) clipping by the own norm: ready tensors of this step that wait, in order */
    int held_count;             /* (C) */
    int arrived;                /* clipping by the norm of the mean: tensors of this step that wait; the driver's */
    gw_error error;             /* the first; written once by the driver before failed */
    _Atomic bool failed;
    uint32_t generation; /* of the job, that its team belongs to */
    bool joined;         /* the job made steps before the first one of this engine or team */
    void *kept_codec;    /* between two teams: codec state, as gw_step_engine_state_save writes it. Owned; NULL:
                            none */
    size_t kept_codec_bytes;
    size_t memory;                      /* bytes allocated when it was opened */
    size_t flat_bytes;                  /* of config.flat, if there is one */
    gw_step_engine_nonfinite nonfinite; /* (C) */
    _Atomic gw_time named_in;           /* opening time of the recording in which tensors have names; 0: none */
};

#define GW_STEP_OVER (-1)

static inline uint64_t gw_step_engine_step(const gw_step_engine *s, uint64_t readied) {
    return s->config.options.first_step + readied;
}

/* step_engine_open.c. Makes the parts that depend on the team: schedule, ring, transfers, factors and their memory, for
 * config.tensors. */
gw_status gw_step_engine_build(gw_step_engine *step_engine, gw_error *error);
/* Frees what build made. Its operations are done, or the engine has failed. */
void gw_step_engine_teardown(gw_step_engine *step_engine);

/* step_engine_resume.c. Saves the codec state in kept_codec. Builds the parts again, of an engine that continues after
 * the furthest step that any tensor has made. */
gw_status gw_step_engine_keep_codec_state(gw_step_engine *step_engine, gw_error *error);
gw_status gw_step_engine_rebuild(gw_step_engine *step_engine, gw_error *error);

/* step_engine_change.c. Takes architecture, schedule, codec, team ids and pack buffer from config; true if codec and
 * architecture are the same. Then, once it is built again: the codec state that was kept, by that. */
bool gw_step_engine_take_config(gw_step_engine *step_engine, const gw_step_engine_config *config);
gw_status gw_step_engine_move_kept(gw_step_engine *step_engine, bool stays, gw_error *error);
/* (C) Adds what a former codec has left of this tensor to its gradient. */
void gw_step_engine_add_carried(gw_step_engine *step_engine, int tensor);

/* step_engine_save.c. Puts the saved residuals of this rank's codecs, bit by bit, into a step engine of another team
 * that has made no steps. The residual of the owner's pass is added to that of the worker's pass. */
gw_status gw_step_engine_state_move(gw_step_engine *step_engine, const void *memory, size_t bytes, gw_error *error);
/* The same from any codec: residuals are added to the next gradient. */
gw_status gw_step_engine_state_carry(gw_step_engine *step_engine, const void *memory, size_t bytes, gw_error *error);

/* step_finite.c. (C) Values of a gradient, or one of its factors, that is handed over: counts or refuses them, as the
 * options say, if one is not finite. */
gw_status gw_step_engine_check_finite(gw_step_engine *step_engine, int tensor, const void *values, size_t count,
                                      gw_error *error);

/* step_clip.c. Whether the gradients of a step are clipped by this norm; the factor for all of them, once all are
 * there. */
bool gw_step_engine_clips(const gw_step_engine *step_engine, uint64_t step, gw_sync_norm norm);
double gw_step_engine_clip_scale(const gw_step_engine *step_engine, gw_sync_norm norm);

/* step_engine.c. After a cut: no gradient of any bucket is ready. */
void gw_step_engine_await_all(gw_step_engine *step_engine);
/* The driver's. Takes what the caller has handed over; true if there was anything. */
bool gw_step_engine_take_ready(gw_step_engine *step_engine);

/* transfer_open.c */
/* Codec state of all tensors, and the teams of routes in two levels; before the first gw_transfers_bind. */
gw_status gw_transfers_prepare(gw_step_engine *step_engine, gw_error *error);
void gw_transfers_release(gw_step_engine *step_engine); /* frees what prepare made */
gw_status gw_transfers_bind(gw_step_engine *step_engine,
                            gw_error *error); /* after a cut: each bucket's route, memory */
void gw_transfers_unbind(gw_step_engine *step_engine, gw_transfer *transfers, int count);
void gw_transfers_move(gw_step_engine *step_engine); /* tensors are at other places; neither servers nor factors */
/* Whether a tensor may need the pack buffer, with any ranks of the job. */
bool gw_transfers_may_pack(const gw_step_engine_config *config, const gw_reducer_tensor *tensor);
/* Whether the strategy's codec encodes a tensor. */
bool gw_transfers_encode(const gw_step_engine_config *config, const gw_reducer_tensor *tensor);
/* What larger tensors are cut to, whatever the schedule; 0: they are not. */
size_t gw_transfers_piece_bytes(const gw_step_engine_config *config, const gw_reducer_tensor *tensor);
/* Where the values of a range are in its tensor. */
uint8_t *gw_transfers_range(const gw_step_engine *step_engine, const gw_tensor_range *range);
/* How many team ids they need at most; the one for the factors of a tensor. */
uint32_t gw_transfers_teams(const gw_step_engine_config *config, size_t buckets_most);
uint32_t gw_transfers_factor_team(const gw_step_engine_config *config, int tensor);

/* payload_memory.c. After a cut: memory for the payloads of buckets in flight. */
gw_status gw_payload_memory_open(gw_step_engine *step_engine, gw_error *error);

/* hop.c. The driver's. Starts the current hop of a bucket; true when it is over. */
void gw_hop_start(gw_step_engine *step_engine, int bucket, gw_time now, gw_error *error);
bool gw_hop_over(gw_step_engine *step_engine, int bucket, gw_time now, gw_error *error);
size_t gw_hop_sent_bytes(const gw_step_engine *step_engine, const gw_transfer *transfer, const gw_hop *hop);

/* dispatch.c. The driver's. */
/* Growth of the learning rate since the step before, for gw_codec_call. */
float gw_dispatch_rate_growth(const gw_step_engine *step_engine, uint64_t step);
void gw_dispatch_start(gw_step_engine *step_engine, int bucket, bool second_half, gw_time now, gw_error *error);
/* True when this half of the bucket's transfer is over. */
bool gw_dispatch_over(gw_step_engine *step_engine, int bucket, gw_time now, gw_error *error);
void gw_dispatch_finish(gw_step_engine *step_engine, int bucket); /* unpacks it */

/* step_trace.c: events of the recording, if there is one. (C) ready; the others are the driver's. */
void gw_step_engine_trace_ready(gw_step_engine *step_engine, gw_step_engine_tensor *tensor, uint64_t step);
/* A bucket is started. */
void gw_step_engine_trace_start(gw_step_engine *step_engine, int bucket);
gw_time gw_step_engine_trace_arrived(const gw_step_engine *step_engine, const gw_step_engine_tensor *tensor);
void gw_step_engine_trace_applied(const gw_step_engine *step_engine, const gw_step_engine_tensor *tensor,
                                  gw_time begun);

#endif
