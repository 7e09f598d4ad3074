/* test_bind.c - shares of cores: together all, never the same core twice, near equal; all where ranks outnumber
 * them. */
#include "launch/bind.h"
#include "test.h"

static void shares_are_a_partition(void) {
    for (int cores = 1; cores <= 40; cores++) {
        cpu_set_t all;
        CPU_ZERO(&all);
        for (int i = 0; i < cores; i++) CPU_SET(3 * i + 1, &all);
        for (int ranks = 1; ranks <= cores; ranks++) {
            cpu_set_t seen, share, both;
            CPU_ZERO(&seen);
            for (int r = 0; r < ranks; r++) {
                gw_bind_share(&all, r, ranks, &share);
                CPU_AND(&both, &seen, &share);
                CHECK_EQ(0, CPU_COUNT(&both));
                CHECK(CPU_COUNT(&share) >= cores / ranks && CPU_COUNT(&share) <= (cores + ranks - 1) / ranks);
                CPU_OR(&seen, &seen, &share);
            }
            CHECK(CPU_EQUAL(&seen, &all));
        }
    }
}

static void too_many_ranks_share_all(void) {
    cpu_set_t all, share;
    CPU_ZERO(&all);
    CPU_SET(0, &all);
    CPU_SET(5, &all);
    gw_bind_share(&all, 2, 3, &share);
    CHECK(CPU_EQUAL(&share, &all));
}

TEST_MAIN(CASE(shares_are_a_partition), CASE(too_many_ranks_share_all))
