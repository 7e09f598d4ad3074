/* forked.c - a process that was forked from a rank is no rank. It has a copy of the memory and none of the threads: the
 * locks may be held by a thread that is not there, and the descriptors have been closed (base/descriptor.h). Its calls
 * are refused before they touch any of that, and what it finalises or closes stays as it is, for the rank's peers know
 * nothing of it. */
#include "base/descriptor.h"
#include "engine/comm.h"

bool gw_node_forked(const gw_node *node) { return node->fork_depth != gw_fork_depth(); }

bool gw_comm_forked(const gw_comm *comm) {
    gw_error error = {.rank = -1};
    const gw_node *node = comm->node;
    if (!gw_node_forked(node)) return false;
    gw_fail(&error, GW_INVALID,
            "this process was forked from rank %d on %s (process %u), which alone can use the communicator: a forked "
            "child may compute, but not communicate; start ranks with gradwire run, torchrun, mpirun or srun",
            node->rank, node->endpoints[node->rank].host, (unsigned)node->endpoints[node->rank].pid);
    gw_comm_told(&error);
    return true;
}
