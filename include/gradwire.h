/* gradwire.h - the communication stack of distributed deep learning: the only public header.
 *
 * A process joins a job with gw_init, which gives it a communicator: `gw_size` ranks that exchange data by
 * collectives. Every rank calls the same collectives on a communicator in the same order; the library checks that
 * they agree (kind, count, type, operation, root) and returns GW_MISMATCH on every rank where they do not.
 *
 * Errors. Every call returns a gw_status; GW_OK is 0. On failure outputs are untouched unless said otherwise (the
 * contents of a receive buffer are undefined after a failed collective). The first error of a communicator is kept:
 * every later call on it returns that status, and gw_last_error tells the whole sentence, until the communicator is
 * shrunk or finalised. An error ends all communicators of the job, those split from others included; a wrong argument
 * fails only the call. No call waits for ever: each has the communicator's deadline.
 *
 * Threads. Different communicators may be used from different threads at the same time. One communicator may be used
 * by one thread at a time (the order of collectives is the order of calls), except gw_abort, gw_last_error, gw_rank,
 * gw_size, gw_local_rank and gw_local_size, which any thread may call at any time before gw_finalize. A request may
 * be tested or waited for by any one thread.
 *
 * Fork. A child of a rank is no rank: every call in it returns GW_INVALID and says so, gw_finalize and gw_step_close
 * free nothing there, and its end changes nothing for the job.
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
    int world;               /* -1: WORLD_SIZE and its like; alone: 1 */
    const char *master_addr; /* where rank 0 can be reached, NULL: MASTER_ADDR, else loopback */
    int master_port;         /* -1: MASTER_PORT, else a port derived from the job's name */
    const char *token;       /* the job's secret; NULL: GRADWIRE_TOKEN or the file GRADWIRE_TOKEN_FILE */
    const char *interfaces;  /* "eth,ib" prefixes, "^docker" excludes, "=eth0" exact; NULL: GRADWIRE_INTERFACE */
    const char *ports;       /* "29500-29599" for listening sockets; NULL: GRADWIRE_PORTS, else any */
    double deadline_s;       /* longest wait without progress; 0: GRADWIRE_DEADLINE, else 30 */
    const char *quorum;      /* "off": every side goes on after a loss (gw_shrink); NULL: GRADWIRE_QUORUM, else "on" */
} gw_options;

#define GW_OPTIONS_DEFAULT                                                                                             \
    {                                                                                                                  \
        .strategy = NULL, .rank = -1, .world = -1, .master_addr = NULL, .master_port = -1, .token = NULL,              \
        .interfaces = NULL, .ports = NULL, .deadline_s = 0, .quorum = NULL                                             \
    }

/* Joins the job; returns when all ranks have. options may be NULL: everything from the environment. On failure *comm
 * is NULL and gw_last_error(NULL) tells the calling thread what went wrong. */
GW_API gw_status gw_init(gw_comm **comm, const gw_options *options);
/* Leaves the job and frees the communicator (and those split from it must have been finalised before). Waits, up to
 * the deadline, for what this rank has started; not for other ranks. NULL is fine. */
GW_API gw_status gw_finalize(gw_comm *comm);

GW_API int gw_rank(const gw_comm *comm);
GW_API int gw_size(const gw_comm *comm);
GW_API int gw_local_rank(const gw_comm *comm); /* among the ranks of this host, in rank order */
GW_API int gw_local_size(const gw_comm *comm);

/* One new communicator for each colour, ranks ordered by key, then by old rank. A collective call. A negative colour
 * takes part and gets *out = NULL. */
GW_API gw_status gw_comm_split(gw_comm *comm, int colour, int key, gw_comm **out);
/* Ends a communicator on every rank, from any thread: pending and later calls return GW_ABORTED with this reason. */
GW_API gw_status gw_abort(gw_comm *comm, const char *reason);
/* After an error: a new communicator of the ranks that still answer, in the old order. Every survivor calls it. The
 * old one stays failed and is finalised as usual.
 * At most one job goes on. Ranks that are proved dead (the process has ended, or its host refuses its port) or have
 * left by gw_finalize are not counted. Of the others more than half must have come together, or exactly half with the
 * lowest rank among them; if the job was shrunk before, they must also outnumber those whom it left behind at any one
 * time and who are not proved dead. Elsewhere nobody goes on, and all are told why (GW_PEER_LOST or GW_TIMEOUT); so is
 * a rank that the others went on without. quorum=off (gw_options) lets every side go on, which may make two jobs of
 * one. It takes one deadline at most: ranks that do not call it are waited for half of that. gw_abort on the old
 * communicator, on any rank and from any thread, ends it everywhere with GW_ABORTED. */
