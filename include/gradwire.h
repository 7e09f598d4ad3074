/* gradwire.h - the communication stack of distributed deep learning: the only public header.
 *
 * A process joins a job with gw_init, which gives it a communicator: `gw_size` ranks that exchange data by
 * collectives. Every rank calls the same collectives on a communicator in the same order; the library checks that
 * they agree (kind, count, type, operation, root) and returns GW_MISMATCH on every rank where they do not.
 *
 * Errors. Every call returns a gw_status; GW_OK is 0. On failure outputs are untouched unless said otherwise (the
 * contents of a receive buffer are undefined after a failed collective). The first error of a communicator is kept:
 * every later call on it returns that status, and gw_last_error gives the full sentence, until the communicator is
 * shrunk or finalised. An error ends all communicators of the job, split ones included; a wrong argument fails only
 * the call. No call blocks forever: each has the communicator's deadline.
 *
 * Threads. Different communicators may be used from different threads at the same time. One communicator may be used
 * by one thread at a time (the order of collectives is the order of calls), except gw_abort, gw_last_error, gw_rank,
 * gw_size, gw_local_rank and gw_local_size, which any thread may call at any time before gw_finalize. A request may
 * be tested or waited for by any one thread.
 *
 * Fork. A forked child is not a rank: every call in it returns GW_INVALID and says so, gw_finalize and gw_reducer_close
 * free nothing there, and its exit does not affect the job.
 *
 * Memory. Buffers belong to the caller and must stay valid until the call, or the request, is complete. Buffers from
 * gw_alloc can be reduced in place by other ranks of the same host and are fastest; any other memory works.
 */
#ifndef GRADWIRE_H
#define GRADWIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GW_VERSION_MAJOR 0
#define GW_VERSION_MINOR 1
#define GW_VERSION_PATCH 0

#if defined(__GNUC__)
#define GW_API __attribute__((visibility("default")))
#else
#define GW_API
#endif

/* name, value, text */
#define GW_STATUS_LIST(X)                                                                                              \
    X(OK, 0, "no error")                                                                                               \
    X(INVALID, 1, "an argument is not valid")                                                                          \
    X(MEMORY, 2, "out of memory")                                                                                      \
    X(SYSTEM, 3, "the operating system refused something")                                                             \
    X(UNSUPPORTED, 4, "this combination is not possible")                                                              \
    X(PEER_LOST, 5, "a peer went away")                                                                                \
    X(TIMEOUT, 6, "the deadline passed")                                                                               \
    X(MISMATCH, 7, "ranks disagree about a collective")                                                                \
    X(PROTOCOL, 8, "a peer sent something unexpected")                                                                 \
    X(DENIED, 9, "a peer did not prove that it belongs to the job")                                                    \
    X(ABORTED, 10, "the communicator was aborted")

typedef enum gw_status {
#define GW_STATUS_ENUM(name, value, text) GW_##name = value,
    GW_STATUS_LIST(GW_STATUS_ENUM)
#undef GW_STATUS_ENUM
} gw_status;

/* name, value, bytes of one element */
#define GW_DTYPE_LIST(X)                                                                                               \
    X(F32, 0, 4, "f32")                                                                                                \
    X(F64, 1, 8, "f64")                                                                                                \
    X(F16, 2, 2, "f16")                                                                                                \
    X(BF16, 3, 2, "bf16")                                                                                              \
    X(I8, 4, 1, "i8")                                                                                                  \
    X(U8, 5, 1, "u8")                                                                                                  \
    X(I32, 6, 4, "i32")                                                                                                \
    X(I64, 7, 8, "i64")

typedef enum gw_dtype {
#define GW_DTYPE_ENUM(name, value, bytes, text) GW_##name = value,
    GW_DTYPE_LIST(GW_DTYPE_ENUM)
#undef GW_DTYPE_ENUM
    GW_DTYPES /* how many there are */
} gw_dtype;

/* GW_AVG is the sum divided by the number of ranks (integers: rounded towards zero, without overflow of the sum for
 * i8, u8 and i32). f16 and bf16 are summed in f32 and rounded once, whatever the number of ranks. Integer sums and
 * products wrap. */
