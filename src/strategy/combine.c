/* combine.c - which techniques go together in training steps, and why the others do not. docs/combinations.md is
 * written from here (gradwire explain --all). */
#include "strategy/combine.h"

#include "compress/compress.h"
#include "schedule/schedule.h"
#include "sync/sync.h"

static gw_status check_servers(const gw_strategy *s, const gw_step_facts *facts, const gw_sync *sync,
                               const gw_policy *policy, gw_error *error) {
    int64_t servers = gw_strategy_integer(s, GW_AXIS_ARCH, "servers");
    if (servers > facts->world)
        return gw_fail(error, GW_UNSUPPORTED,
                       "arch=ps:servers=%lld: a server runs beside a worker, and the job has %d rank%s",
                       (long long)servers, facts->world, facts->world == 1 ? "" : "s");
    if (policy->splits)
        return gw_fail(error, GW_UNSUPPORTED,
                       "arch=ps with schedule=%s: a server answers when its sum is complete, and there is no half of "
                       "the exchange at which to stop",
                       policy->technique.name);
    if (sync->rule && sync->rule(s->axes[GW_AXIS_SYNC].values).spare >= facts->world)
        return gw_fail(error, GW_UNSUPPORTED, "sync=%s: of %d rank%s at least one has to be waited for",
                       sync->technique.name, facts->world, facts->world == 1 ? "" : "s");
    return GW_OK;
}

static gw_status check_sync(const gw_strategy *s, const gw_step_facts *facts, const gw_sync *sync, gw_error *error) {
    const char *name = sync->technique.name;
    if (sync->rule && !gw_strategy_is(s, GW_AXIS_ARCH, "ps"))
        return gw_fail(error, GW_UNSUPPORTED,
                       "sync=%s with arch=%s: somebody has to keep the weights while workers come and go at their own "
                       "pace: use arch=ps",
                       name, gw_strategy_name(s, GW_AXIS_ARCH));
    if (sync->needs_update && !facts->updates)
        return gw_fail(error, GW_UNSUPPORTED,
                       "sync=%s works on weights: the step has to be given them and an update function", name);
    if (sync->needs_update && !sync->rule && facts->sums)
        return gw_fail(error, GW_UNSUPPORTED, "sync=%s averages over the ranks: GW_SUM has no meaning with it", name);
    if (facts->clips && (sync != &gw_sync_bsp || !facts->updates))
        return gw_fail(error, GW_UNSUPPORTED,
                       "clipping by the norm of all gradients needs sync=bsp and an update function (it is sync=%s)",
                       name);
    return GW_OK;
}

gw_status gw_strategy_check_step(const gw_strategy *s, const gw_step_facts *facts, gw_error *error) {
    const gw_sync *sync = gw_sync_of(s->axes[GW_AXIS_SYNC].technique);
    const gw_policy *policy = gw_policy_of(s->axes[GW_AXIS_SCHEDULE].technique);
    const gw_setting *compress = &s->axes[GW_AXIS_COMPRESS];
    gw_codec_setup setup;
    bool ps = gw_strategy_is(s, GW_AXIS_ARCH, "ps");
    gw_status status = check_sync(s, facts, sync, error);
    if (!status && ps) status = check_servers(s, facts, sync, policy, error);
    if (status) return status;
    status = gw_codec_from_setting(compress->technique, compress->values, &setup, error);
    if (status) return status;
    if (ps && setup.codec != &gw_codec_none)
        return gw_fail(error, GW_UNSUPPORTED, "arch=ps with compress=%s: pushes to servers travel uncompressed",
                       setup.codec->technique.name);
    if (policy->splits && setup.codec->block == 0 && !gw_codec_merges(&setup))
        return gw_fail(error, GW_UNSUPPORTED,
                       "compress=%s with schedule=%s: every rank gathers whole payloads, so there is no half of the "
                       "the exchange at which to stop",
                       setup.codec->technique.name, policy->technique.name);
    return GW_OK;
}
