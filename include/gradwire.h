/* gradwire.h - the communication stack of distributed deep learning: communicators and collectives. Training steps are
 * in gradwire/reducer.h, single collectives through a codec in gradwire/coded.h, recording in gradwire/trace.h.
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
 * Fork. A forked child is not a rank: every call in it returns GW_INVALID and says so, gw_finalize, gw_reducer_close
 * and gw_coded_close free nothing there, and its exit does not affect the job.
 *
 * Memory. Buffers belong to the caller and must stay valid until the call, or the request, is complete. Buffers from
 * gw_alloc can be reduced in place by other ranks of the same host and are fastest; gw_register makes the caller's own
 * memory as good; any other memory works.
 *
 * Growth (docs/reference/versioning.md). A struct that the caller fills begins with its size, which its _DEFAULT macro
 * sets; later versions add fields at its end, and only there. Values of enums never change. A program that was compiled
 * against an older header runs with a newer library; with an older library gw_init refuses it.
 */
#ifndef GRADWIRE_H
#define GRADWIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this header, part by part. */
#define GW_VERSION_MAJOR 0
#define GW_VERSION_MINOR 2
#define GW_VERSION_PATCH 0
/* The version of this header as one number, 10000 major + 100 minor + patch; gw_version_number: that of the library. */
#define GW_VERSION_NUMBER (10000 * GW_VERSION_MAJOR + 100 * GW_VERSION_MINOR + GW_VERSION_PATCH)

/* Marks the functions that the shared library exports. */
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
    X(ABORTED, 10, "the communicator was aborted")                                                                     \
    X(NOT_FINITE, 11, "a value is not finite")

/* The result of a call; gw_status_text gives its text, gw_last_error the whole sentence. */
typedef enum gw_status {
#define GW_STATUS_ENUM(name, value, text) GW_##name = value,
    GW_STATUS_LIST(GW_STATUS_ENUM)
#undef GW_STATUS_ENUM
} gw_status;

/* name, value, bytes of one element. f8e4m3 has no infinity (float8_e4m3fn of PyTorch); f8e5m2 is the upper half of an
 * f16. A complex array is 2*count elements of its real type, for sum and avg and for all that only moves data. */
#define GW_DTYPE_LIST(X)                                                                                               \
    X(F32, 0, 4, "f32")                                                                                                \
    X(F64, 1, 8, "f64")                                                                                                \
    X(F16, 2, 2, "f16")                                                                                                \
    X(BF16, 3, 2, "bf16")                                                                                              \
    X(I8, 4, 1, "i8")                                                                                                  \
    X(U8, 5, 1, "u8")                                                                                                  \
    X(I32, 6, 4, "i32")                                                                                                \
    X(I64, 7, 8, "i64")                                                                                                \
    X(BOOL, 8, 1, "bool")                                                                                              \
    X(I16, 9, 2, "i16")                                                                                                \
    X(U16, 10, 2, "u16")                                                                                               \
    X(U32, 11, 4, "u32")                                                                                               \
    X(U64, 12, 8, "u64")                                                                                               \
    X(F8E4M3, 13, 1, "f8e4m3")                                                                                         \
    X(F8E5M2, 14, 1, "f8e5m2")

/* The type of an element. */
typedef enum gw_dtype {
#define GW_DTYPE_ENUM(name, value, bytes, text) GW_##name = value,
    GW_DTYPE_LIST(GW_DTYPE_ENUM)
#undef GW_DTYPE_ENUM
} gw_dtype;

/* GW_AVG is the sum divided by the number of ranks (integers: rounded towards zero, without overflow of the sum except
 * for i64 and u64). f16, bf16, f8e4m3 and f8e5m2 are combined in f32 and rounded once, to nearest even, whatever the
 * number of ranks. A result that rounds to more than the largest number is infinite; in f8e4m3, which has no infinity,
 * it is the largest number, 448, as in PyTorch's casts. Integer sums and products wrap. In a bool every byte but 0 is
 * true, and results are 0 or 1: sum, max and bor are the logical or, prod, min and band the logical and, bxor the
 * parity; there is no avg. GW_BAND, GW_BOR and GW_BXOR combine the bits of integers. Calls with an operation that a
 * type does not have are GW_UNSUPPORTED. */
#define GW_REDOP_LIST(X)                                                                                               \
    X(SUM, 0, "sum")                                                                                                   \
    X(AVG, 1, "avg")                                                                                                   \
    X(MIN, 2, "min")                                                                                                   \
    X(MAX, 3, "max")                                                                                                   \
    X(PROD, 4, "prod")                                                                                                 \
    X(BAND, 5, "band")                                                                                                 \
    X(BOR, 6, "bor")                                                                                                   \
    X(BXOR, 7, "bxor")