#define GW_REDOP_LIST(X)                                                                                               \
    X(SUM, 0, "sum")                                                                                                   \
    X(AVG, 1, "avg")                                                                                                   \
    X(MIN, 2, "min")                                                                                                   \
    X(MAX, 3, "max")                                                                                                   \
    X(PROD, 4, "prod")

typedef enum gw_redop {
#define GW_REDOP_ENUM(name, value, text) GW_##name = value,
    GW_REDOP_LIST(GW_REDOP_ENUM)
#undef GW_REDOP_ENUM
    GW_REDOPS /* how many there are */
} gw_redop;

typedef struct gw_comm gw_comm;
typedef struct gw_request gw_request;

/* How to join a job. Start from GW_OPTIONS_DEFAULT; every field that keeps its default is read from the environment
 * (docs/environment.md). Strings are copied. */
typedef struct gw_options {
    const char *strategy;    /* the five-axis line, e.g. "arch=ring transport=tcp"; NULL: GRADWIRE_STRATEGY */
    int rank;                /* -1: RANK, OMPI_COMM_WORLD_RANK, PMI_RANK, PMIX_RANK or SLURM_PROCID; alone: 0 */
    int world;               /* -1: WORLD_SIZE, or that launcher's variable; alone: 1 */
    const char *master_addr; /* address of rank 0; NULL: MASTER_ADDR, else loopback */
    int master_port;         /* -1: MASTER_PORT, else a port derived from the job's name */
    const char *token;       /* the job's secret; NULL: GRADWIRE_TOKEN or the file GRADWIRE_TOKEN_FILE */
    const char *interfaces;  /* "eth,ib" prefixes, "^docker" excludes, "=eth0" exact; NULL: GRADWIRE_INTERFACE */
    const char *ports;       /* "29500-29599" for listening sockets; NULL: GRADWIRE_PORTS, else any */
    double deadline_s;       /* longest wait without progress; 0: GRADWIRE_DEADLINE, else 30 */
    const char *quorum;      /* "off": every side continues after a loss (gw_shrink); NULL: GRADWIRE_QUORUM, or "on" */
} gw_options;

#define GW_OPTIONS_DEFAULT                                                                                             \
    {                                                                                                                  \
        .strategy = NULL, .rank = -1, .world = -1, .master_addr = NULL, .master_port = -1, .token = NULL,              \
        .interfaces = NULL, .ports = NULL, .deadline_s = 0, .quorum = NULL                                             \
    }

/* Joins the job; returns when all ranks have joined. options may be NULL: everything from the environment. On failure
 * *comm is NULL and gw_last_error(NULL) gives the reason, in the calling thread. */
GW_API gw_status gw_init(gw_comm **comm, const gw_options *options);
/* Leaves the job and frees the communicator; communicators split from it must be finalised first. Waits, up to the
 * deadline, for operations that this rank has started; not for other ranks. NULL is fine. */
GW_API gw_status gw_finalize(gw_comm *comm);

GW_API int gw_rank(const gw_comm *comm);
GW_API int gw_size(const gw_comm *comm);
GW_API int gw_local_rank(const gw_comm *comm); /* among the ranks of this host, in rank order */
GW_API int gw_local_size(const gw_comm *comm);

/* One new communicator for each colour, ranks ordered by key, then by old rank. A collective call. A rank with a
 * negative colour takes part and gets *out = NULL. */
GW_API gw_status gw_comm_split(gw_comm *comm, int colour, int key, gw_comm **out);
/* Ends a communicator on every rank, from any thread: pending and later calls return GW_ABORTED with this reason. */
GW_API gw_status gw_abort(gw_comm *comm, const char *reason);
/* After an error: a new communicator of the ranks that still answer, in the old order. Every survivor calls it. The
 * old one stays failed and is finalised as usual.
 * At most one side of a split job continues. Ranks that are proved dead (the process has ended, or its host refuses
 * its port) or have left by gw_finalize do not count. A side needs more than half of the other ranks, or exactly half
 * with the lowest rank among them. If the job was shrunk before, the side must also outnumber the ranks that any
 * one earlier shrink left behind and that are not proved dead. On any other side, and on a rank that the others
 * continued without, the call fails with the reason (GW_PEER_LOST or GW_TIMEOUT). quorum=off (gw_options) lets every
 * side continue, so one job may become two. The call takes one deadline at most, and waits half of that for ranks that
 * do not call it. gw_abort on the old communicator, on any rank and from any thread, ends the call on all ranks with
 * GW_ABORTED. */
