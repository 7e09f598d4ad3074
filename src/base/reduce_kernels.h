/* reduce_kernels.h - the kernels behind reduce.h and half.h: one function for each type and operation, compiled from
 * one source (reduce_body.h) for each CPU level. */
#ifndef GW_BASE_REDUCE_KERNELS_H
#define GW_BASE_REDUCE_KERNELS_H

#include "base/dtype.h"
#include "base/reduce.h"

/* dst[..] = (src[0] op src[1] op ...) / divisor. Wide is the accumulator type of (dtype, op); if that is dtype itself,
 * the three flags matter only to the scale, which multiplies each source and each dst that is not wide. Elements are
 * processed in ascending groups, and each group is read completely before it is written: a dst may therefore overlap
 * source elements that have been read already. */
typedef struct gw_reduce_job {
    const void *const *src;
    int sources;                /* at least 1 */
    bool first_wide, rest_wide; /* src[0], and all others */
    void *const *dst;
    int destinations;
    bool dst_wide;
    int divisor; /* > 0; 1 except when an average is finished */
    gw_scale scale;
    size_t count;
} gw_reduce_job;

typedef void gw_reduce_kernel(const gw_reduce_job *job);

/* NULL: the type does not have the operation, or no scale. */
typedef struct gw_reduce_table {
    gw_reduce_kernel *unscaled[GW_DTYPES][GW_REDOPS];
    gw_reduce_kernel *scaled[GW_DTYPES]; /* sum and avg */
} gw_reduce_table;

extern const gw_reduce_table gw_reduce_plain;
#if defined(__x86_64__)
extern const gw_reduce_table gw_reduce_avx2, gw_reduce_avx512;
#endif

/* Runs the fastest kernel that the CPU has. */
void gw_reduce_run(gw_dtype dtype, gw_redop op, const gw_reduce_job *job);

#endif
