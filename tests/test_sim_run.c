/* test_sim_run.c - plans simulated by their sizes alone: closed-form costs, fair bandwidth shares, folding, topologies.
 */
#include "run_alone.h"

static gw_plan_sim_spec spec_of(const gw_plan_builder *builder, gw_collective collective, size_t count, size_t chunk) {
    return (gw_plan_sim_spec){.collective = collective, .builder = builder, .count = count, .unit_bytes = 4,
                         .chunk_bytes = chunk, .root = -1};
}

static gw_cost cost_of(const alone *a, const gw_plan_sim_spec *spec) {
    gw_plan_request request = {.collective = spec->collective, .topology = a->config.topology, .count = spec->count,
                               .root = spec->root, .chunk_count = spec->chunk_bytes / 4, .pipeline = 8};
    return gw_plan_cost(spec->builder, &request);
}

static double path_total(const gw_time_breakdown *path) {
    double sum = 0;
    for (int i = 0; i < GW_TIME_PARTS; i++) sum += path->seconds[i];
    return sum;
}

/* Every rank sends and receives as much as any other, one message at a time: start-ups and a rank's share of bytes. */
static void check_even(const gw_plan_builder *builder, gw_collective collective, int world, size_t count, bool large) {
    alone a = alone_make("switch", world, 1);
    gw_plan_sim_spec spec = spec_of(builder, collective, count, 1 << 30);
    alone_run(&a, &spec);
    gw_cost cost = cost_of(&a, &spec);
    double grant = large ? ALPHA : 0;
    double bytes = (double)(cost.elements + cost.wide_elements) * 4;
    CHECK(near((double)cost.start_ups * ALPHA + grant + bytes / world * BETA, a.last, 1e-9));
    CHECK(near(a.last, path_total(&a.path), 1e-9));
    CHECK_EQ(cost.messages, a.messages);
    CHECK(a.bytes == bytes);
    alone_free(&a);
}

static void closed_form_of_even_plans(void) {
    for (int world = 2; world <= 17; world++) {
        size_t small = (size_t)world * 16 * 16, large = (size_t)world * 65536 * 16;
        check_even(&gw_plan_ring, GW_COLL_ALLREDUCE, world, small, false);
        check_even(&gw_plan_ring, GW_COLL_ALLREDUCE, world, large, true);
        check_even(&gw_plan_ring, GW_COLL_REDUCE_SCATTER, world, small, false);
        check_even(&gw_plan_ring, GW_COLL_ALLGATHER, world, large / 16, true);
        check_even(&gw_plan_pairwise, GW_COLL_ALLREDUCE, world, small, false);
        check_even(&gw_plan_pairwise, GW_COLL_ALLTOALL, world, 64, false);
    }
    for (int world = 2; world <= 64; world *= 2) {
        check_even(&gw_plan_halving, GW_COLL_ALLREDUCE, world, (size_t)world * 64, false);
        check_even(&gw_plan_halving, GW_COLL_ALLREDUCE, world, (size_t)world * 1048576, true);
        check_even(&gw_plan_halving, GW_COLL_REDUCE_SCATTER, world, 128, false);
        check_even(&gw_plan_halving, GW_COLL_ALLGATHER, world, 128, false);
    }
}

/* A full tree: on every level but the head's two children share their parent's link. */
static void closed_form_of_the_tree(void) {
    for (int levels = 1; levels <= 7; levels++) {
        alone a = alone_make("switch", 1 << levels, 1);
        gw_plan_sim_spec spec = spec_of(&gw_plan_tree, GW_COLL_ALLREDUCE, 4096, 1 << 30);
        alone_run(&a, &spec);
        double bytes = 4096 * 4 * BETA;
        CHECK_EQ(2 * levels, cost_of(&a, &spec).start_ups);
        CHECK(near(2 * ((levels - 1) * (ALPHA + 2 * bytes) + ALPHA + bytes), a.last, 1e-9));
        alone_free(&a);
    }
    alone a = alone_make("switch", 3, 1); /* a chain: nothing is shared */
    gw_plan_sim_spec spec = spec_of(&gw_plan_tree, GW_COLL_ALLREDUCE, 4096, 1 << 30);
    alone_run(&a, &spec);
    CHECK(near(4 * (ALPHA + 4096 * 4 * BETA), a.last, 1e-9));
    CHECK(a.path.seconds[GW_TIME_SHARING] < 1e-15);
    alone_free(&a);
}

