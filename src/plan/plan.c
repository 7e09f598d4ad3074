/* plan.c - the table of builders, the check of a request, and the sizes that follow from it. */
#include "plan/build.h"

#define POINTER(name, id) &gw_plan_##name,
const gw_plan_builder *const gw_plan_builders[] = {GW_PLANS(POINTER, POINTER) NULL};

#define ID(name, id) id,
static const uint8_t ids[] = {GW_PLANS(ID, ID)};

#define UNIQUE(name, id) ID_##id = id,
enum { GW_PLANS(UNIQUE, UNIQUE) }; /* an id that is used twice does not compile */
#define IN_RANGE(name, id) static_assert(id > 0 && id < GW_PLAN_IDS, "the id of a plan");
GW_PLANS(IN_RANGE, IN_RANGE)

const gw_plan_builder *gw_plan_find(const char *name) {
    for (int i = 0; gw_plan_builders[i]; i++)
        if (strcmp(gw_plan_builders[i]->technique.name, name) == 0) return gw_plan_builders[i];
    return NULL;
}

uint8_t gw_plan_id(const gw_plan_builder *builder) {
    for (int i = 0; gw_plan_builders[i]; i++)
        if (gw_plan_builders[i] == builder) return ids[i];
    return 0;
}

const gw_plan_builder *gw_plan_by_id(uint8_t id) {
    for (int i = 0; gw_plan_builders[i]; i++)
        if (ids[i] == id) return gw_plan_builders[i];
    return NULL;
}

#define NAME(name, value, text) [value] = text,
static const char *const names[] = {GW_COLLECTIVE_LIST(NAME)};
static_assert(sizeof names / sizeof *names == GW_COLLECTIVES, "the values of gw_collective have no gaps");

const char *gw_collective_name(gw_collective collective) {
    return (unsigned)collective < GW_COLLECTIVES ? names[collective] : "unknown";
}

bool gw_collective_parse(const char *name, gw_collective *collective) {
    for (int i = 0; i < GW_COLLECTIVES; i++) {
        if (strcmp(names[i], name) != 0) continue;
        *collective = (gw_collective)i;
        return true;
    }
    return false;
}

void gw_part(size_t count, int parts, int index, size_t *offset, size_t *length) {
    size_t small = count / (size_t)parts, large = count % (size_t)parts, i = (size_t)index;
    *offset = i * small + gw_min_size(i, large);
    *length = small + (i < large);
}

static bool has_parts(gw_collective collective) {
    return collective == GW_COLL_REDUCE_SCATTER || collective == GW_COLL_ALLGATHER || collective == GW_COLL_GATHER ||
           collective == GW_COLL_SCATTER || collective == GW_COLL_ALLTOALL;
}

gw_range gw_plan_part(const gw_plan_request *request, int rank) {
    if (!request->counts) return (gw_range){(size_t)rank * request->count, (size_t)(rank + 1) * request->count};
    size_t from = 0;
    for (int r = 0; r < rank; r++) from += request->counts[r];
    return (gw_range){from, from + request->counts[rank]};
}

size_t gw_plan_total(const gw_plan_request *request) {
    return has_parts(request->collective) ? gw_plan_part(request, request->topology.world - 1).to : request->count;
}

size_t gw_plan_part_max(const gw_plan_request *request) {
    if (!request->counts) return request->count;
    size_t max = 0;
    for (int r = 0; r < request->topology.world; r++)
        if (request->counts[r] > max) max = request->counts[r];
    return max;
}

static size_t own_part(const gw_plan_request *request) {
    return request->counts ? request->counts[request->rank] : request->count;
}

/* The end of the last part of an alltoallv. */
static size_t extent(const gw_plan_request *request, gw_alltoallv_part counts, gw_alltoallv_part offsets) {
    size_t end = 0;
    for (int r = 0; r < request->topology.world; r++) {
        size_t to = gw_alltoallv_array(request, offsets)[r] + gw_alltoallv_array(request, counts)[r];
        if (to > end) end = to;
    }
    return end;
}

size_t gw_plan_in_count(const gw_plan_request *request) {
    switch (request->collective) {
    case GW_COLL_ALLREDUCE:
    case GW_COLL_REDUCE:
    case GW_COLL_SEND:
    case GW_COLL_REDUCE_SCATTER:
    case GW_COLL_ALLTOALL: return gw_plan_total(request);
    case GW_COLL_BROADCAST:
    case GW_COLL_SCATTER: return request->rank == request->root ? gw_plan_total(request) : 0;
    case GW_COLL_ALLGATHER:
    case GW_COLL_GATHER: return own_part(request);
    case GW_COLL_ALLTOALLV: return extent(request, GW_ALLTOALLV_IN_COUNTS, GW_ALLTOALLV_IN_OFFSETS);
    default: return 0;
    }
}

