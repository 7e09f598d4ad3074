/* gradwire/coded.h - one collective by itself through a codec, for programs that exchange data outside of training
 * steps: sharded weights (FSDP), process groups, averages of statistics. A coded collective is opened once for its data
 * and strategy and then runs any number of times, as a persistent collective of MPI does. It keeps the state of its
 * codec (residuals) from run to run; the state can be saved and restored.
 *
 *     gw_coded_options options = GW_CODED_OPTIONS_DEFAULT;
 *     options.collective = GW_COLL_REDUCE_SCATTER;
 *     options.strategy = "compress=int8";
 *     options.name = "layer3";
 *     options.count = n;
 *     gw_coded_open(&coded, comm, &options);     collective; all memory is allocated here
 *     gw_coded_run(coded, in, out);              again and again
 *     gw_coded_close(coded);
 *
 * The calls of gradwire.h are exact: they use the architecture and the transport of the communicator's strategy, and
 * never its codec. A codec is asked for here, or in training steps (gradwire/reducer.h).
 *
 * Result. All-reduce: the same bits on every rank; it is carried as the only tensor of a training step is, by the same
 * route. Reduce-scatter: each rank encodes every part for the rank that gets it, which decodes the payloads and adds
 * them in one order: there is one loss, not two. All-gather: each rank encodes its part once and decodes all parts, its
 * own too, so every rank has the same bits. With arch=hierarchical, or arch=auto on several hosts, the ranks of a host
 * combine and share values exactly, and only what crosses hosts is encoded. Nothing is encoded if there is nothing to
 * cross: a single rank, or arch=hierarchical on one host. Parts of less than 1,024 elements are sent exact, and parts
 * that a codec cannot encode, such as vectors with powersgd; gw_coded_describe shows what is done.
 *
 * Residuals. A codec with feedback adds what it did not send to the next run. Over all runs the whole sum of the inputs
 * arrives; a single result may miss most of it. So such a codec is for gradients and differences, which are summed up,
 * not for values that replace each other: gather those by a codec without feedback (fp16, bf16, int8, qsgd).
 *
 * Threads. One thread uses a coded collective at a time; different ones may be used by different threads. All ranks
 * open and close, and run, each coded collective the same number of times; runs of different ones may be started in
 * different orders. After a failure of the communicator every call returns its error. */
#ifndef GRADWIRE_CODED_H
#define GRADWIRE_CODED_H

#include "gradwire.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A coded collective and the state of its codec. */
typedef struct gw_coded gw_coded;

/* What is exchanged and how; the same on all ranks. Begin with GW_CODED_OPTIONS_DEFAULT. Strings and counts are
 * copied. */
typedef struct gw_coded_options {
    size_t size;              /* of this struct, in bytes */
    gw_collective collective; /* GW_COLL_ALLREDUCE, GW_COLL_REDUCE_SCATTER or GW_COLL_ALLGATHER */
    const char *strategy;     /* "compress=topk arch=ring": replaces these axes of the communicator's strategy; NULL:
                                 neither. The other three axes cannot be named: sync and schedule are of training steps,
                                 the transport is chosen by gw_init. arch=ps and arch=sfb are for training steps too. */
    const char *name;         /* of the data: in error sentences; random codecs draw from it */
    size_t count;             /* elements; of one part, as in gw_reduce_scatter and gw_allgather */
    const size_t *counts;     /* of uneven parts, instead of count: gw_size entries; not for an all-reduce */
    size_t columns; /* of a matrix, row major: a divisor of every count; 0: no matrix. Low-rank codecs use it */
    gw_dtype dtype; /* GW_F32; other types only with compress=none */
    gw_redop op;    /* of reductions: GW_AVG or GW_SUM */
    uint64_t seed;  /* of random codecs */
} gw_coded_options;

/* An all-reduce of nothing: set at least name and count. */
#define GW_CODED_OPTIONS_DEFAULT                                                                                       \
    {                                                                                                                  \
        .size = sizeof(gw_coded_options), .collective = GW_COLL_ALLREDUCE, .strategy = NULL, .name = NULL, .count = 0, \
        .counts = NULL, .columns = 0, .dtype = GW_F32, .op = GW_AVG, .seed = 0                                         \
    }

/* Makes a coded collective. A collective call. If ranks pass different options, all get GW_MISMATCH; an impossible
 * combination is GW_UNSUPPORTED, with the reason. On failure *coded is NULL. */
GW_API gw_status gw_coded_open(gw_coded **coded, gw_comm *comm, const gw_coded_options *options);
/* Waits for a run that has been started, and frees it. A collective call, except after a failure. NULL is fine. Call it
 * before its communicator is finalised. */
GW_API void gw_coded_close(gw_coded *coded);

/* Runs it once and waits. Buffers are as in the plain call of gradwire.h, in-place forms included. Runs are numbered,
 * from 0 on: warm-ups and random numbers of a codec depend on the number. */
GW_API gw_status gw_coded_run(gw_coded *coded, const void *in, void *out);
/* Starts a run: the library's progress thread drives it while the caller computes. On GW_OK call gw_coded_wait exactly
 * once, or gw_coded_test until it says done, before any other call but gw_coded_close. */
GW_API gw_status gw_coded_start(gw_coded *coded, const void *in, void *out);
/* Waits for the run that has been started. GW_OK if there is none. */
GW_API gw_status gw_coded_wait(gw_coded *coded);
/* Asks whether the run is over, and never blocks. When *done is true, it is over and the status is that of the run. */
GW_API gw_status gw_coded_test(gw_coded *coded, bool *done);

/* The bytes that this rank sends in one run, at most; what ranks of a host read from shared memory is not sent. */
GW_API size_t gw_coded_sent_bytes(const gw_coded *coded);
/* One sentence: the collective, the strategy and the way the data take. Works like snprintf: writes at most size bytes,
 * and returns the length of the whole text. */
GW_API int gw_coded_describe(const gw_coded *coded, char *text, size_t size);

/* The state of this rank, bit for bit: the codec's, and the number of the next run. A program that saves it, opens the
 * same coded collective again and restores it continues with the same bits as if it had never stopped. The accuracy
 * guard of a codec with `limit` begins again. */
GW_API size_t gw_coded_state_bytes(const gw_coded *coded);
GW_API gw_status gw_coded_state_save(const gw_coded *coded, void *memory);
/* Every rank restores what it has saved: a collective call. GW_MISMATCH on all ranks if a state is of another
 * collective, strategy, rank or number of ranks, is damaged, or was saved before another run than that of rank 0;
 * restore another state then, or close it. */
GW_API gw_status gw_coded_state_restore(gw_coded *coded, const void *memory, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
