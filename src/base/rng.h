/* rng.h - random numbers: a counter-based generator (Philox 4x32-10, Salmon et al. 2011), so that the n-th number of a
 * key is a pure function, and a small sequential generator over it for tests and the simulator. */
#ifndef GW_BASE_RNG_H
#define GW_BASE_RNG_H

#include <stdint.h>

typedef struct gw_rng {
    uint64_t key;
    uint64_t counter; /* of the next block */
    uint32_t block[4];
    int used; /* words of block already given out; 4: none left */
} gw_rng;

/* Four random words for (key, counter). */
void gw_philox(uint64_t key, uint64_t counter_low, uint64_t counter_high, uint32_t out[4]);
/* The same with 7 rounds, the fewest that pass all tests of the paper, where speed counts: the coins of codecs. */
void gw_philox7(uint64_t key, uint64_t counter_low, uint64_t counter_high, uint32_t out[4]);

gw_rng gw_rng_make(uint64_t seed, uint64_t stream);
uint32_t gw_rng_u32(gw_rng *rng);
uint64_t gw_rng_u64(gw_rng *rng);
uint64_t gw_rng_below(gw_rng *rng, uint64_t bound); /* 0..bound-1, bound > 0, unbiased */
double gw_rng_unit(gw_rng *rng);                    /* [0, 1) */

#endif