GW_API gw_status gw_shrink(gw_comm *comm, gw_comm **out);

/* gw_shrink for an elastic job (gradwire run --elastic or --restarts N): the new communicator also has the processes
 * that the launcher has restarted. When a process has died (the launcher kills one that hangs), every survivor calls
 * gw_regroup, and a restarted process calls gw_init. The call waits for the launcher for one second longer than the
 * deadline. Ranks may change. */
GW_API gw_status gw_regroup(gw_comm *comm, gw_comm **out);
/* The number that a process keeps while ranks change: its first rank. A restarted process has that of the one it
 * replaces. */
GW_API int gw_member_id(const gw_comm *comm);
/* How many times the job had regrouped when this communicator was made. Above 0 after gw_init: the process has joined a
 * job that lost ranks before, as a restarted process does. */
GW_API int gw_generation(const gw_comm *comm);

/* Memory that ranks of this host access without a copy. Page aligned, zeroed. Not a collective call. NULL: out of
 * memory. gw_free(comm, NULL) is fine. */
GW_API void *gw_alloc(gw_comm *comm, size_t bytes);
GW_API void gw_free(gw_comm *comm, void *memory);

GW_API const char *gw_status_text(gw_status status); /* never NULL */
/* The sentence of the communicator's first error; if comm is NULL or has not failed, of this thread's last failed call
 * (a wrong argument fails only the call). Never NULL. Valid until the communicator is finalised, or the thread's next
 * failure. */
GW_API const char *gw_last_error(const gw_comm *comm);
GW_API const char *gw_version(void);
GW_API size_t gw_dtype_bytes(gw_dtype dtype);

/* Collectives. `in` and `out` may be the same buffer where both have the same length (in place); otherwise they must
 * not overlap. Counts are elements; 0 is fine. For gather, scatter, all-gather and reduce-scatter the in-place form is
 * the rank's own part of the large buffer. */

/* out[0..count) on every rank: the combination of all ranks' `in`. */
GW_API gw_status gw_allreduce(gw_comm *comm, const void *in, void *out, size_t count, gw_dtype dtype, gw_redop op);
/* `out` is written on root only; elsewhere it may be NULL. */
GW_API gw_status gw_reduce(gw_comm *comm, const void *in, void *out, size_t count, gw_dtype dtype, gw_redop op,
                           int root);
/* `in` is read on root only; elsewhere it may be NULL. */
GW_API gw_status gw_broadcast(gw_comm *comm, const void *in, void *out, size_t count, gw_dtype dtype, int root);
/* `in` has size*count elements, `out` has count: rank r gets the r-th part of the combination. */
GW_API gw_status gw_reduce_scatter(gw_comm *comm, const void *in, void *out, size_t count, gw_dtype dtype,
                                   gw_redop op);
/* Uneven: rank r gets counts[r] elements; counts (size entries) is the same on all ranks and is copied. */
GW_API gw_status gw_reduce_scatterv(gw_comm *comm, const void *in, void *out, const size_t *counts, gw_dtype dtype,
                                    gw_redop op);
/* `in` has count elements, `out` has size*count. */
GW_API gw_status gw_allgather(gw_comm *comm, const void *in, void *out, size_t count, gw_dtype dtype);
GW_API gw_status gw_allgatherv(gw_comm *comm, const void *in, void *out, const size_t *counts, gw_dtype dtype);
/* `in` has count elements on every rank; `out` has size*count on root. */
GW_API gw_status gw_gather(gw_comm *comm, const void *in, void *out, size_t count, gw_dtype dtype, int root);
GW_API gw_status gw_scatter(gw_comm *comm, const void *in, void *out, size_t count, gw_dtype dtype, int root);
/* Both buffers have size*count elements: part r of `in` goes to rank r. */
GW_API gw_status gw_alltoall(gw_comm *comm, const void *in, void *out, size_t count, gw_dtype dtype);
GW_API gw_status gw_barrier(gw_comm *comm);

/* Point to point: the n-th send from a to b matches the n-th receive of b from a. Both sides pass the same count and
 * type. */
