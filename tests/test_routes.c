/* test_routes.c - every architecture with every codec and schedule, on hosts of equal and of different sizes, in
 * simulated time: all ranks get the same result, exact strategies the mean, codecs what the same sequence of encoding
 * and decoding gives in one process; and the bytes between hosts. ROUTES=all walks all triples; the default is every
 * pair. The same for every form that a codec can have. */
#include "test.h"

#include <math.h>

#include "arch/owners.h"
#include "compress/compress.h"
#include "ps/shards.h"
#include "reducer/coded_exchange.h"
#include "schedule/schedule.h"
#include "sim/reducer_sim.h"
#include "strategy/combine.h"

enum { STEPS = 3, LAYERS = 3, WORLD_MAX = 8 };

static const size_t layer_counts[LAYERS] = {20000, 1500, 70001};
static const char *const archs[] = {"auto",         "ring", "halving",      "tree", "direct",
                                    "hierarchical", "sfb",  "ps:servers=3", "ps"};

typedef struct layout {
    const char *name;
    int world, host_of[WORLD_MAX], rack_of[WORLD_MAX];
} layout;

static const layout layouts[] = {{"2 hosts of 4", 8, {0, 0, 0, 0, 1, 1, 1, 1}, {0}},
                                 {"3 ranks and 1", 4, {0, 0, 0, 1}, {0}},
                                 {"2 racks of 2 hosts of 2", 8, {0, 0, 1, 1, 2, 2, 3, 3}, {0, 0, 0, 0, 1, 1, 1, 1}},
                                 {"racks of 2 hosts and 1", 6, {0, 0, 1, 1, 2, 2}, {0, 0, 0, 0, 1, 1}}};

/* Small whole numbers: sums are the same in any order. Some are much larger than the others, as in gradients. */
static float value(int rank, int layer, int step, size_t i) {
    uint64_t x = (uint64_t)i * 2654435761u + (uint64_t)rank * 40503u + (uint64_t)layer * 97 + (uint64_t)step * 7919;
    x ^= x >> 15;
    x *= UINT64_C(0x9e3779b97f4a7c15);
    int small = (int)(x >> 60) - 8, large = (x >> 40) % 16 == 0 ? 16 : 1;
    return (float)(small * large);
}

static void gradient_of(int rank, int layer, int step, const float *weights, size_t count, float *gradient) {
    (void)weights;
    for (size_t i = 0; i < count; i++) gradient[i] = value(rank, layer, step, i);
}

/* The reference: weights of all layers after all steps. */

typedef struct reference {
    gw_topology topology;
    gw_codec_setup setup;
    bool flat, two_pass;
    float *weights[LAYERS];
} reference;

/* What a member contributes to a step: the sum of its host's ranks, or its own gradient. */
static void contribution(const reference *r, int layer, int step, int member, float *sum) {
    memset(sum, 0, layer_counts[layer] * sizeof *sum);
    for (int rank = 0; rank < r->topology.world; rank++) {
        int site = r->topology.rack_of ? r->topology.rack_of[rank] : gw_topology_host(&r->topology, rank);
        if (r->flat ? rank != member : site != member) continue;
        for (size_t i = 0; i < layer_counts[layer]; i++) sum[i] += value(rank, layer, step, i);
    }
}

typedef struct actor {
    gw_coding coding;
    gw_coded_tensor tensor;
} actor;

/* Encodes a run and adds what comes out of it. */
static void pass_on(actor *from, bool second, gw_codec_range run, const float *values, float scale, float *sum) {
    static uint8_t payload[1 << 20];
    uint8_t *end = payload;
    const uint8_t *at = payload;
    gw_error error = {.rank = -1};
    gw_coded_tensor *t = &from->tensor;
    const gw_codec_setup *setup = second ? &from->coding.second : &from->coding.setup;
    from->coding.call.pass = second;
    run.tensor = &t->what;
    CHECK_EQ(GW_OK,
             gw_coding_encode(&from->coding, t, setup, second ? &t->second : &t->state, run, values, &end, &error));
    CHECK_EQ(GW_OK, gw_coding_decode_add(&from->coding, t, setup, run, 0, &at, end, scale, sum, &error));
}

