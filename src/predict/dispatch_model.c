/* dispatch_model.c - see dispatch_model.h: what is encoded, and the route of a bucket hop by hop. */
#include "predict/dispatch_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "arch/choose_plan.h"
#include "base/rng.h"
#include "engine/engine.h"
#include "strategy/combine.h"
#include "sync/sync.h"

#define SAMPLE_COUNT (64 * 1024u) /* values */

/* The model. */

static gw_route route_of(const gw_dispatch_model *m, bool factors) {
    const gw_codec_setup *setup = &m->coding.setup;
    gw_route_request request = {.arch = gw_strategy_name(m->strategy, GW_AXIS_ARCH),
                                .topology = gw_team_model_topology(m->teams, GW_TEAM_ALL),
                                .codec = !setup->codec->identity,
                                .splits = m->splits,
                                .sums_in_type = true,
                                .servers = m->servers > 0,
                                .factors = factors};
    return gw_route_of(&request);
}

static gw_status encode_sample(const gw_codec_setup *setup, uint32_t world, const float *values, double *fill,
                               gw_error *error) {
    gw_codec_tensor tensor = gw_codec_tensor_make("sample", 512, SAMPLE_COUNT / 512);
    gw_codec_range whole = gw_codec_whole(&tensor);
    gw_codec_call call = {.world = world, .step = UINT64_C(1) << 40}; /* long after any warm-up */
    gw_codec_state state = {0};
    size_t room = gw_codec_bound(setup, &call, whole), bytes = 0;
    void *payload = malloc(room + 4);
    bool stateful = gw_codec_stateful(setup);
    gw_status status = payload ? GW_OK : gw_fail(error, GW_MEMORY, "out of memory for a sample");
    if (!status && stateful) status = gw_codec_state_make(&state, setup, whole, error);
    if (!status) {
        state.born = 0;
        gw_codec_prepare(setup, &call, &tensor, stateful ? &state : NULL, values);
        status =
            gw_codec_encode(setup, &call, whole, stateful ? &state : NULL, values, payload, room, &bytes, NULL, error);
    }
    if (!status) *fill = room ? (double)bytes / (double)room : 1;
    gw_codec_state_free(&state);
    free(payload);
    return status;
}

static gw_status measure_payloads(gw_dispatch_model *m, gw_error *error) {
    uint32_t world = (uint32_t)m->members;
    float *values = malloc(SAMPLE_COUNT * sizeof *values);
    if (!values) return gw_fail(error, GW_MEMORY, "out of memory for a sample");
    gw_rng rng = gw_rng_make(1, 0);
    for (uint32_t i = 0; i < SAMPLE_COUNT; i++) {
        double radius = sqrt(-2 * log(1 - gw_rng_unit(&rng)));
        values[i] = (float)(radius * cos(2 * M_PI * gw_rng_unit(&rng)));
    }
    gw_status status = encode_sample(&m->coding.setup, world, values, &m->fill, error);
    if (!status) status = encode_sample(&m->coding.second, world, values, &m->second_fill, error);
    free(values);
    return status;
}

gw_status gw_dispatch_model_make(gw_dispatch_model *m, const gw_strategy *strategy, const gw_machine *machine,
                                 const gw_team_model *teams, gw_error *error) {
    const gw_setting *compress = &strategy->axes[GW_AXIS_COMPRESS];
    const gw_topology *topology = gw_team_model_topology(teams, GW_TEAM_ALL);
    const gw_policy *policy = gw_policy_of(strategy->axes[GW_AXIS_SCHEDULE].technique);
    *m = (gw_dispatch_model){.strategy = strategy, .machine = machine, .teams = teams, .fill = 1, .second_fill = 1,
                             .splits = policy->splits,
                             .servers = gw_strategy_servers(strategy)};
    gw_codec_setup setup;
    gw_status status = gw_codec_from_setting(compress->technique, compress->values, &setup, error);
    if (status) return status;
    if (policy->slices) setup = gw_codec_sliced(&setup);
    m->coding.setup = setup;
    gw_route route = route_of(m, false);
    m->encodes = route.coded || (m->servers > 0 && !setup.codec->identity);
    m->lanes = gw_lanes_of(topology, 0, !route.coded || route.flat);
    m->members = m->lanes.hosts;
    status = gw_coding_open(&m->coding, &setup, 0, 0, m->members, error);
    m->coding.call.step = UINT64_C(1) << 40;
    return status || !m->encodes || gw_codec_merges(&setup) ? status : measure_payloads(m, error);
}

