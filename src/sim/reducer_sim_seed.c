/* reducer_sim_seed.c - see reducer_sim.h: derives a scenario from a seed. */
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "plan/plan.h"
#include "sim/draw.h"
#include "sim/reducer_sim.h"
#include "strategy/combine.h"
#include "sync/sync.h"

#define NEVER_REACHED 1e30 /* a limit of norms: gradients wait for each other, and keep their values */
#define DRAWS_MAX 1000     /* limit of strategies drawn until one is possible */

static int pick(gw_rng *rng, int bound) { return (int)gw_rng_below(rng, (uint64_t)bound); }

/* Most layers are small; some are large enough to slice, some have no parameters. */
static size_t random_count(gw_rng *rng) {
    switch (pick(rng, 6)) {
    case 0: return 0;
    case 1: return 1 + gw_rng_below(rng, 20000);
    default: return 1 + gw_rng_below(rng, 1500);
    }
}

static void random_model(gw_reducer_sim *t, gw_rng *rng) {
    t->layers = 1 + pick(rng, 9);
    for (int i = 0; i < t->layers; i++)
        t->layer[i] = (gw_reducer_sim_layer){.count = random_count(rng),
                                             .forward = pick(rng, 5) ? gw_rng_below(rng, GW_MILLISECOND) : 0,
                                             .backward = pick(rng, 5) ? gw_rng_below(rng, 2 * GW_MILLISECOND) : 0};
}

static void random_net(gw_reducer_sim *t, gw_rng *rng) {
    int per_host = 1 + pick(rng, 3);
    t->world = 1 + pick(rng, 6);
    for (int r = 0; r < t->world; r++) t->host_of[r] = r / per_host;
    t->latency = 1000 + gw_rng_below(rng, 200 * 1000);
    t->jitter = pick(rng, 2) ? 1 + gw_rng_below(rng, GW_MILLISECOND) : 0;
    t->bytes_per_second = 1e6 * (double)(5 + pick(rng, 500));
    t->unevenness = pick(rng, 3) ? gw_rng_unit(rng) : 0;
}

/* Draws a strategy that this simulator can run: no servers, and only simulated links. */
static gw_status draw_strategy(gw_reducer_sim *t, const gw_technique *policy, gw_rng *rng, gw_error *error) {
    char line[4 * GW_TECHNIQUE_TEXT_BYTES], sync[GW_TECHNIQUE_TEXT_BYTES], codec[GW_TECHNIQUE_TEXT_BYTES];
    char schedule[GW_TECHNIQUE_TEXT_BYTES];
    const gw_technique *arch = gw_draw_technique(rng, GW_AXIS_ARCH);
    const gw_technique *how = pick(rng, 2) ? gw_techniques(GW_AXIS_SYNC)[0] : gw_draw_technique(rng, GW_AXIS_SYNC);
    const gw_technique *bytes =
        pick(rng, 2) ? gw_techniques(GW_AXIS_COMPRESS)[0] : gw_draw_technique(rng, GW_AXIS_COMPRESS);
    t->updates = gw_sync_of(how)->needs_update || pick(rng, 2);
    snprintf(line, sizeof line, "arch=%s sync=%s compress=%s transport=sim schedule=%s", arch->name,
             gw_draw_setting(rng, how, sync), gw_draw_setting(rng, bytes, codec),
             gw_draw_setting(rng, policy, schedule));
    gw_reducer_facts facts = {.world = t->world, .updates = t->updates};
    gw_status status = gw_strategy_parse(line, &t->strategy, error);
    if (status) return status;
    status = gw_strategy_check(&t->strategy, &(gw_strategy_facts){.hosts = 1, .simulated = true}, error);
    if (!status) status = gw_strategy_check_step(&t->strategy, &facts, error);
    if (status || strcmp(arch->name, "auto") == 0 || gw_plan_find(arch->name)) return status;
    return gw_fail(error, GW_UNSUPPORTED, "arch=%s is not simulated here", arch->name);
}

/* The calls of its ranks: who lacks gradients, micro-steps, a second reducer, clipping. */
static gw_status draw_calls(gw_reducer_sim *t, const gw_technique *policy, gw_rng *rng, gw_error *error) {
    char line[2 * GW_TECHNIQUE_TEXT_BYTES], schedule[GW_TECHNIQUE_TEXT_BYTES];
    t->absence = pick(rng, 2) ? pick(rng, 5) : 0;
    t->micro_steps = pick(rng, 3) ? 0 : 1 + pick(rng, 2);
    t->two = pick(rng, 2);
    t->payload_bytes_max = pick(rng, 2) ? gw_rng_below(rng, 100000) : 0;
    snprintf(line, sizeof line, "transport=sim schedule=%s", gw_draw_setting(rng, policy, schedule));
    t->clip = pick(rng, 2) && t->updates ? NEVER_REACHED : 0;
    return gw_strategy_parse(line, &t->second_strategy, error);
}

gw_status gw_reducer_sim_make(gw_reducer_sim *t, uint64_t seed, const char *policy, gw_error *error) {
    gw_rng rng = gw_rng_make(seed, 17);
    *t = (gw_reducer_sim){.seed = seed, .steps = 4}; /* every example of a synchronization exchanges in the last step */
    random_model(t, &rng);
    random_net(t, &rng);
    t->scattered = pick(&rng, 2);
    const gw_technique *const *schedule = gw_techniques(GW_AXIS_SCHEDULE);
    while (*schedule && strcmp((*schedule)->name, policy) != 0) schedule++;
    if (!*schedule) return gw_fail(error, GW_INVALID, "there is no schedule %s", policy);
    gw_status status = GW_UNSUPPORTED;
    for (int draws = 0; status == GW_UNSUPPORTED && draws < DRAWS_MAX; draws++)
        status = draw_strategy(t, *schedule, &rng, error);
    gw_rng calls = gw_rng_make(seed, 19);
    return status ? status : draw_calls(t, *schedule, &calls, error);
}

void gw_reducer_sim_break(gw_reducer_sim *t, uint64_t seed, gw_time duration) {
    static const gw_sim_fault faults[] = {GW_SIM_KILL, GW_SIM_KILL, GW_SIM_KILL_TWO, GW_SIM_ABORT, GW_SIM_PARTITION};
    gw_rng rng = gw_rng_make(seed, 18);
    t->fault = faults[pick(&rng, 5)];
    t->victim = pick(&rng, t->world);
    t->second = (t->victim + 1 + pick(&rng, t->world)) % t->world;
    t->fault_at = 1 + gw_rng_below(&rng, duration + 1);
    t->second_at = pick(&rng, 2) ? gw_rng_below(&rng, 10 * GW_MILLISECOND) : gw_rng_below(&rng, duration + 1);
}