GW_API gw_status gw_shrink(gw_comm *comm, gw_comm **out);

/* The same in an elastic job (gradwire run --elastic or --restarts N), where it also gets those that the launcher has
 * started again: when a process has died (the launcher kills one that hangs), every survivor calls gw_regroup, and a
 * process that was started again gw_init. It waits for the launcher for one second longer than the deadline. Ranks may
 * change; what a process keeps is its seat, the rank it had at first. gw_round: how often the job had been called
 * together when this communicator's was; a program that begins in a later round than 0 came back. */
GW_API gw_status gw_regroup(gw_comm *comm, gw_comm **out);
GW_API int gw_seat(const gw_comm *comm);
GW_API int gw_round(const gw_comm *comm);

/* Memory that ranks of this host reach without a copy. Page aligned, zeroed. Not a collective call. NULL when memory
 * ran out. gw_free(comm, NULL) is fine. */
GW_API void *gw_alloc(gw_comm *comm, size_t bytes);
GW_API void gw_free(gw_comm *comm, void *memory);

GW_API const char *gw_status_text(gw_status status); /* never NULL */
/* The sentence of the communicator's first error; of this thread's last failed call where comm is NULL or has not
 * failed (a wrong argument fails only the call). Never NULL. Valid until the communicator is finalised, or the thread's
 * next failure. */
GW_API const char *gw_last_error(const gw_comm *comm);
GW_API const char *gw_version(void);
GW_API size_t gw_dtype_bytes(gw_dtype dtype);

/* Collectives. `in` and `out` may be the same buffer where both have the same length (in place); otherwise they must
 * not overlap. Counts are elements; 0 is fine. For gather, scatter, all-gather and reduce-scatter the in-place form is
 * the rank's own part of the large buffer. */

/* out[0..count) on every rank: the combination of all ranks' in. */
GW_API gw_status gw_allreduce(gw_comm *comm, const void *in, void *out, size_t count, gw_dtype dtype, gw_redop op);
/* out on root only; elsewhere out may be NULL. */
GW_API gw_status gw_reduce(gw_comm *comm, const void *in, void *out, size_t count, gw_dtype dtype, gw_redop op,
                           int root);
/* in is read on root only; elsewhere in may be NULL. */
GW_API gw_status gw_broadcast(gw_comm *comm, const void *in, void *out, size_t count, gw_dtype dtype, int root);
/* in has size*count elements, out count: rank r gets the r-th part of the combination. */
GW_API gw_status gw_reduce_scatter(gw_comm *comm, const void *in, void *out, size_t count, gw_dtype dtype,
                                   gw_redop op);
/* Uneven: rank r gets counts[r] elements; counts (size entries) is the same on all ranks and is copied. */
GW_API gw_status gw_reduce_scatterv(gw_comm *comm, const void *in, void *out, const size_t *counts, gw_dtype dtype,
                                    gw_redop op);
/* in has count elements, out size*count. */
GW_API gw_status gw_allgather(gw_comm *comm, const void *in, void *out, size_t count, gw_dtype dtype);
GW_API gw_status gw_allgatherv(gw_comm *comm, const void *in, void *out, const size_t *counts, gw_dtype dtype);
/* in has count elements on every rank; out size*count on root. */
GW_API gw_status gw_gather(gw_comm *comm, const void *in, void *out, size_t count, gw_dtype dtype, int root);
GW_API gw_status gw_scatter(gw_comm *comm, const void *in, void *out, size_t count, gw_dtype dtype, int root);
/* Both buffers have size*count elements: part r of in goes to rank r. */
GW_API gw_status gw_alltoall(gw_comm *comm, const void *in, void *out, size_t count, gw_dtype dtype);
GW_API gw_status gw_barrier(gw_comm *comm);

/* Point to point: the n-th send from a to b meets the n-th receive of b from a. Both sides name the same count and
 * type. */
GW_API gw_status gw_send(gw_comm *comm, const void *data, size_t count, gw_dtype dtype, int peer);
GW_API gw_status gw_recv(gw_comm *comm, void *data, size_t count, gw_dtype dtype, int peer);

