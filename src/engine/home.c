/* home.c - the CPU at which a rank waits, where ranks share a machine's cores.
 *
 * They are not bound: with fewer cores than ranks, who computes is to have any that is free. But left to itself the
 * kernel often wakes three of four on one of two cores, and does not move one that yields all the time, so that calls
 * last longer. So a rank goes home when it begins to wait, and its mask is put back at once.
 *
 * Neighbours of one host have the same home: who yields lets that one go on which its next message comes from (four
 * ranks all-reduce 16 B over tcp in 50 us instead of 65). Where containers or namespaces that stand for hosts share the
 * machine, ranks are dealt out one by one instead (4 KiB in 101 us instead of 121). */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "engine/node.h"

static bool same_machine(const gw_node *node, int rank) {
    return memcmp(node->endpoints[rank].identity, node->endpoints[node->rank].identity, GW_ENDPOINT_MACHINE) == 0;
}

int gw_node_ranks_of_machine(const gw_node *node, int below) {
    int count = 0;
    for (int r = 0; r < below; r++) count += same_machine(node, r);
    return count;
}

static bool hosts_share_machine(const gw_node *node) {
    int rank = 0;
    while (rank < node->world && (!same_machine(node, rank) || gw_node_same_host(node, rank, node->rank))) rank++;
    return rank < node->world;
}

int gw_node_home(const gw_node *node) {
    const char *bind = getenv("GRADWIRE_BIND");
    cpu_set_t all;
    if (!node->spin_yield || (bind && strcmp(bind, "none") == 0)) return -1;
    if (sched_getaffinity(0, sizeof all, &all) != 0) return -1;
    int cpus = CPU_COUNT(&all), ranks = gw_node_ranks_of_machine(node, node->world);
    if (cpus < 2 || ranks % cpus != 0) return -1; /* no even share: the kernel may do better */
    int before = gw_node_ranks_of_machine(node, node->rank), cpu = 0;
    int share = hosts_share_machine(node) ? before % cpus : before * cpus / ranks;
    while (!CPU_ISSET(cpu, &all) || share-- > 0) cpu++;
    return cpu;
}

void gw_node_go_home(const gw_node *node) {
    cpu_set_t all, home;
    if (node->home < 0 || sched_getcpu() == node->home || sched_getaffinity(0, sizeof all, &all) != 0) return;
    if (!CPU_ISSET(node->home, &all)) return; /* somebody has decided otherwise since */
    CPU_ZERO(&home);
    CPU_SET(node->home, &home);
    if (sched_setaffinity(0, sizeof home, &home) == 0) sched_setaffinity(0, sizeof all, &all);
}
