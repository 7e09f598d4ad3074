/* gradwire/reducer.h - training steps. A reducer exchanges the gradients of a model, step after step. The tensors are
 * named once, in the order in which the forward pass needs them. In each step the caller says when each gradient is
 * ready, and waits for the tensor before the next forward pass uses it. The strategy decides what is sent when, in what
 * buckets or slices, how compressed, and between which ranks.
 *
 *     gw_reducer_commit(&reducer, comm, tensors, count, &options);   collective; all memory is allocated here
 *     for each training step:
 *         for each layer, forward:   gw_reducer_wait(reducer, t);    before weights (or the last result) of t are used
 *         for each layer, backward:  gw_reducer_ready(reducer, t);   its gradient is complete; do not touch it now
 *         gw_reducer_end(reducer);                                   every tensor has been ready, or absent, once
 *     gw_reducer_flush(reducer);                                     before evaluation, a checkpoint, the end
 *
 * One thread makes these calls. Calls that have nothing to do take well under a microsecond. After a failure of the
 * communicator every call returns its error.
 *
 * Several reducers (the two models of a GAN) may be open on one communicator, with steps of all of them in flight. Each
 * may have another strategy, and a thread of its own. Collective calls (commit, resume, leave, close, workers, and
 * while a schedule is tuned or measured, or a strategy is chosen, also end) are made in the same order on all ranks.
 * All other calls of different reducers need no common order, as long as no rank waits for a tensor that another rank
 * hands over only after a wait of its own. */
#ifndef GRADWIRE_REDUCER_H
#define GRADWIRE_REDUCER_H

#include "gradwire.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The training steps of one model on a communicator. */
typedef struct gw_reducer gw_reducer;

/* A tensor of the model. Zeros are fine in the fields that a caller does not need. */
typedef struct gw_reducer_tensor {
    const char *name; /* the same on all ranks; copied */
    size_t count;     /* elements */
    gw_dtype dtype;   /* GW_F32; other types are only sent uncompressed, and the reducer cannot update them */
    void *gradient;   /* the caller's until gw_reducer_ready, the reducer's until gw_reducer_wait returns. It then holds
                         the mean (or sum) over all ranks, unless the reducer runs `update`. Fastest: memory of
                         gw_alloc, tensors side by side. */
    void *weights;    /* written by `update`; NULL if the caller updates after gw_reducer_wait */
    size_t rows;      /* of a matrix, a divisor of count; 0: not a matrix. Low-rank codecs use it. */
    bool exact;       /* never compressed (biases, norms) */
    size_t batch;     /* of a fully connected layer: its gradient is the sum of at most this many outer products on each
                         rank, and may be sent as their factors (arch=sfb); 0: it may not */
    const int *after; /* tensors before it in the list, on whose operations of the forward pass its own operation
                         builds: the graph of a model with branches (schedule=tictac). NULL: the tensor before it, as in
                         a chain. Copied; the same on all ranks */
    int after_count;  /* 0, with a list: it builds on none, only on the model's input */
} gw_reducer_tensor;

/* One update of (a range of) a tensor, for the caller's optimiser. */
typedef struct gw_reducer_update {
    int tensor;           /* its place in the list of gw_reducer_commit */
    size_t first, count;  /* elements of the tensor; the whole tensor unless a server owns only a shard of it, or gets
                             it in parts (gw_reducer_options.whole_tensors) */
    void *weights;        /* at element `first`: the tensor's own, or a copy of them */
    const void *gradient; /* at element `first` */
    uint64_t step;        /* which step's gradient this is */
    double scale;         /* multiply the gradient by it first: clipping; with GW_SUM the number of workers where each
                             of their gradients makes an update of its own; 1 otherwise */
    bool temporary;       /* a temporary update of a local copy (sync=delayed), replaced later: plain w -= rate * g;
                         do not use or change momentum or other optimiser state */
    double rate_scale;    /* multiply the learning rate by it, and so all that the update adds to the weights, decay
                             included: one over the number of workers where each of their gradients makes an update of
                             its own (asp, ssp), so that together they make one step; 1 otherwise */
    uint64_t updates;     /* how many updates the optimiser's arrays of this range have had, this one included: what
                             Adam's bias correction needs. step + 1, except on a server that updates with each worker's
                             gradient; after losses of workers an estimate */
    double momentum; /* that the codec has applied to this gradient (compress=dgc); 0: none. The optimiser then adds
                        none of its own to it: see gw_reducer_takes_momentum */
} gw_reducer_update;

