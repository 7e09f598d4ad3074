/* test_racks.c - racks from a file and from link costs, and the lanes of ranks in racks. */
#include "test.h"

#include "arch/owners.h"
#include "arch/racks.h"

enum { HOSTS = 6 };

static const gw_rack_host hosts[HOSTS] = {{"a1", "10.0.0.1"}, {"a2", "10.0.0.2"}, {"b1", "10.0.0.3"},
                                          {"b2", "10.0.0.4"}, {"a3", "10.0.0.5"}, {"c", "10.0.0.6"}};

static gw_status parse(const char *text, int *rack_of, gw_error *error) {
    *error = (gw_error){.rank = -1};
    return gw_racks_parse(text, strlen(text), "racks", hosts, HOSTS, rack_of, error);
}

static void from_a_file(void) {
    static const int wanted[HOSTS] = {0, 0, 1, 1, 0, 2};
    int rack_of[HOSTS];
    gw_error error;
    CHECK_EQ(GW_OK, parse("# host rack\na1 one\na2 one\nb1 two\n\nb2 two\nother nine\n10.0.0.5 one\nc three\n", rack_of,
                          &error));
    for (int i = 0; i < HOSTS; i++) CHECK_EQ(wanted[i], rack_of[i]);
    CHECK_EQ(GW_INVALID, parse("a1 one\na2 one\nb1 two\nb2 two\na3 one\n", rack_of, &error));
    CHECK(strstr(error.text, "does not name the rack of host c"));
    CHECK_EQ(GW_INVALID, parse("a1 one\na1 two\n", rack_of, &error));
    CHECK(strstr(error.text, "line 2"));
    CHECK_EQ(GW_INVALID, parse("a1 one two\n", rack_of, &error));
    CHECK_EQ(GW_INVALID, parse("a1\n", rack_of, &error));
    CHECK_EQ(GW_INVALID, parse("", rack_of, &error));
}

/* Links inside a rack take 1 to 1.4, those between racks `apart` to 1.4 times that. */
static void fill(double *beta, const int *rack_of, double apart) {
    for (int a = 0; a < HOSTS; a++)
        for (int b = 0; b < HOSTS; b++) {
            double noise = 1 + 0.1 * ((a * 7 + b * 3) % 5);
            beta[a * HOSTS + b] = a == b ? 0 : 1e-9 * noise * (rack_of[a] == rack_of[b] ? 1 : apart);
        }
}

static void from_links(void) {
    static const int racks[HOSTS] = {0, 0, 1, 1, 0, 2};
    double alpha[HOSTS * HOSTS] = {0}, beta[HOSTS * HOSTS];
    gw_link_costs wires = {HOSTS, alpha, beta};
    int found[HOSTS];
    gw_error error = {.rank = -1};
    fill(beta, racks, 10);
    CHECK_EQ(GW_OK, gw_racks_of_links(&wires, found, &error));
    for (int a = 0; a < HOSTS; a++)
        for (int b = 0; b < HOSTS; b++) CHECK_EQ(racks[a] == racks[b], found[a] == found[b]);
    fill(beta, racks, 1.5); /* not far enough apart */
    CHECK_EQ(GW_OK, gw_racks_of_links(&wires, found, &error));
    for (int a = 0; a < HOSTS; a++) CHECK_EQ(0, found[a]);
    fill(beta, racks, 10);
    beta[3] = 0; /* one link was not measured */
    CHECK_EQ(GW_OK, gw_racks_of_links(&wires, found, &error));
    for (int a = 0; a < HOSTS; a++) CHECK_EQ(0, found[a]);
}

/* Every lane has one rank in every rack, and every rank has the lanes that gw_lane_rank says. */
static void lanes(void) {
    static int host_of[10] = {0, 0, 1, 1, 2, 2, 3, 3, 4, 4}, rack_of[10] = {5, 5, 5, 5, 5, 5, 9, 9, 9, 9};
    gw_topology topology = {.world = 10, .host_of = host_of};
    gw_topology_take_racks(&topology, rack_of);
    CHECK(topology.rack_of && gw_topology_racks(&topology) == 2);
    int seen[2][6] = {{0}};
    for (int rank = 0; rank < topology.world; rank++) {
        gw_lanes l = gw_lanes_of(&topology, rank, false);
        CHECK_EQ(6, l.lanes);
        CHECK_EQ(2, l.hosts);
        for (int lane = l.first; lane < l.last; lane++) {
            CHECK_EQ(rank, gw_lane_rank(&l, &topology, lane, l.host));
            seen[l.host][lane]++;
        }
    }
    for (int i = 0; i < 12; i++) CHECK_EQ(1, seen[i / 6][i % 6]);
}

static void useless_racks(void) {
    int hosts_of[4] = {0, 0, 1, 1}, one[4] = {3, 3, 3, 3}, each[4] = {0, 0, 1, 1};
    gw_topology topology = {.world = 4, .host_of = hosts_of};
    gw_topology_take_racks(&topology, one);
    CHECK(!topology.rack_of);
    gw_topology_take_racks(&topology, each);
    CHECK(!topology.rack_of);
    int uneven[5] = {0, 0, 1, 2, 2}, racks[5] = {0, 0, 0, 1, 1};
    topology = (gw_topology){.world = 5, .host_of = uneven};
    gw_topology_take_racks(&topology, racks);
    CHECK(!topology.rack_of);
}

TEST_MAIN(CASE(from_a_file), CASE(from_links), CASE(lanes), CASE(useless_racks))
