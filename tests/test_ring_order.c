/* test_ring_order.c - ring orders from link costs, and the choice of arch=auto. */
#include "test.h"

#include "arch/choose_plan.h"
#include "arch/cost.h"
#include "arch/ring_order.h"

enum { MAX = 17 };

static double alpha[MAX * MAX], beta[MAX * MAX];

/* All links alike, up to a tenth of noise. */
static gw_link_costs even(int count, uint64_t *seed) {
    for (int i = 0; i < count * count; i++) {
        *seed = *seed * 6364136223846793005u + 1442695040888963407u;
        double noise = 1 + 0.1 * (double)(*seed >> 40) / (1 << 24);
        alpha[i] = 20e-6 * noise;
        beta[i] = 8e-9 * noise;
    }
    return (gw_link_costs){count, alpha, beta};
}

static void slow(int count, int a, int b, double times) {
    beta[a * count + b] *= times;
    beta[b * count + a] *= times;
}

static gw_topology topology_of(int world, const int *host_of, const gw_link_costs *wires, const int *place_of,
                               int *order, int *hosts) {
    gw_topology t;
    gw_error error;
    gw_ring_order_facts facts = {.world = world, .host_of = host_of, .wires = wires, .place_of = place_of};
    CHECK_EQ(GW_OK, gw_ring_order_fill(&facts, order, hosts, &t, &error));
    bool seen[MAX] = {false};
    for (int i = 0; i < world; i++) {
        int rank = gw_topology_at(&t, i);
        CHECK(rank >= 0 && rank < world && !seen[rank]);
        seen[rank] = true;
    }
    return t;
}

static bool goes_over(const gw_topology *t, int a, int b) {
    for (int i = 0; i < t->world; i++) {
        int from = gw_topology_at(t, i), to = gw_topology_at(t, (i + 1) % t->world);
        if ((from == a && to == b) || (from == b && to == a)) return true;
    }
    return false;
}

static const int each_alone[MAX] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};

static void noise_moves_nothing(void) {
    int order[MAX], hosts[MAX];
    for (uint64_t seed = 1; seed < 200; seed++) {
        int count = 2 + (int)(seed % (MAX - 1));
        uint64_t state = seed;
        gw_link_costs wires = even(count, &state);
        gw_topology t = topology_of(count, each_alone, &wires, each_alone, order, hosts);
        CHECK(!t.order);
        CHECK(t.wire.beta >= 8e-9 && t.wire.beta <= 8.8e-9);
    }
}

static void slow_pairs_are_avoided(void) {
    int order[MAX], hosts[MAX];
    for (int count = 4; count <= MAX; count++)
        for (int a = 0; a < count; a++)
            for (int b = a + 1; b < count; b++) {
                uint64_t state = (uint64_t)(count * 400 + a * 20 + b);
                gw_link_costs wires = even(count, &state);
                slow(count, a, b, 10);
                gw_topology t = topology_of(count, each_alone, &wires, each_alone, order, hosts);
                CHECK(!goes_over(&t, a, b));
                CHECK(t.wire.beta < 9e-9);
            }
}

/* The best order of all, by trying every one. */
static uint64_t best_worst(int count, const uint64_t *cost, int *order, int placed) {
    if (placed == count) {
        uint64_t worst = 0;
        for (int i = 0; i < count; i++) {
            uint64_t link = cost[order[i] * count + order[(i + 1) % count]];
            if (link > worst) worst = link;
        }
        return worst;
    }
    uint64_t best = UINT64_MAX;
    for (int i = placed; i < count; i++) {
        int kept = order[placed];
        order[placed] = order[i];
        order[i] = kept;
        uint64_t worst = best_worst(count, cost, order, placed + 1);
        if (worst < best) best = worst;
        order[i] = order[placed];
        order[placed] = kept;
    }
    return best;
}

/* Links of two kinds, different in each direction: mostly as good as the best order. */
static void near_the_best(void) {
    enum { COUNT = 7, TRIES = 60 };
    int found = 0;
    uint64_t state = 5;
    for (int try = 0; try < TRIES; try++) {
        uint64_t cost[COUNT * COUNT];
        int order[COUNT], scratch[COUNT], all[COUNT] = {0, 1, 2, 3, 4, 5, 6};
        for (int i = 0; i < COUNT * COUNT; i++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            cost[i] = state >> 62 ? 100 : 1000;
        }
        gw_ring_order_ring(COUNT, cost, order, scratch);
        CHECK_EQ(0, order[0]);
        uint64_t worst = 0;
        for (int i = 0; i < COUNT; i++) {
            uint64_t link = cost[order[i] * COUNT + order[(i + 1) % COUNT]];
            if (link > worst) worst = link;
        }
        found += worst == best_worst(COUNT, cost, all, 1);
    }
    CHECK(found >= TRIES * 9 / 10);
}

