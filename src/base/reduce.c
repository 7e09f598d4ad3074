/* reduce.c - see reduce.h: every call is one job for one kernel. */
#include "base/reduce.h"

#include <assert.h>
#include <string.h>

#include "base/cpu.h"
#include "base/reduce_kernels.h"

static const gw_reduce_table *table(void) {
#if defined(__x86_64__)
    switch (gw_cpu()) {
    case GW_CPU_AVX512: return &gw_reduce_avx512;
    case GW_CPU_AVX2: return &gw_reduce_avx2;
    case GW_CPU_PLAIN: break;
    }
#endif
    return &gw_reduce_plain;
}

void gw_reduce_run(gw_dtype dtype, gw_redop op, const gw_reduce_job *job) {
    assert((unsigned)dtype < GW_DTYPES && (unsigned)op < GW_REDOPS && job->sources > 0 && job->divisor > 0);
    gw_reduce_kernel *kernel = job->scale.set ? table()->scaled[dtype] : table()->unscaled[dtype][op];
    assert(kernel && (!job->scale.set || !gw_scale_refuses(dtype, op)));
    kernel(job);
}

gw_scale gw_scale_of(double prescale, double postscale) {
    if (prescale == 1 && postscale == 1) return (gw_scale){0};
    return (gw_scale){.set = true, .prescale = prescale, .postscale = postscale};
}

/* By bits: a NaN equals itself. */
bool gw_scale_same(const gw_scale *a, const gw_scale *b) {
    if (!a->set || !b->set) return a->set == b->set;
    return memcmp(&a->prescale, &b->prescale, sizeof a->prescale) == 0 &&
           memcmp(&a->postscale, &b->postscale, sizeof a->postscale) == 0;
}

const char *gw_scale_refuses(gw_dtype dtype, gw_redop op) {
    bool adds = op == GW_SUM || op == GW_AVG;
    return adds && gw_dtype_is_float(dtype) ? NULL : "only sums and averages of floating types can be scaled";
}

bool gw_reduce_is_copy(gw_reduction r) { return r.dtype != GW_BOOL && !r.scale.set; }

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
                                   .scale = r.scale,
                                   .count = count});
}

void gw_reduce_many(gw_reduction r, void *dst, const void *const *src, int sources, size_t count) {
    gw_reduce_push(r, (void *[]){dst}, 1, src, sources, count, true);
}

void gw_reduce_push(gw_reduction r, void *const *dst, int destinations, const void *const *src, int sources,
                    size_t count, bool finish) {
    gw_reduce_run(r.dtype, r.op,
                  &(gw_reduce_job){.src = src,
                                   .sources = sources,
                                   .dst = dst,
                                   .destinations = destinations,
                                   .dst_wide = !finish,
                                   .divisor = divisor(r, finish),
                                   .scale = r.scale,
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
                                   .scale = r.scale,
                                   .count = count});
}
