/* clip.h - clipping of gradients by their norm. */
#ifndef GW_BASE_CLIP_H
#define GW_BASE_CLIP_H

#include <math.h>

/* What multiplies gradients with this sum of squares, so that their norm is at most `limit`. A norm that is not finite
 * is not clipped: the NaN or infinity in it must stay visible, and not turn all others into zeros. */
static inline double gw_clip_factor(double squares, double limit) {
    return isfinite(squares) && squares > limit * limit ? limit / sqrt(squares) : 1;
}

#endif