static void reference_step(reference *r, int layer, int step, int members, actor *actors, float *const *sums) {
    size_t count = layer_counts[layer];
    float *result = calloc(count, sizeof *result), *sum = calloc(count, sizeof *sum);
    float scale = 1.0f / (float)r->topology.world;
    for (int m = 0; m < members; m++) {
        contribution(r, layer, step, m, sums[m]);
        actors[m].coding.call.step = (uint64_t)step;
        gw_coding_prepare(&actors[m].coding, &actors[m].tensor, sums[m]);
    }
    const gw_owners *o = &actors[0].tensor.owners;
    for (int lane = 0; lane < o->lanes; lane++)
        for (int owner = 0; owner < members; owner++) {
            gw_stripes owned = gw_owners_at_host(o, lane, lane + 1, owner);
            uint64_t at = 0, run;
            for (; gw_stripes_next(&owned, &at, count, &run); at += run) {
                gw_codec_range range = {NULL, at, run};
                float *into = r->two_pass ? sum + at : result + at;
                for (int m = 0; m < members; m++)
                    pass_on(&actors[m], false, range, sums[m] + at, r->two_pass ? 1 : scale, into);
                if (r->two_pass) pass_on(&actors[owner], true, range, sum + at, scale, result + at);
            }
        }
    for (size_t i = 0; i < count; i++) r->weights[layer][i] -= GW_REDUCER_SIM_RATE * result[i];
    for (int m = 0; m < members; m++) gw_coding_guard(&actors[m].coding, &actors[m].tensor);
    free(result);
    free(sum);
}

static void reference_layer(reference *r, int layer, uint64_t seed) {
    gw_lanes lanes = gw_lanes_of(&r->topology, 0, r->flat);
    char name[24];
    actor actors[WORLD_MAX];
    float *sums[WORLD_MAX];
    gw_error error = {.rank = -1};
    memset(actors, 0, sizeof actors);
    snprintf(name, sizeof name, "layer%d", layer);
    gw_codec_tensor given = gw_codec_tensor_make(name, 1, layer_counts[layer]);
    for (int m = 0; m < lanes.hosts; m++) {
        gw_lanes all = {.lanes = lanes.lanes, .hosts = lanes.hosts, .host = m, .first = 0, .last = lanes.lanes};
        CHECK_EQ(GW_OK, gw_coding_open(&actors[m].coding, &r->setup, seed, m, lanes.hosts, &error));
        CHECK_EQ(GW_OK,
                 gw_coding_tensor_open(&actors[m].coding, &actors[m].tensor, &given, false, &all, r->two_pass, &error));
        sums[m] = calloc(layer_counts[layer], sizeof(float));
    }
    r->weights[layer] = calloc(layer_counts[layer], sizeof(float));
    for (int step = 0; step < STEPS; step++) reference_step(r, layer, step, lanes.hosts, actors, sums);
    for (int m = 0; m < lanes.hosts; m++) {
        gw_coding_tensor_free(&actors[m].tensor);
        free(sums[m]);
    }
}

/* The same over servers: each owns stripes of large tensors, and small ones whole. */

static gw_shards shards_for(const gw_codec_setup *setup, int servers) {
    gw_shard_tensor described[LAYERS];
    gw_shards shards = {.servers = 0};
    gw_error error = {.rank = -1};
    size_t block = gw_codec_block(setup), grain = block % 64 ? block * 64 : block;
    for (int i = 0; i < LAYERS; i++)
        described[i] =
            (gw_shard_tensor){.count = layer_counts[i], .element = sizeof(float), .grain = grain};
    CHECK_EQ(GW_OK, gw_shards_open(&shards, described, LAYERS, servers, &error));
    return shards;
}

/* A worker, which encodes all of a layer; or a server, which encodes the sum of what it covers. */
static void open_actor(actor *a, const reference *r, int layer, uint64_t seed, int number, const gw_stripes *covers) {
    char name[24];
    gw_error error = {.rank = -1};
    snprintf(name, sizeof name, "layer%d", layer);
    gw_codec_tensor given = gw_codec_tensor_make(name, 1, layer_counts[layer]);
    CHECK_EQ(GW_OK, gw_coding_open(&a->coding, &r->setup, seed, number, r->topology.world, &error));
    CHECK_EQ(GW_OK, gw_coding_name(&a->coding, &a->tensor, &given, false, &error));
    const gw_codec_setup *setup = covers ? &a->coding.second : &a->coding.setup;
    gw_stripes all = gw_stripes_whole(0, layer_counts[layer]);
    if (gw_codec_stateful(setup))
        CHECK_EQ(GW_OK, gw_codec_state_make_for(covers ? &a->tensor.second : &a->tensor.state, setup, &a->tensor.what,
                                                covers ? covers : &all, &error));
}