/* The same, begun here and driven by the library's progress thread while the caller computes. On GW_OK *request is to
 * be given to gw_wait exactly once (or to gw_test until that says done); otherwise it is NULL. */
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
/* Never blocks. When *done comes back true the request is freed and the status is its own. */
GW_API gw_status gw_test(gw_request *request, bool *done);

/* Calls between gw_group_start and gw_group_end are gathered and carried out together at gw_group_end, which blocks:
 * small all-reduces of the same type and operation travel as one, so many small tensors cost one round. Every rank
 * makes the same calls in the same order. A _start call inside a group is refused (GW_INVALID). */
GW_API gw_status gw_group_start(gw_comm *comm);
GW_API gw_status gw_group_end(gw_comm *comm);

/* Training steps. The tensors of a model are named once, in the order in which the forward pass needs them; then each
 * step says of each tensor when its gradient is ready, and waits for it before the next forward pass uses it. What
 * travels when, in what pieces, how compressed and between whom is the strategy's business.
 *
 *     gw_step_commit(&step, comm, tensors, count, &options);      collective; all memory is taken here
 *     for each training step:
 *         for each layer, forward:   gw_step_wait(step, t);       before weights (or the last result) of t are used
 *         for each layer, backward:  gw_step_ready(step, t);      its gradient is complete; leave it alone from now on
 *         gw_step_end(step);                                      every tensor has been ready once
 *     gw_step_flush(step);                                        before evaluation, a checkpoint, the end
 *
 * One thread makes these calls. Calls that have nothing to do take well under a microsecond. After a failure of the
 * communicator every call returns its error. */
typedef struct gw_step gw_step;

typedef struct gw_step_tensor {
    const char *name; /* the same on all ranks; copied */
    size_t count;     /* elements */
    gw_dtype dtype;   /* GW_F32; other types only travel uncompressed and are not updated by the step */
    void *gradient;   /* the caller's until gw_step_ready, the step's until gw_step_wait returns: it then holds the mean
                         (or sum) over all ranks, unless the step updates by itself. Memory of gw_alloc, tensors side
                         by side, is fastest. */
    void *weights;    /* what `update` writes; NULL where the caller updates by itself after gw_step_wait */
    size_t rows;      /* of a matrix: count is a multiple; 0: not one. Codecs of low rank want to know. */
    bool exact;       /* never compressed (biases, norms) */
    size_t batch;     /* of a fully connected layer: its gradient is the sum of at most so many outer products on each
                         rank, and may travel as their factors (arch=sfb); 0: it may not */
} gw_step_tensor;

/* One update of (a range of) a tensor, to be carried out by the caller's optimiser. */
typedef struct gw_step_update {
    int tensor;
    size_t first, count;  /* elements of the tensor; the whole tensor unless a server owns only a part */
    void *weights;        /* at element `first`: the tensor's own, or another copy of them */
    const void *gradient; /* at element `first` */
    uint64_t step;        /* which step's gradient this is */
    double scale;         /* the gradient is to be multiplied by it first (clipping); 1 otherwise */
    bool local;           /* a passing update of a local copy (sync=delayed): plain w -= rate * g, without momentum and
                             the like, whose state stays as it is */
} gw_step_update;

/* Called by the thread that drives communication, one call at a time; not while holding anything the caller could wait
 * for. Must not call the library. Never called after a failure, until the step has been moved. */
typedef void gw_step_update_fn(void *ctx, const gw_step_update *update);

/* The learning rate of a step, a function of its number alone; called as gw_step_update_fn is. */
typedef double gw_step_rate_fn(void *ctx, uint64_t step);

/* The optimiser's array number `which` (momentum and the like) for a tensor, as many floats as it has elements; NULL:
 * there are no more of them. Servers that write snapshots or have replicas keep these too, and gw_step_move gives them
 * to ranks that are behind: as many on all ranks, from the commit on. */
typedef float *gw_step_state_fn(void *ctx, int tensor, int which);

