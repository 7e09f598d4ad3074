/* dispatch_model.c - see dispatch_model.h. */
#include "predict/dispatch_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "arch/choose_plan.h"
#include "base/rng.h"
#include "engine/engine.h"

#define EXACT_COUNT_MAX 1024       /* smaller tensors are sent exact (reducer/coded_payload.c) */
#define RING_GATHER_BYTES 65536    /* longer payloads are gathered around a ring (reducer/coded_exchange.c) */
#define SAMPLE_COUNT (256 * 1024u) /* values */

/* Tensors. */

gw_status gw_dispatch_tensors_make(gw_dispatch_tensors *t, const gw_profile *profile, bool coded, gw_error *error) {
    size_t n = (size_t)gw_profile_tensors(profile);
    *t = (gw_dispatch_tensors){.what = calloc(n + 1, sizeof *t->what), .named = calloc(n + 1, sizeof *t->named),
                            .layer = calloc(n + 1, sizeof *t->layer)};
    if (!t->what || !t->named || !t->layer) {
        gw_dispatch_tensors_free(t);
        return gw_fail(error, GW_MEMORY, "out of memory for %zu tensors", n);
    }
    for (int i = 0; i < profile->count; i++) {
        const gw_profile_layer *layer = &profile->layers[i];
        uint64_t bias = layer->bias_bytes / 4, weights = layer->parameter_bytes / 4 - bias;
        uint64_t rows = layer->rows ? layer->rows : 1, counts[2] = {weights, bias};
        for (int k = 0; k < 2; k++) {
            if (!counts[k]) continue;
            t->what[t->count] = (gw_schedule_tensor){.count = counts[k], .element = sizeof(float), .whole = coded};
            t->named[t->count] = gw_codec_tensor_make(layer->name, k ? 1 : rows, k ? bias : weights / rows);
            t->layer[t->count++] = i;
        }
    }
    return GW_OK;
}

void gw_dispatch_tensors_free(gw_dispatch_tensors *t) {
    free(t->what);
    free(t->named);
    free(t->layer);
    *t = (gw_dispatch_tensors){.count = 0};
}

/* Payload sizes. */

static gw_status sample_fill(const gw_codec_setup *setup, uint32_t world, double *fill, gw_error *error) {
    gw_codec_tensor tensor = gw_codec_tensor_make("sample", 512, SAMPLE_COUNT / 512);
    gw_codec_range whole = gw_codec_whole(&tensor);
    gw_codec_call call = {.world = world, .step = UINT64_C(1) << 40}; /* long after any warm-up */
    gw_codec_state state = {0};
    size_t room = gw_codec_bound(setup, &call, whole), bytes = 0;
    float *values = malloc(SAMPLE_COUNT * sizeof *values);
    void *payload = malloc(room + 4);
    gw_status status = values && payload ? GW_OK : gw_fail(error, GW_MEMORY, "out of memory for a sample");
    gw_rng rng = gw_rng_make(1, 0);
    for (uint32_t i = 0; !status && i < SAMPLE_COUNT; i++) {
        double radius = sqrt(-2 * log(1 - gw_rng_unit(&rng)));
        values[i] = (float)(radius * cos(2 * M_PI * gw_rng_unit(&rng)));
    }
    bool stateful = gw_codec_stateful(setup);
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
    free(values);
    return status;
}

gw_status gw_dispatch_model_make(gw_dispatch_model *c, const gw_strategy *strategy, const gw_machine *machine,
                                 gw_topology topology, gw_error *error) {
    const gw_setting *compress = &strategy->axes[GW_AXIS_COMPRESS];
    *c = (gw_dispatch_model){
        .strategy = strategy, .machine = machine, .topology = topology, .fill = 1, .second_fill = 1};
    gw_status status = gw_codec_from_setting(compress->technique, compress->values, &c->setup, error);
    if (status || c->setup.codec->identity) return status;
    c->second = gw_codec_second(&c->setup);
    if (gw_codec_merges(&c->setup)) return GW_OK;
    status = sample_fill(&c->setup, (uint32_t)topology.world, &c->fill, error);
    return status ? status : sample_fill(&c->second, (uint32_t)topology.world, &c->second_fill, error);
}

