/* combine.c - which techniques combine in training steps, and why others do not.
 * docs/reference/combinations.md is written from here (gradwire explain --all). */
#include "strategy/combine.h"

#include <string.h>

#include "compress/compress.h"
#include "schedule/schedule.h"
#include "sync/sync.h"

int gw_strategy_servers(const gw_strategy *s) {
    bool has = gw_strategy_is(s, GW_AXIS_ARCH, "ps") || gw_strategy_is(s, GW_AXIS_ARCH, "sfb");
    return has ? (int)gw_strategy_integer(s, GW_AXIS_ARCH, "servers") : 0;
}

bool gw_strategy_compresses(const gw_strategy *s) {
    const gw_codec *codec = gw_codec_find(gw_strategy_name(s, GW_AXIS_COMPRESS));
    return !codec || !codec->identity;
}

bool gw_strategy_keeps_codec_state(const gw_strategy *s) {
    gw_codec_setup setup, second;
    const gw_setting *compress = &s->axes[GW_AXIS_COMPRESS];
    if (gw_codec_from_setting(compress->technique, compress->values, &setup, NULL)) return true;
    second = gw_codec_second(&setup);
    return gw_codec_stateful(&setup) || gw_codec_stateful(&second) || gw_codec_rounds(&setup) > 1;
}

static void set(gw_strategy *s, gw_axis axis, const gw_technique *technique) {
    s->axes[axis] = (gw_setting){.technique = technique};
    gw_technique_default(technique, s->axes[axis].values);
}

static const gw_technique *arch_ps(void) {
    const gw_technique *const *archs = gw_techniques(GW_AXIS_ARCH);
    while (strcmp((*archs)->name, "ps") != 0) archs++;
    return *archs;
}

/* ssp without staleness. Servers that cannot run the update would average those of the workers; as bsp they average
 * gradients, and each worker makes the one update. */
static bool waits_for_all(const gw_setting *sync) {
    const gw_sync *how = gw_sync_of(sync->technique);
    return how->rule && !gw_sync_takes_back(how, sync->values);
}

gw_status gw_strategy_apply_servers(gw_strategy *s, int processes, gw_error *error) {
    if (processes == 0) return GW_OK;
    const char *arch = gw_strategy_name(s, GW_AXIS_ARCH);
    const gw_technique *ps = arch_ps();
    if (strcmp(arch, "auto") == 0) set(s, GW_AXIS_ARCH, ps);
    else if (strcmp(arch, "ps") != 0)
        return gw_fail(error, GW_UNSUPPORTED,
                       "arch=%s: the job has %d server process%s (--servers), which are for arch=ps", arch, processes,
                       processes == 1 ? "" : "es");
    int asked = gw_strategy_servers(s), at = 0;
    if (asked != 1 && asked != processes)
        return gw_fail(error, GW_INVALID, "arch=ps:servers=%d, but the job has %d server process%s (--servers)", asked,
                       processes, processes == 1 ? "" : "es");
    while (strcmp(ps->params[at].name, "servers") != 0) at++;
    s->axes[GW_AXIS_ARCH].values[at] = processes;
    if (waits_for_all(&s->axes[GW_AXIS_SYNC])) set(s, GW_AXIS_SYNC, &gw_sync_bsp.technique);
    return GW_OK;
}

void gw_strategy_apply_clip(gw_strategy *s) {
    if (waits_for_all(&s->axes[GW_AXIS_SYNC])) set(s, GW_AXIS_SYNC, &gw_sync_bsp.technique);
}

/* Checks a strategy whose servers run in their own processes. */
static gw_status check_apart(const gw_strategy *s, gw_error *error) {
    if (gw_strategy_integer(s, GW_AXIS_ARCH, "replicas") && gw_strategy_servers(s) < 2)
        return gw_fail(error, GW_UNSUPPORTED,
                       "arch=ps:replicas=1: the second server needs a second server process "
                       "(--servers 2)");
    return GW_OK;
}

static gw_status check_servers(const gw_strategy *s, const gw_reducer_facts *facts, const gw_sync *sync,
                               const gw_policy *policy, gw_error *error) {
    const char *arch = gw_strategy_name(s, GW_AXIS_ARCH);
    int servers = gw_strategy_servers(s);
    if (facts->apart) {
        gw_status status = check_apart(s, error);
        if (status) return status;
    } else if (servers > facts->world)
        return gw_fail(error, GW_UNSUPPORTED,
                       "arch=%s:servers=%d: a server runs beside a worker, and the job has %d rank%s", arch, servers,
                       facts->world, facts->world == 1 ? "" : "s");
    if (policy->splits)
        return gw_fail(error, GW_UNSUPPORTED,
                       "arch=%s with schedule=%s: a server answers when its sum is complete, and there is no half of "
                       "the exchange at which to stop",
                       arch, policy->technique.name);
    if (sync->rule && sync->rule(s->axes[GW_AXIS_SYNC].values).spare >= facts->world)
        return gw_fail(error, GW_UNSUPPORTED, "sync=%s: of %d rank%s at least one has to be waited for",
                       sync->technique.name, facts->world, facts->world == 1 ? "" : "s");
    return GW_OK;
}