/* How elements of several ranks become one. */
typedef enum gw_redop {
#define GW_REDOP_ENUM(name, value, text) GW_##name = value,
    GW_REDOP_LIST(GW_REDOP_ENUM)
#undef GW_REDOP_ENUM
} gw_redop;

/* name, value, text */
#define GW_COLLECTIVE_LIST(X)                                                                                          \
    X(ALLREDUCE, 0, "allreduce")                                                                                       \
    X(REDUCE_SCATTER, 1, "reduce_scatter")                                                                             \
    X(ALLGATHER, 2, "allgather")                                                                                       \
    X(REDUCE, 3, "reduce")                                                                                             \
    X(BROADCAST, 4, "broadcast")                                                                                       \
    X(GATHER, 5, "gather")                                                                                             \
    X(SCATTER, 6, "scatter")                                                                                           \
    X(ALLTOALL, 7, "alltoall")                                                                                         \
    X(BARRIER, 8, "barrier")                                                                                           \
    X(SEND, 9, "send")                                                                                                 \
    X(RECV, 10, "recv")                                                                                                \
    X(ALLTOALLV, 11, "alltoallv")

/* A kind of call. */
typedef enum gw_collective {
#define GW_COLLECTIVE_ENUM(name, value, text) GW_COLL_##name = value,
    GW_COLLECTIVE_LIST(GW_COLLECTIVE_ENUM)
#undef GW_COLLECTIVE_ENUM
} gw_collective;

/* A communicator: ranks that exchange data. */
typedef struct gw_comm gw_comm;
/* An operation that was started and is not yet waited for. */
typedef struct gw_request gw_request;

/* How to join a job. Begin with GW_OPTIONS_DEFAULT; every field that keeps its default is read from the environment
 * (docs/reference/environment.md). Strings are copied. */