/* Stages. */

static gw_dispatch_stage *add_stage(gw_dispatch *dispatch, double seconds) {
    gw_dispatch_stage *stage = &dispatch->stages[dispatch->count++];
    *stage = (gw_dispatch_stage){.seconds = seconds};
    return stage;
}

static void add_spec(gw_dispatch_stage *stage, gw_collective what, const gw_plan_builder *builder, size_t count,
                     size_t unit) {
    stage->specs[stage->count++] =
        (gw_plan_sim_spec){.collective = what, .builder = builder, .count = count, .unit_bytes = unit, .root = -1};
}

static size_t divided(size_t count, int parts) { return (count + (size_t)parts - 1) / (size_t)parts; }

/* Without a codec: an all-reduce, or its two halves. */
static void plan_dense(const gw_dispatch_model *c, size_t elements, bool splits, gw_dispatch *dispatch) {
    static const gw_collective halves[2] = {GW_COLL_REDUCE_SCATTER, GW_COLL_ALLGATHER};
    const char *arch = gw_strategy_name(c->strategy, GW_AXIS_ARCH);
    size_t chunk = (size_t)gw_strategy_integer(c->strategy, GW_AXIS_ARCH, "chunk");
    for (int half = 0; half < (splits ? 2 : 1); half++) {
        gw_collective what = splits ? halves[half] : GW_COLL_ALLREDUCE;
        size_t count = splits ? divided(elements, c->topology.world) : elements;
        gw_plan_request request = {.collective = what, .topology = c->topology, .count = count, .root = -1,
                                   .chunk_count = 1, .pipeline = GW_PIPELINE};
        gw_dispatch_stage *stage = add_stage(dispatch, 0);
        add_spec(stage, what, gw_arch_choose(arch, &request, sizeof(float)), count, sizeof(float));
        stage->specs[0].chunk_bytes = chunk;
    }
    dispatch->halfway = splits ? 1 : dispatch->count;
}

/* The contents of a bucket: tensors that are encoded, and tensors that are sent exact. */
typedef struct contents {
    size_t coded, exact;  /* elements */
    size_t payload[2];    /* in-flight form: payload bytes of each round */
    double first, second; /* two-pass and one-pass form: payload bytes of each pass, exact tensors included */
} contents;

static void look_into(const gw_dispatch_model *c, const gw_dispatch_tensors *tensors, const gw_schedule *schedule,
                      int bucket, contents *in) {
    const gw_tensor_range *ranges = gw_schedule_ranges(schedule, bucket);
    uint32_t world = (uint32_t)c->topology.world;
    *in = (contents){.coded = 0};
    for (int i = 0; i < gw_schedule_bucket(schedule, bucket)->ranges; i++) {
        const gw_codec_tensor *t = &tensors->named[ranges[i].tensor];
        gw_codec_range whole = gw_codec_whole(t);
        gw_codec_call call = {.world = world};
        bool exact = t->count < EXACT_COUNT_MAX || gw_codec_refuses(&c->setup, t, world);
        *(exact ? &in->exact : &in->coded) += t->count;
        double dense = (double)t->count * sizeof(float);
        in->first += exact ? dense : c->fill * (double)gw_codec_bound(&c->setup, &call, whole);
        in->second += exact ? dense : c->second_fill * (double)gw_codec_bound(&c->second, &call, whole);
        for (; !exact && gw_codec_merges(&c->setup) && call.round < gw_codec_rounds(&c->setup); call.round++)
            in->payload[call.round] += gw_codec_bound(&c->setup, &call, whole);
    }
}