static void served_step(reference *r, int layer, int step, actor *workers, const gw_shard *shard, actor *server,
                        float *const *gradients) {
    size_t count = layer_counts[layer];
    float *result = calloc(count, sizeof *result), *sum = calloc(count, sizeof *sum);
    uint64_t at = 0, run;
    server->coding.call.step = (uint64_t)step;
    for (; gw_stripes_next(&shard->covers, &at, count, &run); at += run) {
        gw_codec_range range = {NULL, at, run};
        for (int w = 0; w < r->topology.world; w++) pass_on(&workers[w], false, range, gradients[w] + at, 1, sum + at);
        float scale = 1.0f / (float)r->topology.world;
        if (r->two_pass) pass_on(server, true, range, sum + at, scale, result + at);
        for (uint64_t i = at; i < at + run && !r->two_pass; i++) result[i] = scale * sum[i];
        for (uint64_t i = at; i < at + run; i++) r->weights[layer][i] -= GW_REDUCER_SIM_RATE * result[i];
    }
    free(result);
    free(sum);
}

static void served_layer(reference *r, int layer, uint64_t seed, const gw_shards *shards) {
    actor workers[WORLD_MAX] = {{.coding = {{0}}}}, servers[WORLD_MAX] = {{.coding = {{0}}}};
    float *gradients[WORLD_MAX];
    int world = r->topology.world, first = shards->first_of[layer], end = shards->first_of[layer + 1];
    r->weights[layer] = calloc(layer_counts[layer], sizeof(float));
    for (int w = 0; w < world; w++) {
        open_actor(&workers[w], r, layer, seed, w, NULL);
        gradients[w] = calloc(layer_counts[layer], sizeof(float));
    }
    for (int k = first; k < end; k++)
        open_actor(&servers[k - first], r, layer, seed, shards->list[k].server, &shards->list[k].covers);
    for (int step = 0; step < STEPS; step++) {
        for (int w = 0; w < world; w++) {
            gradient_of(w, layer, step, NULL, layer_counts[layer], gradients[w]);
            workers[w].coding.call.step = (uint64_t)step;
            gw_coding_prepare(&workers[w].coding, &workers[w].tensor, gradients[w]);
        }
        for (int k = first; k < end; k++)
            served_step(r, layer, step, workers, &shards->list[k], &servers[k - first], gradients);
    }
    for (int k = first; k < end; k++) gw_coding_tensor_free(&servers[k - first].tensor);
    for (int w = 0; w < world; w++) {
        gw_coding_tensor_free(&workers[w].tensor);
        free(gradients[w]);
    }
}

static void served_reference(reference *r, uint64_t seed, int servers) {
    gw_shards shards = shards_for(&r->setup, servers);
    for (int i = 0; i < LAYERS; i++) served_layer(r, i, seed, &shards);
    gw_shards_close(&shards);
}

static bool equal;

static void compare(void *ctx, int rank, int layer, const float *weights, size_t count) {
    const reference *r = ctx;
    (void)rank;
    equal = equal && memcmp(weights, r->weights[layer], count * sizeof *weights) == 0;
}

/* Runs. */

static gw_reducer_sim training_on(const layout *l, const char *line) {
    gw_reducer_sim t = {.seed = 5, .world = l->world, .layers = LAYERS, .steps = STEPS, .updates = true,
                        .latency = 20000, .jitter = 100000, .bytes_per_second = 1e9, .unevenness = 0.5};
    gw_error error = {.rank = -1};
    t.payload_bytes_max = strlen(line) % 2; /* 0: the default; 1: one bucket at a time has memory for its payloads */
    memcpy(t.host_of, l->host_of, sizeof l->host_of);
    memcpy(t.rack_of, l->rack_of, sizeof l->rack_of);
    for (int i = 0; i < LAYERS; i++)
        t.layer[i] = (gw_reducer_sim_layer){.count = layer_counts[i], .forward = 200000, .backward = 500000};
    CHECK_EQ(GW_OK, gw_strategy_parse(line, &t.strategy, &error));
    return t;
}

