/* test_owners.c - every element of a tensor has one owner, in each lane and on each host, whatever the sizes of
 * hosts. */
#include "arch/owners.h"

#include <string.h>

#include "test.h"

#define RANKS_MAX 16

typedef struct layout {
    int hosts, sizes[4], world;
    int host_of[RANKS_MAX];
} layout;

static const layout layouts[] = {{.hosts = 1, .sizes = {1}},       {.hosts = 1, .sizes = {4}},
                                 {.hosts = 2, .sizes = {4, 4}},    {.hosts = 2, .sizes = {3, 1}},
                                 {.hosts = 3, .sizes = {2, 5, 1}}, {.hosts = 4, .sizes = {1, 1, 1, 1}}};

static gw_topology topology_of(layout *l) {
    l->world = 0;
    for (int h = 0; h < l->hosts; h++)
        for (int r = 0; r < l->sizes[h]; r++) l->host_of[l->world++] = h;
    return (gw_topology){.world = l->world, .host_of = l->host_of};
}

static bool has(const gw_stripes *set, uint64_t element) { return gw_stripes_cover(set, element, 1); }

static void check_tensor(const gw_topology *topology, bool flat, uint64_t key, uint64_t count, uint32_t block) {
    int lanes = gw_lanes_of(topology, 0, flat).lanes, hosts = gw_lanes_of(topology, 0, flat).hosts;
    for (uint64_t e = 0; e < count; e += 1 + count / 97) {
        int lane_owners = 0, owners = 0;
        for (int lane = 0; lane < lanes; lane++) {
            gw_lanes any = gw_lanes_of(topology, 0, flat);
            gw_owners o = gw_owners_of(&any, key, count, block);
            gw_stripes in_lane = gw_owners_in_lanes(&o, lane, lane + 1);
            lane_owners += has(&in_lane, e);
            for (int host = 0; host < hosts; host++) {
                gw_stripes owned = gw_owners_at_host(&o, lane, lane + 1, host);
                CHECK(!has(&owned, e) || has(&in_lane, e));
                owners += has(&owned, e);
            }
        }
        CHECK_EQ(1, lane_owners);
        CHECK_EQ(1, owners);
    }
}

static void one_owner_each(void) {
    static const uint64_t counts[] = {1, 7, 512, 5000, 70000, 300001};
    static const uint32_t blocks[] = {0, 1, 512, 2048, 65536};
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        layout l = layouts[i];
        gw_topology topology = topology_of(&l);
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
            for (size_t b = 0; b < sizeof blocks / sizeof *blocks; b++)
                for (int flat = 0; flat < 2; flat++) check_tensor(&topology, flat, 11 + i, counts[c], blocks[b]);
    }
}

/* What a rank has as the sum of its lanes is what the lanes have one by one. */
static void ranks_have_whole_lanes(void) {
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        layout l = layouts[i];
        gw_topology topology = topology_of(&l);
        int seen[RANKS_MAX][RANKS_MAX] = {{0}};
        for (int rank = 0; rank < l.world; rank++) {
            gw_lanes lanes = gw_lanes_of(&topology, rank, false);
            gw_owners o = gw_owners_of(&lanes, 5, 100000, 512);
            gw_stripes mine = gw_owners_at_host(&o, lanes.first, lanes.last, lanes.host);
            uint64_t sum = 0;
            for (int lane = lanes.first; lane < lanes.last; lane++) {
                gw_stripes one = gw_owners_at_host(&o, lane, lane + 1, lanes.host);
                sum += gw_stripes_count(&one);
                seen[lanes.host][lane]++;
                CHECK_EQ(rank, gw_lane_rank(&lanes, &topology, lane, lanes.host));
            }
            CHECK_EQ(sum, gw_stripes_count(&mine));
        }
        gw_lanes any = gw_lanes_of(&topology, 0, false);
        for (int host = 0; host < any.hosts; host++)
            for (int lane = 0; lane < any.lanes; lane++) CHECK_EQ(1, seen[host][lane]);
    }
}

/* A slice of 200 KB has work for all of eight owners, unless the codec's block is larger. */
static void slices_have_work_for_all(void) {
    layout l = {.hosts = 2, .sizes = {4, 4}};
    gw_topology topology = topology_of(&l);
    gw_lanes lanes = gw_lanes_of(&topology, 0, false);
    gw_owners o = gw_owners_of(&lanes, 3, 10000000, 512);
    for (int lane = 0; lane < 4; lane++)
        for (int host = 0; host < 2; host++) {
            gw_stripes owned = gw_owners_at_host(&o, lane, lane + 1, host);
            uint64_t from = 150000, run;
            CHECK(gw_stripes_next(&owned, &from, 200000, &run));
        }
}

TEST_MAIN(CASE(one_owner_each), CASE(ranks_have_whole_lanes), CASE(slices_have_work_for_all))