/* With many chunks the ring's links are never idle: the bytes at full speed, and a start-up at either end. */
static void chunks_hide_latency(void) {
    alone a = alone_make("switch", 8, 1);
    gw_plan_sim_spec spec = spec_of(&gw_plan_ring, GW_COLL_ALLREDUCE, (size_t)8 << 22, 256 * 1024);
    alone_run(&a, &spec);
    double bytes = (double)(spec.count * 4) * 2 * 7 / 8 * BETA;
    CHECK(a.last >= bytes && a.last <= bytes * 1.02);
    alone_free(&a);
}

static void reducing_takes_time(void) {
    alone a = alone_make("switch", 4, 1);
    gw_plan_sim_spec spec = spec_of(&gw_plan_ring, GW_COLL_ALLREDUCE, 4 * 1024, 1 << 30);
    a.config.reduce_rate = 1e9;
    alone_run(&a, &spec);
    CHECK(near(6 * (ALPHA + 4096 * BETA) + 3 * 4096 / 1e9, a.last, 1e-9));
    CHECK(near(3 * 4096 / 1e9, a.path.seconds[GW_TIME_REDUCE], 1e-9));
    alone_free(&a);
}

/* Folding. */

static void check_fold(const gw_plan_builder *builder, gw_collective collective, int hosts, int locals, size_t count,
                       bool coll) {
    alone full = alone_make("switch", hosts, locals), folded = alone_make("switch", hosts, locals);
    gw_plan_sim_spec spec = spec_of(builder, collective, count, 65536);
    full.config.topology.coll = folded.config.topology.coll = coll;
    full.config.reduce_rate = folded.config.reduce_rate = 3e9;
    CHECK(gw_plan_sim_folds(&spec, &full.config.topology));
    folded.fabric.folded = true;
    alone_run(&full, &spec);
    alone_run(&folded, &spec);
    CHECK(near(full.last, folded.last, 1e-9));
    CHECK(near(full.bytes, folded.bytes * hosts, 1e-9));
    alone_free(&full);
    alone_free(&folded);
}

static void one_host_stands_for_all(void) {
    for (int hosts = 2; hosts <= 9; hosts++) {
        size_t even = (size_t)hosts * 3 * 16 * 4096;
        check_fold(&gw_plan_ring, GW_COLL_ALLREDUCE, hosts, 1, even, false);
        check_fold(&gw_plan_ring, GW_COLL_REDUCE_SCATTER, hosts, 3, 4096, false);
        check_fold(&gw_plan_ring, GW_COLL_ALLGATHER, hosts, 2, 40000, false);
        check_fold(&gw_plan_pairwise, GW_COLL_ALLREDUCE, hosts, 1, even, false);
        check_fold(&gw_plan_pairwise, GW_COLL_ALLTOALL, hosts, 2, 5000, false);
        check_fold(&gw_plan_hierarchical, GW_COLL_ALLREDUCE, hosts, 3, even, true);
        check_fold(&gw_plan_hierarchical, GW_COLL_ALLREDUCE, hosts, 3, even, false);
    }
}

static void different_hosts_are_not_folded(void) {
    int uneven[] = {0, 0, 1, 2};
    gw_topology t = {.world = 4, .host_of = uneven};
    gw_plan_sim_spec ring = spec_of(&gw_plan_ring, GW_COLL_ALLREDUCE, 64, 64);
    CHECK(!gw_plan_sim_folds(&ring, &t));
    t.host_of = NULL;
    CHECK(gw_plan_sim_folds(&ring, &t));
    gw_plan_sim_spec tree = spec_of(&gw_plan_tree, GW_COLL_ALLREDUCE, 64, 64);
    CHECK(!gw_plan_sim_folds(&tree, &t));
    gw_plan_sim_spec halving = spec_of(&gw_plan_halving, GW_COLL_ALLREDUCE, 64, 64);
    CHECK(!gw_plan_sim_folds(&halving, &t));
}

/* Parts that differ by an element: folded, all are as long as the longest. */
static void folding_uneven_parts_errs_by_an_element(void) {
    alone full = alone_make("switch", 7, 1), folded = alone_make("switch", 7, 1);
    gw_plan_sim_spec spec = spec_of(&gw_plan_ring, GW_COLL_ALLREDUCE, 1000003, 65536);
    folded.fabric.folded = true;
    alone_run(&full, &spec);
    alone_run(&folded, &spec);
    CHECK(near(full.last, folded.last, 1e-3));
    alone_free(&full);
    alone_free(&folded);
}