/* Called by the thread that drives communication, one call at a time. It must not call the library, nor wait for a lock
 * that a caller of the library may hold. Never called between a failure and gw_reducer_resume. */
typedef void gw_reducer_update_fn(void *ctx, const gw_reducer_update *update);

/* The learning rate of a step, a function of its number alone; called as gw_reducer_update_fn is. */
typedef double gw_reducer_rate_fn(void *ctx, uint64_t step);

/* The optimiser's array number `which` (momentum, say) for a tensor: one float for each element; NULL: there are no
 * more arrays. Servers keep these in snapshots and replicas too, and gw_reducer_resume copies them to ranks that are
 * behind. Their number is the same on all ranks, from gw_reducer_commit on. */
typedef float *gw_reducer_state_fn(void *ctx, int tensor, int which);

/* What a gradient of this rank does that holds a NaN or an infinity when it is handed over, before it is sent. The
 * checks read it once, at the speed of memory. */
typedef enum gw_nonfinite {
    GW_NONFINITE_IGNORED, /* it is not looked for: the value reaches all ranks, or stays in the residual of a codec */
    GW_NONFINITE_COUNTED, /* it is sent, and gw_reducer_counters says which it was: where a loss is scaled, and steps
                             that overflow are left out */
    GW_NONFINITE_REFUSED, /* the call returns GW_NOT_FINITE, with tensor, element and step; the tensor is not ready */
} gw_nonfinite;

/* What the optimiser's momentum does where a codec has one of its own (compress=dgc). With both, steps would be too
 * large by a factor of 1/(1-m). */
typedef enum gw_momentum {
    GW_MOMENTUM_UNSAID,  /* the optimiser keeps what it has: the codec has none by default, and one that the strategy
                            asks for is GW_UNSUPPORTED */
    GW_MOMENTUM_OFFERED, /* the codec takes it over, and the optimiser goes without: see gw_reducer_takes_momentum */
    GW_MOMENTUM_KEPT,    /* the optimiser cannot give it up (the first moment of Adam): a codec that has one is
                            GW_UNSUPPORTED */
} gw_momentum;

/* What a reducer does with the tensors. Begin with GW_REDUCER_OPTIONS_DEFAULT. Strings are copied. */
typedef struct gw_reducer_options {
    size_t size;                  /* of this struct, in bytes */
    const char *strategy;         /* overrides axes of the communicator's strategy; NULL: none */
    gw_redop op;                  /* GW_AVG or GW_SUM */
    double clip;                  /* largest norm of all gradients together; 0: no limit. Needs update. Under sync=bsp,
                                     ssp:staleness=0, and for the weights that ranks share under delayed, it is the norm
                                     of the mean: no tensor is updated before all have arrived. Under asp, ssp, backup,
                                     and in local steps of periodic and delayed, it is that of this rank's gradients:
                                     none is used or sent before all are ready. A norm that is not finite is not
                                     clipped. */
    uint64_t seed;                /* of the job's random codecs */
    uint64_t first_step;          /* the number of the first step, e.g. after a checkpoint */
    gw_reducer_update_fn *update; /* NULL: the caller updates after gw_reducer_wait */
    void *ctx;                    /* passed to update, state and rate */
    const char *tune;             /* "off"; "on": sizes of the schedule are tuned during the first steps, and the result
                                     is never slower than the start; or a file that stores the result for the next run,
                                     one for each reducer. NULL: GRADWIRE_TUNE, else off. The same on all ranks. */
    gw_reducer_state_fn *state;   /* the arrays that update keeps from step to step; NULL: none */
    gw_reducer_rate_fn *rate;     /* NULL: constant. Codecs with a residual need it: a part of a gradient that is sent
                                     late is scaled to the rate of its own step. */
    gw_nonfinite nonfinite;       /* what happens to gradients that are not finite */
    double momentum;          /* of the optimiser that applies the results, if it is offered to the codec: that of all
                                 tensors, 0 to 1; 0: it has none. The same on all ranks, as the next two */
    gw_momentum momentum_use; /* whether the codec may take it over */
    uint64_t steps;           /* of the whole run, from step 0 on; 0: not known. The warm-up of compress=dgc is a
                                 fifth of it by default. */
    bool whole_tensors; /* `update` needs whole tensors, for the norm of a layer (LARS, LAMB): where servers run it, no
                           tensor is cut between them or into slices */
    const char *decisions; /* strategy=auto: a file. Decisions are written to it; one that exists is replayed, and
                              nothing is measured. One for each reducer; the same on all ranks, rank 0 uses it. NULL:
                              GRADWIRE_DECISIONS, else none */
    const char *optimizer; /* strategy=auto with accuracy=safe: what uses the results, "sgd", "adam", "adamw": then
                              codecs are chosen that were measured to cost no accuracy with it. NULL: not known, and
                              those that cost none with any. The same on all ranks */
} gw_reducer_options;

