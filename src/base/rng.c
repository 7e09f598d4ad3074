/* rng.c - Philox 4x32-10: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011). */
#include "base/rng.h"

#include <assert.h>

#define ROUNDS 10
#define ROUNDS_FEW 7
#define MULTIPLIER_0 UINT64_C(0xD2511F53)
#define MULTIPLIER_1 UINT64_C(0xCD9E8D57)
#define WEYL_0 UINT32_C(0x9E3779B9) /* golden ratio */
#define WEYL_1 UINT32_C(0xBB67AE85) /* sqrt(3) - 1 */

static inline void philox(int rounds, uint64_t key, uint64_t counter_low, uint64_t counter_high, uint32_t out[4]) {
    uint32_t key_0 = (uint32_t)key, key_1 = (uint32_t)(key >> 32);
    uint32_t x0 = (uint32_t)counter_low, x1 = (uint32_t)(counter_low >> 32);
    uint32_t x2 = (uint32_t)counter_high, x3 = (uint32_t)(counter_high >> 32);
    for (int round = 0; round < rounds; round++) {
        uint64_t product_0 = MULTIPLIER_0 * x0, product_1 = MULTIPLIER_1 * x2;
        x0 = (uint32_t)(product_1 >> 32) ^ x1 ^ key_0;
        x1 = (uint32_t)product_1;
        x2 = (uint32_t)(product_0 >> 32) ^ x3 ^ key_1;
        x3 = (uint32_t)product_0;
        key_0 += WEYL_0;
        key_1 += WEYL_1;
    }
    out[0] = x0;
    out[1] = x1;
    out[2] = x2;
    out[3] = x3;
}

void gw_philox(uint64_t key, uint64_t counter_low, uint64_t counter_high, uint32_t out[4]) {
    philox(ROUNDS, key, counter_low, counter_high, out);
}

void gw_philox7(uint64_t key, uint64_t counter_low, uint64_t counter_high, uint32_t out[4]) {
    philox(ROUNDS_FEW, key, counter_low, counter_high, out);
}

/* Each stream has its own key, drawn from counters of the seed that no sequence reaches. */
gw_rng gw_rng_make(uint64_t seed, uint64_t stream) {
    uint32_t drawn[4];
    gw_philox(seed, stream, UINT64_MAX, drawn);
    return (gw_rng){.key = (uint64_t)drawn[1] << 32 | drawn[0], .used = 4};
}

uint32_t gw_rng_u32(gw_rng *rng) {
    if (rng->used == 4) {
        gw_philox(rng->key, rng->counter++, 0, rng->block);
        rng->used = 0;
    }
    return rng->block[rng->used++];
}

uint64_t gw_rng_u64(gw_rng *rng) {
    uint64_t low = gw_rng_u32(rng);
    return (uint64_t)gw_rng_u32(rng) << 32 | low;
}

uint64_t gw_rng_below(gw_rng *rng, uint64_t bound) {
    assert(bound > 0);
    uint64_t surplus = -bound % bound; /* 2^64 mod bound: draws below it are rejected, else low results are likelier */
    uint64_t drawn;
    do drawn = gw_rng_u64(rng);
    while (drawn < surplus);
    return drawn % bound;
}

double gw_rng_unit(gw_rng *rng) { return (double)(gw_rng_u64(rng) >> 11) * 0x1p-53; }
