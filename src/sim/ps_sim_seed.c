/* ps_sim_seed.c - see ps_sim.h: derives a scenario from a seed. */
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "schedule/schedule.h"
#include "sim/draw.h"
#include "sim/ps_sim.h"
#include "strategy/combine.h"
#include "sync/sync.h"

#define DRAWS_MAX 1000 /* limit of strategies drawn until one is possible */

static int pick(gw_rng *rng, int bound) { return (int)gw_rng_below(rng, (uint64_t)bound); }

static void random_model(gw_ps_sim *s, gw_rng *rng) {
    s->tensors = 1 + pick(rng, GW_PS_SIM_TENSORS_MAX);
    for (int t = 0; t < s->tensors; t++) s->count[t] = pick(rng, 5) ? 1 + gw_rng_below(rng, 300) : 0;
    /* Large enough to be split between servers. */
    if (pick(rng, 4) == 0) s->count[pick(rng, s->tensors)] = 17000 + gw_rng_below(rng, 4000);
}

/* Some seeds have a worker that is much slower than the others. */
static void random_speeds(gw_ps_sim *s, gw_rng *rng) {
    for (int member = 0; member < GW_PS_SIM_MEMBERS_MAX; member++)
        s->pace[member] = (1 + gw_rng_below(rng, 3)) * GW_MILLISECOND / 10;
    if (pick(rng, 2)) s->pace[pick(rng, s->workers)] *= 20;
    s->latency = 1000 + gw_rng_below(rng, GW_MILLISECOND / 10);
    s->jitter = pick(rng, 3) ? 1 + gw_rng_below(rng, GW_MILLISECOND) : 0;
    s->bytes_per_second = 1e6 * (double)(5 + pick(rng, 500));
}

/* In a run with losses, pushes are sent a second time, with the same buckets. So such a run has neither a codec that
 * keeps state nor a schedule that measures steps. */
static gw_status draw_strategy(gw_ps_sim *s, const gw_technique *sync, const char *arch, gw_rng *rng, gw_error *error) {
    char line[4 * GW_TECHNIQUE_TEXT_BYTES], synced[GW_TECHNIQUE_TEXT_BYTES], coded[GW_TECHNIQUE_TEXT_BYTES];
    char schedule[GW_TECHNIQUE_TEXT_BYTES];
    const gw_technique *codec =
        pick(rng, 2) ? gw_techniques(GW_AXIS_COMPRESS)[0] : gw_draw_technique(rng, GW_AXIS_COMPRESS);
    snprintf(line, sizeof line, "arch=%s sync=%s schedule=%s compress=%s transport=sim", arch,
             gw_draw_setting(rng, sync, synced),
             gw_draw_setting(rng, gw_draw_technique(rng, GW_AXIS_SCHEDULE), schedule),
             gw_draw_setting(rng, codec, coded));
    gw_reducer_facts facts = {.world = s->workers, .updates = true, .clips = s->clips, .apart = s->apart > 0};
    gw_status status = gw_strategy_parse(line, &s->strategy, error);
    if (!status) status = gw_strategy_apply_servers(&s->strategy, s->apart, error);
    if (!status) status = gw_strategy_check_step(&s->strategy, &facts, error);
    const gw_setting *order = &s->strategy.axes[GW_AXIS_SCHEDULE];
    bool measured = gw_policy_of(order->technique)->settings(order->values).measured;
    if (!status && s->losses && (measured || gw_strategy_keeps_codec_state(&s->strategy)))
        return gw_fail(error, GW_UNSUPPORTED, "a step that is measured or keeps residuals does not survive a loss");
    return status;
}

gw_status gw_ps_sim_make(gw_ps_sim *s, uint64_t seed, const char *name, gw_error *error) {
    const gw_technique *const *sync = gw_techniques(GW_AXIS_SYNC);
    while (*sync && strcmp((*sync)->name, name) != 0) sync++;
    if (!*sync) return gw_fail(error, GW_INVALID, "there is no synchronization %s", name);
    bool bears_losses = !gw_sync_of(*sync)->keeps_anchor; /* an anchor is lost with its worker */
    char arch[64];
    gw_rng rng = gw_rng_make(seed, 31);
    *s = (gw_ps_sim){.seed = seed, .workers = 2 + pick(&rng, 4), .steps = 4 + pick(&rng, 6), .meets = pick(&rng, 3)};
    random_model(s, &rng);
    random_speeds(s, &rng);
    s->clips = seed % 2;
    int servers = 1 + pick(&rng, s->workers < 3 ? s->workers : 3);
    s->apart = pick(&rng, 3) ? 0 : servers;
    bool copies = bears_losses && pick(&rng, 2) && (servers > 1 || !s->apart);
    s->losses = bears_losses && pick(&rng, 4) ? 1 + pick(&rng, 4) : 0;
    s->back = !gw_sync_of(*sync)->synchronous && pick(&rng, 2);
    snprintf(arch, sizeof arch, "ps:servers=%d,replicas=%d,chunk=%d", servers, copies, 512 << pick(&rng, 8));
    gw_status status = GW_UNSUPPORTED;
    for (int draws = 0; status == GW_UNSUPPORTED && draws < DRAWS_MAX; draws++)
        status = draw_strategy(s, *sync, arch, &rng, error);
    const gw_setting *drawn = &s->strategy.axes[GW_AXIS_SYNC];
    s->back = !status && s->back && gw_sync_takes_back(gw_sync_of(drawn->technique), drawn->values);
    return status;
}
