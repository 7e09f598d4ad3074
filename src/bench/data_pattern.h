/* data_pattern.h - contents of the input buffers, and the expected results.
 *
 * Element i of rank r is a small whole number that depends on r and on i modulo a prime. So every result is exact in
 * every type and order of summation, misplaced elements show, and buffers are filled and compared block by block.
 * For compressed calls, whose results are approximate, elements are f32 like gradients: of either sign, few of them
 * large, two thirds of the value common to all ranks.
 * The salt shifts the pattern, so that results left over from the last call are wrong. */
#ifndef GW_BENCH_DATA_PATTERN_H
#define GW_BENCH_DATA_PATTERN_H

#include "gradwire.h"

#define GW_PATTERN_PERIOD 4093 /* elements */
#define GW_PATTERN_SALTS 8

typedef struct gw_pattern {
    uint8_t *block; /* owned; two periods, so that any GW_PATTERN_PERIOD elements are contiguous */
    size_t element_bytes;
} gw_pattern;

/* _of_rank makes the pattern of one rank's input, _of_all that of the reduction over all ranks. gradient: f32 values
 * like gradients. Returns GW_MEMORY or GW_OK. */
gw_status gw_pattern_of_rank(gw_pattern *pattern, gw_dtype dtype, gw_redop op, int rank, bool gradient);
gw_status gw_pattern_of_all(gw_pattern *pattern, gw_dtype dtype, gw_redop op, int world, bool gradient);
void gw_pattern_free(gw_pattern *pattern);

/* _fill writes elements first .. first+count-1 of the pattern to memory; _wrong counts those in memory that differ from
 * the pattern. */
void gw_pattern_fill(const gw_pattern *pattern, void *memory, size_t first, size_t count, int salt);
size_t gw_pattern_wrong(const gw_pattern *pattern, const void *memory, size_t first, size_t count, int salt);

#endif
