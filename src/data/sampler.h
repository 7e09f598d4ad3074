/* sampler.h - which examples a rank takes in a step.
 *
 * The order of an epoch is a permutation that follows from the seed and the epoch alone. Global step s takes
 * order[s * batch .. (s + 1) * batch), the last step what is left, and the ranks cut that into contiguous shares; so a
 * step has the same examples whatever the number of ranks, and an epoch and a step are all there is to resume from. */
#ifndef GW_DATA_SAMPLER_H
#define GW_DATA_SAMPLER_H

#include <stdint.h>

#include "base/status.h"

typedef struct gw_share {
    int64_t first, count; /* count may be 0: more ranks than examples */
} gw_share;

typedef struct gw_sampler {
    int64_t examples;
    int64_t batch; /* global: of all ranks together */
    int rank, world;
    uint64_t seed;
    uint32_t *order; /* of the epoch; owned */
} gw_sampler;

/* Rank's part of 0 .. total, cut into world parts that differ by at most one, the larger first. */
gw_share gw_share_cut(int64_t total, int rank, int world);

/* The order of epoch 0 is ready. */
gw_status gw_sampler_create(int64_t examples, int64_t batch, uint64_t seed, int rank, int world, gw_sampler *sampler,
                            gw_error *error);
void gw_sampler_destroy(gw_sampler *sampler);
/* Makes the order of an epoch; any may follow any. */
void gw_sampler_epoch(gw_sampler *sampler, uint64_t epoch);

int64_t gw_sampler_steps(const gw_sampler *sampler); /* of an epoch, the partial one at the end included */
/* What the whole world takes in a step, and what this rank does, both as places in order. */
gw_share gw_sampler_batch(const gw_sampler *sampler, int64_t step);
gw_share gw_sampler_share(const gw_sampler *sampler, int64_t step);

#endif
