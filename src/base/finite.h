/* finite.h - looks for values that are not finite, at the speed of memory. */
#ifndef GW_BASE_FINITE_H
#define GW_BASE_FINITE_H

#include "gradwire.h"

/* The index of the first NaN or infinity; count: there is none, as with every array of integers. */
size_t gw_first_nonfinite(const void *values, size_t count, gw_dtype dtype);

#endif