/* Checks replicas and snapshots of servers. */
static gw_status check_kept(const gw_strategy *s, const gw_reducer_facts *facts, const gw_sync *sync,
                            const gw_policy *policy, gw_error *error) {
    const gw_technique *codec = s->axes[GW_AXIS_COMPRESS].technique;
    bool copies = gw_strategy_integer(s, GW_AXIS_ARCH, "replicas") > 0;
    bool writes = gw_strategy_integer(s, GW_AXIS_ARCH, "snapshot") > 0;
    if (copies && !facts->apart && facts->world < 2)
        return gw_fail(error, GW_UNSUPPORTED, "arch=ps:replicas=1: the second server needs a second rank");
    if (writes && !sync->rule)
        return gw_fail(error, GW_UNSUPPORTED,
                       "arch=ps:snapshot with sync=%s: servers only add up, the workers have the weights: write a "
                       "checkpoint of theirs",
                       sync->technique.name);
    if ((copies || writes) && gw_strategy_keeps_codec_state(s))
        return gw_fail(error, GW_UNSUPPORTED,
                       "arch=ps:%s with compress=%s: what it leaves for later lies on both sides, and one side's "
                       "alone does not fit the other's after a loss: use a codec that leaves nothing, such as fp16, "
                       "or int8, qsgd and terngrad without feedback",
                       copies ? "replicas" : "snapshot", codec->name);
    if ((copies || writes) && policy->settings(s->axes[GW_AXIS_SCHEDULE].values).measured)
        return gw_fail(error, GW_UNSUPPORTED,
                       "arch=ps:%s with schedule=%s: buckets are cut again when they have been measured, and what was "
                       "kept of a server before would not fit",
                       copies ? "replicas" : "snapshot", policy->technique.name);
    return GW_OK;
}

static gw_status check_sync(const gw_strategy *s, const gw_reducer_facts *facts, const gw_sync *sync, gw_error *error) {
    const char *name = sync->technique.name;
    const char *why = sync->refuses ? sync->refuses(s->axes[GW_AXIS_SYNC].values) : NULL;
    if (why) return gw_fail(error, GW_UNSUPPORTED, "sync=%s: %s", name, why);
    if (sync->rule && !gw_strategy_servers(s))
        return gw_fail(error, GW_UNSUPPORTED,
                       "sync=%s: somebody has to keep the weights while workers come and go at their own pace: use "
                       "arch=ps, or arch=sfb:servers=N",
                       name);
    if (sync->needs_update && !facts->updates)
        return gw_fail(error, GW_UNSUPPORTED,
                       "sync=%s works on weights: the step has to be given them and an update function", name);
    if (sync->needs_update && !sync->rule && facts->sums)
        return gw_fail(error, GW_UNSUPPORTED, "sync=%s averages over the ranks: GW_SUM has no meaning with it", name);
    if (facts->clips && !facts->updates)
        return gw_fail(error, GW_UNSUPPORTED,
                       "clipping by the norm of all gradients needs an update function: without one, clip the results "
                       "after gw_reducer_wait");
    return GW_OK;
}

/* Differences of weights travel, not gradients. */
static bool moves_weights(const gw_sync *sync, const gw_reducer_facts *facts) {
    return sync->local || (sync->rule && facts->apart);
}

void gw_strategy_choose_codec(gw_strategy *s, const gw_reducer_facts *facts) {
    gw_setting *compress = &s->axes[GW_AXIS_COMPRESS];
    bool takes = facts->momentum > 0 && !moves_weights(gw_sync_of(s->axes[GW_AXIS_SYNC].technique), facts);
    gw_codec_run run = {.momentum = takes ? facts->momentum : 0, .steps = facts->steps};
    gw_codec_choose(compress->technique, compress->values, &run);
}