/* Begin with these: gw_reducer_options options = GW_REDUCER_OPTIONS_DEFAULT; */
#define GW_REDUCER_OPTIONS_DEFAULT                                                                                     \
    {                                                                                                                  \
        .size = sizeof(gw_reducer_options), .strategy = NULL, .op = GW_AVG, .clip = 0, .seed = 0, .first_step = 0,     \
        .update = NULL, .ctx = NULL, .tune = NULL, .state = NULL, .rate = NULL, .nonfinite = GW_NONFINITE_IGNORED,     \
        .momentum = 0, .momentum_use = GW_MOMENTUM_UNSAID, .steps = 0, .whole_tensors = false, .decisions = NULL,      \
        .optimizer = NULL                                                                                              \
    }

/* gw_reducer_commit for tensors of tensor_size bytes each, as the caller's header has them. */
GW_API gw_status gw_reducer_commit_sized(gw_reducer **reducer, gw_comm *comm, const void *tensors, size_t tensor_size,
                                         int count, const gw_reducer_options *options);
/* Makes a reducer. A collective call. options may be NULL: the mean, and the caller updates. An impossible combination
 * is GW_UNSUPPORTED, with the reason. On failure *reducer is NULL. */
static inline gw_status gw_reducer_commit(gw_reducer **reducer, gw_comm *comm, const gw_reducer_tensor *tensors,
                                          int count, const gw_reducer_options *options) {
    return gw_reducer_commit_sized(reducer, comm, tensors, sizeof *tensors, count, options);
}
/* The momentum that the codec applies to the gradients of a tensor, after commit and after each resume; 0: none. Where
 * it is not 0 the optimiser goes without: it adds the result to the weights as it adds an update that has had its
 * momentum. Weight decay is the optimiser's, with its momentum. Tensors that are sent exact (small ones, all of them
 * where nothing crosses a link) keep the optimiser's momentum. */
GW_API double gw_reducer_takes_momentum(const gw_reducer *reducer, int tensor);
/* The gradient of a tensor is complete in this step, and is the reducer's until gw_reducer_wait returns. GW_INVALID if
 * the tensor has been ready or absent in this step already, or is still under way from the step before. */
GW_API gw_status gw_reducer_ready(gw_reducer *reducer, int tensor);
/* The same for `count` tensors, with one notification of the thread that drives communication. If one entry is invalid,
 * none of them is ready. */
GW_API gw_status gw_reducer_ready_many(gw_reducer *reducer, const int *tensors, int count);
/* Instead of gw_reducer_ready: this rank has no gradient for the tensor in this step, as with a layer that it did not
 * use. It contributes zeros, or no factors: the mean still divides by all ranks, a codec sends its residual as usual,
 * and an optimiser that runs on this rank gets zeros. The gradient is overwritten, and receives the result as usual. */
GW_API gw_status gw_reducer_absent(gw_reducer *reducer, int tensor);
/* Whether a tensor is sent as factors: arch=sfb, a batch is given, and factors cost less than the matrix. The caller
 * then need not compute its gradient, and calls gw_reducer_ready_factors instead of gw_reducer_ready: the gradient is
 * the sum over `batch` examples of the outer products of left (batch x rows) and right (batch x columns), row major.
 * Both are copied. In a step in which any rank calls gw_reducer_ready (it has no factors, or more than fit), the
 * matrices of all ranks are reduced instead. */
GW_API bool gw_reducer_wants_factors(const gw_reducer *reducer, int tensor);
GW_API gw_status gw_reducer_ready_factors(gw_reducer *reducer, int tensor, const float *left, const float *right,
                                          size_t batch);
