/* test_topology.c - hosts and local ranks, and the cutting of ranges. */
#include "plan/build.h"

#include "arch/announcement_tree.h"
#include "test.h"

static void hosts(void) {
    static const int host_of[] = {0, 1, 0, 2, 1, 0};
    gw_topology topology = {.world = 6, .host_of = host_of};
    CHECK_EQ(3, gw_topology_hosts(&topology));
    CHECK_EQ(3, gw_topology_local_size(&topology, 0));
    CHECK_EQ(2, gw_topology_local_rank(&topology, 5));
    CHECK_EQ(1, gw_topology_local_rank(&topology, 4));
    CHECK_EQ(2, gw_topology_rank(&topology, 0, 1));
    CHECK_EQ(-1, gw_topology_rank(&topology, 2, 1));
    for (int r = 0; r < 6; r++)
        CHECK_EQ(r, gw_topology_rank(&topology, gw_topology_host(&topology, r), gw_topology_local_rank(&topology, r)));
}

static void without_hosts_everyone_is_alone(void) {
    gw_topology topology = {.world = 5};
    CHECK_EQ(5, gw_topology_hosts(&topology));
    CHECK_EQ(1, gw_topology_local_size(&topology, 3));
    CHECK_EQ(0, gw_topology_local_rank(&topology, 3));
    CHECK_EQ(3, gw_topology_rank(&topology, 3, 0));
}

static void parts_cover(void) {
    for (size_t count = 0; count < 40; count++)
        for (int parts = 1; parts < 12; parts++) {
            size_t next = 0, offset, length;
            for (int i = 0; i < parts; i++) {
                gw_part(count, parts, i, &offset, &length);
                CHECK_EQ(next, offset);
                CHECK(length == count / (size_t)parts || length == count / (size_t)parts + 1);
                next = offset + length;
            }
            CHECK_EQ(count, next);
        }
}

static void smallest_and_largest_host(void) {
    static const int in_order[] = {0, 0, 0, 1, 2, 2}, dealt[] = {0, 1, 0, 2, 0, 2};
    const int *const both[] = {in_order, dealt};
    int least, most;
    for (int i = 0; i < 2; i++) {
        gw_topology_local_sizes(&(gw_topology){.world = 6, .host_of = both[i]}, &least, &most);
        CHECK_EQ(1, least);
        CHECK_EQ(3, most);
    }
    gw_topology_local_sizes(&(gw_topology){.world = 4}, &least, &most);
    CHECK(least == 1 && most == 1);
}

/* Every rank but 0 is the child of its parent, and of no other; returns the longest way from rank 0. */
static int check_tree(const gw_topology *t) {
    int told = 1, depth = 0;
    for (int r = 0; r < t->world; r++) {
        gw_announcement_tree tree = gw_announcement_tree_of(t, r);
        CHECK_EQ(r == 0, tree.parent < 0);
        told += tree.count;
        for (int i = 0; i < tree.count; i++) CHECK_EQ(r, gw_announcement_tree_of(t, tree.children[i]).parent);
        int steps = 0;
        for (int at = r; at > 0 && steps <= t->world; steps++) at = gw_announcement_tree_of(t, at).parent;
        if (steps > depth) depth = steps;
    }
    CHECK_EQ(t->world, told);
    return depth;
}

static void announcements_reach_all(void) {
    int host_of[512], order[6] = {4, 1, 0, 5, 2, 3};
    static const int dealt[] = {1, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 1, 1};
    for (int world = 1; world < 100; world++) {
        int depth = check_tree(&(gw_topology){.world = world});
        CHECK_EQ(world == 1 ? 0 : world <= 9 ? 1 : world <= 73 ? 2 : 3, depth);
    }
    for (int per_host = 2; per_host < 20; per_host++) {
        for (int r = 0; r < 60; r++) host_of[r] = r / per_host;
        check_tree(&(gw_topology){.world = 60, .host_of = host_of});
    }
    for (int r = 0; r < 512; r++) host_of[r] = r / 8;
    CHECK_EQ(3, check_tree(&(gw_topology){.world = 512, .host_of = host_of}));
    CHECK_EQ(3, check_tree(&(gw_topology){.world = 512}));
    check_tree(&(gw_topology){.world = 17, .host_of = dealt});
    check_tree(&(gw_topology){.world = 6, .host_of = (int[]){1, 0, 2, 2, 0, 1}, .order = order});
}

/* Windows follow each other without gaps, are not empty, and their chunks are no larger than a message. */
static void check_cut(size_t count, uint64_t ways, size_t chunk, int depth) {
    gw_pipeline_cut cut = gw_pipeline_cut_make(count, ways, chunk, depth);
    size_t next = 0;
    uint64_t step = 0;
    for (uint64_t number = 0; number < cut.windows; number++) {
        gw_pipeline_window window = gw_pipeline_window_at(&cut, number);
        gw_range range = gw_pipeline_window_range(&cut, &window);
        CHECK_EQ(next, range.from);
        CHECK(range.to > range.from);
        CHECK(window.columns >= 1 && window.columns <= (uint64_t)depth);
        gw_range piece = gw_range_part(range, ways * window.columns, 0);
        CHECK(piece.to - piece.from <= cut.chunk && cut.chunk <= chunk);
        for (uint64_t i = 0; i < 3 * window.columns; i++, step++) {
            gw_pipeline_window found = gw_pipeline_window_of_step(&cut, 3, step);
            CHECK(found.number == number && found.within == i && found.before == window.before);
        }
        next = range.to;
    }
    CHECK_EQ(count, next);
}

static void windows_cover(void) {
    for (size_t count = 0; count < 400; count += 7)
        for (uint64_t ways = 1; ways < 6; ways++)
            for (size_t chunk = 1; chunk < 70; chunk += 11)
                for (int depth = 1; depth < 5; depth++) check_cut(count, ways, chunk, depth);
}

TEST_MAIN(CASE(hosts), CASE(without_hosts_everyone_is_alone), CASE(parts_cover), CASE(announcements_reach_all),
          CASE(windows_cover), CASE(smallest_and_largest_host))
