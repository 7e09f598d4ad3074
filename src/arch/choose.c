/* choose.c - see choose.h. */
#include "arch/choose.h"

#include <string.h>

/* Below this a full exchange (one round) beats the ring's 2(p-1) rounds; above, the ring keeps every link equally busy
 * without p-1 senders meeting at one receiver. Measured: docs/benchmarks.md. */
#define EXCHANGE_BYTES_MAX (16 * 1024)
/* Between the two, where start-ups still count and the world is large, log2 p rounds win. */
#define HALVING_BYTES_MAX (256 * 1024)

static size_t total_bytes(const gw_plan_request *request, size_t element_bytes) {
    size_t count = request->count;
    if (request->counts) {
        count = 0;
        for (int r = 0; r < request->topology.world; r++) count += request->counts[r];
    } else if (request->collective == GW_COLL_REDUCE_SCATTER || request->collective == GW_COLL_ALLGATHER) {
        count *= (size_t)request->topology.world;
    }
    return count * element_bytes;
}

static bool carries(const gw_plan_builder *builder, const gw_plan_request *request) {
    return builder->refuses(request) == NULL;
}

static const gw_plan_builder *for_rings(const gw_plan_request *request, size_t bytes) {
    const gw_topology *t = &request->topology;
    bool shared_hosts = gw_topology_hosts(t) < t->world && gw_topology_hosts(t) > 1;
    if (bytes <= EXCHANGE_BYTES_MAX) return &gw_plan_exchange;
    if (shared_hosts && carries(&gw_plan_hierarchical, request)) return &gw_plan_hierarchical;
    if (bytes <= HALVING_BYTES_MAX && t->world >= 8) return &gw_plan_halving;
    return &gw_plan_ring;
}

static const gw_plan_builder *automatic(const gw_plan_request *request, size_t element_bytes) {
    if (carries(&gw_plan_direct, request)) return &gw_plan_direct;
    switch (request->collective) {
    case GW_COLL_ALLREDUCE:
    case GW_COLL_REDUCE_SCATTER:
    case GW_COLL_ALLGATHER: return for_rings(request, total_bytes(request, element_bytes));
    case GW_COLL_REDUCE:
    case GW_COLL_BROADCAST: return &gw_plan_tree;
    case GW_COLL_GATHER:
    case GW_COLL_SCATTER:
    case GW_COLL_ALLTOALL: return &gw_plan_exchange;
    case GW_COLL_BARRIER: return &gw_plan_dissemination;
    case GW_COLL_SEND:
    case GW_COLL_RECV: return &gw_plan_pair;
    case GW_COLLECTIVES: break;
    }
    return NULL;
}

const gw_plan_builder *gw_arch_choose(const char *arch, const gw_plan_request *request, size_t element_bytes) {
    /* Servers and factors carry training steps; a plain collective has nobody to keep its result, and no layers. */
    if (strcmp(arch, "auto") == 0 || strcmp(arch, "ps") == 0 || strcmp(arch, "sfb") == 0)
        return automatic(request, element_bytes);
    const gw_plan_builder *builder = gw_plan_find(arch);
    if (!builder) return NULL;
    if (carries(builder, request)) return builder;
    /* Without shared memory direct is done by messages, with the same bits. */
    if (builder == &gw_plan_direct && carries(&gw_plan_exchange, request)) return &gw_plan_exchange;
    return automatic(request, element_bytes);
}
