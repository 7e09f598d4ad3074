/* training_seed.c - what a seed decides: see training.h. */
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "sim/training.h"

static int pick(gw_rng *rng, int bound) { return (int)gw_rng_below(rng, (uint64_t)bound); }

/* Most layers are small; some are worth slicing, some have nothing to learn. */
static size_t random_count(gw_rng *rng) {
    switch (pick(rng, 6)) {
    case 0: return 0;
    case 1: return 1 + gw_rng_below(rng, 20000);
    default: return 1 + gw_rng_below(rng, 1500);
    }
}

static void random_model(gw_training *t, gw_rng *rng) {
    t->layers = 1 + pick(rng, 9);
    for (int i = 0; i < t->layers; i++)
        t->layer[i] = (gw_training_layer){.count = random_count(rng),
                                          .forward = pick(rng, 5) ? gw_rng_below(rng, GW_MILLISECOND) : 0,
                                          .backward = pick(rng, 5) ? gw_rng_below(rng, 2 * GW_MILLISECOND) : 0};
}

static void random_net(gw_training *t, gw_rng *rng) {
    int per_host = 1 + pick(rng, 3);
    t->world = 1 + pick(rng, 6);
    for (int r = 0; r < t->world; r++) t->host_of[r] = r / per_host;
    t->latency = 1000 + gw_rng_below(rng, 200 * 1000);
    t->jitter = pick(rng, 2) ? 1 + gw_rng_below(rng, GW_MILLISECOND) : 0;
    t->bytes_per_second = 1e6 * (double)(5 + pick(rng, 500));
    t->unevenness = pick(rng, 3) ? gw_rng_unit(rng) : 0;
}

static const char *parameters(const char *policy, gw_rng *rng, char text[64]) {
    int fuse = 1 << pick(rng, 18), slice = 16 * 1024 * (1 + pick(rng, 3)), credit = 1 << (12 + pick(rng, 8));
    text[0] = 0;
    if (strcmp(policy, "fifo") == 0 || strcmp(policy, "wfbp") == 0 || strcmp(policy, "dear") == 0)
        snprintf(text, 64, ":fuse=%d", fuse);
    if (strcmp(policy, "p3") == 0) snprintf(text, 64, ":slice=%d", slice);
    if (strcmp(policy, "bytescheduler") == 0) snprintf(text, 64, ":slice=%d,credit=%d", slice, credit);
    return text;
}

gw_status gw_training_make(gw_training *t, uint64_t seed, const char *policy, gw_error *error) {
    static const char *const archs[] = {"auto", "ring", "halving", "tree", "direct", "hierarchical"};
    /* Every other one travels as it is. */
    static const char *const codecs[] = {"fp16", "bf16", "int8", "onebit", "qsgd", "topk:ratio=0.1", "dgc:ratio=0.01",
                                         "powersgd:rank=2", "terngrad"};
    static const char *const syncs[] = {"bsp", "delayed:warmup=0", "delayed:warmup=2", "periodic:every=2",
                                        "periodic:every=3,from=1"};
    char line[200], text[64];
    gw_rng rng = gw_rng_make(seed, 17);
    *t = (gw_training){.seed = seed, .steps = 4}; /* both periodic ones exchange in the last step */
    random_model(t, &rng);
    random_net(t, &rng);
    t->scattered = pick(&rng, 2);
    const char *sync = pick(&rng, 2) ? "bsp" : syncs[pick(&rng, 5)];
    t->updates = strcmp(sync, "bsp") != 0 || pick(&rng, 2);
    snprintf(line, sizeof line, "arch=%s sync=%s compress=%s transport=sim schedule=%s%s", archs[pick(&rng, 6)], sync,
             pick(&rng, 2) ? "none" : codecs[pick(&rng, 9)], policy, parameters(policy, &rng, text));
    return gw_strategy_parse(line, &t->strategy, error);
}

void gw_training_break(gw_training *t, uint64_t seed, gw_time duration) {
    static const gw_sim_fault faults[] = {GW_SIM_KILL, GW_SIM_KILL, GW_SIM_KILL_TWO, GW_SIM_ABORT, GW_SIM_PARTITION};
    gw_rng rng = gw_rng_make(seed, 18);
    t->fault = faults[pick(&rng, 5)];
    t->victim = pick(&rng, t->world);
    t->second = (t->victim + 1 + pick(&rng, t->world)) % t->world;
    t->fault_at = 1 + gw_rng_below(&rng, duration + 1);
    t->second_at = pick(&rng, 2) ? gw_rng_below(&rng, 10 * GW_MILLISECOND) : gw_rng_below(&rng, duration + 1);
}