double gw_dispatch_payload(const gw_dispatch_model *m, const gw_coded_tensor *t, gw_codec_range range, bool second) {
    double bound = (double)gw_coding_bound(&m->coding, t, second ? &m->coding.second : &m->coding.setup, range);
    return t->exact ? bound : bound * (second ? m->second_fill : m->fill);
}

/* Tensors. */

/* Factors are sent of layers that multiply a matrix with a batch of vectors (reducer/factors.c). */
static gw_sfb_layer factors_of(const gw_dispatch_model *m, const gw_profile *profile, const gw_profile_layer *layer,
                               uint64_t weights) {
    int workers = m->teams->hosts * m->teams->locals;
    gw_sfb_layer factors = {.rows = layer->rows, .batch = (size_t)profile->batch};
    bool linear = strcmp(layer->kind, "Linear") == 0 && layer->rows && weights;
    bool gradients = gw_sync_of(m->strategy->axes[GW_AXIS_SYNC].technique)->synchronous;
    if (!gw_strategy_is(m->strategy, GW_AXIS_ARCH, "sfb") || !linear || !factors.batch || !gradients)
        return (gw_sfb_layer){.batch = 0};
    factors.cols = (size_t)(weights / layer->rows);
    return gw_sfb_chosen(&factors, workers, m->servers ? m->servers : workers) ? factors : (gw_sfb_layer){.batch = 0};
}

/* As reducer/step_engine_open.c describes them to the schedule. */
static gw_schedule_tensor describe(const gw_dispatch_model *m, int tensor, uint64_t count,
                                   const gw_sfb_layer *factors) {
    bool encodes = m->encodes && !factors->batch;
    gw_route route = route_of(m, factors->batch > 0);
    return (gw_schedule_tensor){.count =
                                    factors->batch ? factors->batch * (factors->rows + factors->cols) : (size_t)count,
                                .element = sizeof(float),
                                .kind = factors->batch ? 1 + tensor : 0,
                                .whole = factors->batch || (encodes && m->coding.setup.codec->block == 0),
                                .grain = encodes ? gw_codec_block(&m->coding.setup) : 0,
                                .piece = gw_route_piece_bytes(&route)};
}

static gw_status add_tensor(gw_dispatch_tensors *t, const gw_dispatch_model *m, const char *name, uint64_t rows,
                            uint64_t count, gw_sfb_layer factors, int layer, gw_error *error) {
    int at = t->count++;
    gw_codec_tensor given = gw_codec_tensor_make(name, rows, count / rows);
    t->what[at] = describe(m, at, count, &factors);
    if (m->encodes && !factors.batch)
        t->what[at].payload =
            gw_coding_payload_bytes(&m->coding.setup, &given, (uint32_t)m->teams->hosts * (uint32_t)m->teams->locals);
    t->factors[at] = factors;
    t->layer[at] = layer;
    t->coded[at].owners = gw_owners_of(&m->lanes, given.key, count, gw_codec_block(&m->coding.setup));
    gw_status status = gw_coding_name(&m->coding, &t->coded[at], &given, !m->encodes, error);
    t->coded[at].guard.limit = 0; /* no tensor is sent exact for its error */
    return status;
}