static bool runs(const gw_reducer_sim *t, gw_reducer_sim_outcome *outcome, const char *line, const char *where) {
    gw_error error = {.rank = -1};
    gw_status status = gw_reducer_sim_run(t, outcome, &error);
    CHECK_EQ(GW_OK, status);
    CHECK(status || outcome->ok);
    if (status || !outcome->ok) printf("    %s, %s: %s\n", where, line, status ? error.text : outcome->text);
    return !status && outcome->ok;
}

static bool by_hosts(const char *arch) { return strcmp(arch, "auto") == 0 || strcmp(arch, "hierarchical") == 0; }

static void compare_codec(const layout *l, const char *arch, const char *schedule, const gw_codec_setup *setup,
                          const char *line) {
    gw_reducer_sim t = training_on(l, line);
    gw_reducer_sim_outcome outcome;
    reference r = {.topology = {.world = l->world, .host_of = l->host_of}, .setup = *setup, .flat = !by_hosts(arch)};
    int rack_of[WORLD_MAX];
    memcpy(rack_of, l->rack_of, sizeof rack_of);
    gw_topology_take_racks(&r.topology, rack_of);
    int members = gw_lanes_of(&r.topology, 0, r.flat).hosts;
    r.two_pass = gw_coded_form_of(setup, members, strcmp(schedule, "dear") == 0) == GW_FORM_TWO_PASS;
    int servers = gw_strategy_servers(&t.strategy);
    if (servers) r.two_pass = gw_coded_form_served(setup, false) == GW_FORM_TWO_PASS;
    for (int i = 0; i < LAYERS && !servers; i++) reference_layer(&r, i, t.seed);
    if (servers) served_reference(&r, t.seed, servers);
    t.gradient = gradient_of;
    t.ended = compare;
    t.ctx = &r;
    equal = true;
    bool ran = runs(&t, &outcome, line, l->name);
    CHECK(!ran || equal);
    if (ran && !equal) printf("    %s, %s: not what one process computes\n", l->name, line);
    for (int i = 0; i < LAYERS; i++) free(r.weights[i]);
}

static bool slices(const char *schedule) {
    return strcmp(schedule, "p3") == 0 || strcmp(schedule, "bytescheduler") == 0;
}

static void walk(const layout *l, const char *arch, const char *compress, const char *schedule) {
    char line[200];
    gw_codec_setup setup;
    gw_error error = {.rank = -1};
    snprintf(line, sizeof line, "transport=sim arch=%s compress=%s schedule=%s", arch, compress, schedule);
    CHECK_EQ(GW_OK, gw_codec_parse(compress, &setup, &error));
    if (slices(schedule)) setup = gw_codec_sliced(&setup);
    gw_strategy strategy;
    gw_reducer_facts facts = {.world = l->world, .updates = true};
    CHECK_EQ(GW_OK, gw_strategy_parse(line, &strategy, &error));
    if (gw_strategy_check_step(&strategy, &facts, &error)) return; /* servers have no halves (dear) */
    if (gw_coded_form_of(&setup, 2, false) == GW_FORM_IN_FLIGHT) {
        gw_reducer_sim t = training_on(l, line);
        gw_reducer_sim_outcome outcome;
        runs(&t, &outcome, line, l->name);
    } else {
        compare_codec(l, arch, schedule, &setup, line);
    }
}

/* All triples, or those of every second sum: each pair of values is among these. */
static void every_combination(void) {
    bool all = getenv("ROUTES") != NULL;
    int walked = 0, number = 0;
    for (size_t a = 0; a < sizeof archs / sizeof *archs; a++)
        for (const gw_technique *const *c = gw_compress_techniques; *c; c++)
            for (const gw_technique *const *s = gw_schedule_techniques; *s && test_failures < 8; s++, number++) {
                for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++) {
                    if (!all && (number + (int)l) % 10) continue;
                    walk(&layouts[l], archs[a], (*c)->name, (*s)->name);
                    walked++;
                }
            }
    printf("    %d combinations of arch, compress, schedule and hosts\n", walked);
}

