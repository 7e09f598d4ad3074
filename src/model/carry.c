/* carry.c - see carry.h. */
#include "model/carry.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "arch/choose.h"
#include "base/rng.h"
#include "engine/engine.h"

#define EXACT_COUNT_MAX 1024       /* smaller tensors are sent exact (engine/coding.c) */
#define RING_GATHER_BYTES 65536    /* longer payloads are gathered around a ring (engine/exchange.c) */
#define SAMPLE_COUNT (256 * 1024u) /* values */

/* Tensors. */

gw_status gw_carry_tensors_make(gw_carry_tensors *t, const gw_profile *profile, bool coded, gw_error *error) {
    size_t n = (size_t)gw_profile_tensors(profile);
    *t = (gw_carry_tensors){.what = calloc(n + 1, sizeof *t->what), .named = calloc(n + 1, sizeof *t->named),
                            .layer = calloc(n + 1, sizeof *t->layer)};
    if (!t->what || !t->named || !t->layer) {
        gw_carry_tensors_free(t);
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

void gw_carry_tensors_free(gw_carry_tensors *t) {
    free(t->what);
    free(t->named);
    free(t->layer);
    *t = (gw_carry_tensors){.count = 0};
}

/* How long payloads are. */

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
        status = gw_codec_encode(setup, &call, whole, stateful ? &state : NULL, values, payload, room, &bytes, NULL,
                                 error);
    }
    if (!status) *fill = room ? (double)bytes / (double)room : 1;
    gw_codec_state_free(&state);
    free(payload);
    free(values);
    return status;
}

gw_status gw_carrier_make(gw_carrier *c, const gw_strategy *strategy, const gw_machine *machine, gw_topology topology,
                          gw_error *error) {
    const gw_setting *compress = &strategy->axes[GW_AXIS_COMPRESS];
    *c = (gw_carrier){.strategy = strategy, .machine = machine, .topology = topology, .fill = 1, .second_fill = 1};
    gw_status status = gw_codec_from_setting(compress->technique, compress->values, &c->setup, error);
    if (status || c->setup.codec == &gw_codec_none) return status;
    c->second = gw_codec_second(&c->setup);
    if (gw_codec_merges(&c->setup)) return GW_OK;
    status = sample_fill(&c->setup, (uint32_t)topology.world, &c->fill, error);
    return status ? status : sample_fill(&c->second, (uint32_t)topology.world, &c->second_fill, error);
}

/* Stages. */

static gw_carry_stage *add_stage(gw_carry *carry, double seconds) {
    gw_carry_stage *stage = &carry->stages[carry->count++];
    *stage = (gw_carry_stage){.seconds = seconds};
    return stage;
}

static void add_spec(gw_carry_stage *stage, gw_collective what, const gw_plan_builder *builder, size_t count,
                     size_t unit) {
    stage->specs[stage->count++] =
        (gw_run_spec){.collective = what, .builder = builder, .count = count, .unit_bytes = unit, .root = -1};
}

static size_t divided(size_t count, int parts) { return (count + (size_t)parts - 1) / (size_t)parts; }

/* As the values are: an all-reduce, or its two halves. */
static void plan_dense(const gw_carrier *c, size_t elements, bool splits, gw_carry *carry) {
    static const gw_collective halves[2] = {GW_COLL_REDUCE_SCATTER, GW_COLL_ALLGATHER};
    const char *arch = gw_strategy_name(c->strategy, GW_AXIS_ARCH);
    size_t chunk = (size_t)gw_strategy_integer(c->strategy, GW_AXIS_ARCH, "chunk");
    for (int half = 0; half < (splits ? 2 : 1); half++) {
        gw_collective what = splits ? halves[half] : GW_COLL_ALLREDUCE;
        size_t count = splits ? divided(elements, c->topology.world) : elements;
        gw_plan_request request = {.collective = what, .topology = c->topology, .count = count, .root = -1,
                                   .chunk_count = 1, .pipeline = GW_PIPELINE};
        gw_carry_stage *stage = add_stage(carry, 0);
        add_spec(stage, what, gw_arch_choose(arch, &request, sizeof(float)), count, sizeof(float));
        stage->specs[0].chunk_bytes = chunk;
    }
    carry->halfway = splits ? 1 : carry->count;
}

/* What of a piece is coded and what travels exact. */
typedef struct contents {
    size_t coded, exact;    /* elements */
    size_t payload[2];      /* merged: bytes of each round */
    double first, second;   /* owned, gathered: bytes of all payloads of a pass, exact ones included */
} contents;

