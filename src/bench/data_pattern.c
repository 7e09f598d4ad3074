/* data_pattern.c - see data_pattern.h. */
#include "bench/data_pattern.h"

#include <stdlib.h>
#include <string.h>

#include "base/element.h"
#include "base/reduce.h"
#include "base/rng.h"

static int value_of(gw_dtype dtype, gw_redop op, int rank, size_t index) {
    int mixed = (int)((index * 7 + (size_t)rank * 5 + index / 64) % 8);
    if (dtype == GW_BOOL) return mixed % 2;
    return op == GW_PROD ? 1 + mixed % 2 : 1 + mixed;
}

/* Heavy-tailed, from -1 to 1. */
static float draw(uint64_t key, size_t index) {
    uint32_t word[4];
    gw_philox(key, index, 0, word);
    float x = (float)(int32_t)word[0] * 0x1p-31f;
    return x * x * x;
}

static float gradient_of(int rank, size_t index) { return draw(0, index) + 0.5f * draw((uint64_t)rank + 1, index); }

gw_status gw_pattern_of_rank(gw_pattern *pattern, gw_dtype dtype, gw_redop op, int rank, bool gradient) {
    pattern->element_bytes = gw_dtype_bytes(dtype);
    pattern->block = malloc(2 * GW_PATTERN_PERIOD * pattern->element_bytes);
    if (!pattern->block) return GW_MEMORY;
    for (size_t i = 0; i < 2 * GW_PATTERN_PERIOD; i++) {
        if (gradient) ((float *)(void *)pattern->block)[i] = gradient_of(rank, i % GW_PATTERN_PERIOD);
        else gw_element_store(dtype, pattern->block, i, value_of(dtype, op, rank, i % GW_PATTERN_PERIOD));
    }
    return GW_OK;
}

gw_status gw_pattern_of_all(gw_pattern *pattern, gw_dtype dtype, gw_redop op, int world, bool gradient) {
    gw_pattern *ranks = calloc((size_t)world, sizeof *ranks);
    const void **sources = calloc((size_t)world, sizeof *sources);
    gw_status status = ranks && sources ? gw_pattern_of_rank(pattern, dtype, op, 0, gradient) : GW_MEMORY;
    for (int r = 0; r < world && !status; r++) {
        status = gw_pattern_of_rank(&ranks[r], dtype, op, r, gradient);
        sources[r] = ranks[r].block;
    }
    gw_reduction reduction = {.dtype = dtype, .op = op, .world = world};
    if (!status) gw_reduce_many_reference(reduction, pattern->block, sources, world, 2 * GW_PATTERN_PERIOD, true);
    for (int r = 0; ranks && r < world; r++) gw_pattern_free(&ranks[r]);
    free(sources);
    free(ranks);
    return status;
}

void gw_pattern_free(gw_pattern *pattern) {
    free(pattern->block);
    pattern->block = NULL;
}

static const uint8_t *element_at(const gw_pattern *pattern, size_t index, int salt) {
    return pattern->block + (index + (size_t)salt * 509) % GW_PATTERN_PERIOD * pattern->element_bytes;
}

void gw_pattern_fill(const gw_pattern *pattern, void *memory, size_t first, size_t count, int salt) {
    const uint8_t *from = element_at(pattern, first, salt);
    uint8_t *to = memory;
    size_t period_bytes = GW_PATTERN_PERIOD * pattern->element_bytes, left = count * pattern->element_bytes;
    for (; left > period_bytes; left -= period_bytes, to += period_bytes) memcpy(to, from, period_bytes);
    memcpy(to, from, left);
}

static size_t count_wrong(const uint8_t *got, const uint8_t *wanted, size_t count, size_t bytes) {
    size_t wrong = 0;
    for (size_t i = 0; i < count; i++) wrong += memcmp(got + i * bytes, wanted + i * bytes, bytes) != 0;
    return wrong;
}

size_t gw_pattern_wrong(const gw_pattern *pattern, const void *memory, size_t first, size_t count, int salt) {
    const uint8_t *wanted = element_at(pattern, first, salt), *got = memory;
    size_t bytes = pattern->element_bytes, wrong = 0;
    while (count) {
        size_t part = count < GW_PATTERN_PERIOD ? count : GW_PATTERN_PERIOD;
        if (memcmp(got, wanted, part * bytes) != 0) wrong += count_wrong(got, wanted, part, bytes);
        got += part * bytes;
        count -= part;
    }
    return wrong;
}