static void plan_merged(const gw_dispatch_model *c, const contents *in, bool splits, gw_dispatch *dispatch) {
    gw_codec_speed speed = gw_machine_codec(c->machine, c->setup.codec->technique.name);
    uint32_t rounds = gw_codec_rounds(&c->setup);
    size_t unit = c->setup.codec->merge_unit;
    double bytes = (double)in->coded * sizeof(float);
    for (uint32_t r = 0; r < rounds; r++) {
        gw_dispatch_stage *stage = add_stage(dispatch, bytes / speed.encode / rounds);
        bool half = splits && r + 1 == rounds;
        size_t units = in->payload[r] / unit;
        if (units)
            add_spec(stage, half ? GW_COLL_REDUCE_SCATTER : GW_COLL_ALLREDUCE, &gw_plan_ring,
                     half ? divided(units, c->topology.world) : units, unit);
        if (r == 0 && in->exact) add_spec(stage, GW_COLL_ALLREDUCE, &gw_plan_ring, in->exact, sizeof(float));
    }
    dispatch->halfway = dispatch->count;
    if (splits)
        add_spec(add_stage(dispatch, 0), GW_COLL_ALLGATHER, &gw_plan_ring,
                 divided(in->payload[rounds - 1] / unit, c->topology.world), unit);
    add_stage(dispatch, bytes / speed.decode);
    if (!splits) dispatch->halfway = dispatch->count;
}

static void add_gather(gw_dispatch *dispatch, double seconds, double bytes) {
    size_t room = (size_t)ceil(bytes);
    add_spec(add_stage(dispatch, seconds), GW_COLL_ALLGATHER,
             room > RING_GATHER_BYTES ? &gw_plan_ring : &gw_plan_pairwise, room, 1);
}

static void plan_apart(const gw_dispatch_model *c, const contents *in, bool splits, gw_dispatch *dispatch) {
    gw_codec_speed speed = gw_machine_codec(c->machine, c->setup.codec->technique.name);
    int p = c->topology.world;
    double bytes = (double)(in->coded + in->exact) * sizeof(float);
    bool fewer = (p - 1) * in->first <= (p - 1) * (in->first + in->second) / p;
    bool gathered = c->setup.codec->block == 0 || (!splits && fewer);
    if (gathered) {
        add_gather(dispatch, bytes / speed.encode, in->first);
        add_stage(dispatch, p * bytes / speed.decode);
        dispatch->halfway = dispatch->count;
        return;
    }
    add_spec(add_stage(dispatch, bytes / speed.encode), GW_COLL_ALLTOALL, &gw_plan_pairwise,
             (size_t)ceil(in->first / p), 1);
    double own = bytes / speed.decode + bytes / p / speed.encode;
    if (splits) add_stage(dispatch, own);
    dispatch->halfway = dispatch->count;
    add_gather(dispatch, splits ? 0 : own, in->second / p);
    add_stage(dispatch, bytes / speed.decode);
    if (!splits) dispatch->halfway = dispatch->count;
}

static void plan_bucket(const gw_dispatch_model *c, const gw_dispatch_tensors *tensors, const gw_schedule *schedule,
                        int bucket, gw_dispatch *dispatch) {
    bool splits = gw_schedule_policy(schedule)->splits;
    if (c->setup.codec->identity) {
        plan_dense(c, gw_schedule_bucket(schedule, bucket)->bytes / sizeof(float), splits, dispatch);
        return;
    }
    contents in;
    look_into(c, tensors, schedule, bucket, &in);
    if (gw_codec_merges(&c->setup)) plan_merged(c, &in, splits, dispatch);
    else plan_apart(c, &in, splits, dispatch);
}

gw_status gw_dispatch_model_plan(const gw_dispatch_model *c, const gw_dispatch_tensors *tensors,
                                 const gw_schedule *schedule, gw_dispatch *dispatches, gw_error *error) {
    if (gw_strategy_is(c->strategy, GW_AXIS_ARCH, "ps"))
        return gw_dispatch_model_partitions(c, tensors, schedule, dispatches, error);
    for (int p = 0; p < gw_schedule_buckets(schedule); p++) plan_bucket(c, tensors, schedule, p, &dispatches[p]);
    return GW_OK;
}

void gw_dispatch_free(gw_dispatch *dispatch) {
    free(dispatch->partitions);
    *dispatch = (gw_dispatch){.count = 0};
}