size_t gw_plan_out_count(const gw_plan_request *request) {
    switch (request->collective) {
    case GW_COLL_ALLREDUCE:
    case GW_COLL_BROADCAST:
    case GW_COLL_RECV:
    case GW_COLL_ALLGATHER:
    case GW_COLL_ALLTOALL: return gw_plan_total(request);
    case GW_COLL_REDUCE:
    case GW_COLL_GATHER: return request->rank == request->root ? gw_plan_total(request) : 0;
    case GW_COLL_REDUCE_SCATTER:
    case GW_COLL_SCATTER: return own_part(request);
    case GW_COLL_ALLTOALLV: return extent(request, GW_ALLTOALLV_OUT_COUNTS, GW_ALLTOALLV_OUT_OFFSETS);
    default: return 0;
    }
}

static bool needs_root(gw_collective collective) {
    return collective == GW_COLL_REDUCE || collective == GW_COLL_BROADCAST || collective == GW_COLL_GATHER ||
           collective == GW_COLL_SCATTER || collective == GW_COLL_SEND || collective == GW_COLL_RECV;
}

static bool takes_counts(gw_collective collective) {
    return (has_parts(collective) && collective != GW_COLL_ALLTOALL) || collective == GW_COLL_ALLTOALLV;
}

static bool total_overflows(const gw_plan_request *request) {
    size_t total = 0;
    for (int r = 0; has_parts(request->collective) && r < request->topology.world; r++)
        if (__builtin_add_overflow(total, request->counts ? request->counts[r] : request->count, &total)) return true;
    return false;
}

static gw_status check(const gw_plan_request *request, gw_error *error) {
    int world = request->topology.world, root = request->root;
    const char *name = gw_collective_name(request->collective);
    if ((unsigned)request->collective >= GW_COLLECTIVES)
        return gw_fail(error, GW_INVALID, "collective number %d does not exist", (int)request->collective);
    if (world < 1 || request->rank < 0 || request->rank >= world)
        return gw_fail(error, GW_INVALID, "%s: rank %d is not in a world of %d", name, request->rank, world);
    if (needs_root(request->collective) && (root < 0 || root >= world))
        return gw_fail(error, GW_INVALID, "%s: root or peer %d is not in a world of %d", name, root, world);
    if ((request->collective == GW_COLL_SEND || request->collective == GW_COLL_RECV) && root == request->rank)
        return gw_fail(error, GW_INVALID, "%s: rank %d names itself as its peer", name, root);
    if (request->chunk_count == 0 || request->pipeline < 1)
        return gw_fail(error, GW_INVALID, "%s: the chunk and the pipeline depth must be at least 1", name);
    if (request->counts && !takes_counts(request->collective))
        return gw_fail(error, GW_INVALID, "%s takes no uneven counts", name);
    if (!request->counts && request->collective == GW_COLL_ALLTOALLV)
        return gw_fail(error, GW_INVALID, "%s needs counts", name);
    if (total_overflows(request))
        return gw_fail(error, GW_INVALID, "%s: the parts of %d ranks together exceed the address space", name, world);
    return GW_OK;
}

gw_status gw_plan_make(gw_plan *plan, const gw_plan_builder *builder, const gw_plan_request *request, gw_error *error) {
    gw_status status = check(request, error);
    if (status != GW_OK) return status;
    const char *refusal = builder->refuses(request);
    if (refusal && request->topology.world > 1)
        return gw_fail(error, GW_UNSUPPORTED, "%s is not supported by %s, which %s",
                       gw_collective_name(request->collective), builder->technique.name, refusal);
    *plan = (gw_plan){.builder = request->topology.world == 1 ? &gw_plan_single_rank : builder, .request = *request};
    plan->builder->lay_out(plan);
    return GW_OK;
}

void gw_plan_stream(const gw_plan *plan, uint32_t index, gw_stream *out) {
    assert(index < plan->streams);
    plan->builder->stream(plan, index, out);
}

void gw_plan_action(const gw_plan *plan, uint32_t stream, uint64_t index, gw_action *out) {
    assert(stream < plan->streams);
    plan->builder->action(plan, stream, index, out);
}

gw_cost gw_plan_cost(const gw_plan_builder *builder, const gw_plan_request *request) {
    return request->topology.world == 1 ? (gw_cost){0} : builder->cost(request);
}