typedef struct gw_options {
    size_t size;             /* of this struct, in bytes */
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

/* Everything from the environment: gw_options options = GW_OPTIONS_DEFAULT; */
#define GW_OPTIONS_DEFAULT                                                                                             \
    {                                                                                                                  \
        .size = sizeof(gw_options), .strategy = NULL, .rank = -1, .world = -1, .master_addr = NULL, .master_port = -1, \
        .token = NULL, .interfaces = NULL, .ports = NULL, .deadline_s = 0, .quorum = NULL                              \
    }

/* Joins the job as gw_init does, for a program that was compiled against that version (GW_VERSION_NUMBER). A library
 * that is older than the header is GW_UNSUPPORTED. */
GW_API gw_status gw_init_version(int version, gw_comm **comm, const gw_options *options);
/* Joins the job; returns when all ranks have joined. options may be NULL: everything from the environment. On failure
 * *comm is NULL and gw_last_error(NULL) gives the reason, in the calling thread. */
static inline gw_status gw_init(gw_comm **comm, const gw_options *options) {
    return gw_init_version(GW_VERSION_NUMBER, comm, options);
}
/* Leaves the job and frees the communicator; communicators split from it must be finalised first. Waits, up to the
 * deadline, for operations that this rank has started; not for other ranks. NULL is fine. */
GW_API gw_status gw_finalize(gw_comm *comm);

/* Where this process is in a communicator. */
GW_API int gw_rank(const gw_comm *comm);       /* of this process in the communicator, from 0 on */
GW_API int gw_size(const gw_comm *comm);       /* how many ranks it has */
GW_API int gw_local_rank(const gw_comm *comm); /* among the ranks of this host, in rank order */
GW_API int gw_local_size(const gw_comm *comm); /* how many of its ranks are on this host */

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

/* Makes ordinary memory (of malloc, NumPy, PyTorch) as good as gw_alloc's: the whole pages in [memory, memory+bytes)
 * move onto shared memory that ranks of this host access without a copy. Address and contents stay. All calls of all
 * communicators of this gw_init are faster on this memory, or on a part of it; malloc, realloc and free of it go on
 * working. Not a collective call: each rank registers what it likes. It costs 0.3 to 1 ms a MiB, once, and as much free
 * memory for that time. Without other ranks on this host that it shares memory with, the call does nothing.
 *
 * During the call no other thread writes to the memory, and no operation or device uses it.
 *
 * From then on a forked child shares it: what the child writes there, the parent sees. madvise(MADV_DONTNEED) no longer
 * zeroes it, and it does not become huge pages. Other ranks of this host, which are processes of the same user, can
 * read and write it, as they can gw_alloc's. Where it begins or ends within a page, its bytes on that page stay
 * private; calls copy them, at most two pages each way.
 *
 * Call gw_unregister before the memory is freed. Otherwise it stays shared for as long as the allocator keeps it. If
 * the allocator gives it back to the system and a later buffer lies at the same address, the next call with that buffer
 * notices, ends the registration with a warning, and uses the buffer as ordinary memory. (A buffer that is only read is
 * noticed by its contents, at both ends.)
 *
 * Refused with a sentence, and nothing changes: GW_UNSUPPORTED for memory without a whole page, and for read-only,
 * executable, locked (mlock), already shared (gw_alloc's, or registered before) and stack memory, mappings of files and
 * huge pages; GW_INVALID for memory of a device. A refusal fails only this call, and the memory works as before. */
GW_API gw_status gw_register(gw_comm *comm, void *memory, size_t bytes);
/* Ends the registration of memory that begins at this address: its pages are private again, with their contents. Under
 * the same conditions and at the same cost; any communicator of the same gw_init will do. GW_INVALID: no registered
 * memory begins there, or all of it was unmapped before. GW_MEMORY: it stays registered. gw_finalize of the last
 * communicator ends what is left. */
GW_API gw_status gw_unregister(gw_comm *comm, void *memory);

/* The text of a status. Never NULL. */
GW_API const char *gw_status_text(gw_status status);
/* The sentence of the communicator's first error; if comm is NULL or has not failed, of this thread's last failed call
 * (a wrong argument fails only the call). Never NULL. Valid until the communicator is finalised, or the thread's next
 * failure. */
GW_API const char *gw_last_error(const gw_comm *comm);
/* The status with which the communicator has failed, or GW_OK. Never blocks; any thread may call it, also while another
 * one is inside a collective (as ncclCommGetAsyncError). gw_last_error then gives the sentence. */
GW_API gw_status gw_async_error(const gw_comm *comm);

/* The version of the library, which may differ from that of the header. */
GW_API const char *gw_version(void); /* of the library: "0.2.0" */
GW_API int gw_version_number(void);  /* of the library, as GW_VERSION_NUMBER */

/* The bytes of one element; 0: there is no such type. */
GW_API size_t gw_dtype_bytes(gw_dtype dtype);

/* Messages of the library, of all its communicators in this process: lines to standard error, filtered by GRADWIRE_LOG
 * (default warn), unless a callback takes them. */
typedef enum gw_log_level {
    GW_LOG_ERROR = 0, /* something failed */
    GW_LOG_WARN = 1,  /* a job runs, but something is wrong or slow */
    GW_LOG_INFO = 2,  /* what was chosen and measured */
    GW_LOG_DEBUG = 3, /* single connections */
    GW_LOG_TRACE = 4, /* at present the same as GW_LOG_DEBUG */
} gw_log_level;
/* Takes a message. rank: of the process in its job; -1: not known. text: one line without a newline, valid during the
 * call. Called by any thread, several at a time, some of which hold locks: it must neither block nor call the library.
 */
typedef void gw_log_fn(void *ctx, gw_log_level level, int rank, const char *text);
/* Gives messages to a callback; NULL: to standard error again. Returns when no call of the former callback is in
 * progress. */
GW_API void gw_set_log(gw_log_fn *log, void *ctx);

/* Collectives. They are exact: of the communicator's strategy they use arch and transport, never compress
 * (gradwire/coded.h has collectives through codecs). `in` and `out` may be the same buffer where both have the same
 * length (in place); otherwise they must not overlap. Counts are elements; 0 is fine. For gather, scatter, all-gather
 * and reduce-scatter the in-place form is the rank's own part of the large buffer; an uneven all-to-all has none.
 * Buffers are memory of the host: a pointer to memory of a device, or to none, is GW_INVALID. */

/* One tensor of a coalesced call (gw_call.tensors). */
typedef struct gw_call_tensor {
    const void *in; /* as in the plain call */
    void *out;      /* as in the plain call */
    size_t count;   /* elements, as in the plain call */
} gw_call_tensor;

/* One call, described. Every other call below is short for gw_run or gw_start with such a description. Begin with
 * GW_CALL_DEFAULT and set what the collective needs; the plain call of the same name says what its fields mean. */
typedef struct gw_call {
    size_t size;              /* of this struct, in bytes */
    gw_collective collective; /* which one */
    gw_dtype dtype;           /* of the elements */
    gw_redop op;              /* of reductions */
    int root;                 /* or the peer of a send or receive; a receive may say GW_ANY_SOURCE; -1: none */
    const void *in;           /* what this rank gives; a send reads it */
    void *out;                /* what this rank gets; a receive writes it */
    size_t count;             /* elements, as in the plain call */
    const size_t *counts;     /* of uneven parts, instead of count: gw_size entries, the same on all ranks. Copied, as
                                 are the four arrays below. */
    /* Uneven all-to-all (GW_COLL_ALLTOALLV): what this rank sends to each rank and where it lies in `in`, what it gets
     * from each and where that goes in `out`. Offsets NULL: parts lie in rank order without gaps. */
    const size_t *in_counts, *in_offsets, *out_counts, *out_offsets;
    /* Coalesced: the collective runs for each of these tensors, and small ones travel together; in, out, count and
     * counts are not used. Every rank passes the same counts in the same order. Copied. Not for sends, receives,
     * barriers and uneven parts. */
    const gw_call_tensor *tensors;
    size_t tensor_count;
    double deadline_s; /* of this call; 0: the communicator's. A deadline that passes ends the communicator. */
    /* GW_SUM and GW_AVG of floating types: each input is multiplied by prescale, and the result by postscale, in the
     * type in which sums are kept (f32 for shorter types), before it is rounded. The same on all ranks. */
    double prescale, postscale;
    /* Sends and receives match by tag: a receive gets the first message from its peer that has its tag. Among messages
     * with one tag from one rank to another the order of the sends is kept. At least 0. */
    int tag;
    int *source; /* a receive writes the sender's rank here when it is complete; NULL: not wanted */
} gw_call;

/* The root of a receive that takes a message of whichever rank sends first. */
#define GW_ANY_SOURCE (-1)

/* A call with nothing set: what gw_call begins with. */
#define GW_CALL_DEFAULT                                                                                                \
    {                                                                                                                  \
        .size = sizeof(gw_call), .collective = GW_COLL_ALLREDUCE, .dtype = GW_F32, .op = GW_SUM, .root = -1,           \
        .in = NULL, .out = NULL, .count = 0, .counts = NULL, .in_counts = NULL, .in_offsets = NULL,                    \
        .out_counts = NULL, .out_offsets = NULL, .tensors = NULL, .tensor_count = 0, .deadline_s = 0, .prescale = 1,   \
        .postscale = 1, .tag = 0, .source = NULL                                                                       \
    }

/* Runs a call and waits for it. */
GW_API gw_status gw_run(gw_comm *comm, const gw_call *call);
/* Starts a call: the library's progress thread drives it while the caller computes. On GW_OK *request must be passed to
 * gw_wait exactly once (or to gw_test until that says done); otherwise it is NULL. */
GW_API gw_status gw_start(gw_comm *comm, const gw_call *call, gw_request **request);

/* Combines the ranks' `in`: out[0..count) is the result on every rank. */
GW_API gw_status gw_allreduce(gw_comm *comm, const void *in, void *out, size_t count, gw_dtype dtype, gw_redop op);
/* Combines the ranks' `in` on root. `out` is written there only; elsewhere it may be NULL. */
GW_API gw_status gw_reduce(gw_comm *comm, const void *in, void *out, size_t count, gw_dtype dtype, gw_redop op,
                           int root);
/* Copies root's `in` to every rank's `out`. `in` is read on root only; elsewhere it may be NULL. */
GW_API gw_status gw_broadcast(gw_comm *comm, const void *in, void *out, size_t count, gw_dtype dtype, int root);
/* Combines the ranks' `in`, and gives rank r the r-th part. `in` has size*count elements, `out` has count. */
GW_API gw_status gw_reduce_scatter(gw_comm *comm, const void *in, void *out, size_t count, gw_dtype dtype, gw_redop op);
/* gw_reduce_scatter with uneven parts: rank r gets counts[r] elements; counts (size entries) is the same on all ranks
 * and is copied. */
GW_API gw_status gw_reduce_scatterv(gw_comm *comm, const void *in, void *out, const size_t *counts, gw_dtype dtype,
                                    gw_redop op);
/* Gives every rank all ranks' `in`, in rank order. `in` has count elements, `out` has size*count. */
GW_API gw_status gw_allgather(gw_comm *comm, const void *in, void *out, size_t count, gw_dtype dtype);
/* gw_allgather with uneven parts: rank r gives counts[r] elements, as in gw_reduce_scatterv. */
GW_API gw_status gw_allgatherv(gw_comm *comm, const void *in, void *out, const size_t *counts, gw_dtype dtype);
/* Gives root all ranks' `in`, in rank order. `in` has count elements on every rank; `out` has size*count on root. */
GW_API gw_status gw_gather(gw_comm *comm, const void *in, void *out, size_t count, gw_dtype dtype, int root);
/* gw_gather with uneven parts: rank r gives counts[r] elements; counts is the same on all ranks. */
GW_API gw_status gw_gatherv(gw_comm *comm, const void *in, void *out, const size_t *counts, gw_dtype dtype, int root);
/* Gives rank r the r-th part of root's `in`, which has size*count elements; `out` has count on every rank. */
GW_API gw_status gw_scatter(gw_comm *comm, const void *in, void *out, size_t count, gw_dtype dtype, int root);
/* gw_scatter with uneven parts: rank r gets counts[r] elements; counts is the same on all ranks. */
GW_API gw_status gw_scatterv(gw_comm *comm, const void *in, void *out, const size_t *counts, gw_dtype dtype, int root);
/* Exchanges parts: part r of `in` goes to rank r. Both buffers have size*count elements. */
GW_API gw_status gw_alltoall(gw_comm *comm, const void *in, void *out, size_t count, gw_dtype dtype);
/* gw_alltoall with uneven parts: in_counts[r] elements at in + in_offsets[r] go to rank r, out_counts[r] from rank r to
 * out + out_offsets[r].
 * What one rank sends is what the other expects, else both get GW_MISMATCH. Offsets may be NULL, see gw_call. */
GW_API gw_status gw_alltoallv(gw_comm *comm, const void *in, const size_t *in_counts, const size_t *in_offsets,
                              void *out, const size_t *out_counts, const size_t *out_offsets, gw_dtype dtype);
/* Returns when all ranks have called it. */
GW_API gw_status gw_barrier(gw_comm *comm);

/* Sends to one rank, with tag 0 (gw_call has others): the n-th send from a to b matches the n-th receive of b from a.
 * Both sides pass the same count and type. */
GW_API gw_status gw_send(gw_comm *comm, const void *data, size_t count, gw_dtype dtype, int peer);
/* Receives from one rank: the other side of gw_send. */
GW_API gw_status gw_recv(gw_comm *comm, void *data, size_t count, gw_dtype dtype, int peer);

/* The nonblocking form, as gw_start. */
GW_API gw_status gw_allreduce_start(gw_comm *comm, const void *in, void *out, size_t count, gw_dtype dtype, gw_redop op,
                                    gw_request **request);
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
GW_API gw_status gw_gatherv_start(gw_comm *comm, const void *in, void *out, const size_t *counts, gw_dtype dtype,
                                  int root, gw_request **request);
GW_API gw_status gw_scatter_start(gw_comm *comm, const void *in, void *out, size_t count, gw_dtype dtype, int root,
                                  gw_request **request);
GW_API gw_status gw_scatterv_start(gw_comm *comm, const void *in, void *out, const size_t *counts, gw_dtype dtype,
                                   int root, gw_request **request);
GW_API gw_status gw_alltoall_start(gw_comm *comm, const void *in, void *out, size_t count, gw_dtype dtype,
                                   gw_request **request);
GW_API gw_status gw_alltoallv_start(gw_comm *comm, const void *in, const size_t *in_counts, const size_t *in_offsets,
                                    void *out, const size_t *out_counts, const size_t *out_offsets, gw_dtype dtype,
                                    gw_request **request);
GW_API gw_status gw_barrier_start(gw_comm *comm, gw_request **request);
GW_API gw_status gw_send_start(gw_comm *comm, const void *data, size_t count, gw_dtype dtype, int peer,
                               gw_request **request);
GW_API gw_status gw_recv_start(gw_comm *comm, void *data, size_t count, gw_dtype dtype, int peer, gw_request **request);

/* Waits for a request and frees it, whatever the status. NULL is fine. */
GW_API gw_status gw_wait(gw_request *request);
/* Asks whether a request is over, and never blocks. When *done is true, the request is freed and the status is that of
 * the operation. */
GW_API gw_status gw_test(gw_request *request, bool *done);

/* Calls between gw_group_start and gw_group_end are collected and run together: small all-reduces of the same type and
 * operation are fused into one, so many small tensors cost one round. Every rank makes the same calls in the same
 * order. gw_group_end starts them all and waits for the blocking ones among them; requests of _start calls are complete
 * together, and cannot be waited for before gw_group_end. */
GW_API gw_status gw_group_start(gw_comm *comm);
/* Ends what gw_group_start began. */
GW_API gw_status gw_group_end(gw_comm *comm);

#ifdef __cplusplus
}
#endif
#endif