/* Ranks dealt out one by one stand together by host, and a host is led by the rank with the better interface. */
static void hosts_and_leaders(void) {
    static const int host_of[6] = {0, 1, 0, 1, 0, 1}, place_of[6] = {0, 2, 1, 2, 0, 2};
    int order[MAX], hosts[MAX];
    gw_topology t = topology_of(6, host_of, NULL, NULL, order, hosts);
    static const int together[6] = {0, 2, 4, 1, 3, 5};
    for (int i = 0; i < 6; i++) CHECK_EQ(together[i], gw_topology_at(&t, i));
    uint64_t state = 1;
    gw_link_costs wires = even(3, &state); /* places 0 and 1 are two interfaces of one host: the first is slow */
    slow(3, 0, 2, 10);
    t = topology_of(6, host_of, &wires, place_of, order, hosts);
    CHECK_EQ(2, gw_topology_rank(&t, 0, 0));
    CHECK_EQ(0, gw_topology_local_rank(&t, 2));
    CHECK_EQ(1, gw_topology_local_rank(&t, 0));
    CHECK_EQ(1, gw_topology_rank(&t, 1, 0));
}

static void unknown_links_are_avoided(void) {
    int order[MAX], hosts[MAX];
    uint64_t state = 9;
    gw_link_costs wires = even(4, &state);
    alpha[1 * 4 + 2] = beta[1 * 4 + 2] = alpha[2 * 4 + 1] = beta[2 * 4 + 1] = 0;
    gw_topology t = topology_of(4, each_alone, &wires, each_alone, order, hosts);
    CHECK(!goes_over(&t, 1, 2));
    CHECK(t.wire.beta > 0);
}

/* Closed forms against the plans themselves. */
static void closed_forms_match_the_plans(void) {
    const gw_plan_builder *const *plans = gw_plan_builders;
    for (int b = 0; plans[b]; b++)
        for (int collective = 0; collective <= GW_COLL_BROADCAST && plans[b]->work && !plans[b]->local; collective++)
            for (int world = 2; world <= MAX; world++) {
                bool parts = collective == GW_COLL_REDUCE_SCATTER || collective == GW_COLL_ALLGATHER;
                size_t count = 240240; /* whatever the world, parts are nearly even, and a message holds all */
                gw_plan_request request = {.collective = (gw_collective)collective, .topology = {.world = world},
                                           .count = parts ? count / (size_t)world : count, .root = 0,
                                           .chunk_count = 1 << 18, .pipeline = 4};
                if (plans[b]->refuses(&request)) continue;
                gw_cost_inputs scene = gw_cost_inputs_of(&request, 1);
                gw_cost_terms work = gw_cost_terms_of(plans[b], &scene);
                gw_cost cost = gw_plan_cost(plans[b], &request);
                CHECK_EQ(cost.start_ups, (uint64_t)work.rounds);
                double mean = (double)(cost.elements + cost.wide_elements) / world;
                bool balanced =
                    plans[b] != &gw_plan_tree && collective != GW_COLL_REDUCE && collective != GW_COLL_BROADCAST &&
                    ((plans[b] != &gw_plan_halving && plans[b] != &gw_plan_doubling) || (world & (world - 1)) == 0);
                if (balanced) CHECK(work.bytes > 0.999 * mean && work.bytes < 1.001 * mean);
                if (balanced) CHECK_EQ(cost.messages, (uint64_t)(work.messages * world));
                CHECK(work.bytes >= 0.999 * mean);
            }
}

static const gw_plan_builder *taken(int world, size_t bytes, gw_link_cost wire) {
    gw_plan_request request = {.collective = GW_COLL_ALLREDUCE, .topology = {.world = world, .wire = wire},
                               .count = bytes / 4, .root = -1, .chunk_count = 1, .pipeline = 1};
    return gw_arch_choose("auto", &request, 4);
}

static void choice_follows_the_wire(void) {
    gw_link_cost quick = {20e-6, 1e-10}, slow_wire = {5e-6, 80e-9}, distant = {5e-3, 1e-9};
    CHECK(taken(4, 64, quick) == &gw_plan_oneshot);
    CHECK(taken(4, 64 << 20, quick) == &gw_plan_ring);
    CHECK(taken(4, 64 << 10, slow_wire) == &gw_plan_ring);
    CHECK(taken(4, 64 << 10, distant) != &gw_plan_ring);
    CHECK(taken(16, 1 << 20, distant) != &gw_plan_ring);
    CHECK(taken(2, 64 << 20, quick) == &gw_plan_ring);
    gw_topology t = {.world = 4};
    gw_arch_range ranges[GW_ARCH_RANGES_MAX];
    int count = gw_arch_ranges(GW_COLL_ALLREDUCE, &t, ranges);
    CHECK(count >= 2 && count < GW_ARCH_RANGES_MAX);
    CHECK(ranges[0].builder == &gw_plan_oneshot && ranges[count - 1].builder == &gw_plan_ring);
    for (int i = 1; i < count; i++) CHECK(ranges[i].bytes_max > ranges[i - 1].bytes_max);
}

TEST_MAIN(CASE(noise_moves_nothing), CASE(slow_pairs_are_avoided), CASE(near_the_best), CASE(hosts_and_leaders),
          CASE(unknown_links_are_avoided), CASE(closed_forms_match_the_plans), CASE(choice_follows_the_wire))
