/* element.c - see element.h. */
#include "base/element.h"

#include "base/dtype.h"
#include "base/float8.h"
#include "base/half.h"

void gw_element_store(gw_dtype dtype, void *buffer, size_t index, double value) {
    int64_t whole = gw_dtype_is_float(dtype) ? 0 : (int64_t)value;
    switch (dtype) {
    case GW_F32: ((float *)buffer)[index] = (float)value; break;
    case GW_F64: ((double *)buffer)[index] = value; break;
    case GW_F16: ((uint16_t *)buffer)[index] = gw_f32_to_f16((float)value); break;
    case GW_BF16: ((uint16_t *)buffer)[index] = gw_f32_to_bf16((float)value); break;
    case GW_F8E4M3: ((uint8_t *)buffer)[index] = gw_f32_to_f8e4m3((float)value); break;
    case GW_F8E5M2: ((uint8_t *)buffer)[index] = gw_f32_to_f8e5m2((float)value); break;
    case GW_BOOL: ((uint8_t *)buffer)[index] = value != 0; break;
    case GW_I8:
    case GW_U8: ((uint8_t *)buffer)[index] = (uint8_t)whole; break;
    case GW_I16:
    case GW_U16: ((uint16_t *)buffer)[index] = (uint16_t)whole; break;
    case GW_I32:
    case GW_U32: ((uint32_t *)buffer)[index] = (uint32_t)whole; break;
    case GW_I64:
    case GW_U64: ((uint64_t *)buffer)[index] = (uint64_t)whole; break;
    }
}
