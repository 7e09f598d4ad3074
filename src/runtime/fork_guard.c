/* fork_guard.c - a child forked from a rank is not a rank. It has a copy of the memory but none of the threads: a lock
 * may be held by a thread that does not exist there, and the descriptors are closed (base/fork_descriptors.h). So its
 * calls are refused before they touch any of that. Finalising or closing does nothing: the rank's peers do not know the
 * child. */
#include "base/fork_descriptors.h"
#include "runtime/comm.h"

bool gw_context_forked(const gw_context *context) { return context->fork_depth != gw_fork_depth(); }

bool gw_comm_forked(const gw_comm *comm) {
    gw_error error = {.rank = -1};
    const gw_context *context = comm->context;
    if (!gw_context_forked(context)) return false;
    gw_fail(&error, GW_INVALID,
            "this process was forked from rank %d on %s (process %u), which alone can use the communicator: a forked "
            "child may compute, but not communicate; start ranks with gradwire run, torchrun, mpirun or srun",
            context->rank, context->endpoints[context->rank].host, (unsigned)context->endpoints[context->rank].pid);
    gw_comm_set_last_error(&error);
    return true;
}
