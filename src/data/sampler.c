/* sampler.c - see sampler.h. */
#include "data/sampler.h"

#include <assert.h>
#include <stdlib.h>

#include "base/rng.h"

#define ORDER_STREAM (UINT64_C(1) << 62) /* + epoch; distinct from the streams of other uses of a seed */

gw_data_shard gw_data_shard_cut(int64_t total, int rank, int world) {
    assert(total >= 0 && rank >= 0 && rank < world);
    int64_t each = total / world, more = total % world;
    return (gw_data_shard){.first = rank * each + (rank < more ? rank : more), .count = each + (rank < more)};
}

gw_status gw_sampler_create(int64_t examples, int64_t batch, uint64_t seed, int rank, int world, gw_sampler *sampler,
                            gw_error *error) {
    assert(rank >= 0 && rank < world);
    if (examples < 1 || examples > UINT32_MAX || batch < 1)
        return gw_fail(error, GW_INVALID, "%lld examples cannot be taken in batches of %lld", (long long)examples,
                       (long long)batch);
    uint32_t *order = malloc((size_t)examples * sizeof *order);
    if (!order) return gw_fail(error, GW_MEMORY, "no memory for the order of %lld examples", (long long)examples);
    *sampler =
        (gw_sampler){.examples = examples, .batch = batch, .rank = rank, .world = world, .seed = seed, .order = order};
    gw_sampler_epoch(sampler, 0);
    return GW_OK;
}

void gw_sampler_destroy(gw_sampler *sampler) {
    free(sampler->order);
    sampler->order = NULL;
}

/* Fisher-Yates shuffle of the identity: an epoch must not depend on the previous one. */
void gw_sampler_epoch(gw_sampler *sampler, uint64_t epoch) {
    gw_rng rng = gw_rng_make(sampler->seed, ORDER_STREAM + epoch);
    uint32_t *order = sampler->order;
    for (int64_t i = 0; i < sampler->examples; i++) {
        uint64_t other = gw_rng_below(&rng, (uint64_t)i + 1);
        if (other != (uint64_t)i) order[i] = order[other];
        order[other] = (uint32_t)i;
    }
}

int64_t gw_sampler_steps(const gw_sampler *sampler) { return (sampler->examples - 1) / sampler->batch + 1; }

gw_data_shard gw_sampler_batch(const gw_sampler *sampler, int64_t step) {
    assert(step >= 0 && step < gw_sampler_steps(sampler));
    int64_t first = step * sampler->batch, left = sampler->examples - first;
    return (gw_data_shard){.first = first, .count = left < sampler->batch ? left : sampler->batch};
}

gw_data_shard gw_sampler_shard(const gw_sampler *sampler, int64_t step) {
    gw_data_shard batch = gw_sampler_batch(sampler, step);
    gw_data_shard shard = gw_data_shard_cut(batch.count, sampler->rank, sampler->world);
    shard.first += batch.first;
    return shard;
}