gw_status gw_dispatch_tensors_make(gw_dispatch_tensors *t, const gw_dispatch_model *m, const gw_profile *profile,
                                   gw_error *error) {
    size_t n = (size_t)gw_profile_tensors(profile) + 1;
    *t = (gw_dispatch_tensors){.what = calloc(n, sizeof *t->what), .coded = calloc(n, sizeof *t->coded),
                               .factors = calloc(n, sizeof *t->factors), .layer = calloc(n, sizeof *t->layer)};
    gw_status status = t->what && t->coded && t->factors && t->layer
                           ? GW_OK
                           : gw_fail(error, GW_MEMORY, "out of memory for %zu tensors", n - 1);
    for (int i = 0; i < profile->count && !status; i++) {
        const gw_profile_layer *layer = &profile->layers[i];
        uint64_t bias = layer->bias_bytes / 4, weights = layer->parameter_bytes / 4 - bias;
        if (weights)
            status = add_tensor(t, m, layer->name, layer->rows ? layer->rows : 1, weights,
                                factors_of(m, profile, layer, weights), i, error);
        if (bias && !status) status = add_tensor(t, m, layer->name, 1, bias, (gw_sfb_layer){0}, i, error);
    }
    if (status) gw_dispatch_tensors_free(t);
    return status;
}

void gw_dispatch_tensors_free(gw_dispatch_tensors *t) {
    for (int i = 0; t->coded && i < t->count; i++) gw_coding_tensor_free(&t->coded[i]);
    free(t->what);
    free(t->coded);
    free(t->factors);
    free(t->layer);
    *t = (gw_dispatch_tensors){.count = 0};
}

/* Stages. */

gw_dispatch_stage *gw_dispatch_add_stage(gw_dispatch *dispatch, gw_team_kind team, double seconds) {
    gw_dispatch_stage *stage = &dispatch->stages[dispatch->count++];
    *stage = (gw_dispatch_stage){.team = team, .seconds = seconds};
    return stage;
}

void gw_dispatch_add_spec(const gw_dispatch_model *m, gw_dispatch_stage *stage, gw_collective what, const char *arch,
                          const gw_plan_builder *builder, size_t count, size_t unit) {
    int root = what == GW_COLL_REDUCE || what == GW_COLL_BROADCAST ? 0 : -1;
    gw_plan_request request = {.collective = what, .topology = *gw_team_model_topology(m->teams, stage->team),
                               .count = count, .root = root, .chunk_count = 1, .pipeline = GW_PIPELINE};
    stage->specs[stage->count++] =
        (gw_plan_sim_spec){.collective = what, .builder = builder ? builder : gw_arch_choose(arch, &request, unit),
                           .count = count, .unit_bytes = unit, .root = root};
}

static size_t divided(size_t count, int parts) { return (count + (size_t)parts - 1) / (size_t)parts; }

/* A bucket that is planned. */
typedef struct bucket {
    const gw_dispatch_model *model;
    const gw_dispatch_tensors *tensors;
    const gw_schedule *schedule;
    int number;
    gw_dispatch *dispatch;
} bucket;

static size_t bytes_of(const bucket *b) { return gw_schedule_bucket(b->schedule, b->number)->bytes; }

/* Elements of the parts that a dense hop deals out to its members; of all of them in an all-reduce. */
static size_t dense_count(const bucket *b, const gw_route *route, const gw_hop *hop) {
    const gw_team_model *teams = b->model->teams;
    size_t all = bytes_of(b) / sizeof(float);
    if (hop->kind != GW_HOP_REDUCE_SCATTER && hop->kind != GW_HOP_ALLGATHER) return all;
    if (hop->group == GW_GROUP_ALL) return divided(all, teams->hosts * teams->locals);
    if (hop->group == GW_GROUP_HOST && route->coded)
        return gw_coded_model_lane(b->model, b->tensors, b->schedule, b->number);
    size_t lane = divided(all, teams->locals);
    return hop->group == GW_GROUP_HOST ? lane : divided(lane, teams->hosts);
}

static gw_team_kind team_of(gw_hop_group group) {
    switch (group) {
    case GW_GROUP_ALL:
    case GW_GROUP_SERVERS:
    case GW_GROUP_RACK: break; /* no racks are predicted */
    case GW_GROUP_HOST: return GW_TEAM_HOST;
    case GW_GROUP_LANE: return GW_TEAM_LANE;
    }
    return GW_TEAM_ALL;
}

