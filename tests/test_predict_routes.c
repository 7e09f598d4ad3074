/* test_predict_routes.c - the predictor against the step engine: the bytes that ranks send in a step, for every
 * architecture with every codec and kind of schedule, on two hosts of two ranks and on four hosts. PREDICT=all walks
 * all triples; the default is every seventh. */
#include "test.h"

#include <math.h>

#include "base/rng.h"
#include "compress/compress.h"
#include "predict/predict.h"
#include "schedule/schedule.h"
#include "sim/reducer_sim.h"

enum { RANKS = 4, STEPS = 2, LAYERS = 3 };

static const size_t layer_counts[LAYERS] = {40000, 1500, 70001};

/* As the predictor expects values to be. */
static void gradient_of(int rank, int layer, int step, const float *weights, size_t count, float *gradient) {
    (void)weights;
    gw_rng rng = gw_rng_make((uint64_t)(step * 64 + layer * 8 + rank), 0);
    for (size_t i = 0; i < count; i++) {
        double radius = sqrt(-2 * log(1 - gw_rng_unit(&rng)));
        gradient[i] = (float)(radius * cos(2 * M_PI * gw_rng_unit(&rng)));
    }
}

/* Bytes of a rank in a step. */
static double sent_by_engine(const char *line, int per_host) {
    gw_reducer_sim t = {.seed = 5, .world = RANKS, .layers = LAYERS, .steps = STEPS, .updates = true,
                        .latency = 20000, .bytes_per_second = 1e9, .gradient = gradient_of};
    gw_reducer_sim_outcome outcome;
    gw_error error = {.rank = -1};
    char simulated[300];
    snprintf(simulated, sizeof simulated, "%s transport=sim", line);
    CHECK_EQ(GW_OK, gw_strategy_parse(simulated, &t.strategy, &error));
    for (int i = 0; i < LAYERS; i++)
        t.layer[i] = (gw_reducer_sim_layer){.count = layer_counts[i], .forward = 200000, .backward = 500000};
    for (int r = 0; r < RANKS; r++) t.host_of[r] = r / per_host;
    gw_status status = gw_reducer_sim_run(&t, &outcome, &error);
    if (status || !outcome.ok) printf("    %s: %s\n", line, status ? error.text : outcome.text);
    CHECK(!status && outcome.ok);
    double bytes = 0;
    for (int a = 0; a < RANKS; a++)
        for (int b = 0; b < RANKS; b++) bytes += (double)outcome.sent[a][b];
    return bytes / RANKS / STEPS;
}

static double predicted(const char *line, int per_host) {
    gw_profile_layer layers[LAYERS];
    gw_profile profile = {.count = LAYERS, .layers = layers};
    gw_machine machine = gw_machine_default();
    gw_error error = {.rank = -1};
    gw_strategy strategy;
    gw_prediction p = {.bytes = NAN};
    char real[300];
    for (int i = 0; i < LAYERS; i++) {
        layers[i] = (gw_profile_layer){.parameter_bytes = 4 * layer_counts[i], .forward_us = 200, .backward_us = 500};
        snprintf(layers[i].name, sizeof layers[i].name, "layer%d", i);
    }
    snprintf(real, sizeof real, "%s transport=tcp", line);
    CHECK_EQ(GW_OK, gw_strategy_parse(real, &strategy, &error));
    gw_predict_config config = {.profile = &profile, .strategy = &strategy, .machine = &machine, .ranks = RANKS,
                                .per_host = per_host, .fabric = {.kind = GW_FABRIC_SWITCH}, .unfolded = true};
    CHECK_EQ(GW_OK, gw_predict(&config, &p, &error));
    CHECK_STR("", error.text);
    return p.bytes;
}

/* Besides what is predicted ranks send the start order, of each slice under p3. The payload of threshold depends on
 * what it left before. */
static void compare(const char *line, int per_host) {
    double sent = sent_by_engine(line, per_host), expected = predicted(line, per_host);
    double tolerance = strstr(line, "threshold") ? 0.1 : 0.01;
    double orders = strstr(line, "p3") ? 1000 : 500;
    bool good = fabs(expected - sent) <= tolerance * sent + orders;
    if (!good) printf("    %s, %d a host: %.0f bytes predicted, %.0f sent\n", line, per_host, expected, sent);
    CHECK(good);
}

static void every_route_sends_what_is_predicted(void) {
    static const char *const archs[] = {"auto", "ring", "halving", "tree", "direct", "hierarchical"};
    static const char *const schedules[] = {"wfbp", "p3:slice=40K", "dear"};
    bool all = getenv("PREDICT") != NULL;
    int number = 0;
    for (int per_host = 1; per_host <= 2; per_host++)
        for (size_t a = 0; a < sizeof archs / sizeof *archs; a++)
            for (const gw_technique *const *c = gw_compress_techniques; *c; c++)
                for (size_t s = 0; s < sizeof schedules / sizeof *schedules; s++) {
                    char line[200];
                    if (!all && number++ % 7) continue;
                    /* What is predicted is a step after the warm-up. */
                    const char *codec = strcmp((*c)->name, "dgc") == 0 ? "dgc:warmup=0" : (*c)->name;
                    snprintf(line, sizeof line, "arch=%s compress=%s schedule=%s", archs[a], codec, schedules[s]);
                    compare(line, per_host);
                }
}

TEST_MAIN(CASE(every_route_sends_what_is_predicted))
