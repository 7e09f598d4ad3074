/* dtype.h - element types and reduction operations: names, sizes, which type has which operation, accumulator types. */
#ifndef GW_BASE_DTYPE_H
#define GW_BASE_DTYPE_H

#include "gradwire.h"

#define GW_DTYPE_COUNT(name, value, bytes, text) +1
#define GW_REDOP_COUNT(name, value, text) +1
#define GW_DTYPES (0 GW_DTYPE_LIST(GW_DTYPE_COUNT)) /* values are 0 to GW_DTYPES - 1 */
#define GW_REDOPS (0 GW_REDOP_LIST(GW_REDOP_COUNT))

const char *gw_dtype_name(gw_dtype dtype);
bool gw_dtype_parse(const char *name, gw_dtype *dtype);
const char *gw_redop_name(gw_redop op);
bool gw_redop_parse(const char *name, gw_redop *op);

bool gw_dtype_is_float(gw_dtype dtype);
/* NULL if the type has the operation; else why not, as the end of a sentence ("only integers and bool have ..."). */
const char *gw_redop_refuses(gw_dtype dtype, gw_redop op);

/* The type in which partial results are kept and sent: f32 for floating types below 32 bits (sum, avg, prod); for avg
 * also i32 for integers of 8 and 16 bits, and i64 for i32 and u32; otherwise dtype itself. */
gw_dtype gw_accumulator(gw_dtype dtype, gw_redop op);

#endif
