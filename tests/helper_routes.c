/* helper_routes.c - for tests/routes.sh: a rank of a job on two hosts of two ranks. It runs every codec with every
 * schedule, and so every architecture with each of them, and compares weights and bytes between the hosts with those of
 * the simulator, which tests/test_routes.c compares with one process. */
#include "test.h"

#include <math.h>

#include "compress/compress.h"
#include "gradwire.h"
#include "gradwire/reducer.h"
#include "schedule/schedule.h"
#include "sim/reducer_sim.h"

enum { WORLD = 4, STEPS = 3, LAYERS = 3, SEED = 5 };
static const size_t layer_counts[LAYERS] = {20000, 1500, 70001};
#define ALL_COUNT (20000 + 1500 + 70001)

static const char *const archs[] = {"auto", "ring", "halving", "tree", "direct", "hierarchical"};
static const char layer_names[LAYERS][8] = {"layer0", "layer1", "layer2"};

/* Small whole numbers: sums are the same in any order. Some are much larger than the others, as in gradients. */
static void fill_gradient(int rank, int layer, int step, const float *weights, size_t count, float *gradient) {
    (void)weights;
    for (size_t i = 0; i < count; i++) {
        uint64_t x = (uint64_t)i * 2654435761u + (uint64_t)rank * 40503u + (uint64_t)layer * 97 + (uint64_t)step * 7919;
        x = (x ^ x >> 15) * UINT64_C(0x9e3779b97f4a7c15);
        gradient[i] = (float)(((int)(x >> 60) - 8) * ((x >> 40) % 16 == 0 ? 16 : 1));
    }
}

/* What a run ends with. */
typedef struct result {
    float weights[ALL_COUNT];
    uint64_t between[2]; /* bytes that each host has sent to the other; in the job, [0] is this rank's host */
    double seconds;
} result;

static float *layer_of(float *all, int layer) {
    for (int i = 0; i < layer; i++) all += layer_counts[i];
    return all;
}

/* The simulator. */

static void keep_weights(void *ctx, int rank, int layer, const float *weights, size_t count) {
    result *expected = ctx;
    if (rank == 0) memcpy(layer_of(expected->weights, layer), weights, count * sizeof *weights);
}

static bool simulate(const char *line, result *expected) {
    gw_reducer_sim t = {.seed = SEED, .world = WORLD, .layers = LAYERS, .steps = STEPS, .updates = true,
                        .host_of = {0, 0, 1, 1}, .latency = 20000, .bytes_per_second = 1e9, .gradient = fill_gradient,
                        .ended = keep_weights, .ctx = expected};
    static gw_reducer_sim_outcome outcome;
    gw_error error = {.rank = -1};
    char simulated[200];
    for (int i = 0; i < LAYERS; i++) t.layer[i].count = layer_counts[i];
    snprintf(simulated, sizeof simulated, "%s transport=sim", line);
    gw_status status = gw_strategy_parse(simulated, &t.strategy, &error);
    if (!status) status = gw_reducer_sim_run(&t, &outcome, &error);
    if (status || !outcome.ok) printf("    %s: %s\n", line, status ? error.text : outcome.text);
    for (int host = 0; host < 2; host++) {
        expected->between[host] = 0;
        for (int a = 0; a < 2; a++)
            for (int b = 0; b < 2; b++) expected->between[host] += outcome.sent[2 * host + a][2 * (1 - host) + b];
    }
    return !status && outcome.ok;
}

/* The job. */

static void update(void *ctx, const gw_reducer_update *u) {
    (void)ctx;
    float *weights = u->weights;
    const float *gradient = u->gradient;
    for (size_t i = 0; i < u->count; i++) weights[i] -= GW_REDUCER_SIM_RATE * gradient[i];
}

/* Bytes that this host has sent to the other since it was made. */
static uint64_t sent_by_host(void) {
    FILE *file = fopen("/proc/net/dev", "r");
    char line[512];
    uint64_t bytes = 0;
    while (file && fgets(line, sizeof line, file)) {
        char *at = strstr(line, "eth0:");
        if (at) sscanf(at, "eth0: %*u %*u %*u %*u %*u %*u %*u %*u %" SCNu64, &bytes);
    }
    if (file) fclose(file);
    return bytes;
}

static gw_status make_steps(gw_reducer *reducer, int rank, float *gradients) {
    gw_status status = GW_OK;
    for (int step = 0; !status && step < STEPS; step++) {
        for (int i = LAYERS - 1; !status && i >= 0; i--) {
            status = gw_reducer_wait(reducer, i);
            fill_gradient(rank, i, step, NULL, layer_counts[i], layer_of(gradients, i));
            if (!status) status = gw_reducer_ready(reducer, i);
        }
        if (!status) status = gw_reducer_end(reducer);
    }
    return status ? status : gw_reducer_flush(reducer);
}

