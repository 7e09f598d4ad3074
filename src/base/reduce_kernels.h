/* reduce_kernels.h - the kernels behind reduce.h and half.h: one function for each type and operation, compiled from
 * one source (reduce_body.h) for each CPU level. */
#ifndef GW_BASE_REDUCE_KERNELS_H
#define GW_BASE_REDUCE_KERNELS_H

#include "base/dtype.h"

/* dst[..] = (src[0] op src[1] op ...) / divisor. Wide is the accumulator type of (dtype, op); if that is dtype itself,
 * the three flags are ignored. Elements are processed in ascending groups, and each group is read completely before it
 * is written: a dst may therefore overlap source elements that have been read already. */
typedef struct gw_reduce_job {
    const void *const *src;
    int sources; /* at least 1 */
    bool first_wide, rest_wide; /* src[0], and all others */
    void *const *dst;
    int destinations;
    bool dst_wide;
    int divisor; /* > 0; 1 except when an average is finished */
    size_t count;
} gw_reduce_job;

typedef void gw_reduce_kernel(const gw_reduce_job *job);

/* [dtype][op] */
extern gw_reduce_kernel *const gw_reduce_plain[GW_DTYPES][GW_REDOPS];
#if defined(__x86_64__)
extern gw_reduce_kernel *const gw_reduce_avx2[GW_DTYPES][GW_REDOPS];
extern gw_reduce_kernel *const gw_reduce_avx512[GW_DTYPES][GW_REDOPS];
#endif

/* Runs the fastest kernel that the CPU has. */
void gw_reduce_run(gw_dtype dtype, gw_redop op, const gw_reduce_job *job);

#endif
