/* case.h - what is measured: one collective of one size. A case travels to the ranks as a line of text. */
#ifndef GW_BENCH_CASE_H
#define GW_BENCH_CASE_H

#include "gradwire.h"
#include "plan/plan.h"

#define GW_BENCH_LINE_BYTES 256
#define GW_BENCH_CALLS_MAX 10000 /* of one case in one go */

typedef struct gw_bench_case {
    gw_collective collective;
    gw_dtype dtype;
    gw_redop op;
    int root;
    size_t count;    /* elements, as the call takes them: of the buffer, or of one rank's part */
    int warmup;      /* calls that are not timed; their results are always checked */
    int calls;       /* that are timed */
    bool check;      /* the results of the timed ones too */
    bool own_memory; /* the library's own allocator rather than malloc */
} gw_bench_case;

/* The fitting count for buffers of about `bytes`; `bytes` is that of the largest buffer of a rank. */
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
