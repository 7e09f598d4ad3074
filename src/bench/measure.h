/* measure.h - one rank's part in a measurement of any library.
 *
 * Before every call the buffers are rewritten and all ranks pass a barrier; only the call itself is timed. */
#ifndef GW_BENCH_MEASURE_H
#define GW_BENCH_MEASURE_H

#include "base/status.h"
#include "bench/bench_case.h"

/* Buffers of a call. Collectives run in place where they can: in and out are the same for all-reduce, reduce (on the
 * root) and broadcast; for all-gather, in is the rank's own part of out. */
typedef struct gw_bench_buffers {
    const void *in;
    void *out; /* NULL: this rank receives nothing */
} gw_bench_buffers;

/* The library that is measured. */
typedef struct gw_bench_library {
    /* The library's own allocator; NULL: it has none. It returns NULL if no memory is left. */
    void *(*allocate)(void *ctx, size_t bytes);
    void (*release)(void *ctx, void *memory);
    /* Registers memory of malloc, and ends that; NULL: the library cannot. enlist is false if it refuses. */
    bool (*enlist)(void *ctx, void *memory, size_t bytes);
    void (*delist)(void *ctx, void *memory);
    gw_status (*call)(void *ctx, const gw_bench_case *c, const gw_bench_buffers *buffers, gw_error *error);
    bool lossy; /* compressed: results are approximate */
    bool bound; /* a lower bound: only the memory traffic that a collective needs, no results */
} gw_bench_library;

typedef struct gw_bench_rank {
    const gw_bench_library *library;
    void *ctx;                                     /* of the library */
    gw_status (*meet)(void *ctx, gw_error *error); /* barrier of all ranks: of the side channel, or of the library */
    void *meet_ctx;
    int rank, world;
} gw_bench_rank;

/* Buffers and patterns for a case. They stay the same from call to call, as in a training job. */
typedef struct gw_bench_work gw_bench_work;

typedef struct gw_bench_tally {
    uint64_t wrong;  /* wrong elements in the checked results */
    uint64_t cpu_ns; /* of a core, by all threads of the process, user and kernel: in the timed calls alone */
} gw_bench_tally;

gw_status gw_bench_open(gw_bench_work **work, const gw_bench_rank *rank, const gw_bench_case *c, gw_error *error);
/* Whether the buffers fit this case too: only its numbers of calls may differ. */
bool gw_bench_fits(const gw_bench_work *work, const gw_bench_case *c);
/* times: ns of each timed call on this rank. *tally: of this rank. */
gw_status gw_bench_measure(gw_bench_work *work, const gw_bench_case *c, uint64_t *times, gw_bench_tally *tally,
                           gw_error *error);
void gw_bench_close(gw_bench_work *work); /* NULL is fine */

#endif