GW_API gw_status gw_send(gw_comm *comm, const void *data, size_t count, gw_dtype dtype, int peer);
GW_API gw_status gw_recv(gw_comm *comm, void *data, size_t count, gw_dtype dtype, int peer);

/* Nonblocking forms: the library's progress thread drives them while the caller computes. On GW_OK *request must be
 * passed to gw_wait exactly once (or to gw_test until that says done); otherwise it is NULL. */
GW_API gw_status gw_allreduce_start(gw_comm *comm, const void *in, void *out, size_t count, gw_dtype dtype,
                                    gw_redop op, gw_request **request);
GW_API gw_status gw_reduce_start(gw_comm *comm, const void *in, void *out, size_t count, gw_dtype dtype, gw_redop op,
                                 int root, gw_request **request);
GW_API gw_status gw_broadcast_start(gw_comm *comm, const void *in, void *out, size_t count, gw_dtype dtype, int root,
                                    gw_request **request);
GW_API gw_status gw_reduce_scatter_start(gw_comm *comm, const void *in, void *out, size_t count, gw_dtype dtype,
                                         gw_redop op, gw_request **request);
GW_API gw_status gw_reduce_scatterv_start(gw_comm *comm, const void *in, void *out, const size_t *counts,
                                          gw_dtype dtype, gw_redop op, gw_request **request);
GW_API gw_status gw_allgather_start(gw_comm *comm, const void *in, void *out, size_t count, gw_dtype dtype,
                                    gw_request **request);
GW_API gw_status gw_allgatherv_start(gw_comm *comm, const void *in, void *out, const size_t *counts, gw_dtype dtype,
                                     gw_request **request);
GW_API gw_status gw_gather_start(gw_comm *comm, const void *in, void *out, size_t count, gw_dtype dtype, int root,
                                 gw_request **request);
GW_API gw_status gw_scatter_start(gw_comm *comm, const void *in, void *out, size_t count, gw_dtype dtype, int root,
                                  gw_request **request);
GW_API gw_status gw_alltoall_start(gw_comm *comm, const void *in, void *out, size_t count, gw_dtype dtype,
                                   gw_request **request);
GW_API gw_status gw_barrier_start(gw_comm *comm, gw_request **request);
GW_API gw_status gw_send_start(gw_comm *comm, const void *data, size_t count, gw_dtype dtype, int peer,
                               gw_request **request);
GW_API gw_status gw_recv_start(gw_comm *comm, void *data, size_t count, gw_dtype dtype, int peer,
                               gw_request **request);

/* Waits for a request and frees it, whatever the status. NULL is fine. */
GW_API gw_status gw_wait(gw_request *request);
/* Never blocks. When *done is true, the request is freed and the status is that of the operation. */
GW_API gw_status gw_test(gw_request *request, bool *done);

/* Calls between gw_group_start and gw_group_end are collected and run together by gw_group_end, which blocks: small
 * all-reduces of the same type and operation are fused into one, so many small tensors cost one round. Every rank
 * makes the same calls in the same order. A _start call inside a group is refused (GW_INVALID). */
GW_API gw_status gw_group_start(gw_comm *comm);
GW_API gw_status gw_group_end(gw_comm *comm);

/* Training steps. A reducer exchanges the gradients of a model, step after step. The tensors are named once, in the
 * order in which the forward pass needs them. In each step the caller says when each gradient is ready, and waits for
 * the tensor before the next forward pass uses it. The strategy decides what is sent when, in what buckets or slices,
 * how compressed, and between which ranks.
 *
 *     gw_reducer_commit(&reducer, comm, tensors, count, &options);   collective; all memory is allocated here
 *     for each training step:
 *         for each layer, forward:   gw_reducer_wait(reducer, t);    before weights (or the last result) of t are used
 *         for each layer, backward:  gw_reducer_ready(reducer, t);   its gradient is complete; do not touch it now
 *         gw_reducer_end(reducer);                                   every tensor has been ready once
 *     gw_reducer_flush(reducer);                                     before evaluation, a checkpoint, the end
 *
 * One thread makes these calls. Calls that have nothing to do take well under a microsecond. After a failure of the
 * communicator every call returns its error. */
typedef struct gw_reducer gw_reducer;

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
} gw_reducer_tensor;

