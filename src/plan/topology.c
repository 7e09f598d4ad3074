/* topology.c - which ranks share a host. Linear in the number of ranks: used when a plan is laid out, not per step. */
#include "plan/plan.h"

int gw_topology_at(const gw_topology *topology, int place) { return topology->order ? topology->order[place] : place; }

int gw_topology_place(const gw_topology *topology, int rank) {
    int place = 0;
    if (!topology->order) return rank;
    while (topology->order[place] != rank) place++;
    return place;
}

int gw_topology_host(const gw_topology *topology, int rank) {
    return topology->host_of ? topology->host_of[rank] : rank;
}

int gw_topology_hosts(const gw_topology *topology) {
    if (!topology->host_of) return topology->world;
    int hosts = 0;
    for (int rank = 0; rank < topology->world; rank++)
        if (topology->host_of[rank] >= hosts) hosts = topology->host_of[rank] + 1;
    return hosts;
}

int gw_topology_local_rank(const gw_topology *topology, int rank) {
    int host = gw_topology_host(topology, rank), local = 0, other;
    for (int place = 0; (other = gw_topology_at(topology, place)) != rank; place++)
        local += gw_topology_host(topology, other) == host;
    return local;
}

int gw_topology_local_size(const gw_topology *topology, int host) {
    int size = 0;
    for (int rank = 0; rank < topology->world; rank++) size += gw_topology_host(topology, rank) == host;
    return size;
}

static bool in_order(const gw_topology *topology) {
    for (int rank = 1; rank < topology->world; rank++)
        if (gw_topology_host(topology, rank) < gw_topology_host(topology, rank - 1)) return false;
    return true;
}

void gw_topology_local_sizes(const gw_topology *topology, int *least, int *most) {
    *least = topology->world;
    *most = 0;
    bool runs = in_order(topology);
    int hosts = gw_topology_hosts(topology);
    for (int host = 0, first = 0; host < hosts; host++) {
        int size = 0;
        if (runs)
            while (first + size < topology->world && gw_topology_host(topology, first + size) == host) size++;
        else size = gw_topology_local_size(topology, host);
        if (runs) first += size;
        if (size < *least) *least = size;
        if (size > *most) *most = size;
    }
}

int gw_topology_rank(const gw_topology *topology, int host, int local_rank) {
    for (int place = 0; place < topology->world; place++) {
        int rank = gw_topology_at(topology, place);
        if (gw_topology_host(topology, rank) == host && local_rank-- == 0) return rank;
    }
    return -1;
}

/* -1 - number for each rack that has been numbered. */
static int number_racks(int *rack_of, int world) {
    int racks = 0;
    for (int rank = 0; rank < world; rank++) {
        int asked = rack_of[rank];
        if (asked < 0) continue;
        for (int other = rank; other < world; other++)
            if (rack_of[other] == asked) rack_of[other] = -1 - racks;
        racks++;
    }
    for (int rank = 0; rank < world; rank++) rack_of[rank] = -1 - rack_of[rank];
    return racks;
}

void gw_topology_take_racks(gw_topology *topology, int *rack_of) {
    int least, most, racks = number_racks(rack_of, topology->world);
    gw_topology_local_sizes(topology, &least, &most);
    bool useful = racks > 1 && racks < gw_topology_hosts(topology) && least == most;
    topology->rack_of = useful ? rack_of : NULL;
}

int gw_topology_racks(const gw_topology *topology) {
    int racks = 0;
    for (int rank = 0; topology->rack_of && rank < topology->world; rank++)
        if (topology->rack_of[rank] >= racks) racks = topology->rack_of[rank] + 1;
    return racks;
}

static int rack_of_host(const gw_topology *topology, int host) {
    return topology->rack_of[gw_topology_rank(topology, host, 0)];
}

int gw_topology_rack_size(const gw_topology *topology, int rack) {
    int size = 0, hosts = gw_topology_hosts(topology);
    for (int host = 0; host < hosts; host++) size += rack_of_host(topology, host) == rack;
    return size;
}

int gw_topology_rack_host(const gw_topology *topology, int rack, int place) {
    int host = 0;
    while (rack_of_host(topology, host) != rack || place-- > 0) host++;
    return host;
}
