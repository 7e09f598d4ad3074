/* announcement_tree.h - how rank 0 tells all ranks something short: each passes it on to its children. In a small team
 * rank 0 tells all. In a larger one leaders of hosts form a tree, and the ranks of each host another one below its
 * leader, so that an announcement crosses the network once for each host. It reaches p ranks in about log p / log
 * GW_ANNOUNCEMENT_FAN_OUT messages that follow each other. Pure. */
#ifndef GW_ARCH_ANNOUNCEMENT_TREE_H
#define GW_ARCH_ANNOUNCEMENT_TREE_H

#include "plan/plan.h"

#define GW_ANNOUNCEMENT_FAN_OUT 8 /* a message takes a rank a few us to send, and tens of us to arrive */
#define GW_ANNOUNCEMENT_CHILDREN_MAX (2 * GW_ANNOUNCEMENT_FAN_OUT)

/* The place of a rank; ranks are those of the topology. */
typedef struct gw_announcement_tree {
    int parent; /* -1: rank 0 */
    int children[GW_ANNOUNCEMENT_CHILDREN_MAX], count;
} gw_announcement_tree;

gw_announcement_tree gw_announcement_tree_of(const gw_topology *topology, int rank);

#endif