/* Accumulation over micro-steps, as DDP's no_sync. Called between two steps. While it is on, the calls for a tensor
 * (ready, ready_many, ready_factors, absent) and gw_reducer_end check their arguments and do nothing else: nothing is
 * sent, no step is counted, and the gradient stays the caller's, who adds to it. gw_reducer_wait works as always, and
 * returns at once if the tensor was waited for before. The first step after it is off sends what the gradient then
 * holds; factors of all micro-steps are given together in that step (`batch` counts them all). Local to this rank:
 * ranks may accumulate at different moments and over different numbers of micro-steps, but all make the same steps.
 * GW_INVALID in the middle of a step. */
GW_API gw_status gw_reducer_accumulate(gw_reducer *reducer, bool on);
/* Returns when the tensor's weights, or the result in its gradient, may be used. GW_INVALID if it is ready in a step
 * that has not ended. */
GW_API gw_status gw_reducer_wait(gw_reducer *reducer, int tensor);
/* Returns when one of these tensors may be used, and its place in the list: the first that may. For forward passes
 * whose operations can run in several orders; gw_reducer_wait is still called for each tensor. */
GW_API gw_status gw_reducer_wait_any(gw_reducer *reducer, const int *tensors, int count, int *which);
/* Ends the step. GW_INVALID, with the tensor's name, if one was neither ready nor absent; the step then continues. */
GW_API gw_status gw_reducer_end(gw_reducer *reducer);
/* Returns when nothing of this rank is in flight: before evaluation, a checkpoint, the end. Not in the middle of a
 * step. Under asp and ssp others may still push, and weights are those of this rank's last step: broadcast one rank's
 * where all must have the same. */
GW_API gw_status gw_reducer_flush(gw_reducer *reducer);
/* This rank makes no more steps. Returns when all ranks have called it, since others may still need this rank's server.
 * If it fails, call it again after gw_reducer_resume. gw_reducer_close does the same. */
GW_API gw_status gw_reducer_leave(gw_reducer *reducer);
/* After a failure: the reducer continues over another communicator, from gw_regroup or gw_shrink. Every rank that has
 * the reducer calls this; a restarted rank (gw_regroup) calls gw_reducer_commit. If it fails because more ranks were
 * lost, call it again with the communicator of the next gw_regroup or gw_shrink. Several reducers are resumed one after
 * the other, those of the same tensors and strategy in the order in which they were committed.
 *
 * Without servers the interrupted step is over. Each tensor has received the whole result of that step or nothing of it
 * (gw_reducer_reached), but ranks may differ. Where a tensor is behind, its weights and the optimiser's arrays
 * (`state`) are copied from a rank that is ahead, so that afterwards all ranks hold the same bits. A restarted rank
 * gets those of all tensors. With `update` but without `state` only weights are copied. Without `update` nothing is
 * copied: before this call, gw_reducer_reached says whether a tensor holds the result of the interrupted step. All
 * ranks continue with the same step number (gw_reducer_counters.step). Gradients that were ready and did not arrive are
 * dropped, in a codec's residual too. Under sync=periodic the weights of ranks differ as before, and what they share is
 * made equal. Memory from gw_alloc stays in use: keep the old communicator if it is from another gw_init or gw_regroup.
 *
 * Over servers (arch=ps) the interrupted step continues. Make the calls that failed again: gradients that were ready
 * and not answered are pushed again, and none is used twice. Under asp and ssp a lost worker holds nobody back; a
 * restarted one gets the current weights and the number of its first step (first_step of gw_reducer_read_counters).
 * Under bsp the mean is over the remaining workers. A lost server continues from its replica (replicas=1) or its last
 * snapshot (snapshot=N); without either this is GW_PEER_LOST. */
GW_API gw_status gw_reducer_resume(gw_reducer *reducer, gw_comm *comm);
/* Whether the strategy has servers: after gw_reducer_resume the interrupted step continues; without them it is
 * over. */
GW_API bool gw_reducer_has_servers(const gw_reducer *reducer);
/* One more than the number of the last step whose mean (or sum) this tensor has received on this rank. With `update`,
 * its weights include every step before this number. Without `update`, its gradient holds the result of the step before
 * this number, or held it when gw_reducer_wait returned. A tensor is never between two steps. After a failure ranks may
 * differ by one. Any thread may call it. */
