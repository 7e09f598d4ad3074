/* announcement_tree.c - see announcement_tree.h. Places in a tree are numbered level by level from 0, its root. */
#include "arch/announcement_tree.h"

enum { FAN_OUT = GW_ANNOUNCEMENT_FAN_OUT };

static int parent_of(int place) { return (place - 1) / FAN_OUT; }
static int first_child(int place) { return FAN_OUT * place + 1; }

static int children_end(int place, int places) {
    int end = first_child(place) + FAN_OUT;
    return end < places ? end : places;
}

/* Hosts, and the ranks of a host, are numbered from those of rank 0, so that rank 0 is the root. */
static int leader_at(const gw_topology *t, int place) {
    int first = gw_topology_host(t, 0), host = (first + place) % gw_topology_hosts(t);
    return host == first ? 0 : gw_topology_rank(t, host, 0);
}

static int member_at(const gw_topology *t, int host, int place) {
    int leader = host == gw_topology_host(t, 0) ? gw_topology_local_rank(t, 0) : 0;
    return gw_topology_rank(t, host, (leader + place) % gw_topology_local_size(t, host));
}

static void join_hosts(gw_announcement_tree *tree, const gw_topology *t, int host) {
    int hosts = gw_topology_hosts(t), place = (host - gw_topology_host(t, 0) + hosts) % hosts;
    tree->parent = place ? leader_at(t, parent_of(place)) : -1;
    for (int i = first_child(place); i < children_end(place, hosts); i++)
        tree->children[tree->count++] = leader_at(t, i);
}

static gw_announcement_tree star_of(int world, int rank) {
    gw_announcement_tree tree = {.parent = rank ? 0 : -1};
    for (int r = 1; rank == 0 && r < world; r++) tree.children[tree.count++] = r;
    return tree;
}

gw_announcement_tree gw_announcement_tree_of(const gw_topology *t, int rank) {
    gw_announcement_tree tree = {.parent = -1};
    int host = gw_topology_host(t, rank), place = 0;
    if (t->world <= FAN_OUT + 1) return star_of(t->world, rank);
    while (member_at(t, host, place) != rank) place++;
    if (place == 0) join_hosts(&tree, t, host);
    else tree.parent = member_at(t, host, parent_of(place));
    for (int i = first_child(place); i < children_end(place, gw_topology_local_size(t, host)); i++)
        tree.children[tree.count++] = member_at(t, host, i);
    return tree;
}
