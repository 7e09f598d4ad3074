/* reduce.c - see reduce.h: every call is one job for one kernel. */
#include "base/reduce.h"

#include <assert.h>

#include "base/cpu.h"
#include "base/reduce_kernels.h"

void gw_reduce_run(gw_dtype dtype, gw_redop op, const gw_reduce_job *job) {
    assert((unsigned)dtype < GW_DTYPES && (unsigned)op < GW_REDOPS && job->sources > 0 && job->divisor > 0);
#if defined(__x86_64__)
    switch (gw_cpu()) {
    case GW_CPU_AVX512: gw_reduce_avx512[dtype][op](job); return;
    case GW_CPU_AVX2: gw_reduce_avx2[dtype][op](job); return;
    case GW_CPU_PLAIN: break;
    }
#endif
    gw_reduce_plain[dtype][op](job);
}

static int divisor(gw_reduction r, bool finish) { return finish && r.op == GW_AVG ? r.world : 1; }

void gw_reduce_pair(gw_reduction r, void *dst, const void *a, bool a_wide, const void *b, bool b_wide, size_t count,
                    bool finish) {
    gw_reduce_run(r.dtype, r.op,
                  &(gw_reduce_job){.src = (const void *[]){a, b},
                                   .sources = 2,
                                   .first_wide = a_wide,
                                   .rest_wide = b_wide,
                                   .dst = (void *[]){dst},
                                   .destinations = 1,
                                   .dst_wide = !finish,
                                   .divisor = divisor(r, finish),
                                   .count = count});
}

void gw_reduce_many(gw_reduction r, void *dst, const void *const *src, int sources, size_t count) {
    gw_reduce_push(r, (void *[]){dst}, 1, src, sources, count);
}

void gw_reduce_push(gw_reduction r, void *const *dst, int destinations, const void *const *src, int sources,
                    size_t count) {
    gw_reduce_run(r.dtype, r.op,
                  &(gw_reduce_job){.src = src,
                                   .sources = sources,
                                   .dst = dst,
                                   .destinations = destinations,
                                   .divisor = divisor(r, true),
                                   .count = count});
}

void gw_reduce_finish(gw_reduction r, void *dst, const void *src, bool src_wide, size_t count) {
    gw_reduce_run(r.dtype, r.op,
                  &(gw_reduce_job){.src = (const void *[]){src},
                                   .sources = 1,
                                   .first_wide = src_wide,
                                   .dst = (void *[]){dst},
                                   .destinations = 1,
                                   .divisor = divisor(r, true),
                                   .count = count});
}
