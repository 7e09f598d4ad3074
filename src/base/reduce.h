/* reduce.h - the arithmetic of reductions, at memory speed, for every type and operation.
 *
 * A reduction has two types: the `raw` type of the user's buffers and the `wide` type that gw_accumulator gives (often
 * the same). Each function takes the raw type and the operation, and a flag for each operand that may be wide.
 * Summation order is the order of the arguments, element by element, so results do not depend on how a range is cut.
 * Results are the same bits at every CPU level. Buffers need only the alignment of their element.
 *
 * Corner cases are the same everywhere. A minimum or maximum is a NaN if any operand is; of equal numbers (0 and -0)
 * the earlier one is taken. The sign and payload of a NaN result are not specified. Integers wrap (an average of i64
 * or u64 wraps in its sum). Averages of f32 and f64 are the sum divided once; those of shorter floating types are
 * divided in f32 before they are rounded. A raw bool is true unless it is 0; results are 0 or 1.
 *
 * A scale multiplies in the wide type, to which its factors are rounded first: each raw operand by prescale, and a
 * finished result (of an average: after the division) by postscale. A wide operand is a partial result, and scaled
 * already; so the flags must be right even where both types are the same. */
#ifndef GW_BASE_REDUCE_H
#define GW_BASE_REDUCE_H

#include "gradwire.h"

/* Zero initialised: no scale. */
typedef struct gw_scale {
    bool set; /* false: both factors are 1, whatever these say: */
    double prescale, postscale;
} gw_scale;

typedef struct gw_reduction {
    gw_dtype dtype; /* of the user's buffers */
    gw_redop op;
    int world;      /* GW_AVG divides by it when a result is finished */
    gw_scale scale; /* only where gw_scale_refuses does not refuse it */
} gw_reduction;

/* The scale by these factors; none if both are 1. */
gw_scale gw_scale_of(double prescale, double postscale);
bool gw_scale_same(const gw_scale *a, const gw_scale *b);
/* NULL if results of this type and operation can be scaled; else why not, as the end of a sentence. */
const char *gw_scale_refuses(gw_dtype dtype, gw_redop op);

/* True if the reduction of a single operand is the operand itself, bit by bit (in a world of one). */
bool gw_reduce_is_copy(gw_reduction r);

/* dst = a op b. dst may be a or b (the same address, if dst is not the wider one of the two). If dst is wide and b is
 * raw, b may also lie in the last count*raw bytes of dst's range (a receive buffer that is widened in place). finish:
 * dst is raw, and averages are divided. Without finish dst is wide. */
void gw_reduce_pair(gw_reduction r, void *dst, const void *a, bool a_wide, const void *b, bool b_wide, size_t count,
                    bool finish);

/* dst = src[0] op src[1] op ... op src[sources-1], all raw, accumulated wide, finished (raw). dst may be one of the
 * sources. */
void gw_reduce_many(gw_reduction r, void *dst, const void *const *src, int sources, size_t count);

/* The same into several destinations at once, each element computed once (dst[i] may be any of the sources, unless it
 * is wider). Without finish every dst is wide. */
void gw_reduce_push(gw_reduction r, void *const *dst, int destinations, const void *const *src, int sources,
                    size_t count, bool finish);

/* dst = finish(src), raw, for one operand: copies, divides averages, converts. dst may be src. */
void gw_reduce_finish(gw_reduction r, void *dst, const void *src, bool src_wide, size_t count);

/* Plain scalar references, for the tests to compare with. */
void gw_reduce_pair_reference(gw_reduction r, void *dst, const void *a, bool a_wide, const void *b, bool b_wide,
                              size_t count, bool finish);
void gw_reduce_many_reference(gw_reduction r, void *dst, const void *const *src, int sources, size_t count,
                              bool finish);

#endif
