/* stepper_config.c - what a strategy line means for a stepper, and what a step of it sends. See stepper.h. */
#include "arch/choose.h"
#include "base/dtype.h"
#include "engine/stepper_internal.h"
#include "engine/stepper_ps.h"
#include "strategy/combine.h"

gw_status gw_stepper_configure(gw_stepper_config *c, const gw_strategy *strategy, gw_error *error) {
    const gw_setting *axes = strategy->axes;
    gw_step_facts facts = {.world = gw_team_size(c->team), .updates = c->options.update != NULL,
                           .sums = c->options.op == GW_SUM, .clips = c->options.clip > 0};
    gw_status status = gw_strategy_check_step(strategy, &facts, error);
    if (status) return status;
    bool servers = gw_strategy_is(strategy, GW_AXIS_ARCH, "ps");
    c->arch = gw_strategy_name(strategy, GW_AXIS_ARCH);
    c->chunk_bytes = (size_t)gw_strategy_integer(strategy, GW_AXIS_ARCH, "chunk");
    c->servers = servers ? (int)gw_strategy_integer(strategy, GW_AXIS_ARCH, "servers") : 0;
    c->policy = gw_policy_of(axes[GW_AXIS_SCHEDULE].technique);
    c->settings = c->policy->settings(axes[GW_AXIS_SCHEDULE].values);
    c->sync = gw_sync_of(axes[GW_AXIS_SYNC].technique);
    c->sync_values = axes[GW_AXIS_SYNC].values;
    return gw_codec_from_setting(axes[GW_AXIS_COMPRESS].technique, axes[GW_AXIS_COMPRESS].values, &c->codec, error);
}

static size_t dense_bytes(const gw_stepper *s, const gw_run *run) {
    gw_plan_request request = {.collective = GW_COLL_ALLREDUCE, .topology = *gw_team_topology(s->config.team),
                               .rank = gw_team_rank(s->config.team), .count = run->count, .root = -1,
                               .chunk_count = 1, .pipeline = GW_PIPELINE};
    size_t element = gw_dtype_bytes(run->dtype);
    const gw_plan_builder *builder = gw_arch_choose(s->config.arch, &request, element);
    return (size_t)gw_plan_cost(builder, &request).elements * element;
}

size_t gw_stepper_sent_bytes(const gw_stepper *s) {
    size_t bytes = 0;
    if (s->ps) return gw_ps_sent_bytes(s->ps);
    for (int p = 0; p < gw_schedule_pieces(s->schedule); p++) {
        const gw_run *run = &s->runs[p];
        bytes += run->exchange ? gw_exchange_sent_bytes(run->exchange) : dense_bytes(s, run);
    }
    return bytes;
}
