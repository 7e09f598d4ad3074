/* route.c - see route.h. */
#include "arch/route.h"

#include <stdio.h>
#include <string.h>

static void add(gw_route *route, gw_hop_group group, gw_hop_kind kind, bool second) {
    route->hops[route->count++] = (gw_hop){.group = group, .kind = kind, .second = second};
}

static bool is_arch(const gw_route_request *r, const char *name) { return strcmp(r->arch, name) == 0; }

/* True if ranks of a host combine among themselves first: where hosts have several ranks, that saves bytes on every
 * link between them. */
static bool by_hosts(const gw_route_request *r) {
    int least, most;
    bool asked = is_arch(r, "hierarchical") || (is_arch(r, "auto") && !r->needs_whole);
    if (!asked || !r->topology->host_of || gw_topology_hosts(r->topology) < 2) return false;
    gw_topology_local_sizes(r->topology, &least, &most);
    return most > 1;
}

static void in_two_levels(gw_route *route, gw_hop_kind first, gw_hop_kind second) {
    add(route, GW_GROUP_HOST, GW_HOP_REDUCE_SCATTER, false);
    add(route, GW_GROUP_LANE, first, false);
    if (second != first) add(route, GW_GROUP_LANE, second, true);
    add(route, GW_GROUP_HOST, GW_HOP_ALLGATHER, second != first);
}

static void coded(gw_route *route, const gw_route_request *r) {
    gw_hop_kind first = r->splits ? GW_HOP_CODED_FIRST : GW_HOP_CODED;
    gw_hop_kind second = r->splits ? GW_HOP_CODED_SECOND : GW_HOP_CODED;
    route->coded = true;
    if (by_hosts(r)) {
        in_two_levels(route, first, second);
        return;
    }
    route->flat = true;
    add(route, GW_GROUP_LANE, first, false);
    if (r->splits) add(route, GW_GROUP_LANE, second, true);
}

/* A codec has no meaning inside a host where only links between hosts are to be relieved. */
static bool codec_applies(const gw_route_request *r) {
    if (!r->codec) return false;
    bool asked_by_hosts = is_arch(r, "hierarchical");
    return !(asked_by_hosts && r->topology->host_of && gw_topology_hosts(r->topology) == 1);
}

/* All ranks read and write each other's memory: sums are written to where all need them as they are made, and nothing
 * is left for a second half. To keep them back until then takes a quarter more of the memory's time. */
static bool in_memory(const gw_route_request *r) {
    bool direct = is_arch(r, "auto") || is_arch(r, "direct") || is_arch(r, "hierarchical");
    return direct && r->topology->coll && gw_topology_hosts(r->topology) == 1;
}

gw_route gw_route_of(const gw_route_request *r) {
    gw_route route = {.flat = false};
    if (r->factors) add(&route, GW_GROUP_ALL, GW_HOP_FACTORS, false);
    else if (r->servers) add(&route, GW_GROUP_SERVERS, GW_HOP_PUSH_PULL, false);
    else if (r->topology->world == 1) return route;
    else if (codec_applies(r)) coded(&route, r);
    else if (!r->splits || in_memory(r)) add(&route, GW_GROUP_ALL, GW_HOP_ALLREDUCE, false);
    else if (r->sums_in_type && by_hosts(r)) in_two_levels(&route, GW_HOP_REDUCE_SCATTER, GW_HOP_ALLGATHER);
    else {
        bool tree = is_arch(r, "tree");
        add(&route, GW_GROUP_ALL, tree ? GW_HOP_REDUCE : GW_HOP_REDUCE_SCATTER, false);
        add(&route, GW_GROUP_ALL, tree ? GW_HOP_BROADCAST : GW_HOP_ALLGATHER, true);
    }
    return route;
}

/* Large enough that start-ups do not matter, small enough that the first piece is sent soon: 64 MiB as int8 between two
 * hosts of two ranks at 1 Gbit/s take 177 ms whole, 159 ms in pieces of 4 MiB, and 151 ms in these. */
#define PIECE_BYTES ((size_t)2 << 20)

size_t gw_route_piece_bytes(const gw_route *route) { return route->coded || route->count > 2 ? PIECE_BYTES : 0; }

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
    static const char *const groups[] = {"among all ranks", "in each host", "between hosts", "with the servers"};
    const gw_hop *h = &route->hops[hop];
    bool all = h->group == GW_GROUP_LANE && route->flat;
    snprintf(text, size, "%s %s", kinds[h->kind], groups[all ? GW_GROUP_ALL : h->group]);
    return text;
}
