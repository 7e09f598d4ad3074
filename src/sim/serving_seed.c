/* serving_seed.c - what a seed decides: see serving.h. */
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "sim/serving.h"
#include "strategy/combine.h"

static int pick(gw_rng *rng, int bound) { return (int)gw_rng_below(rng, (uint64_t)bound); }

static void random_model(gw_serving *s, gw_rng *rng) {
    s->tensors = 1 + pick(rng, GW_SERVING_TENSORS_MAX);
    for (int t = 0; t < s->tensors; t++) s->count[t] = pick(rng, 5) ? 1 + gw_rng_below(rng, 300) : 0;
    if (pick(rng, 4) == 0) s->count[pick(rng, s->tensors)] = 17000 + gw_rng_below(rng, 4000); /* cut between servers */
}

/* Some seeds have a worker that is much slower than the others. */
static void random_speeds(gw_serving *s, gw_rng *rng) {
    for (int seat = 0; seat < GW_SERVING_SEATS_MAX; seat++)
        s->pace[seat] = (1 + gw_rng_below(rng, 3)) * GW_MILLISECOND / 10;
    if (pick(rng, 2)) s->pace[pick(rng, s->workers)] *= 20;
    s->latency = 1000 + gw_rng_below(rng, GW_MILLISECOND / 10);
    s->jitter = pick(rng, 3) ? 1 + gw_rng_below(rng, GW_MILLISECOND) : 0;
    s->bytes_per_second = 1e6 * (double)(5 + pick(rng, 500));
}

static void describe_sync(const gw_serving *s, const char *sync, gw_rng *rng, char text[64]) {
    snprintf(text, 64, "%s", sync);
    if (strcmp(sync, "ssp") == 0) snprintf(text, 64, "ssp:lead=%d", pick(rng, 4));
    if (strcmp(sync, "backup") == 0) snprintf(text, 64, "backup:n=%d", 1 + pick(rng, s->workers - 1));
    if (strcmp(sync, "delayed") == 0) snprintf(text, 64, "delayed:warmup=%d", pick(rng, 3));
    if (strcmp(sync, "periodic") == 0) snprintf(text, 64, "periodic:every=%d", 2 + pick(rng, 2));
}

gw_status gw_serving_make(gw_serving *s, uint64_t seed, const char *sync, gw_error *error) {
    static const char *const schedules[] = {"wfbp", "fifo", "p3:slice=16K", "bytescheduler:slice=16K,credit=32K"};
    static const char *const codecs[] = {"fp16", "onebit", "qsgd", "topk:ratio=0.1", "int8:feedback=both", "terngrad"};
    bool bears_losses = strcmp(sync, "delayed") != 0 && strcmp(sync, "periodic") != 0;
    char line[256], synced[64];
    gw_rng rng = gw_rng_make(seed, 31);
    *s = (gw_serving){.seed = seed, .workers = 2 + pick(&rng, 4), .steps = 4 + pick(&rng, 6), .meets = pick(&rng, 3)};
    random_model(s, &rng);
    random_speeds(s, &rng);
    int servers = 1 + pick(&rng, s->workers < 3 ? s->workers : 3);
    s->apart = pick(&rng, 3) ? 0 : servers;
    bool copies = bears_losses && pick(&rng, 2) && (servers > 1 || !s->apart);
    s->losses = bears_losses && pick(&rng, 4) ? 1 + pick(&rng, 4) : 0;
    s->back = strcmp(sync, "bsp") != 0 && pick(&rng, 2);
    bool coded = !s->losses && !copies && pick(&rng, 2);
    describe_sync(s, sync, &rng, synced);
    snprintf(line, sizeof line, "arch=ps:servers=%d,replicas=%d,chunk=%d sync=%s schedule=%s compress=%s transport=sim",
             servers, copies, 512 << pick(&rng, 8), synced, schedules[pick(&rng, 4)],
             coded ? codecs[pick(&rng, 6)] : "none");
    gw_step_facts facts = {.world = s->workers, .updates = true, .apart = s->apart > 0};
    gw_status status = gw_strategy_parse(line, &s->strategy, error);
    return status ? status : gw_strategy_check_step(&s->strategy, &facts, error);
}
