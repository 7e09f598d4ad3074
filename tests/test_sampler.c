/* test_sampler.c - the order of an epoch and its parts: each example once, the same batches for any number of ranks.
 */
#include "data/sampler.h"
#include "test.h"

static void cut_covers(void) {
    const int64_t totals[] = {0, 1, 2, 7, 16, 17, 100, 60000};
    for (size_t t = 0; t < sizeof totals / sizeof totals[0]; t++) {
        for (int world = 1; world <= 17; world++) {
            int64_t next = 0;
            for (int rank = 0; rank < world; rank++) {
                gw_data_shard share = gw_data_shard_cut(totals[t], rank, world);
                CHECK_EQ(next, share.first);
                CHECK(share.count == totals[t] / world || share.count == totals[t] / world + 1);
                next += share.count;
            }
            CHECK_EQ(totals[t], next);
        }
    }
}

static void is_permutation(void) {
    gw_sampler sampler;
    uint8_t seen[1000];
    CHECK_EQ(GW_OK, gw_sampler_create(1000, 64, 7, 0, 1, &sampler, NULL));
    for (uint64_t epoch = 0; epoch < 5; epoch++) {
        gw_sampler_epoch(&sampler, epoch);
        memset(seen, 0, sizeof seen);
        for (int i = 0; i < 1000; i++) {
            CHECK(sampler.order[i] < 1000);
            if (sampler.order[i] < 1000) seen[sampler.order[i]]++;
        }
        for (int i = 0; i < 1000; i++) CHECK_EQ(1, seen[i]);
    }
    gw_sampler_destroy(&sampler);
}

/* An order that follows from seed and epoch alone, and differs with each. */
static void follows_from_seed(void) {
    gw_sampler a, b;
    size_t bytes = 500 * sizeof(uint32_t);
    CHECK_EQ(GW_OK, gw_sampler_create(500, 8, 1, 0, 1, &a, NULL));
    CHECK_EQ(GW_OK, gw_sampler_create(500, 32, 1, 2, 3, &b, NULL));
    CHECK(memcmp(a.order, b.order, bytes) == 0);
    gw_sampler_epoch(&a, 1);
    CHECK(memcmp(a.order, b.order, bytes) != 0);
    gw_sampler_epoch(&b, 9);
    gw_sampler_epoch(&b, 1); /* however it got there */
    CHECK(memcmp(a.order, b.order, bytes) == 0);
    gw_sampler_destroy(&b);
    CHECK_EQ(GW_OK, gw_sampler_create(500, 32, 2, 0, 1, &b, NULL));
    gw_sampler_epoch(&b, 1);
    CHECK(memcmp(a.order, b.order, bytes) != 0);
    gw_sampler_destroy(&a);
    gw_sampler_destroy(&b);
}

/* All 24 orders of four examples come up about equally often: chi-squared with 23 degrees of freedom. */
static void is_fair(void) {
    gw_sampler sampler;
    int seen[256] = {0}, kinds = 0;
    double sum = 0, wanted = 24000 / 24.0;
    CHECK_EQ(GW_OK, gw_sampler_create(4, 1, 3, 0, 1, &sampler, NULL));
    for (uint64_t epoch = 0; epoch < 24000; epoch++) {
        gw_sampler_epoch(&sampler, epoch);
        seen[sampler.order[0] << 6 | sampler.order[1] << 4 | sampler.order[2] << 2 | sampler.order[3]]++;
    }
    for (int i = 0; i < 256; i++) {
        if (seen[i] == 0) continue;
        kinds++;
        sum += (seen[i] - wanted) * (seen[i] - wanted) / wanted;
    }
    CHECK_EQ(24, kinds);
    CHECK(sum < 49.7); /* 1 in 1,000 by chance; the seed is fixed */
    gw_sampler_destroy(&sampler);
}

/* Puts what all ranks take in an epoch, in the order of steps and ranks, into taken. */
static void take_epoch(int64_t examples, int64_t batch, int world, uint32_t *taken, int64_t *steps) {
    gw_sampler samplers[17];
    int64_t used = 0;
    for (int rank = 0; rank < world; rank++)
        CHECK_EQ(GW_OK, gw_sampler_create(examples, batch, 42, rank, world, &samplers[rank], NULL));
    *steps = gw_sampler_steps(&samplers[0]);
    for (int64_t step = 0; step < *steps; step++) {
        gw_data_shard whole = gw_sampler_batch(&samplers[0], step);
        int64_t together = 0;
        for (int rank = 0; rank < world; rank++) {
            gw_data_shard share = gw_sampler_shard(&samplers[rank], step);
            for (int64_t i = 0; i < share.count; i++) taken[used++] = samplers[rank].order[share.first + i];
            together += share.count;
        }
        CHECK_EQ(whole.count, together);
        CHECK_EQ(step + 1 < *steps ? batch : examples - step * batch, together);
    }
    CHECK_EQ(examples, used);
    for (int rank = 0; rank < world; rank++) gw_sampler_destroy(&samplers[rank]);
}

static void same_batches_for_any_world(void) {
    static uint32_t alone[1003], shared[1003];
    const int64_t batches[] = {1, 5, 12, 64, 1003, 5000};
    int64_t steps_alone, steps;
    for (size_t b = 0; b < sizeof batches / sizeof batches[0]; b++) {
        take_epoch(1003, batches[b], 1, alone, &steps_alone);
        CHECK_EQ((1003 + batches[b] - 1) / batches[b], steps_alone);
        for (int world = 2; world <= 17; world += 3) {
            take_epoch(1003, batches[b], world, shared, &steps);
            CHECK_EQ(steps_alone, steps);
            CHECK(memcmp(alone, shared, sizeof alone) == 0);
        }
    }
}

static void refuses(void) {
    gw_sampler sampler;
    gw_error error = {.status = GW_OK};
    CHECK_EQ(GW_INVALID, gw_sampler_create(0, 8, 1, 0, 1, &sampler, &error));
    CHECK_STR("0 examples cannot be taken in batches of 8", error.text);
    CHECK_EQ(GW_INVALID, gw_sampler_create(8, 0, 1, 0, 1, &sampler, NULL));
}

TEST_MAIN(CASE(cut_covers), CASE(is_permutation), CASE(follows_from_seed), CASE(is_fair),
          CASE(same_batches_for_any_world), CASE(refuses))
