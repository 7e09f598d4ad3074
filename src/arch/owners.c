/* owners.c - see owners.h. */
#include "arch/owners.h"

/* Elements: small enough that a slice of 200 KB (p3) has work for a dozen owners, large enough that a word for each
 * stripe of a payload does not matter. */
#define STRIPE 4096

void gw_lanes_of_local(int lanes, int locals, int local, int *first, int *last) {
    *first = lanes * local / locals;
    *last = lanes * (local + 1) / locals;
}

static int place_in_rack(const gw_topology *topology, int rank) {
    int place = 0, host = gw_topology_host(topology, rank);
    while (gw_topology_rack_host(topology, topology->rack_of[rank], place) != host) place++;
    return place;
}

static gw_lanes by_racks(const gw_topology *topology, int rank, int per_rank) {
    gw_lanes l = {.hosts = gw_topology_racks(topology), .host = topology->rack_of[rank]};
    for (int rack = 0; rack < l.hosts; rack++) {
        int size = gw_topology_rack_size(topology, rack);
        if (size > l.per_host) l.per_host = size;
    }
    l.lanes = per_rank * l.per_host;
    gw_lanes_of_local(l.per_host, gw_topology_rack_size(topology, l.host), place_in_rack(topology, rank), &l.first,
                      &l.last);
    int before = gw_topology_local_rank(topology, rank) * l.per_host;
    l.first += before;
    l.last += before;
    return l;
}

gw_lanes gw_lanes_of(const gw_topology *topology, int rank, bool flat) {
    if (flat) return (gw_lanes){.lanes = 1, .hosts = topology->world, .host = rank, .last = 1, .per_host = 1};
    int least, most;
    gw_topology_local_sizes(topology, &least, &most);
    if (topology->rack_of) return by_racks(topology, rank, most);
    gw_lanes l = {
        .lanes = most, .hosts = gw_topology_hosts(topology), .host = gw_topology_host(topology, rank), .per_host = 1};
    gw_lanes_of_local(most, gw_topology_local_size(topology, l.host), gw_topology_local_rank(topology, rank), &l.first,
                      &l.last);
    return l;
}

/* Which of `members` that have lanes in turn has this one. */
static int member_of(int lanes, int members, int lane) {
    for (int member = 0, first, last;; member++) {
        gw_lanes_of_local(lanes, members, member, &first, &last);
        if (lane < last) return member;
    }
}

int gw_lane_rank(const gw_lanes *l, const gw_topology *topology, int lane, int host) {
    if (l->lanes == 1 && l->hosts == topology->world) return host;
    if (topology->rack_of) {
        int place = member_of(l->per_host, gw_topology_rack_size(topology, host), lane % l->per_host);
        return gw_topology_rank(topology, gw_topology_rack_host(topology, host, place), lane / l->per_host);
    }
    return gw_topology_rank(topology, host, member_of(l->lanes, gw_topology_local_size(topology, host), lane));
}

gw_owners gw_owners_of(const gw_lanes *lanes, uint64_t key, uint64_t count, uint32_t block) {
    uint64_t hosts = (uint64_t)lanes->hosts, owners = hosts * (uint64_t)lanes->lanes;
    gw_owners o = {.count = count, .stripe = count ? count : 1, .lanes = lanes->lanes, .hosts = lanes->hosts,
                   .turn = (int)(key % hosts), .lane_turn = (int)(key / hosts % (uint64_t)lanes->lanes),
                   .whole = block == 0};
    if (o.whole) return o;
    uint64_t share = (count + owners - 1) / owners, elements = share < STRIPE ? share : STRIPE;
    o.stripe = (elements + block - 1) / block * block;
    if (o.stripe == 0) o.stripe = block;
    return o;
}

static gw_stripes none(void) { return gw_stripes_whole(0, 0); }

/* Of every `of` stripes those from `first` to `last` - 1, where the tensor's own first one is number lane_turn. */
static gw_stripes stripes(const gw_owners *o, int first, int last, int of) {
    int before = (o->lane_turn - first + of) % of;
    return (gw_stripes){.end = o->count, .length = (uint64_t)(last - first) * o->stripe,
                        .period = (uint64_t)of * o->stripe, .shift = (uint64_t)before * o->stripe};
}

/* A whole tensor belongs to the lane of its first stripe. */
static gw_stripes all_or_none(const gw_owners *o, int first, int last) {
    return o->lane_turn >= first && o->lane_turn < last ? gw_stripes_whole(0, o->count) : none();
}

gw_stripes gw_owners_in_lanes(const gw_owners *o, int first, int last) {
    if (o->whole) return all_or_none(o, first, last);
    if (first >= last) return none();
    if (last - first == o->lanes) return gw_stripes_whole(0, o->count);
    return stripes(o, first, last, o->lanes);
}

gw_stripes gw_owners_at_host(const gw_owners *o, int first, int last, int host) {
    if (o->whole) return host == o->turn ? all_or_none(o, first, last) : none();
    if (first >= last) return none();
    int row = (host - o->turn + o->hosts) % o->hosts * o->lanes;
    return stripes(o, row + first, row + last, o->hosts * o->lanes);
}
