/* product_values.h - inputs of ranks and expected results: a reference that shares nothing with the library but
 * the conversion of short floating types (tested in test_half.c and test_float8.c).
 *
 * Inputs are small whole numbers (powers of two under prod) for which every order of floating-point sums is exact in
 * the accumulator; sums of short floating types need more bits than the type has, so that a second rounding would
 * show. Position i holds the value of i modulo PERIOD, a prime: a block that ends up in a wrong place shows, and
 * buffers are filled and compared at the speed of memory. */
#ifndef GW_TEST_PRODUCT_VALUES_H
#define GW_TEST_PRODUCT_VALUES_H

#include "base/dtype.h"
#include "base/float8.h"
#include "base/half.h"
#include "gradwire.h"

#include <stdint.h>
#include <string.h>

#define PERIOD 1021

typedef struct value_table {
    gw_dtype dtype;
    size_t length; /* elements that are filled in: no more are needed, or PERIOD */
    uint8_t bytes[PERIOD * 8];
} value_table;

static int64_t value_whole(gw_dtype dtype, int rank, size_t at, unsigned salt) {
    /* all exact; -120..119 in an i8. f8e4m3 has all numbers up to 16, f8e5m2 up to 8. */
    int64_t range = dtype == GW_F16 ? 2001 : dtype == GW_F8E4M3 ? 33 : dtype == GW_F8E5M2 ? 17 : 240;
    int64_t value = (int64_t)((at * 31 + (size_t)rank * 1009 + salt * 7) % (size_t)range);
    bool is_unsigned = dtype == GW_U8 || dtype == GW_U16 || dtype == GW_U32 || dtype == GW_U64;
    if (dtype == GW_BOOL) return value % 3 ? value : 0; /* true is any byte but 0 */
    return is_unsigned ? value : value - range / 2;
}

static double value_power(int rank, size_t at, unsigned salt) {
    static const double powers[] = {1, 2, -1, 0.5, 1, -2, -0.5};
    return powers[(at + (size_t)rank * 3 + salt) % 7];
}

static void value_store_float(gw_dtype dtype, void *to, size_t index, double value) {
    switch (dtype) {
    case GW_F32: ((float *)to)[index] = (float)value; break;
    case GW_F64: ((double *)to)[index] = value; break;
    case GW_F16: ((uint16_t *)to)[index] = gw_f32_to_f16((float)value); break;
    case GW_F8E4M3: ((uint8_t *)to)[index] = gw_f32_to_f8e4m3((float)value); break;
    case GW_F8E5M2: ((uint8_t *)to)[index] = gw_f32_to_f8e5m2((float)value); break;
    default: ((uint16_t *)to)[index] = gw_f32_to_bf16((float)value); break;
    }
}

static void value_store_whole(gw_dtype dtype, void *to, size_t index, int64_t value) {
    switch (gw_dtype_bytes(dtype)) {
    case 1: ((uint8_t *)to)[index] = (uint8_t)value; break;
    case 2: ((uint16_t *)to)[index] = (uint16_t)value; break;
    case 4: ((uint32_t *)to)[index] = (uint32_t)value; break;
    default: ((uint64_t *)to)[index] = (uint64_t)value; break;
    }
}

/* What rank `rank` puts in. */
static void value_input(value_table *table, gw_dtype dtype, gw_redop op, int rank, unsigned salt, size_t needed) {
    table->dtype = dtype;
    table->length = needed < PERIOD ? needed : PERIOD;
    for (size_t i = 0; i < table->length; i++) {
        int64_t whole = value_whole(dtype, rank, i, salt);
        if (gw_dtype_is_float(dtype))
            value_store_float(dtype, table->bytes, i, op == GW_PROD ? value_power(rank, i, salt) : (double)whole);
        else value_store_whole(dtype, table->bytes, i, op == GW_PROD && dtype != GW_BOOL ? whole | 1 : whole);
    }
}

static double value_reduced_float(gw_dtype dtype, gw_redop op, int world, size_t at, unsigned salt) {
    double result = op == GW_PROD ? value_power(0, at, salt) : (double)value_whole(dtype, 0, at, salt);
    for (int r = 1; r < world; r++) {
        double next = op == GW_PROD ? value_power(r, at, salt) : (double)value_whole(dtype, r, at, salt);
        if (op == GW_PROD) result *= next;
        else if (op == GW_MIN) result = next < result ? next : result;
        else if (op == GW_MAX) result = next > result ? next : result;
        else result += next;
    }
    if (op != GW_AVG) return result;
    return dtype == GW_F64 ? result / world : (double)((float)result / (float)world);
}

static int64_t value_reduced_bool(gw_redop op, int world, size_t at, unsigned salt) {
    int set = 0;
    for (int r = 0; r < world; r++) set += value_whole(GW_BOOL, r, at, salt) != 0;
    if (op == GW_SUM || op == GW_MAX || op == GW_BOR) return set > 0;
    return op == GW_BXOR ? set % 2 : set == world;
}

static int64_t value_reduced_whole(gw_dtype dtype, gw_redop op, int world, size_t at, unsigned salt) {
    if (dtype == GW_BOOL) return value_reduced_bool(op, world, at, salt);
    int64_t result = value_whole(dtype, 0, at, salt);
    if (op == GW_PROD) result |= 1;
    for (int r = 1; r < world; r++) {
        int64_t next = value_whole(dtype, r, at, salt);
        if (op == GW_PROD) result = (int64_t)((uint64_t)result * (uint64_t)(next | 1));
        else if (op == GW_MIN) result = next < result ? next : result;
        else if (op == GW_MAX) result = next > result ? next : result;
        else if (op == GW_BAND) result &= next;
        else if (op == GW_BOR) result |= next;
        else if (op == GW_BXOR) result ^= next;
        else result += next;
    }
    return op == GW_AVG ? result / world : result;
}

/* What must come out of all of them. */
static void value_reduced(value_table *table, gw_dtype dtype, gw_redop op, int world, unsigned salt, size_t needed) {
    table->dtype = dtype;
    table->length = needed < PERIOD ? needed : PERIOD;
    for (size_t i = 0; i < table->length; i++) {
        if (gw_dtype_is_float(dtype))
            value_store_float(dtype, table->bytes, i, value_reduced_float(dtype, op, world, i, salt));
        else value_store_whole(dtype, table->bytes, i, value_reduced_whole(dtype, op, world, i, salt));
    }
}

static void value_fill(void *buffer, size_t count, const value_table *table) {
    size_t width = gw_dtype_bytes(table->dtype), bytes = count * width, have = PERIOD * width;
    if (bytes == 0) return;
    if (have > bytes) have = bytes;
    memcpy(buffer, table->bytes, have);
    for (; have < bytes; have *= 2) /* a whole number of periods until the last */
        memcpy((char *)buffer + have, buffer, have < bytes - have ? have : bytes - have);
}

/* The first element that is not the table's, where element 0 is that of position `start`; count: all are. */
static size_t value_compare(const void *buffer, size_t count, const value_table *table, size_t start) {
    size_t width = gw_dtype_bytes(table->dtype), head = count < PERIOD ? count : PERIOD;
    const char *bytes = buffer;
    for (size_t i = 0; i < head; i++)
        if (memcmp(bytes + i * width, table->bytes + (start + i) % PERIOD * width, width) != 0) return i;
    if (count <= PERIOD || memcmp(bytes, bytes + PERIOD * width, (count - PERIOD) * width) == 0) return count;
    size_t i = PERIOD;
    while (memcmp(bytes + i * width, bytes + (i - PERIOD) * width, width) == 0) i++;
    return i;
}

#endif