typedef struct gw_step_options {
    const char *strategy;      /* laid over that of the communicator; NULL: as it is */
    gw_redop op;               /* GW_AVG or GW_SUM */
    double clip;               /* largest norm of all gradients together; 0: any. Updates then wait for all tensors. */
    uint64_t seed;             /* of the job: codecs draw from it */
    uint64_t first_step;       /* the number of the first step: after a checkpoint */
    gw_step_update_fn *update; /* NULL: the caller updates by itself, after gw_step_wait */
    void *ctx;
    const char *tune;          /* "off"; "on": sizes of the schedule are looked for during the first steps, never to end
                                  slower than it began; or a file that keeps what was found for the next time. NULL: as
                                  GRADWIRE_TUNE says, else off. The same on all ranks. */
    gw_step_state_fn *state;   /* where update keeps what it needs from step to step; NULL: nowhere */
    gw_step_rate_fn *rate;     /* NULL: it does not change. Codecs that hold a part of a gradient back need to know: it
                                  is sent with the weight of its own step */
} gw_step_options;

#define GW_STEP_OPTIONS_DEFAULT                                                                                        \
    {                                                                                                                  \
        .strategy = NULL, .op = GW_AVG, .clip = 0, .seed = 0, .first_step = 0, .update = NULL, .ctx = NULL,            \
        .tune = NULL, .state = NULL, .rate = NULL                                                                      \
    }

/* A collective call. options may be NULL: the mean, and the caller updates. A combination that has no meaning is
 * GW_UNSUPPORTED, with the reason. On failure *step is NULL. */
GW_API gw_status gw_step_commit(gw_step **step, gw_comm *comm, const gw_step_tensor *tensors, int count,
                                const gw_step_options *options);
GW_API gw_status gw_step_ready(gw_step *step, int tensor);
/* Whether the strategy has a tensor travel as factors: arch=sfb, a batch is given, and they cost less than the matrix.
 * Its gradient then need not be computed, and gw_step_ready_factors takes the place of gw_step_ready: the gradient is
 * the sum over `batch` examples of left (batch x rows) times right (batch x columns), row major. Both are copied. */
GW_API bool gw_step_wants_factors(const gw_step *step, int tensor);
GW_API gw_status gw_step_ready_factors(gw_step *step, int tensor, const float *left, const float *right, size_t batch);
GW_API gw_status gw_step_wait(gw_step *step, int tensor);
GW_API gw_status gw_step_end(gw_step *step);
GW_API gw_status gw_step_flush(gw_step *step);
/* No more steps are made: returns when all ranks have said so, since others may still need this one's server. Where it
 * fails and the step is moved it is to be called again. gw_step_close does it by itself. */
GW_API gw_status gw_step_leave(gw_step *step);
/* After a failure: the step goes on over another communicator, of gw_regroup or gw_shrink. Every rank that had the
 * step calls this; one that came back (gw_regroup) commits it anew. Where it fails because more ranks were lost it can
 * be called again, with the communicator of the next gw_regroup or gw_shrink.
 *
 * Without servers the interrupted step is over. Each tensor has had the whole of it or nothing (gw_step_reached), but
 * on some ranks it may be further than on others: there the weights and the optimiser's arrays (`state`) of such a
 * tensor are copied from a rank that is ahead, so that afterwards all ranks hold the same bits. A rank that came back
 * gets them of all tensors. With `update` but without `state` only weights are copied. Where the caller updates by
 * itself nothing is: gw_step_reached says, before this call, whether a tensor holds the result of the interrupted
 * step. All ranks go on with the step of the same number (gw_step_counters.step); gradients that were ready and did
 * not arrive are dropped, in a codec's residual too. Under sync=periodic the weights of ranks differ as before, and
 * what they share is made equal. Memory of gw_alloc is still needed: keep the old communicator where it is from
 * another gw_init or gw_regroup.
 *
 * Over servers (arch=ps) the interrupted step goes on. Calls that failed are made again: gradients that were ready and
 * not answered are pushed again, and none is used twice. Under asp and ssp a worker that is not there any more holds
 * nobody back; one that comes back gets the weights as they are, and its first_step (gw_step_count). Under bsp the
 * mean is over those left. A server that was lost goes on from its replica (replicas=1) or its last snapshot
 * (snapshot=N), or this is GW_PEER_LOST. */
GW_API gw_status gw_step_move(gw_step *step, gw_comm *comm);
/* Whether the strategy has servers: after gw_step_move the interrupted step goes on; without them it is over. */
GW_API bool gw_step_served(const gw_step *step);
/* The number of the step after the last whose mean (or sum) this tensor has received on this rank: with `update` its
 * weights have had every step before that one, without it its gradient held the result of the step before when
 * gw_step_wait returned, or holds it now. A tensor is never in between. After a failure ranks may differ in it by one;
 * any thread may ask. */
