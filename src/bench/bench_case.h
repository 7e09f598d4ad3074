/* bench_case.h - one case of a benchmark: one collective of one size. The driver sends a case to the ranks as a line of
 * text. */
#ifndef GW_BENCH_BENCH_CASE_H
#define GW_BENCH_BENCH_CASE_H

#include "gradwire.h"
#include "plan/plan.h"

#define GW_BENCH_LINE_BYTES 256
#define GW_BENCH_CALLS_MAX 10000 /* timed calls of one case */

/* Where buffers come from: malloc, the library's allocator, malloc and then registered with the library. */
typedef enum gw_bench_memory { GW_BENCH_MALLOC, GW_BENCH_OWN, GW_BENCH_REGISTERED } gw_bench_memory;

typedef struct gw_bench_case {
    gw_collective collective;
    gw_dtype dtype;
    gw_redop op;
    int root;
    size_t count; /* elements, as the call takes them: of the buffer, or of one rank's part */
    int warmup;   /* calls that are not timed; their results are always checked */
    int calls;    /* timed calls */
    bool check;   /* check the results of timed calls too */
    gw_bench_memory memory;
} gw_bench_case;

/* The count at which the largest buffer of a rank has about `bytes`. */
size_t gw_bench_count(gw_collective collective, gw_dtype dtype, int world, uint64_t bytes);
/* Elements of the largest buffer of a rank. */
size_t gw_bench_total(const gw_bench_case *c, int world);
/* Bus bandwidth over algorithm bandwidth, as nccl-tests defines it. */
double gw_bench_bus_factor(gw_collective collective, int world);
bool gw_bench_reduces(gw_collective collective);
bool gw_bench_has_root(gw_collective collective);

void gw_bench_case_print(const gw_bench_case *c, char line[GW_BENCH_LINE_BYTES]);
bool gw_bench_case_parse(const char *line, gw_bench_case *c);

#endif