/* Host-local collectives: an all-reduce on one host reads and writes 2 p n elements. */
static void a_host_local_collective_takes_memory_time(void) {
    alone a = alone_make("switch", 1, 4);
    a.config.topology.coll = true;
    gw_plan_sim_spec spec = spec_of(&gw_plan_direct, GW_COLL_ALLREDUCE, 1 << 20, 65536);
    alone_run(&a, &spec);
    CHECK(near(2.0 * 4 * (1 << 20) * 4 / 1e10 + 1e-6, a.last, 1e-9));
    alone_free(&a);
}

/* Shares. */

typedef struct three {
    gw_events events;
    gw_flow_net *net;
    gw_net_flow flow[3];
    double over[3];
} three;

static void note(gw_net_flow *flow, void *ctx) {
    three *t = ctx;
    t->over[flow - t->flow] = t->events.now;
}

static void nothing(gw_event *event, void *ctx) {
    (void)event;
    (void)ctx;
}

static void run_flows(three *t) {
    do gw_flow_net_settle(t->net);
    while (gw_events_step(&t->events));
}

/* A link of 10 bytes per second with a burst of 30: it sends these at once at first, and later what it has saved. */
static void a_token_bucket_passes_saved_bytes(void) {
    three t = {.over = {0}};
    gw_error error = {.rank = -1};
    gw_event later = {.act = nothing};
    t.events.ctx = &t;
    CHECK_EQ(GW_OK, gw_flow_net_open(&t.net, &t.events, (double[]){10}, 1, &error));
    gw_flow_net_burst(t.net, 0, 30);
    CHECK_EQ(GW_OK, gw_net_flow_init(t.net, &t.flow[0], (int[]){0}, 1, note, &error));
    static const double bytes[4] = {50, 20, 25, 100}, waits[4] = {0, 1, 2.5, 100}, takes[4] = {2, 1, 0, 7};
    for (int i = 0; i < 4; i++) {
        gw_event_set(&t.events, &later, t.events.now + waits[i]);
        run_flows(&t);
        double begun = t.events.now;
        gw_net_flow_load(&t.flow[0], bytes[i]);
        run_flows(&t);
        CHECK(fabs(t.over[0] - begun - takes[i]) < 1e-9);
    }
    gw_flow_net_close(t.net);
    gw_events_free(&t.events);
}

/* Links of 100 and 40: flow 0 on the first, 1 on both, 2 on the second. Max-min: 80, 20, 20. When 2 is over 1 gets 40
 * and 0 60; when 0 is over 1 keeps the 40 of the second link. */
static void links_are_shared_fairly(void) {
    three t = {.over = {0}};
    gw_error error = {.rank = -1};
    t.events.ctx = &t;
    CHECK_EQ(GW_OK, gw_flow_net_open(&t.net, &t.events, (double[]){100, 40}, 2, &error));
    static const int ways[3][2] = {{0}, {0, 1}, {1}};
    static const int hops[3] = {1, 2, 1};
    static const double bytes[3] = {140, 100, 20};
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(GW_OK, gw_net_flow_init(t.net, &t.flow[i], ways[i], hops[i], note, &error));
        gw_net_flow_load(&t.flow[i], bytes[i]);
    }
    run_flows(&t);
    CHECK(near(1, t.over[2], 1e-12));
    CHECK(near(2, t.over[0], 1e-12)); /* 80 + 60 */
    CHECK(near(3, t.over[1], 1e-12)); /* 20 + 40 + 40 */
    CHECK(gw_flow_net_carried(t.net, 0) == 240 && gw_flow_net_carried(t.net, 1) == 120);
    gw_flow_net_close(t.net);
    gw_events_free(&t.events);
}

