/* dtype.c - see dtype.h. */
#include "base/dtype.h"

#include <string.h>

static const char *const dtype_names[] = {
#define DTYPE_NAME(name, value, bytes, text) [value] = text,
    GW_DTYPE_LIST(DTYPE_NAME)
#undef DTYPE_NAME
};

static const size_t dtype_bytes[] = {
#define DTYPE_BYTES(name, value, bytes, text) [value] = bytes,
    GW_DTYPE_LIST(DTYPE_BYTES)
#undef DTYPE_BYTES
};

static const char *const redop_names[] = {
#define REDOP_NAME(name, value, text) [value] = text,
    GW_REDOP_LIST(REDOP_NAME)
#undef REDOP_NAME
};

/* The index of name, or -1. */
static int find(const char *const *names, int count, const char *name) {
    for (int i = 0; i < count; i++) {
        if (strcmp(names[i], name) == 0) return i;
    }
    return -1;
}

const char *gw_dtype_name(gw_dtype dtype) { return (unsigned)dtype < GW_DTYPES ? dtype_names[dtype] : "?"; }

size_t gw_dtype_bytes(gw_dtype dtype) { return (unsigned)dtype < GW_DTYPES ? dtype_bytes[dtype] : 0; }

bool gw_dtype_parse(const char *name, gw_dtype *dtype) {
    int found = find(dtype_names, GW_DTYPES, name);
    if (found < 0) return false;
    *dtype = (gw_dtype)found;
    return true;
}

const char *gw_redop_name(gw_redop op) { return (unsigned)op < GW_REDOPS ? redop_names[op] : "?"; }

bool gw_redop_parse(const char *name, gw_redop *op) {
    int found = find(redop_names, GW_REDOPS, name);
    if (found < 0) return false;
    *op = (gw_redop)found;
    return true;
}

bool gw_dtype_is_float(gw_dtype dtype) {
    return dtype == GW_F32 || dtype == GW_F64 || dtype == GW_F16 || dtype == GW_BF16 || dtype == GW_F8E4M3 ||
           dtype == GW_F8E5M2;
}

const char *gw_redop_refuses(gw_dtype dtype, gw_redop op) {
    bool bitwise = op == GW_BAND || op == GW_BOR || op == GW_BXOR;
    if (bitwise && gw_dtype_is_float(dtype)) return "only integers and bool have operations on bits";
    if (dtype == GW_BOOL && op == GW_AVG) return "a bool has no average; use bor or band";
    return NULL;
}

static gw_dtype average_accumulator(gw_dtype dtype) {
    switch (dtype) {
    case GW_I8:
    case GW_U8:
    case GW_I16:
    case GW_U16: return GW_I32;
    case GW_I32:
    case GW_U32: return GW_I64;
    default: return dtype;
    }
}

gw_dtype gw_accumulator(gw_dtype dtype, gw_redop op) {
    bool computes = op == GW_SUM || op == GW_AVG || op == GW_PROD; /* else every result fits the type: no rounding */
    if (gw_dtype_is_float(dtype) && gw_dtype_bytes(dtype) < 4 && computes) return GW_F32;
    return op == GW_AVG ? average_accumulator(dtype) : dtype;
}