GW_API uint64_t gw_reducer_reached(const gw_reducer *reducer, int tensor);
/* Waits for exchanges in flight, and frees the reducer. NULL is fine. Call it before its communicator is finalised. */
GW_API void gw_reducer_close(gw_reducer *reducer);

/* What a reducer has done (gw_reducer_read_counters). */
typedef struct gw_reducer_counters {
    uint64_t steps;                     /* ended */
    uint64_t bytes_sent, messages_sent; /* by this process since the commit; shared memory that is reduced in place is
                                           not sent */
    uint64_t dense_bytes;               /* what uncompressed all-reduces would send on each rank: 2 (n-1)/n of all
                                           bytes */
    uint64_t wait_ns;                   /* time that calls waited: communication that computation did not hide */
    int buckets;                        /* of the current cut, slices included */
    size_t memory_bytes, codec_bytes;   /* allocated at commit; the codec's part of it */
    bool local_optimisers;              /* ranks have optimiser state of their own, and weights differ between
                                exchanges */
    bool weights_agree;                 /* once flushed, all ranks hold the same weights at this step */
    bool tuning;                        /* sizes are being tuned, or a strategy is being chosen */
    int trials;                         /* of that so far */
    uint64_t first_step;                /* the number of the first step; of a restarted worker, where it joined */
    uint64_t step;                      /* the number of the step in progress, or of the next */
    uint64_t nonfinite;                 /* gradients of this rank that were not finite (GW_NONFINITE_COUNTED) */
    uint64_t nonfinite_step;            /* of the last of them: its step */
    int nonfinite_tensor;               /* and its tensor */
} gw_reducer_counters;
/* Writes the first `size` bytes of the counters. */
GW_API void gw_reducer_read_counters_sized(const gw_reducer *reducer, void *counters, size_t size);
static inline gw_reducer_counters gw_reducer_read_counters(const gw_reducer *reducer) {
    gw_reducer_counters counters;
    gw_reducer_read_counters_sized(reducer, &counters, sizeof counters);
    return counters;
}
/* The current strategy, with tuned sizes. Works like snprintf: writes at most size bytes, and returns the length of the
 * whole text. */
GW_API int gw_reducer_strategy(const gw_reducer *reducer, char *text, size_t size);
/* The way that buckets really take, a line for each route, hop by hop with the bytes that this rank sends at most:
 * "6 buckets (1.04 MiB): reduce-scatter in each host (266 KiB), ...". Works like snprintf. */
GW_API int gw_reducer_routes(const gw_reducer *reducer, char *text, size_t size);

/* How one worker waited for others at the parameter servers (arch=ps), and how others waited for it. With several
 * servers, each field is the largest value of any server. */
typedef struct gw_reducer_worker_stats {
    uint64_t pushes, late;   /* late: arrived after their round was over and were not used (sync=backup) */
    uint64_t held_ns;        /* time that answers to it were held back */
    uint64_t held_others_ns; /* time that answers to others were held back because of it */
} gw_reducer_worker_stats;
/* gw_reducer_workers for entries of entry_size bytes each. */
GW_API gw_status gw_reducer_workers_sized(gw_reducer *reducer, void *workers, size_t entry_size);
/* How workers waited for each other; one entry for each rank, zeros without servers. A collective call. */
static inline gw_status gw_reducer_workers(gw_reducer *reducer, gw_reducer_worker_stats *workers) {
    return gw_reducer_workers_sized(reducer, workers, sizeof *workers);
}

/* The state that this rank keeps from step to step (residuals of codecs, anchors), bit for bit; save and restore flush
 * first. restore: GW_MISMATCH if it is of another model, strategy, rank or number of ranks. */
GW_API size_t gw_reducer_state_bytes(const gw_reducer *reducer);
GW_API gw_status gw_reducer_state_save(gw_reducer *reducer, void *memory);
GW_API gw_status gw_reducer_state_restore(gw_reducer *reducer, const void *memory, size_t bytes);
/* If the number of ranks has changed: call it on every new rank, on a fresh reducer, once for each old rank, with the
 * state that this old rank saved. Each new rank then holds the mean of all old residuals, so the values that were still
 * to be sent arrive; with GW_AVG neither more nor less of them. Residuals that lost ranks have not saved are lost. */
GW_API gw_status gw_reducer_state_merge(gw_reducer *reducer, const void *memory, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