static gw_status train(gw_comm *comm, const char *line, float *gradients, result *got) {
    gw_reducer_options options = GW_REDUCER_OPTIONS_DEFAULT;
    gw_reducer_tensor tensors[LAYERS];
    gw_reducer *reducer = NULL;
    options.strategy = line;
    options.seed = SEED;
    options.update = update;
    memset(got->weights, 0, sizeof got->weights);
    for (int i = 0; i < LAYERS; i++)
        tensors[i] = (gw_reducer_tensor){.name = layer_names[i], .count = layer_counts[i],
                                         .gradient = layer_of(gradients, i), .weights = layer_of(got->weights, i)};
    gw_status status = gw_reducer_commit(&reducer, comm, tensors, LAYERS, &options);
    if (!status) status = gw_barrier(comm);
    uint64_t before = sent_by_host();
    double begun = test_seconds(CLOCK_MONOTONIC);
    if (!status) status = gw_barrier(comm);
    if (!status) status = make_steps(reducer, gw_rank(comm), gradients);
    if (!status) status = gw_barrier(comm);
    got->between[0] = sent_by_host() - before;
    got->seconds = test_seconds(CLOCK_MONOTONIC) - begun;
    if (status) printf("    %s: %s\n", line, gw_last_error(comm));
    gw_reducer_close(reducer);
    return status;
}

/* Codecs that are reduced in flight round in the order of the plan; that of a host's ranks differs in shared memory. */
static bool same_weights(const gw_codec_setup *setup, const float *a, const float *b) {
    bool rounds = gw_codec_merges(setup) && setup->codec->significand < 11;
    for (int i = 0; i < ALL_COUNT; i++)
        if (a[i] != b[i] && (!rounds || fabsf(a[i] - b[i]) > 0.02f * (fabsf(b[i]) + 100))) return false;
    return true;
}

/* Headers, acknowledgements and grants add to the payloads; heartbeats with time. A schedule that measures agrees on
 * what it has measured. */
static bool same_bytes(const char *schedule, const result *got, uint64_t payloads) {
    double counted = (double)got->between[0], besides = strcmp(schedule, "mgwfbp") == 0 ? 48e3 : 16e3;
    return counted >= (double)payloads && counted <= 1.05 * (double)payloads + besides + 50e3 * got->seconds;
}

static void compare(gw_comm *comm, const char *arch, const gw_technique *compress, const char *schedule) {
    static result expected, got;
    static float gradients[ALL_COUNT];
    char line[160];
    gw_codec_setup setup;
    gw_error error = {.rank = -1};
    int rank = gw_rank(comm), host = rank / 2;
    snprintf(line, sizeof line, "arch=%s compress=%s schedule=%s", arch, compress->name, schedule);
    CHECK_EQ(GW_OK, gw_codec_parse(compress->name, &setup, &error));
    if (rank == 0) CHECK(simulate(line, &expected));
    CHECK_EQ(GW_OK, gw_broadcast(comm, &expected, &expected, sizeof expected, GW_U8, 0));
    int32_t bytes = 0; /* right on both hosts; a packet that is sent again on a busy machine spoils a try */
    for (int tries = 0; tries < TEST_TRIES && !bytes; tries++) {
        if (train(comm, line, gradients, &got)) {
            test_failures++;
            return;
        }
        bytes = rank % 2 || same_bytes(schedule, &got, expected.between[host]);
        CHECK_EQ(GW_OK, gw_allreduce(comm, &bytes, &bytes, 1, GW_I32, GW_MIN));
    }
    bool weights = same_weights(&setup, got.weights, expected.weights);
    CHECK(weights && bytes);
    if (!weights) printf("    %s: rank %d has other weights than in the simulator\n", line, rank);
    if (!bytes)
        printf("    %s: host %d has sent %" PRIu64 " bytes, payloads are %" PRIu64 "\n", line, host, got.between[0],
               expected.between[host]);
}

static void routes_between_hosts(void) {
    gw_comm *comm = NULL;
    int runs = 0;
    CHECK_EQ(GW_OK, gw_init(&comm, NULL));
    if (!comm || gw_size(comm) != WORLD) {
        test_failures++;
        printf("    %s\n", comm ? "start it as four ranks on two hosts" : gw_last_error(NULL));
        return;
    }
    for (const gw_technique *const *c = gw_compress_techniques; *c; c++)
        for (const gw_technique *const *s = gw_schedule_techniques; *s && test_failures < 8; s++, runs++) {
            char schedule[GW_TECHNIQUE_TEXT_BYTES]; /* many small slices would have more headers than payloads */
            snprintf(schedule, sizeof schedule, "%s%s", (*s)->name, gw_policy_of(*s)->slices ? ":slice=512K" : "");
            compare(comm, archs[runs % 6], *c, schedule); /* 7 schedules: all pairs */
        }
    printf("    %d combinations of arch, compress and schedule\n", runs);
    gw_finalize(comm);
}

TEST_MAIN(CASE(routes_between_hosts))
