/* test_sim.c - guarantees of engine and control plane under random delays, deaths, partitions and disagreement, in
 * virtual time. SIM_SEEDS sets how many seeds (default 1000). A failing one replays by `gradwire sim --seed N`. */
#include "test.h"

#include "sim/fault_sim.h"

static void run_seeds(uint64_t first, uint64_t count, int world) {
    int right = 0, failed = 0, by_fault[GW_SIM_FAULTS] = {0};
    for (uint64_t seed = first; seed < first + count; seed++) {
        gw_fault_sim_outcome outcome;
        gw_error error = {0};
        CHECK_EQ(GW_OK, gw_fault_sim_run(seed, world, &outcome, &error));
        if (!outcome.ok) {
            test_failures++;
            printf("    seed %" PRIu64 " (world %d): %s\n", seed, outcome.world, outcome.text);
            if (test_failures > 5) return;
        }
        right += outcome.right;
        failed += outcome.failed;
        by_fault[outcome.fault]++;
    }
    printf("    %d right results, %d errors;", right, failed);
    for (int f = 0; f < GW_SIM_FAULTS; f++) printf(" %s %d", gw_sim_fault_name((gw_sim_fault)f), by_fault[f]);
    printf("\n");
}

static void a_thousand_seeds(void) {
    const char *seeds = getenv("SIM_SEEDS");
    run_seeds(1, seeds ? strtoull(seeds, NULL, 10) : 1000, 0);
}

static void every_world_to_17(void) {
    for (int world = 1; world <= 17; world++) run_seeds(10000 + (uint64_t)world * 100, 3, world);
}

static void large_worlds(void) {
    static const int worlds[] = {64, 100, 256, 1024};
    for (int i = 0; i < 4; i++) run_seeds(50000 + (uint64_t)i, 1, worlds[i]);
}

static void the_same_seed_gives_the_same_run(void) {
    for (uint64_t seed = 1; seed < 20; seed++) {
        gw_fault_sim_outcome a, b;
        gw_error error = {0};
        gw_fault_sim_run(seed, 0, &a, &error);
        gw_fault_sim_run(seed, 0, &b, &error);
        CHECK_EQ(a.events, b.events);
        CHECK(a.seconds == b.seconds);
        CHECK_EQ(a.right, b.right);
    }
}

TEST_MAIN(CASE(a_thousand_seeds), CASE(every_world_to_17), CASE(large_worlds), CASE(the_same_seed_gives_the_same_run))
