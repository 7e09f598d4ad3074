/* measure.h - one rank's part in a measurement, whichever library is measured.
 *
 * Before every call the buffers are rewritten and all ranks meet; only the call itself is timed. */
#ifndef GW_BENCH_MEASURE_H
#define GW_BENCH_MEASURE_H

#include "base/status.h"
#include "bench/case.h"

/* What a call is given. in and out are the same where the collective works in place: all-reduce, reduce (on the root)
 * and broadcast on the whole buffer, all-gather with in at the rank's own part of out. */
typedef struct gw_bench_buffers {
    const void *in;
    void *out; /* NULL where this rank gets nothing */
} gw_bench_buffers;

/* The library that is measured. */
typedef struct gw_bench_library {
    /* The library's own memory; NULL where it has none, or none is left. */
    void *(*allocate)(void *ctx, size_t bytes);
    void (*release)(void *ctx, void *memory);
    gw_status (*call)(void *ctx, const gw_bench_case *c, const gw_bench_buffers *buffers, gw_error *error);
    bool lossy; /* compressed: results are near what they should be, not equal */
    bool bound; /* no collective at all, only what one cannot do without: there are no results */
} gw_bench_library;

typedef struct gw_bench_rank {
    const gw_bench_library *library;
    void *ctx; /* of the library */
    gw_status (*meet)(void *ctx, gw_error *error); /* all ranks meet: by the side channel, or by the library */
    void *meet_ctx;
    int rank, world;
} gw_bench_rank;

/* Buffers and patterns for a case, kept from call to call as those of a training job are. */
typedef struct gw_bench_work gw_bench_work;

gw_status gw_bench_open(gw_bench_work **work, const gw_bench_rank *rank, const gw_bench_case *c, gw_error *error);
/* Whether it serves this case too: only the numbers of calls differ. */
bool gw_bench_fits(const gw_bench_work *work, const gw_bench_case *c);
/* times: ns of each timed call on this rank. *wrong: elements of checked results on this rank that were not as they
 * should be. */
gw_status gw_bench_measure(gw_bench_work *work, const gw_bench_case *c, uint64_t *times, uint64_t *wrong,
                           gw_error *error);
void gw_bench_close(gw_bench_work *work); /* NULL is fine */

#endif
