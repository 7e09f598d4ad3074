/* element.h - single elements of every type, from and to numbers: for patterns and references, not for speed. */
#ifndef GW_BASE_ELEMENT_H
#define GW_BASE_ELEMENT_H

#include "gradwire.h"

/* buffer[index] = value: floating types round (through f32) to nearest even, integers drop the fraction and wrap, a
 * bool is whether the value is not 0. The value is less than 2^63. */
void gw_element_store(gw_dtype dtype, void *buffer, size_t index, double value);

#endif