/* A second momentum beside the optimiser's would multiply its steps by 1/(1-m). */
static gw_status check_momentum(const gw_reducer_facts *facts, const gw_codec_setup *setup, const gw_sync *sync,
                                gw_error *error) {
    const char *name = setup->codec->technique.name;
    double momentum = gw_codec_momentum(setup);
    if (momentum == 0) return GW_OK;
    if (moves_weights(sync, facts))
        return gw_fail(error, GW_UNSUPPORTED,
                       "compress=%s with sync=%s%s: its momentum is that of gradients, and differences of weights "
                       "travel here: use momentum=0",
                       name, sync->technique.name, sync->local ? "" : " and server processes (--servers)");
    if (facts->keeps_momentum)
        return gw_fail(error, GW_UNSUPPORTED,
                       "compress=%s takes the optimiser's momentum over, and this optimiser keeps its own beside it: "
                       "use %s:momentum=0, or an optimiser with one plain momentum for all tensors, as sgd's without "
                       "nesterov and dampening",
                       name, name);
    if (facts->momentum < 0)
        return gw_fail(error, GW_UNSUPPORTED,
                       "compress=%s:momentum=%g: the program does not say which momentum its optimiser has, and with "
                       "both the steps would be too large: use %s:momentum=0, or set gw_reducer_options.momentum_use",
                       name, momentum, name);
    if (setup->limit > 0)
        return gw_fail(error, GW_UNSUPPORTED,
                       "compress=%s:limit with momentum: a tensor that is sent exact for a while would have none: use "
                       "momentum=0, or leave limit out",
                       name);
    return GW_OK;
}

/* Settings that would do nothing, or harm. */
static gw_status check_codec(const gw_strategy *s, const gw_reducer_facts *facts, const gw_codec_setup *setup,
                             const gw_sync *sync, gw_error *error) {
    const char *name = s->axes[GW_AXIS_COMPRESS].technique->name;
    bool served = gw_strategy_servers(s) > 0;
    gw_coded_form form = served ? gw_coded_form_served(setup, sync->rule != NULL) : gw_coded_form_of(setup, 2, false);
    if (setup->feedback == GW_FEEDBACK_BOTH && form == GW_FORM_IN_FLIGHT)
        return gw_fail(error, GW_UNSUPPORTED,
                       "compress=%s:feedback=both: payloads are %s, so there is no owner that encodes again and could "
                       "keep a residual: use feedback=worker",
                       name, served ? "merged by servers" : "reduced in flight");
    if (setup->form != GW_FORM_AUTO && served)
        return gw_fail(error, GW_UNSUPPORTED,
                       "compress=%s:form= with arch=%s: servers add payloads up, or merge them, and there is no other "
                       "way through them: leave form out",
                       name, gw_strategy_name(s, GW_AXIS_ARCH));
    if (sync->rule && gw_codec_has_need(setup, GW_NEEDS_SAME_STEP))
        return gw_fail(error, GW_UNSUPPORTED,
                       "compress=%s:shared with sync=%s: ranks agree on a scale first, and here they are in different "
                       "steps: leave shared out",
                       name, sync->technique.name);
    return check_momentum(facts, setup, sync, error);
}

gw_status gw_strategy_check_step(const gw_strategy *s, const gw_reducer_facts *facts, gw_error *error) {
    const gw_sync *sync = gw_sync_of(s->axes[GW_AXIS_SYNC].technique);
    const gw_policy *policy = gw_policy_of(s->axes[GW_AXIS_SCHEDULE].technique);
    const gw_setting *compress = &s->axes[GW_AXIS_COMPRESS];
    gw_codec_setup setup;
    gw_status status = check_sync(s, facts, sync, error);
    if (!status && gw_strategy_servers(s)) status = check_servers(s, facts, sync, policy, error);
    if (!status && gw_strategy_is(s, GW_AXIS_ARCH, "ps")) status = check_kept(s, facts, sync, policy, error);
    if (status) return status;
    status = gw_codec_from_setting(compress->technique, compress->values, &setup, error);
    return status ? status : check_codec(s, facts, &setup, sync, error);
}

gw_status gw_strategy_combine(gw_axis a, const gw_technique *first, gw_axis b, const gw_technique *second, int world,
                              gw_strategy *line, gw_error *error) {
    gw_reducer_facts facts = {.world = world, .updates = true};
    gw_strategy s;
    gw_strategy_default(&s);
    set(&s, a, first);
    set(&s, b, second);
    if (gw_sync_of(s.axes[GW_AXIS_SYNC].technique)->rule && a != GW_AXIS_ARCH && b != GW_AXIS_ARCH)
        set(&s, GW_AXIS_ARCH, arch_ps());
    *line = s;
    return gw_strategy_check_step(&s, &facts, error);
}
