/* pattern.h - what buffers are filled with, and what results must be.
 *
 * Element i of rank r is a small whole number that depends on r and on i modulo a prime, so that every result is exact
 * in every type and order of summation, misplaced elements show, and buffers are filled and compared block by block.
 * For compressed calls, whose results are only near, it is an f32 as gradients are: of either sign, few of them large,
 * two thirds of it the same on all ranks.
 * The salt shifts the pattern: what a call leaves undone is not right by the last call's merit. */
#ifndef GW_BENCH_PATTERN_H
#define GW_BENCH_PATTERN_H

#include "gradwire.h"

#define GW_PATTERN_PERIOD 4093 /* elements */
#define GW_PATTERN_SALTS 8

typedef struct gw_pattern {
    uint8_t *block;       /* owned; the period twice, so that any GW_PATTERN_PERIOD elements lie in a row */
    size_t element_bytes;
} gw_pattern;

/* Of one rank's input, and of the combination of all; gradient: of GW_F32 like gradients. GW_MEMORY or GW_OK. */
gw_status gw_pattern_of_rank(gw_pattern *pattern, gw_dtype dtype, gw_redop op, int rank, bool gradient);
gw_status gw_pattern_of_all(gw_pattern *pattern, gw_dtype dtype, gw_redop op, int world, bool gradient);
void gw_pattern_free(gw_pattern *pattern);

/* Writes elements first .. first+count-1 of the pattern to memory, or counts how many there differ from it. */
void gw_pattern_fill(const gw_pattern *pattern, void *memory, size_t first, size_t count, int salt);
size_t gw_pattern_wrong(const gw_pattern *pattern, const void *memory, size_t first, size_t count, int salt);

#endif