/* One update of (a range of) a tensor, for the caller's optimiser. */
typedef struct gw_reducer_update {
    int tensor;
    size_t first, count;  /* elements of the tensor; the whole tensor unless a server owns only a shard of it */
    void *weights;        /* at element `first`: the tensor's own, or a copy of them */
    const void *gradient; /* at element `first` */
    uint64_t step;        /* which step's gradient this is */
    double scale;         /* multiply the gradient by it first (clipping, the mean of pushes); 1 otherwise */
    bool temporary;           /* a temporary update of a local copy (sync=delayed), replaced later: plain w -= rate * g;
                             do not use or change momentum or other optimiser state */
} gw_reducer_update;

/* Called by the thread that drives communication, one call at a time. It must not call the library, nor wait for a lock
 * that a caller of the library may hold. Never called between a failure and gw_reducer_resume. */
typedef void gw_reducer_update_fn(void *ctx, const gw_reducer_update *update);

/* The learning rate of a step, a function of its number alone; called as gw_reducer_update_fn is. */
typedef double gw_reducer_rate_fn(void *ctx, uint64_t step);

/* The optimiser's array number `which` (e.g. momentum) for a tensor: one float for each element; NULL: there are no
 * more arrays. Servers keep these in snapshots and replicas too, and gw_reducer_resume copies them to ranks that are
 * behind. Their number is the same on all ranks, from gw_reducer_commit on. */
typedef float *gw_reducer_state_fn(void *ctx, int tensor, int which);

typedef struct gw_reducer_options {
    const char *strategy;         /* overrides axes of the communicator's strategy; NULL: none */
    gw_redop op;                  /* GW_AVG or GW_SUM */
    double clip;                  /* largest norm of all gradients together; 0: no limit. With a limit no tensor is
                                     updated before all have arrived. */
    uint64_t seed;                /* of the job's random codecs */
    uint64_t first_step;          /* the number of the first step, e.g. after a checkpoint */
    gw_reducer_update_fn *update; /* NULL: the caller updates after gw_reducer_wait */
    void *ctx;                    /* passed to update, state and rate */
    const char *tune;             /* "off"; "on": sizes of the schedule are tuned during the first steps, and the result
                                     is never slower than the start; or a file that stores the result for the next run.
                                     NULL: GRADWIRE_TUNE, else off. The same on all ranks. */
    gw_reducer_state_fn *state;   /* the arrays that update keeps from step to step; NULL: none */
    gw_reducer_rate_fn *rate;     /* NULL: constant. Codecs with a residual need it: a part of a gradient that is sent
                                     late is scaled to the rate of its own step. */
} gw_reducer_options;

#define GW_REDUCER_OPTIONS_DEFAULT                                                                                     \
    {                                                                                                                  \
        .strategy = NULL, .op = GW_AVG, .clip = 0, .seed = 0, .first_step = 0, .update = NULL, .ctx = NULL,            \
        .tune = NULL, .state = NULL, .rate = NULL                                                                      \
    }

/* Makes a reducer. A collective call. options may be NULL: the mean, and the caller updates. An impossible combination
 * is GW_UNSUPPORTED, with the reason. On failure *reducer is NULL. */
GW_API gw_status gw_reducer_commit(gw_reducer **reducer, gw_comm *comm, const gw_reducer_tensor *tensors, int count,
                                   const gw_reducer_options *options);
GW_API gw_status gw_reducer_ready(gw_reducer *reducer, int tensor);
/* Whether a tensor is sent as factors: arch=sfb, a batch is given, and factors cost less than the matrix. The caller
 * then need not compute its gradient, and calls gw_reducer_ready_factors instead of gw_reducer_ready: the gradient is
 * the sum over `batch` examples of the outer products of left (batch x rows) and right (batch x columns), row major.
 * Both are copied. */
GW_API bool gw_reducer_wants_factors(const gw_reducer *reducer, int tensor);
GW_API gw_status gw_reducer_ready_factors(gw_reducer *reducer, int tensor, const float *left, const float *right,
                                          size_t batch);
GW_API gw_status gw_reducer_wait(gw_reducer *reducer, int tensor);
GW_API gw_status gw_reducer_end(gw_reducer *reducer);
GW_API gw_status gw_reducer_flush(gw_reducer *reducer);
/* This rank makes no more steps. Returns when all ranks have called it, since others may still need this rank's server.
 * If it fails, call it again after gw_reducer_resume. gw_reducer_close does the same. */