/* Codecs in forms that they do not choose themselves. */
static void every_form(void) {
    static const char *const codecs[] = {"fp16",
                                         "int8",
                                         "onebit",
                                         "qsgd:bits=2",
                                         "terngrad",
                                         "terngrad:shared",
                                         "topk:ratio=0.02",
                                         "randomk:feedback=none",
                                         "randomk:feedback=both",
                                         "threshold",
                                         "dgc:momentum=0.9,warmup=0",
                                         "powersgd"};
    static const char *const schedules[] = {"wfbp", "dear", "p3"};
    int number = 0;
    for (size_t c = 0; c < sizeof codecs / sizeof *codecs; c++)
        for (int form = GW_FORM_ONE_PASS; form <= GW_FORM_TWO_PASS; form++)
            for (size_t a = 0; a < sizeof archs / sizeof *archs; a++, number++) {
                char text[100];
                gw_codec_setup setup;
                gw_error error = {.rank = -1};
                snprintf(text, sizeof text, "%s%cform=%s", codecs[c], strchr(codecs[c], ':') ? ',' : ':',
                         form == GW_FORM_ONE_PASS ? "onepass" : "twopass");
                if (gw_codec_parse(text, &setup, &error)) continue;
                walk(&layouts[number % 4], archs[a], text, schedules[(number / 2) % 3]);
            }
    CHECK(number == 24 * (int)(sizeof archs / sizeof *archs));
}

/* Servers that keep no residual answer with exact values. */
static void exact_answers(void) {
    walk(&layouts[1], "ps", "topk:ratio=0.02,feedback=worker", "wfbp");
    walk(&layouts[3], "ps:servers=3", "onebit:feedback=worker", "p3");
    walk(&layouts[1], "sfb:servers=2", "int8:feedback=worker", "bytescheduler");
    walk(&layouts[1], "ps:servers=3", "dgc:feedback=worker,momentum=0", "wfbp");
}

/* Between the lower and the upper four ranks, each way, for a tensor of 4 MiB. */
static double mib_across(const layout *l, const char *line) {
    gw_reducer_sim t = {.seed = 1, .world = 8, .layers = 1, .steps = 2, .bytes_per_second = 1e10,
                        .layer = {{.count = 1 << 20}}};
    gw_reducer_sim_outcome outcome;
    gw_error error = {.rank = -1};
    CHECK_EQ(GW_OK, gw_strategy_parse(line, &t.strategy, &error));
    memcpy(t.host_of, l->host_of, sizeof l->host_of);
    memcpy(t.rack_of, l->rack_of, sizeof l->rack_of);
    if (!runs(&t, &outcome, line, l->name)) return 1e9;
    uint64_t there = 0, back = 0;
    for (int a = 0; a < 4; a++)
        for (int b = 4; b < 8; b++) {
            there += outcome.sent[a][b];
            back += outcome.sent[b][a];
        }
    double most = (double)(there > back ? there : back) / t.steps / (1 << 20);
    printf("    %-60s %.3f MiB\n", line, most);
    return most;
}

static double mib_between_hosts(const char *line) { return mib_across(&layouts[0], line); }
static double mib_between_racks(const char *line) { return mib_across(&layouts[2], line); }

static void bytes_between_hosts(void) {
    CHECK(mib_between_hosts("transport=sim arch=hierarchical compress=none") <= 4.01);
    CHECK(mib_between_hosts("transport=sim arch=hierarchical compress=fp16") <= 2.05);
    CHECK(mib_between_hosts("transport=sim arch=hierarchical compress=int8") <= 1.05);
    CHECK(mib_between_hosts("transport=sim arch=hierarchical compress=qsgd:bits=4") <= 0.55);
    CHECK(mib_between_hosts("transport=sim arch=hierarchical compress=onebit") <= 0.15);
    CHECK(mib_between_hosts("transport=sim arch=hierarchical schedule=dear") <= 4.01);
    CHECK(mib_between_hosts("transport=sim arch=hierarchical compress=int8 schedule=dear") <= 1.05);
    CHECK(mib_between_hosts("transport=sim arch=ring compress=int8") > 1.05);
}

static void bytes_between_racks(void) {
    CHECK(mib_between_racks("transport=sim arch=hierarchical compress=none") <= 4.01);
    CHECK(mib_between_racks("transport=sim arch=auto schedule=dear") <= 4.01);
    CHECK(mib_between_racks("transport=sim arch=hierarchical compress=int8") <= 1.05);
    CHECK(mib_between_racks("transport=sim arch=ring compress=none") > 4.01);
}

TEST_MAIN(CASE(bytes_between_hosts), CASE(bytes_between_racks), CASE(every_combination), CASE(every_form),
          CASE(exact_answers))