/* Random flows are max-min fair: no flow can get more unless one with no more gets less. */
static void no_rate_can_be_raised(void) {
    enum { LINKS = 12, FLOWS = 60 };
    gw_events events = {.ctx = NULL};
    gw_flow_net *net = NULL;
    gw_error error = {.rank = -1};
    static gw_net_flow flows[FLOWS];
    double rates[LINKS], used[LINKS] = {0}, highest[LINKS] = {0};
    int ways[FLOWS][3];
    uint64_t random = 7;
    for (int i = 0; i < LINKS; i++) rates[i] = 50 + (double)((random = random * 6364136223846793005u + 1) >> 58);
    CHECK_EQ(GW_OK, gw_flow_net_open(&net, &events, rates, LINKS, &error));
    for (int f = 0; f < FLOWS; f++) {
        for (int h = 0; h < 3; h++) ways[f][h] = 4 * h + (int)((random = random * 6364136223846793005u + 1) >> 62);
        CHECK_EQ(GW_OK, gw_net_flow_init(net, &flows[f], ways[f], 3, NULL, &error));
        gw_net_flow_load(&flows[f], 1e6);
    }
    gw_flow_net_settle(net);
    for (int f = 0; f < FLOWS; f++) {
        for (int h = 0; h < 3; h++) {
            used[ways[f][h]] += flows[f].rate;
            if (flows[f].rate > highest[ways[f][h]]) highest[ways[f][h]] = flows[f].rate;
        }
    }
    for (int f = 0; f < FLOWS; f++) {
        bool held = false; /* by a full link on which no flow has more */
        for (int h = 0; h < 3; h++) {
            int link = ways[f][h];
            CHECK(used[link] <= rates[link] * (1 + 1e-9));
            held |= used[link] >= rates[link] * (1 - 1e-9) && flows[f].rate >= highest[link] * (1 - 1e-9);
        }
        CHECK(held);
    }
    gw_flow_net_close(net);
    gw_events_free(&events);
}

/* Two messages that meet at one receiver take twice as long; a third between others is not disturbed. */
static void flows_share_a_common_link(void) {
    alone a = alone_make("switch", 4, 1);
    gw_plan_sim_spec spec = spec_of(&gw_plan_pairwise, GW_COLL_GATHER, 8192, 1 << 30);
    spec.root = 0;
    alone_run(&a, &spec);
    CHECK(near(ALPHA + 3 * 8192 * 4 * BETA, a.last, 1e-9));
    CHECK(near(2 * 8192 * 4 * BETA, a.path.seconds[GW_TIME_SHARING], 1e-9));
    alone_free(&a);
}

/* Topologies. */

static void check_way(const char *text, int hosts, int from, int to, int links, double latencies) {
    alone a = alone_make(text, hosts, 1);
    int way[GW_ROUTE_LINKS_MAX];
    double latency;
    CHECK_EQ(links, gw_fabric_route(&a.fabric, from, to, way, &latency));
    for (int i = 0; i < links; i++) {
        CHECK(way[i] >= 0 && way[i] < a.fabric.links);
        for (int j = 0; j < i; j++) CHECK(way[i] != way[j]);
    }
    CHECK(near(latencies * ALPHA, latency, 1e-9));
    alone_free(&a);
}

static void routes_have_their_length(void) {
    check_way("switch", 4, 0, 3, 2, 1);
    check_way("fattree:hosts=4,up=2", 16, 0, 3, 2, 1);
    check_way("fattree:hosts=4,up=2", 16, 0, 4, 4, 2);
    check_way("ring", 8, 1, 3, 2, 1);
    check_way("ring", 8, 1, 6, 3, 1.5);
    check_way("ring", 8, 7, 0, 1, 0.5);
    check_way("torus:4x4", 16, 0, 15, 2, 1); /* round both edges */
    check_way("torus:4x4", 16, 0, 10, 4, 2);
    check_way("torus:4x4x4", 64, 0, 42, 6, 3);
    check_way("sites:rate=1gbit,latency=50us", 8, 0, 3, 2, 1);
    check_way("sites:rate=1gbit,latency=50us", 8, 0, 4, 3, 2);
}

static void refuse(const char *text, const char *sentence) {
    gw_fabric_spec spec;
    gw_error error = {.rank = -1};
    CHECK_EQ(GW_INVALID, gw_fabric_parse(text, &spec, &error));
    CHECK_STR(sentence, error.text);
}

static void a_wrong_topology_is_explained(void) {
    refuse("swich", "topology \"swich\": did you mean \"switch\"? allowed: switch, fattree, ring, torus, sites");
    refuse("ring:3", "topology \"ring:3\": it has no parameters");
    refuse("fattree:hosts=16", "topology \"fattree:hosts=16\": write fattree:hosts=16,up=4 for leaves of 16 hosts with "
                               "4 links up");
    refuse("torus:8", "topology \"torus:8\": write torus:8x8 or torus:4x4x4, sides from 1 to 1024");
    refuse("sites:rate=1gbit", "topology \"sites:rate=1gbit\": write sites:rate=1gbit,latency=5ms for the link between "
                               "them");
    gw_fabric fabric = {.rate = 1};
    gw_fabric_spec spec;
    gw_error error = {.rank = -1};
    CHECK_EQ(GW_OK, gw_fabric_parse("torus:4x4", &spec, &error));
    CHECK_EQ(GW_INVALID, gw_fabric_make(&fabric, &spec, 15, &error));
    CHECK_STR("a torus of 4x4x1 has 16 hosts, not 15", error.text);
}