GW_API gw_status gw_reducer_leave(gw_reducer *reducer);
/* After a failure: the reducer continues over another communicator, from gw_regroup or gw_shrink. Every rank that has
 * the reducer calls this; a restarted rank (gw_regroup) calls gw_reducer_commit. If it fails because more ranks were
 * lost, call it again with the communicator of the next gw_regroup or gw_shrink.
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
    bool weights_agree;                        /* once flushed, all ranks hold the same weights at this step */
    bool tuning;                        /* sizes are being tuned */
    int trials;                         /* of the tuning so far */
    uint64_t first_step;                /* the number of the first step; of a restarted worker, where it joined */
    uint64_t step;                      /* the number of the step in progress, or of the next */
} gw_reducer_counters;
GW_API gw_reducer_counters gw_reducer_read_counters(const gw_reducer *reducer);
/* The current strategy, with tuned sizes. Works like snprintf: writes at most size bytes, and returns the length of the
 * whole text. */
GW_API int gw_reducer_strategy(const gw_reducer *reducer, char *text, size_t size);

/* How one worker waited for others at the parameter servers (arch=ps), and how others waited for it. With several
 * servers, each field is the largest value of any server. */
typedef struct gw_reducer_worker_stats {
    uint64_t pushes, late;   /* late: arrived after their round was over and were not used (sync=backup) */
    uint64_t held_ns;        /* time that answers to it were held back */
    uint64_t held_others_ns; /* time that answers to others were held back because of it */
} gw_reducer_worker_stats;
/* A collective call; workers: one entry for each rank, zeros without servers. */
GW_API gw_status gw_reducer_workers(gw_reducer *reducer, gw_reducer_worker_stats *workers);

/* The state that this rank keeps from step to step (residuals of codecs, anchors), bit for bit; save and restore flush
 * first. restore: GW_MISMATCH if it is of another model, strategy, rank or number of ranks. */
GW_API size_t gw_reducer_state_bytes(const gw_reducer *reducer);
GW_API gw_status gw_reducer_state_save(gw_reducer *reducer, void *memory);
GW_API gw_status gw_reducer_state_restore(gw_reducer *reducer, const void *memory, size_t bytes);
/* If the number of ranks has changed: call it on every new rank, on a fresh reducer, once for each old rank, with the
 * state that this old rank saved. Each new rank then holds the mean of all old residuals, so the values that were still
 * to be sent arrive; with GW_AVG neither more nor less of them. Residuals that lost ranks have not saved are lost. */
GW_API gw_status gw_reducer_state_merge(gw_reducer *reducer, const void *memory, size_t bytes);

/* Starts recording (docs/seeing.md): operations, messages, waits, the tensors of a reducer, and the layers that
 * gw_trace_layer reports. timeline: a file in Chrome's trace format, which Perfetto opens; capture: a compact file for
 * `gradwire trace`. Either may be NULL. Existing files are replaced. Ranks on the host of rank 0 write to the named
 * file, those of other hosts to FILE.host1, FILE.host2, ... on their own hosts. An event is in the file a tenth of a
 * second after it was recorded, whatever happens to the process.
 *
 * A collective call: it compares clocks. gw_init calls it if GRADWIRE_TIMELINE or GRADWIRE_CAPTURE is set. All
 * communicators of the process are recorded. */
GW_API gw_status gw_trace_start(gw_comm *comm, const char *timeline, const char *capture);
/* Ends the recording of this rank; not a collective call. gw_finalize of the last communicator calls it. No other
 * thread may be inside a call of this library meanwhile. */
GW_API gw_status gw_trace_stop(gw_comm *comm);
/* Whether this process is being recorded; if not, a program need not take times for gw_trace_layer. */
GW_API bool gw_trace_runs(const gw_comm *comm);
/* Records the caller's own work: the forward or backward pass of a layer in that training step, from begin to end, in
 * nanoseconds of CLOCK_MONOTONIC. Does nothing without a recording. Any thread, except while another one is in
 * gw_trace_stop or gw_finalize. */
GW_API void gw_trace_layer(gw_comm *comm, const char *layer, bool backward, uint64_t step, uint64_t begin,
                           uint64_t end);

#ifdef __cplusplus
}
#endif
#endif
