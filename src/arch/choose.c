/* choose.c - see choose.h. */
#include "arch/choose.h"

#include <string.h>

#include "arch/cost.h"

/* A plan further down its list must be better than those before it by this much: they are kinder to networks. */
#define WORTH 0.97

static bool carries(const gw_plan_builder *builder, const gw_plan_request *request) {
    return builder->refuses(request) == NULL;
}

static const gw_plan_builder *least(const gw_plan_builder *const *plans, const gw_plan_request *request,
                                    const gw_scene *scene) {
    const gw_plan_builder *best = NULL;
    double least_seconds = 0;
    for (; *plans; plans++) {
        if (!carries(*plans, request)) continue;
        gw_work work = gw_work_of(*plans, scene);
        double seconds = gw_work_seconds(&work, scene);
        if (best && seconds > WORTH * least_seconds) continue;
        best = *plans;
        least_seconds = seconds;
    }
    return best;
}

static const gw_plan_builder *by_cost(const gw_plan_request *request, size_t element_bytes) {
    static const gw_plan_builder *const reduced[] = {&gw_plan_ring, &gw_plan_halving, &gw_plan_exchange,
                                                     &gw_plan_doubling, &gw_plan_oneshot, &gw_plan_tree, NULL};
    static const gw_plan_builder *const in_hosts[] = {&gw_plan_hierarchical, &gw_plan_ring, &gw_plan_halving,
                                                      &gw_plan_exchange, &gw_plan_doubling, &gw_plan_oneshot,
                                                      &gw_plan_tree, NULL};
    static const gw_plan_builder *const parts[] = {&gw_plan_ring, &gw_plan_halving, &gw_plan_exchange, NULL};
    static const gw_plan_builder *const rooted[] = {&gw_plan_tree, &gw_plan_exchange, NULL};
    gw_scene scene = gw_scene_of(request, element_bytes);
    if (request->collective == GW_COLL_REDUCE || request->collective == GW_COLL_BROADCAST)
        return least(rooted, request, &scene);
    if (request->collective != GW_COLL_ALLREDUCE) return least(parts, request, &scene);
    return least(scene.hosts > 1 && scene.per_host > 1 ? in_hosts : reduced, request, &scene);
}

static const gw_plan_builder *automatic(const gw_plan_request *request, size_t element_bytes) {
    if (request->topology.world == 1) return &gw_plan_exchange;
    if (carries(&gw_plan_direct, request)) return &gw_plan_direct;
    switch (request->collective) {
    case GW_COLL_ALLREDUCE:
    case GW_COLL_REDUCE_SCATTER:
    case GW_COLL_ALLGATHER:
    case GW_COLL_REDUCE:
    case GW_COLL_BROADCAST: return by_cost(request, element_bytes);
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

/* Of two plans with the same bits, one for much data and one for little. */
static const gw_plan_builder *either(const gw_plan_builder *much, const gw_plan_builder *little,
                                     const gw_plan_request *request, size_t element_bytes) {
    const gw_plan_builder *const plans[] = {much, little, NULL};
    gw_scene scene = gw_scene_of(request, element_bytes);
    return least(plans, request, &scene);
}

const gw_plan_builder *gw_arch_choose(const char *arch, const gw_plan_request *request, size_t element_bytes) {
    /* Servers carry training steps; a plain collective has nobody to keep its result. */
    if (strcmp(arch, "auto") == 0 || strcmp(arch, "ps") == 0) return automatic(request, element_bytes);
    const gw_plan_builder *builder = gw_plan_find(arch);
    if (!builder) return NULL;
    if (builder == &gw_plan_halving && carries(builder, request) && request->topology.world > 1)
        return either(builder, &gw_plan_doubling, request, element_bytes);
    if (carries(builder, request)) return builder;
    /* Direct without shared memory. */
    if (builder == &gw_plan_direct && carries(&gw_plan_exchange, request))
        return either(&gw_plan_exchange, &gw_plan_oneshot, request, element_bytes);
    return automatic(request, element_bytes);
}

int gw_arch_ranges(gw_collective collective, const gw_topology *topology, gw_arch_range ranges[GW_ARCH_RANGES_MAX]) {
    int count = 0;
    bool parts = collective == GW_COLL_REDUCE_SCATTER || collective == GW_COLL_ALLGATHER;
    for (size_t bytes = 4; bytes <= (size_t)4 << 30; bytes *= 2) {
        gw_plan_request request = {.collective = collective, .topology = *topology, .root = 0, .chunk_count = 1,
                                   .pipeline = 1, .count = parts ? bytes / (size_t)topology->world : bytes};
        const gw_plan_builder *builder = automatic(&request, 1);
        if (count && ranges[count - 1].builder == builder) ranges[count - 1].bytes_max = bytes;
        else if (count < GW_ARCH_RANGES_MAX) ranges[count++] = (gw_arch_range){builder, bytes};
    }
    ranges[count - 1].bytes_max = SIZE_MAX;
    return count;
}
