/* sampler.h - which examples a rank takes in a step.
 *
 * The order of an epoch is a permutation that depends only on the seed and the epoch. Global step s takes
 * order[s * batch .. (s + 1) * batch), the last step the remainder, and each rank takes a contiguous shard of it. So a
 * step has the same examples for any number of ranks, and the epoch and the step are the whole state to resume. */
#ifndef GW_DATA_SAMPLER_H
#define GW_DATA_SAMPLER_H

#include <stdint.h>

#include "base/status.h"

typedef struct gw_data_shard {
    int64_t first, count; /* count may be 0: more ranks than examples */
} gw_data_shard;

typedef struct gw_sampler {
    int64_t examples;
    int64_t batch; /* global: of all ranks together */
    int rank, world;
    uint64_t seed;
    uint32_t *order; /* permutation of the epoch; owned */
} gw_sampler;

/* The shard of `rank` when 0 .. total is cut into `world` shards whose sizes differ by at most one, larger ones first.
 */
gw_data_shard gw_data_shard_cut(int64_t total, int rank, int world);

/* The order of epoch 0 is ready. */
gw_status gw_sampler_create(int64_t examples, int64_t batch, uint64_t seed, int rank, int world, gw_sampler *sampler,
                            gw_error *error);
void gw_sampler_destroy(gw_sampler *sampler);
/* Computes the order of an epoch; epochs may come in any order. */
void gw_sampler_epoch(gw_sampler *sampler, uint64_t epoch);

int64_t gw_sampler_steps(const gw_sampler *sampler); /* of an epoch, including the partial one at the end */
/* The examples of all ranks in a step, and those of this rank; both are ranges of `order`. */
gw_data_shard gw_sampler_batch(const gw_sampler *sampler, int64_t step);
gw_data_shard gw_sampler_shard(const gw_sampler *sampler, int64_t step);

#endif
