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
