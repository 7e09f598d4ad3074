/* route.c - see route.h. */
#include "arch/route.h"

#include <stdio.h>
#include <string.h>

static void add(gw_route *route, gw_hop_group group, gw_hop_kind kind, bool second) {
    route->hops[route->count++] = (gw_hop){.group = group, .kind = kind, .second = second};
}

/* The plan of the architecture; NULL: "auto", which takes what suits, and those that are no plans. */
static const gw_plan_builder *plan_of(const gw_route_request *r) { return gw_plan_find(r->arch); }

static bool is_auto(const gw_route_request *r) { return strcmp(r->arch, "auto") == 0; }

static bool on_one_host(const gw_route_request *r) {
    return r->topology->host_of && gw_topology_hosts(r->topology) == 1;
}

static bool asks_for_hosts(const gw_route_request *r) { return plan_of(r) && plan_of(r)->by_hosts; }

/* True if ranks of a host combine among themselves first: where hosts have several ranks, that saves bytes on every
 * link between them. */
static bool by_hosts(const gw_route_request *r) {
    int least, most;
    if ((!asks_for_hosts(r) && !is_auto(r)) || !r->topology->host_of || gw_topology_hosts(r->topology) < 2)
        return false;
    gw_topology_local_sizes(r->topology, &least, &most);
    return most > 1 || r->topology->rack_of;
}

/* Inside a host, inside a rack, between them, and back. */
static void in_levels(gw_route *route, const gw_route_request *r, gw_hop_kind first, gw_hop_kind second) {
    int least, most;
    bool halves = second != first, racks = r->topology->rack_of != NULL;
    gw_topology_local_sizes(r->topology, &least, &most);
    route->in_lanes = true;
    if (most > 1) add(route, GW_GROUP_HOST, GW_HOP_REDUCE_SCATTER, false);
    if (racks) add(route, GW_GROUP_RACK, GW_HOP_REDUCE_SCATTER, false);
    add(route, GW_GROUP_LANE, first, false);
    if (halves) add(route, GW_GROUP_LANE, second, true);
    if (racks) add(route, GW_GROUP_RACK, GW_HOP_ALLGATHER, halves);
    if (most > 1) add(route, GW_GROUP_HOST, GW_HOP_ALLGATHER, halves);
}

static void coded(gw_route *route, const gw_route_request *r) {
    gw_hop_kind first = r->splits ? GW_HOP_CODED_FIRST : GW_HOP_CODED;
    gw_hop_kind second = r->splits ? GW_HOP_CODED_SECOND : GW_HOP_CODED;
    route->coded = true;
    if (by_hosts(r)) {
        in_levels(route, r, first, second);
        return;
    }
    route->flat = true;
    add(route, GW_GROUP_LANE, first, false);
    if (r->splits) add(route, GW_GROUP_LANE, second, true);
}

/* A codec has no meaning inside a host where only links between hosts are to be relieved. */
static bool codec_applies(const gw_route_request *r) { return r->codec && !(asks_for_hosts(r) && on_one_host(r)); }

/* All ranks read and write each other's memory: sums are written to where all need them as they are made, and nothing
 * is left for a second half. To keep them back until then takes a quarter more of the memory's time. */
static bool in_memory(const gw_route_request *r) {
    return r->topology->coll && on_one_host(r) && (is_auto(r) || (plan_of(r) && plan_of(r)->local));
}

static void dense(gw_route *route, const gw_route_request *r) {
    bool rooted = plan_of(r) && plan_of(r)->rooted, levels = r->sums_in_type && by_hosts(r);
    if (levels && r->splits) in_levels(route, r, GW_HOP_REDUCE_SCATTER, GW_HOP_ALLGATHER);
    else if (levels && r->topology->rack_of) in_levels(route, r, GW_HOP_ALLREDUCE, GW_HOP_ALLREDUCE);
    else if (!r->splits || in_memory(r)) add(route, GW_GROUP_ALL, GW_HOP_ALLREDUCE, false);
    else {
        add(route, GW_GROUP_ALL, rooted ? GW_HOP_REDUCE : GW_HOP_REDUCE_SCATTER, false);
        add(route, GW_GROUP_ALL, rooted ? GW_HOP_BROADCAST : GW_HOP_ALLGATHER, true);
    }
}

gw_route gw_route_of(const gw_route_request *r) {
    gw_route route = {.flat = false};
    if (r->factors) add(&route, GW_GROUP_ALL, GW_HOP_FACTORS, false);
    else if (r->servers) add(&route, GW_GROUP_SERVERS, GW_HOP_PUSH_PULL, false);
    else if (r->topology->world == 1) return route;
    else if (codec_applies(r)) coded(&route, r);
    else dense(&route, r);
    return route;
}

/* Large enough that start-ups do not matter, small enough that the first piece is sent soon: 64 MiB as int8 between two
 * hosts of two ranks at 1 Gbit/s take 177 ms whole, 159 ms in pieces of 4 MiB, and 151 ms in these. */
#define PIECE_BYTES ((size_t)2 << 20)

size_t gw_route_piece_bytes(const gw_route *route) { return route->coded || route->in_lanes ? PIECE_BYTES : 0; }

gw_collective gw_hop_collective(gw_hop_kind kind) {
    switch (kind) {
    case GW_HOP_REDUCE_SCATTER: return GW_COLL_REDUCE_SCATTER;
    case GW_HOP_ALLGATHER: return GW_COLL_ALLGATHER;
    case GW_HOP_REDUCE: return GW_COLL_REDUCE;
    case GW_HOP_BROADCAST: return GW_COLL_BROADCAST;
    default: return GW_COLL_ALLREDUCE;
    }
}

const char *gw_hop_text(const gw_route *route, int hop, char *text, size_t size) {
    static const char *const kinds[] = {
        [GW_HOP_ALLREDUCE] = "all-reduce",
        [GW_HOP_REDUCE_SCATTER] = "reduce-scatter",
        [GW_HOP_ALLGATHER] = "all-gather",
        [GW_HOP_REDUCE] = "reduce to the root",
        [GW_HOP_BROADCAST] = "broadcast from the root",
        [GW_HOP_CODED] = "coded exchange",
        [GW_HOP_CODED_FIRST] = "coded to the owners",
        [GW_HOP_CODED_SECOND] = "coded from the owners",
        [GW_HOP_PUSH_PULL] = "push and pull",
        [GW_HOP_FACTORS] = "all-gather of factors",
    };
    static const char *const groups[] = {
        [GW_GROUP_ALL] = "among all ranks", [GW_GROUP_HOST] = "in each host",        [GW_GROUP_RACK] = "in each rack",
        [GW_GROUP_LANE] = "between hosts",  [GW_GROUP_SERVERS] = "with the servers",
    };
    const gw_hop *h = &route->hops[hop];
    bool lane = h->group == GW_GROUP_LANE, racks = false;
    for (int i = 0; i < route->count; i++) racks |= route->hops[i].group == GW_GROUP_RACK;
    snprintf(text, size, "%s %s", kinds[h->kind],
             lane && route->flat ? groups[GW_GROUP_ALL]
             : lane && racks     ? "between racks"
                                 : groups[h->group]);
    return text;
}