/* In the host, what is coded between hosts is copied lane by lane, before and after. */
static void add_dense(const bucket *b, const gw_route *route, const gw_hop *hop) {
    const gw_dispatch_model *m = b->model;
    bool host = hop->group == GW_GROUP_HOST, all = hop->group == GW_GROUP_ALL;
    double copy = host && route->coded ? (double)bytes_of(b) / m->machine->reduce : 0;
    bool gathers = hop->kind == GW_HOP_ALLGATHER;
    gw_dispatch_stage *stage = gw_dispatch_add_stage(b->dispatch, team_of(hop->group), gathers ? 0 : copy);
    stage->in_turn = host && gathers;
    gw_dispatch_add_spec(m, stage, gw_hop_collective(hop->kind),
                         all ? gw_strategy_name(m->strategy, GW_AXIS_ARCH) : "auto", NULL, dense_count(b, route, hop),
                         sizeof(float));
    stage->specs[0].chunk_bytes = (size_t)gw_strategy_integer(m->strategy, GW_AXIS_ARCH, "chunk");
    if (gathers && copy > 0) gw_dispatch_add_stage(b->dispatch, GW_TEAM_HOST, copy);
}

/* Every rank multiplies the factors of all, and adds each one's product to the gradient. */
static void add_factors(const bucket *b) {
    const gw_dispatch_model *m = b->model;
    const gw_sfb_layer *f = &b->tensors->factors[gw_schedule_ranges(b->schedule, b->number)[0].tensor];
    int workers = m->teams->hosts * m->teams->locals;
    gw_dispatch_stage *stage = gw_dispatch_add_stage(b->dispatch, GW_TEAM_APART, 0);
    gw_dispatch_add_spec(m, stage, GW_COLL_ALLGATHER, NULL, gw_arch_choose_varying("sfb", bytes_of(b)), bytes_of(b), 1);
    double matrix = (double)f->rows * (double)f->cols;
    double once = matrix * sizeof(float) / m->machine->reduce + matrix * (double)f->batch / m->machine->multiply;
    gw_dispatch_add_stage(b->dispatch, GW_TEAM_APART, workers * once);
}

static void add_hop(const bucket *b, const gw_route *route, const gw_hop *hop) {
    switch (hop->kind) {
    case GW_HOP_ALLREDUCE:
    case GW_HOP_REDUCE_SCATTER:
    case GW_HOP_ALLGATHER:
    case GW_HOP_REDUCE:
    case GW_HOP_BROADCAST: add_dense(b, route, hop); return;
    case GW_HOP_CODED:
    case GW_HOP_CODED_FIRST:
    case GW_HOP_CODED_SECOND:
        gw_coded_model_add(b->model, b->tensors, b->schedule, b->number, hop->kind, b->dispatch);
        return;
    case GW_HOP_FACTORS: add_factors(b); return;
    case GW_HOP_PUSH_PULL: return; /* gw_partition_model_cut has planned it */
    }
}

static void plan_bucket(const bucket *b) {
    int first = gw_schedule_ranges(b->schedule, b->number)[0].tensor;
    gw_route route = route_of(b->model, b->tensors->factors[first].batch > 0);
    b->dispatch->halfway = -1;
    for (int i = 0; i < route.count; i++) {
        if (route.hops[i].second && b->dispatch->halfway < 0) b->dispatch->halfway = b->dispatch->count;
        add_hop(b, &route, &route.hops[i]);
    }
    if (b->dispatch->halfway < 0) b->dispatch->halfway = b->dispatch->count;
}

gw_status gw_dispatch_model_plan(const gw_dispatch_model *m, const gw_dispatch_tensors *tensors,
                                 const gw_schedule *schedule, gw_dispatch *dispatches, gw_error *error) {
    gw_status status = m->servers ? gw_partition_model_cut(m, tensors, schedule, dispatches, error) : GW_OK;
    for (int p = 0; !status && p < gw_schedule_buckets(schedule); p++)
        plan_bucket(&(bucket){m, tensors, schedule, p, &dispatches[p]});
    return status;
}

void gw_dispatch_free(gw_dispatch *dispatch) {
    free(dispatch->partitions);
    *dispatch = (gw_dispatch){.count = 0};
}