static void look_into(const gw_carrier *c, const gw_carry_tensors *tensors, const gw_schedule *schedule, int piece,
                      contents *in) {
    const gw_span *spans = gw_schedule_spans(schedule, piece);
    uint32_t world = (uint32_t)c->topology.world;
    *in = (contents){.coded = 0};
    for (int i = 0; i < gw_schedule_piece(schedule, piece)->spans; i++) {
        const gw_codec_tensor *t = &tensors->named[spans[i].tensor];
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

static void plan_merged(const gw_carrier *c, const contents *in, bool splits, gw_carry *carry) {
    gw_codec_speed speed = gw_machine_codec(c->machine, c->setup.codec->technique.name);
    uint32_t rounds = gw_codec_rounds(&c->setup);
    size_t unit = c->setup.codec->merge_unit;
    double bytes = (double)in->coded * sizeof(float);
    for (uint32_t r = 0; r < rounds; r++) {
        gw_carry_stage *stage = add_stage(carry, bytes / speed.encode / rounds);
        bool half = splits && r + 1 == rounds;
        size_t units = in->payload[r] / unit;
        if (units)
            add_spec(stage, half ? GW_COLL_REDUCE_SCATTER : GW_COLL_ALLREDUCE, &gw_plan_ring,
                     half ? divided(units, c->topology.world) : units, unit);
        if (r == 0 && in->exact) add_spec(stage, GW_COLL_ALLREDUCE, &gw_plan_ring, in->exact, sizeof(float));
    }
    carry->halfway = carry->count;
    if (splits)
        add_spec(add_stage(carry, 0), GW_COLL_ALLGATHER, &gw_plan_ring,
                 divided(in->payload[rounds - 1] / unit, c->topology.world), unit);
    add_stage(carry, bytes / speed.decode);
    if (!splits) carry->halfway = carry->count;
}

static void add_gather(gw_carry *carry, double seconds, double bytes) {
    size_t room = (size_t)ceil(bytes);
    add_spec(add_stage(carry, seconds), GW_COLL_ALLGATHER, room > RING_GATHER_BYTES ? &gw_plan_ring : &gw_plan_exchange,
             room, 1);
}

static void plan_apart(const gw_carrier *c, const contents *in, bool splits, gw_carry *carry) {
    gw_codec_speed speed = gw_machine_codec(c->machine, c->setup.codec->technique.name);
    int p = c->topology.world;
    double bytes = (double)(in->coded + in->exact) * sizeof(float);
    bool fewer = (p - 1) * in->first <= (p - 1) * (in->first + in->second) / p;
    bool gathered = c->setup.codec->block == 0 || (!splits && fewer);
    if (gathered) {
        add_gather(carry, bytes / speed.encode, in->first);
        add_stage(carry, p * bytes / speed.decode);
        carry->halfway = carry->count;
        return;
    }
    add_spec(add_stage(carry, bytes / speed.encode), GW_COLL_ALLTOALL, &gw_plan_exchange, (size_t)ceil(in->first / p),
             1);
    double own = bytes / speed.decode + bytes / p / speed.encode;
    if (splits) add_stage(carry, own);
    carry->halfway = carry->count;
    add_gather(carry, splits ? 0 : own, in->second / p);
    add_stage(carry, bytes / speed.decode);
    if (!splits) carry->halfway = carry->count;
}

static void plan_piece(const gw_carrier *c, const gw_carry_tensors *tensors, const gw_schedule *schedule, int piece,
                       gw_carry *carry) {
    bool splits = gw_schedule_policy(schedule)->splits;
    if (c->setup.codec == &gw_codec_none) {
        plan_dense(c, gw_schedule_piece(schedule, piece)->bytes / sizeof(float), splits, carry);
        return;
    }
    contents in;
    look_into(c, tensors, schedule, piece, &in);
    if (gw_codec_merges(&c->setup)) plan_merged(c, &in, splits, carry);
    else plan_apart(c, &in, splits, carry);
}

gw_status gw_carrier_plan(const gw_carrier *c, const gw_carry_tensors *tensors, const gw_schedule *schedule,
                          gw_carry *carries, gw_error *error) {
    if (gw_strategy_is(c->strategy, GW_AXIS_ARCH, "ps"))
        return gw_carrier_parcels(c, tensors, schedule, carries, error);
    for (int p = 0; p < gw_schedule_pieces(schedule); p++) plan_piece(c, tensors, schedule, p, &carries[p]);
    return GW_OK;
}

void gw_carry_free(gw_carry *carry) {
    free(carry->parcels);
    *carry = (gw_carry){.count = 0};
}
