/* dtype.h - element types and reduction operations: names, sizes, and in what type they are accumulated. */
#ifndef GW_BASE_DTYPE_H
#define GW_BASE_DTYPE_H

#include "gradwire.h"

const char *gw_dtype_name(gw_dtype dtype);
bool gw_dtype_parse(const char *name, gw_dtype *dtype);
const char *gw_redop_name(gw_redop op);
bool gw_redop_parse(const char *name, gw_redop *op);

/* The type partial results are kept and sent in: f32 for f16 and bf16 (sum, avg, prod), i32 for i8 and u8 and i64 for
 * i32 under avg, else dtype itself. */
gw_dtype gw_accumulator(gw_dtype dtype, gw_redop op);

#endif
