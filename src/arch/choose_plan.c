/* choose_plan.c - see choose_plan.h. */
#include "arch/choose_plan.h"

#include <string.h>

#include "arch/cost.h"

#define CANDIDATES_MAX 32
#define RING_BYTES_MIN (64 * 1024) /* below, one round of messages is cheaper than p-1 */
/* Plans of lower preference congest less; a later one must be 3 % faster to be chosen. */
#define WORTH 0.97

typedef struct candidate {
    const gw_plan_builder *builder;
    int preference;
    double seconds;
} candidate;

static bool supports(const gw_plan_builder *builder, const gw_plan_request *request) {
    return builder->refuses(request) == NULL;
}

static candidate candidate_of(const gw_plan_builder *builder, const gw_cost_inputs *scene) {
    gw_cost_terms work = gw_cost_terms_of(builder, scene);
    return (candidate){builder, work.preference, gw_cost_seconds(&work, scene)};
}

/* The fastest of `count` > 0 plans; sorts them by preference. */
static const gw_plan_builder *fastest(candidate *list, int count) {
    for (int i = 1; i < count; i++)
        for (int j = i; j > 0 && list[j].preference < list[j - 1].preference; j--) {
            candidate swapped = list[j];
            list[j] = list[j - 1];
            list[j - 1] = swapped;
        }
    const candidate *best = list;
    for (int i = 1; i < count; i++)
        if (list[i].seconds <= WORTH * best->seconds) best = &list[i];
    return best->builder;
}

static const gw_plan_builder *by_cost(const gw_plan_request *request, size_t element_bytes) {
    const gw_plan_builder *able[CANDIDATES_MAX];
    candidate list[CANDIDATES_MAX];
    int count = 0, listed = 0;
    for (int i = 0; gw_plan_builders[i] && count < CANDIDATES_MAX; i++)
        if (gw_plan_builders[i]->work && supports(gw_plan_builders[i], request)) able[count++] = gw_plan_builders[i];
    if (count < 2) return count ? able[0] : NULL;
    gw_cost_inputs scene = gw_cost_inputs_of(request, element_bytes);
    for (int i = 0; i < count; i++) {
        list[listed] = candidate_of(able[i], &scene);
        listed += list[listed].preference >= 0;
    }
    return listed ? fastest(list, listed) : NULL;
}

static const gw_plan_builder *automatic(const gw_plan_request *request, size_t element_bytes) {
    if (request->topology.world == 1) return &gw_plan_pairwise;
    for (int i = 0; gw_plan_builders[i]; i++)
        if (gw_plan_builders[i]->preferred && supports(gw_plan_builders[i], request)) return gw_plan_builders[i];
    return by_cost(request, element_bytes);
}

/* Returns a builder, or its `small` one (the same bits) if that is faster for this request. */
static const gw_plan_builder *or_small(const gw_plan_builder *builder, const gw_plan_request *request,
                                       size_t element_bytes) {
    if (!builder->small || request->topology.world == 1 || !supports(builder->small, request)) return builder;
    gw_cost_inputs scene = gw_cost_inputs_of(request, element_bytes);
    candidate both[] = {candidate_of(builder, &scene), candidate_of(builder->small, &scene)};
    return fastest(both, 2);
}

const gw_plan_builder *gw_arch_choose(const char *arch, const gw_plan_request *request, size_t element_bytes) {
    /* ps and sfb are for training steps: a plain collective has no result to keep on a server, and no layers. */
    if (strcmp(arch, "auto") == 0 || strcmp(arch, "ps") == 0 || strcmp(arch, "sfb") == 0)
        return automatic(request, element_bytes);
    const gw_plan_builder *builder = gw_plan_find(arch);
    if (!builder) return NULL;
    if (!supports(builder, request)) builder = builder->fallback;
    if (!builder || !supports(builder, request)) return automatic(request, element_bytes);
    return or_small(builder, request, element_bytes);
}

const gw_plan_builder *gw_arch_choose_varying(const char *arch, size_t room) {
    if (strcmp(arch, "direct") == 0) return &gw_plan_pairwise;
    return strcmp(arch, "ring") == 0 || room > RING_BYTES_MIN ? &gw_plan_ring : &gw_plan_pairwise;
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
