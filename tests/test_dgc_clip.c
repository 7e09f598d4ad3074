/* test_dgc_clip.c - local clipping of deep gradient compression, on every kind of route in simulated time: each rank
 * scales its own gradient by the norm of the whole tensor, however tensors are cut and whoever adds up first. With
 * ratio=1 all of a gradient arrives in its step, so the result is the mean of what the ranks contribute. ROUTES=all
 * walks all triples of hosts, architecture and schedule; the default is every pair. */
#include <math.h>

#include "sim/reducer_sim.h"
#include "test.h"

static float input[70001];

static double norm_of(const float *x, size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; i++) sum += (double)x[i] * (double)x[i];
    return sqrt(sum);
}

static float furthest(const float *a, const float *b, size_t count) {
    float most = 0;
    for (size_t i = 0; i < count; i++) most = fmaxf(most, fabsf(a[i] - b[i]));
    return most;
}

enum { LAYERS = 3, STEPS = 3, WORLD_MAX = 8 };

static const size_t layer_counts[LAYERS] = {20000, 900, 70001};

typedef struct layout {
    const char *name;
    int world, host_of[WORLD_MAX], rack_of[WORLD_MAX];
} layout;

static const layout layouts[] = {{"hosts of 3 ranks and 1", 4, {0, 0, 0, 1}, {0}},
                                 {"2 racks of 2 hosts of 2", 8, {0, 0, 1, 1, 2, 2, 3, 3}, {0, 0, 0, 0, 1, 1, 1, 1}}};

/* Ranks have different norms, of which some are above the limit. */
static void gradient_of(int rank, int layer, int step, const float *weights, size_t count, float *gradient) {
    (void)weights;
    size_t seed = (size_t)(step * 7919 + layer * 97 + rank * 40503);
    for (size_t i = 0; i < count; i++)
        gradient[i] = (float)((i * 2654435761u + seed) % 1009) * (float)(rank + 1) * 2e-5f - (float)(rank + 1) * 1e-2f;
}

#define CLIP 1.0

typedef struct clipped {
    float *weights[LAYERS];
    float off; /* of any rank's weights */
} clipped;

static void clip_by_loops(clipped *c, int ranks) {
    double most = CLIP * sqrt(ranks); /* of a rank, whose gradient the mean divides by the ranks */
    int clips = 0;
    for (int layer = 0; layer < LAYERS; layer++) {
        size_t count = layer_counts[layer];
        c->weights[layer] = calloc(count, sizeof(float));
        for (int step = 0; step < STEPS; step++)
            for (int rank = 0; rank < ranks; rank++) {
                gradient_of(rank, layer, step, NULL, count, input);
                double norm = norm_of(input, count);
                bool cut = count >= 1024 && norm > most; /* a small tensor is sent as it is */
                float factor = cut ? (float)(most / norm) : 1;
                clips += cut;
                for (size_t i = 0; i < count; i++)
                    c->weights[layer][i] -= GW_REDUCER_SIM_RATE * factor * input[i] / (float)ranks;
            }
    }
    CHECK(clips > 0 && clips < LAYERS * STEPS * ranks);
}

static void compare(void *ctx, int rank, int layer, const float *weights, size_t count) {
    clipped *c = ctx;
    (void)rank;
    c->off = fmaxf(c->off, furthest(weights, c->weights[layer], count));
}

static void clips_on(const layout *l, const char *arch, const char *schedule) {
    char text[200];
    clipped c = {.off = 0};
    gw_reducer_sim t = {.seed = 5, .world = l->world, .layers = LAYERS, .steps = STEPS, .updates = true,
                        .latency = 20000, .jitter = 100000, .bytes_per_second = 1e9, .unevenness = 0.5,
                        .gradient = gradient_of, .ended = compare, .ctx = &c};
    gw_reducer_sim_outcome outcome = {.ok = false};
    gw_error error = {.rank = -1};
    memcpy(t.host_of, l->host_of, sizeof l->host_of);
    memcpy(t.rack_of, l->rack_of, sizeof l->rack_of);
    for (int i = 0; i < LAYERS; i++)
        t.layer[i] = (gw_reducer_sim_layer){.count = layer_counts[i], .forward = 200000, .backward = 500000};
    snprintf(text, sizeof text, "transport=sim arch=%s schedule=%s compress=dgc:ratio=1,clip=1,momentum=0", arch,
             schedule);
    CHECK_EQ(GW_OK, gw_strategy_parse(text, &t.strategy, &error));
    clip_by_loops(&c, l->world);
    CHECK_EQ(GW_OK, gw_reducer_sim_run(&t, &outcome, &error));
    CHECK(outcome.ok && c.off <= 1e-5f);
    if (!outcome.ok || c.off > 1e-5f)
        printf("    %s, %s: %s%s, off by %g\n", l->name, text, error.text, outcome.text, (double)c.off);
    for (int i = 0; i < LAYERS; i++) free(c.weights[i]);
}

static void clips_whole_tensors_on_every_route(void) {
    static const char *const archs[] = {"ring", "tree", "direct", "hierarchical", "auto", "ps:servers=3", "sfb"};
    static const char *const schedules[] = {"wfbp", "p3:slice=64K", "bytescheduler:slice=64K", "dear"};
    bool all = getenv("ROUTES") != NULL;
    for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++)
        for (size_t a = 0; a < sizeof archs / sizeof *archs; a++)
            for (size_t s = 0; s < sizeof schedules / sizeof *schedules; s++) {
                bool has_halves = strncmp(archs[a], "ps", 2) != 0; /* servers have none */
                if (!has_halves && strcmp(schedules[s], "dear") == 0) continue;
                if (all || (l + a + s) % 2 == 0) clips_on(&layouts[l], archs[a], schedules[s]);
            }
}

TEST_MAIN(CASE(clips_whole_tensors_on_every_route))
