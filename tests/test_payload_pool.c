/* test_payload_pool.c - leases do not overlap, and are given in the order of asking; several ranks that start buckets
 * in one order, and end them in any, never wait for each other. */
#include "test.h"

#include "base/rng.h"
#include "reducer/payload_pool.h"

enum { LEASES = 12, HELD = 4, UNIT = GW_PAYLOAD_ALIGNMENT, POOL = 20 * UNIT };

static size_t random_bytes(gw_rng *rng) { return (1 + gw_rng_below(rng, 20)) * UNIT; }

static void check_apart(const gw_payload_pool *pool, const gw_payload_lease *leases, const uint8_t *memory) {
    int held = 0;
    for (int i = 0; i < LEASES; i++) held += leases[i].held;
    CHECK(held <= HELD);
    for (int i = 0; i < LEASES; i++) {
        if (!leases[i].held) continue;
        CHECK(gw_payload_pool_memory(pool, &leases[i]) == memory + leases[i].offset);
        CHECK(leases[i].offset + leases[i].bytes <= POOL);
        for (int k = 0; k < i; k++)
            CHECK(!leases[k].held || leases[k].offset + leases[k].bytes <= leases[i].offset ||
                  leases[i].offset + leases[i].bytes <= leases[k].offset);
    }
}

static void leases_do_not_overlap(void) {
    gw_rng rng = gw_rng_make(1, 1);
    gw_error error = {.rank = -1};
    gw_payload_pool *pool = NULL;
    gw_payload_lease leases[LEASES] = {{0}};
    bool asked[LEASES] = {0};
    int order[LEASES], waiting = 0;
    CHECK_EQ(GW_OK, gw_payload_pool_open(&pool, POOL, HELD, &error));
    gw_payload_pool_ask(pool, &leases[0], 0);
    const uint8_t *memory = gw_payload_pool_memory(pool, &leases[0]);
    gw_payload_pool_give_back(pool, &leases[0]);
    for (int round = 0; round < 20000 && !test_failures; round++) {
        int i = (int)gw_rng_below(&rng, LEASES);
        if (!asked[i]) {
            gw_payload_pool_ask(pool, &leases[i], random_bytes(&rng));
            order[waiting++] = i;
            asked[i] = true;
        } else if (leases[i].held) {
            gw_payload_pool_give_back(pool, &leases[i]);
            asked[i] = false;
        }
        while (waiting && leases[order[0]].held) memmove(order, order + 1, (size_t)--waiting * sizeof *order);
        for (int w = 0; w < waiting; w++) CHECK(!gw_payload_pool_memory(pool, &leases[order[w]]));
        check_apart(pool, leases, memory);
    }
    gw_payload_pool_close(pool);
}

/* A bucket is over when all ranks hold its memory; ranks start buckets when they like, in one order. */
static void ranks_do_not_wait_for_each_other(void) {
    enum { RANKS = 3 };
    gw_rng rng = gw_rng_make(2, 2);
    gw_error error = {.rank = -1};
    gw_payload_pool *pools[RANKS];
    gw_payload_lease leases[RANKS][LEASES] = {{{0}}};
    size_t bytes[LEASES];
    int started[RANKS] = {0}, over[RANKS] = {0};
    for (int i = 0; i < LEASES; i++) bytes[i] = random_bytes(&rng);
    for (int r = 0; r < RANKS; r++) CHECK_EQ(GW_OK, gw_payload_pool_open(&pools[r], POOL, HELD, &error));
    bool done[RANKS][LEASES] = {{0}};
    for (int round = 0; round < 10000; round++) {
        int r = (int)gw_rng_below(&rng, RANKS), i = (int)gw_rng_below(&rng, LEASES);
        if (started[r] < LEASES && gw_rng_below(&rng, 2)) {
            int next = started[r]++;
            gw_payload_pool_ask(pools[r], &leases[r][next], bytes[next]);
        }
        bool all = i < started[r] && leases[r][i].held;
        for (int q = 0; q < RANKS; q++) all &= done[q][i] || (i < started[q] && leases[q][i].held);
        if (!all || done[r][i]) continue;
        gw_payload_pool_give_back(pools[r], &leases[r][i]);
        done[r][i] = true;
        over[r]++;
    }
    for (int r = 0; r < RANKS; r++) {
        CHECK_EQ(LEASES, over[r]);
        CHECK_EQ(LEASES, gw_payload_pool_given(pools[r]));
        gw_payload_pool_close(pools[r]);
    }
}

TEST_MAIN(CASE(leases_do_not_overlap), CASE(ranks_do_not_wait_for_each_other))