GW_API uint64_t gw_step_reached(const gw_step *step, int tensor);
/* Waits for what is under way. NULL is fine. Before the communicator it was made of is finalised. */
GW_API void gw_step_close(gw_step *step);

typedef struct gw_step_counters {
    uint64_t steps;                     /* ended */
    uint64_t bytes_sent, messages_sent; /* by this process since the commit; shared memory that is reduced in place is
                                           not sent */
    uint64_t dense_bytes;               /* what plain all-reduces would have made each rank send: 2 (n-1)/n of it all */
    uint64_t wait_ns;                   /* that calls of the step waited: communication which nothing hid */
    int pieces;                         /* into which the tensors are cut at present */
    size_t memory_bytes, codec_bytes;   /* taken at commit; of that, what the codec keeps */
    bool local;                         /* optimisers of the ranks differ, and their weights between exchanges */
    bool agrees;                        /* once flushed, all ranks hold the same weights at this step */
    bool tuning;                        /* sizes are being looked for */
    int trials;                         /* that has taken so far */
    uint64_t first_step;                /* the number of the first; of a worker that came back, where it joined */
    uint64_t step;                      /* the number of the step under way, or of the next */
} gw_step_counters;
GW_API gw_step_counters gw_step_count(const gw_step *step);
/* The strategy as it is carried out now, with what was tuned, as snprintf writes it: its length is returned. */
GW_API int gw_step_strategy(const gw_step *step, char *text, size_t size);

/* Who waited for whom at the parameter servers (arch=ps), worker by worker; of several servers the one that saw most.
 * */
typedef struct gw_step_worker {
    uint64_t pushes, late;   /* late: came after their round was over and were not used (sync=backup) */
    uint64_t held_ns;        /* while answers to it were held back */
    uint64_t held_others_ns; /* while answers to others were held back because of it */
} gw_step_worker;
/* A collective call; workers: one entry for each rank, zeros without servers. */
GW_API gw_status gw_step_workers(gw_step *step, gw_step_worker *workers);

/* What is kept from step to step on this rank (residuals of codecs, anchors), saved exactly; both flush first. restore:
 * GW_MISMATCH where it is of another model, strategy, rank or number of ranks. */
GW_API size_t gw_step_state_bytes(const gw_step *step);
GW_API gw_status gw_step_state_save(gw_step *step, void *memory);
GW_API gw_status gw_step_state_restore(gw_step *step, const void *memory, size_t bytes);
/* Where the number of ranks changes: called on every new rank, on a fresh step, with what each of the old ranks saved.
 * Each new rank then holds the mean of all old residuals, so what was still to be sent arrives, with GW_AVG neither
 * more nor less; what ranks that are gone have not saved is lost. */
GW_API gw_status gw_step_state_take_over(gw_step *step, const void *memory, size_t bytes);

/* Recording what happens (docs/seeing.md): operations, messages, waiting and, where the library is told of them, layers
 * and tensors of a training step. timeline: a file in Chrome's trace format, which Perfetto opens; capture: a compact
 * file for `gradwire trace`. Either may be NULL. Existing files are replaced. Ranks on the host of rank 0 write to the
 * file as named, those of other hosts to FILE.host1, FILE.host2, ... on their own. What was recorded until then is in
 * the files a tenth of a second later, whatever happens to the process.
 *
 * A collective call: clocks are compared. gw_init does it by itself where GRADWIRE_TIMELINE or GRADWIRE_CAPTURE is
 * set. All communicators of the process are recorded. */
GW_API gw_status gw_trace_start(gw_comm *comm, const char *timeline, const char *capture);
/* Ends the recording of this rank; not a collective call. gw_finalize of the last communicator does it by itself. No
 * other thread may be inside a call of this library meanwhile. */
GW_API gw_status gw_trace_stop(gw_comm *comm);
/* Whether a recording is under way, so that a program need not look at its clock for nothing. */
GW_API bool gw_trace_runs(const gw_comm *comm);
/* Tells the recording of the caller's own work: the forward or backward pass of a layer in that training step, from
 * begin to end, in nanoseconds of CLOCK_MONOTONIC. Nothing happens where nothing is recorded. Any thread, except while
 * another one is in gw_trace_stop or gw_finalize. */
GW_API void gw_trace_layer(gw_comm *comm, const char *layer, bool backward, uint64_t step, uint64_t begin,
                           uint64_t end);

#ifdef __cplusplus
}
#endif
#endif