/* A ring in the order of a fat-tree's hosts crosses each spine link once and shares nothing: only latency is more. */
static void an_oversubscribed_tree_is_full_speed_in_order(void) {
    alone tree = alone_make("fattree:hosts=4,up=1", 16, 1), flat = alone_make("switch", 16, 1);
    gw_plan_sim_spec spec = spec_of(&gw_plan_ring, GW_COLL_ALLREDUCE, 16 * 1024 * 1024, 1 << 30);
    alone_run(&tree, &spec);
    alone_run(&flat, &spec);
    CHECK(tree.last > flat.last && tree.last < flat.last + 40 * ALPHA);
    gw_plan_sim_spec all = spec_of(&gw_plan_pairwise, GW_COLL_ALLTOALL, 1024 * 1024, 1 << 30);
    alone_run(&tree, &all);
    alone_run(&flat, &all);
    CHECK(near(4.0 * 12 / 15, tree.last / flat.last, 0.05)); /* 4 hosts x 12 others over one link */
    alone_free(&tree);
    alone_free(&flat);
}

/* Two lanes of three hosts, each around its own ring, share the hosts' links; the ranks of a host share no link. */
static void teams_run_side_by_side(void) {
    enum { HOSTS = 3, LOCALS = 2, COUNT = HOSTS * 65536 * 16 };
    int each[HOSTS] = {0, 1, 2}, same[LOCALS] = {0, 0};
    int ranks[] = {0, 2, 4, 1, 3, 5, /* hosts: */ 0, 1, 2, 3, 4, 5};
    gw_plan_sim_team lanes[LOCALS], hosts[HOSTS];
    gw_plan_sim_spec specs[HOSTS];
    for (int folded = 0; folded < 2; folded++) {
        alone a = alone_make("switch", HOSTS, LOCALS);
        a.fabric.folded = folded;
        for (int l = 0; l < LOCALS; l++) {
            lanes[l] = (gw_plan_sim_team){{.world = HOSTS, .host_of = each}, ranks + l * HOSTS};
            specs[l] = spec_of(&gw_plan_ring, GW_COLL_ALLREDUCE, COUNT, 1 << 30);
            specs[l].team = &lanes[l];
            CHECK(gw_plan_sim_folds(&specs[l], &a.config.topology));
        }
        alone_run_teams(&a, specs, LOCALS);
        double turns = 2 * (HOSTS - 1), bytes = COUNT / HOSTS * 4.0;
        CHECK(near((turns + 1) * ALPHA + turns * bytes * LOCALS * BETA, a.last, 1e-9));
        CHECK(near(turns * bytes * LOCALS * (folded ? 1 : HOSTS), a.bytes, 1e-9));
        for (int h = 0; h < HOSTS; h++) {
            hosts[h] = (gw_plan_sim_team){{.world = LOCALS, .host_of = same}, ranks + HOSTS * LOCALS + h * LOCALS};
            specs[h] = spec_of(&gw_plan_pairwise, GW_COLL_ALLTOALL, 1024, 1 << 30);
            specs[h].team = &hosts[h];
            CHECK(gw_plan_sim_folds(&specs[h], &a.config.topology));
        }
        alone_run_teams(&a, specs, folded ? 1 : HOSTS);
        CHECK(near(1e-6 + 2 * 4096 / 1e10, a.last, 1e-9));
        alone_free(&a);
    }
}

TEST_MAIN(CASE(links_are_shared_fairly), CASE(a_token_bucket_passes_saved_bytes), CASE(no_rate_can_be_raised),
          CASE(flows_share_a_common_link), CASE(routes_have_their_length), CASE(a_wrong_topology_is_explained),
          CASE(an_oversubscribed_tree_is_full_speed_in_order), CASE(closed_form_of_even_plans),
          CASE(closed_form_of_the_tree), CASE(chunks_hide_latency), CASE(reducing_takes_time),
          CASE(one_host_stands_for_all), CASE(different_hosts_are_not_folded),
          CASE(folding_uneven_parts_errs_by_an_element), CASE(a_host_local_collective_takes_memory_time),
          CASE(teams_run_side_by_side))
