/* route.c - see route.h. */
#include "arch/route.h"

#include <stdio.h>
#include <string.h>

static void add(gw_route *route, gw_hop_group group, gw_hop_kind kind, bool second) {
    route->hops[route->count++] = (gw_hop){.group = group, .kind = kind, .second = second};
}

/* True if ranks of a host combine among themselves first: where hosts have several ranks, that saves bytes on every
 * link between them. */
static bool by_hosts(const gw_route_request *r) {
    int least, most;
    bool asked = strcmp(r->arch, "hierarchical") == 0 || (strcmp(r->arch, "auto") == 0 && !r->needs_whole);
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
    bool asked_by_hosts = strcmp(r->arch, "hierarchical") == 0;
    return !(asked_by_hosts && r->topology->host_of && gw_topology_hosts(r->topology) == 1);
}

gw_route gw_route_of(const gw_route_request *r) {
    gw_route route = {.flat = false};
    if (r->factors) add(&route, GW_GROUP_ALL, GW_HOP_FACTORS, false);
    else if (r->servers) add(&route, GW_GROUP_SERVERS, GW_HOP_PUSH_PULL, false);
    else if (r->topology->world == 1) return route;
    else if (codec_applies(r)) coded(&route, r);
    else if (!r->splits) add(&route, GW_GROUP_ALL, GW_HOP_ALLREDUCE, false);
    else if (r->sums_in_type && by_hosts(r)) in_two_levels(&route, GW_HOP_REDUCE_SCATTER, GW_HOP_ALLGATHER);
    else {
        add(&route, GW_GROUP_ALL, GW_HOP_REDUCE_SCATTER, false);
        add(&route, GW_GROUP_ALL, GW_HOP_ALLGATHER, true);
    }
    return route;
}

const char *gw_hop_text(const gw_route *route, int hop, char *text, size_t size) {
    static const char *const kinds[] = {"all-reduce",     "reduce-scatter",       "all-gather",
                                        "coded exchange", "coded to the owners",  "coded from the owners",
                                        "push and pull",  "all-gather of factors"};
    static const char *const groups[] = {"among all ranks", "in each host", "between hosts", "with the servers"};
    const gw_hop *h = &route->hops[hop];
    bool all = h->group == GW_GROUP_LANE && route->flat;
    snprintf(text, size, "%s %s", kinds[h->kind], groups[all ? GW_GROUP_ALL : h->group]);
    return text;
}
