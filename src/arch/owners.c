/* owners.c - see owners.h. */
#include "arch/owners.h"

/* Elements: small enough that a slice of 200 KB (p3) has work for a dozen owners, large enough that a word for each
 * stripe of a payload does not matter. */
#define STRIPE 4096

void gw_lanes_of_local(int lanes, int locals, int local, int *first, int *last) {
    *first = lanes * local / locals;
    *last = lanes * (local + 1) / locals;
}

gw_lanes gw_lanes_of(const gw_topology *topology, int rank, bool flat) {
    if (flat) return (gw_lanes){.lanes = 1, .hosts = topology->world, .host = rank, .last = 1};
    int least, most;
    gw_topology_local_sizes(topology, &least, &most);
    gw_lanes l = {.lanes = most, .hosts = gw_topology_hosts(topology), .host = gw_topology_host(topology, rank)};
    gw_lanes_of_local(most, gw_topology_local_size(topology, l.host), gw_topology_local_rank(topology, rank), &l.first,
                      &l.last);
    return l;
}

int gw_lane_rank(const gw_lanes *l, const gw_topology *topology, int lane, int host) {
    if (l->lanes == 1 && l->hosts == topology->world) return host;
    int locals = gw_topology_local_size(topology, host), local = 0, first, last;
    for (;; local++) {
        gw_lanes_of_local(l->lanes, locals, local, &first, &last);
        if (lane < last) return gw_topology_rank(topology, host, local);
    }
}

gw_owners gw_owners_of(const gw_lanes *lanes, uint64_t key, uint64_t count, uint32_t block) {
    gw_owners o = {.count = count, .stripe = count ? count : 1, .lanes = lanes->lanes, .hosts = lanes->hosts,
                   .turn = (int)(key % (uint64_t)lanes->hosts), .whole = block == 0};
    if (o.whole) return o;
    uint64_t owners = (uint64_t)lanes->lanes * (uint64_t)lanes->hosts, share = (count + owners - 1) / owners;
    uint64_t elements = share < STRIPE ? share : STRIPE;
    o.stripe = (elements + block - 1) / block * block;
    if (o.stripe == 0) o.stripe = block;
    return o;
}

/* A whole tensor belongs to the lane that its turn decides. */
static gw_stripes all_or_none(const gw_owners *o, int first, int last) {
    int lane = o->turn % o->lanes;
    return lane >= first && lane < last ? gw_stripes_whole(0, o->count) : gw_stripes_whole(0, 0);
}

gw_stripes gw_owners_in_lanes(const gw_owners *o, int first, int last) {
    if (o->whole) return all_or_none(o, first, last);
    if (first >= last) return gw_stripes_whole(0, 0);
    if (last - first == o->lanes) return gw_stripes_whole(0, o->count);
    return (gw_stripes){.first = (uint64_t)first * o->stripe, .end = o->count,
                        .length = (uint64_t)(last - first) * o->stripe, .period = (uint64_t)o->lanes * o->stripe};
}

gw_stripes gw_owners_at_host(const gw_owners *o, int first, int last, int host) {
    if (o->whole) return host == o->turn ? all_or_none(o, first, last) : gw_stripes_whole(0, 0);
    if (first >= last) return gw_stripes_whole(0, 0);
    uint64_t row = (uint64_t)((host - o->turn + o->hosts) % o->hosts), lanes = (uint64_t)o->lanes;
    return (gw_stripes){.first = (row * lanes + (uint64_t)first) * o->stripe, .end = o->count,
                        .length = (uint64_t)(last - first) * o->stripe,
                        .period = (uint64_t)o->hosts * lanes * o->stripe};
}
