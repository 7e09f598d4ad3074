/* predict.c - see predict.h. Assembles the input of step_model.c: tensors, a schedule and its facts, the collectives of
 * each bucket, the network. */
#include "predict/predict.h"

#include <math.h>
#include <stdlib.h>

#include "arch/choose_plan.h"
#include "engine/engine.h"
#include "predict/step_model.h"
#include "strategy/combine.h"

/* A link is slow if its rate is below, or its latency above, this many times the median; smaller differences are noise
 * of the measurement. */
#define SLOW_RATE 0.8
#define SLOW_LATENCY 2

typedef struct assembly {
    const gw_predict_config *config;
    gw_fabric fabric;
    gw_topology topology;
    int *host_of;
    gw_team_model teams;
    gw_dispatch_model dispatch_model;
    gw_dispatch_tensors tensors;
    gw_schedule **schedules; /* rank 0's, with servers those of all ranks */
    int schedule_count;
    gw_dispatch *dispatches;
    double *forward_us, *backward_us;
    gw_fabric_pair slow[GW_MACHINE_LINKS_MAX];
    gw_plan_sim_config run;
} assembly;

/* Sets the slow links of the machine file, if they were measured between as many hosts as the job has. */
static void set_slow_links(assembly *s, int hosts) {
    const gw_machine *m = s->config->machine;
    int count = 0;
    if (s->fabric.spec.kind != GW_FABRIC_SWITCH || gw_machine_link_hosts(m) != hosts) return;
    for (int i = 0; i < m->link_count; i++) {
        bool slower = m->links[i].rate < SLOW_RATE * m->rate || m->links[i].latency > SLOW_LATENCY * m->latency;
        gw_fabric_pair pair = m->links[i];
        pair.latency = fmax(pair.latency, s->fabric.latency);
        pair.rate = fmin(pair.rate, s->fabric.rate);
        if (slower) s->slow[count++] = pair;
    }
    gw_fabric_set_pairs(&s->fabric, s->slow, count);
}

static gw_status set_network(assembly *s, gw_error *error) {
    const gw_predict_config *c = s->config;
    int hosts = c->ranks / c->per_host;
    gw_status status = gw_fabric_make(&s->fabric, &c->fabric, hosts, error);
    if (status) return status;
    gw_arch_speed link = gw_machine_arch(c->machine, gw_strategy_name(c->strategy, GW_AXIS_ARCH));
    s->fabric.rate = link.rate;
    s->fabric.latency = link.latency;
    set_slow_links(s, hosts);
    s->fabric.burst = c->machine->burst;
    s->fabric.memory_rate = c->machine->memory;
    s->fabric.memory_latency = c->machine->memory_latency;
    s->host_of = calloc((size_t)c->ranks, sizeof *s->host_of);
    if (!s->host_of) return gw_fail(error, GW_MEMORY, "out of memory for %d ranks", c->ranks);
    for (int rank = 0; rank < c->ranks; rank++) s->host_of[rank] = rank / c->per_host;
    bool shm = gw_strategy_shares_memory(c->strategy);
    s->topology = (gw_topology){.world = c->ranks, .host_of = s->host_of, .coll = shm && c->per_host > 1};
    s->run = (gw_plan_sim_config){.topology = s->topology, .fabric = &s->fabric, .reduce_rate = c->machine->reduce,
                             .message_seconds = c->machine->message,
                             .queue_bytes = c->machine->queue, .ahead_bytes = c->machine->ahead};
    return gw_team_model_open(&s->teams, &s->topology, error);
}

/* Facts for scheduling policies, derived from two all-reduces as the reducer measures them (reducer/step_timing.c). */

typedef struct timing {
    gw_plan_sim *sim;
    double last;
} timing;

static void note_end(void *ctx, int rank, int tag) {
    timing *t = ctx;
    (void)rank;
    (void)tag;
    t->last = gw_plan_sim_now(t->sim);
}

static gw_status time_allreduce(const assembly *s, size_t count, double *us, gw_error *error) {
    gw_plan_request request = {.collective = GW_COLL_ALLREDUCE, .topology = s->topology, .count = count, .root = -1,
                               .chunk_count = 1, .pipeline = GW_PIPELINE};
    const char *arch = gw_strategy_name(s->config->strategy, GW_AXIS_ARCH);
    gw_plan_sim_spec spec = {.collective = GW_COLL_ALLREDUCE, .builder = gw_arch_choose(arch, &request, sizeof(float)),
                        .count = count, .unit_bytes = sizeof(float), .root = -1};
    timing t = {.sim = NULL};
    gw_plan_sim_op *op;
    gw_fabric fabric = s->fabric;
    gw_plan_sim_config config = s->run;
    fabric.folded =
        fabric.spec.kind == GW_FABRIC_SWITCH && !fabric.pair_count && gw_plan_sim_folds(&spec, &s->topology);
    config.fabric = &fabric;
    config.done = note_end;
    config.ctx = &t;
    gw_status status = gw_plan_sim_open(&t.sim, &config, error);
    if (!status) status = gw_plan_sim_prepare(t.sim, &spec, &op, error);
    for (int rank = 0; !status && rank < gw_plan_sim_ranks(t.sim); rank++) gw_plan_sim_start(t.sim, op, rank);
    while (!status && gw_plan_sim_run_next(t.sim, error)) continue;
    *us = t.last * 1e6;
    gw_plan_sim_close(t.sim);
    return status;
}

/* Assigns a layer's compute to its last tensor, which is also the first that its backward pass completes. Compute of a
 * layer without tensors is added to the closest earlier layer that has tensors. */
static void spread_compute(assembly *s) {
    const gw_profile *profile = s->config->profile;
    int tensor = s->tensors.count - 1;
    double waiting = 0;
    for (int l = profile->count - 1; l >= 0; l--) {
        waiting += profile->layers[l].backward_us;
        if (tensor < 0 || s->tensors.layer[tensor] != l) continue;
        s->backward_us[tensor] = waiting;
        waiting = 0;
        while (tensor >= 0 && s->tensors.layer[tensor] == l) tensor--;
    }
    int last = -1;
    for (int l = 0, t = 0; l < profile->count; l++) {
        while (t < s->tensors.count && s->tensors.layer[t] == l) last = t++;
        if (last >= 0) s->forward_us[last] += profile->layers[l].forward_us;
    }
}

static gw_status gather_facts(assembly *s, gw_schedule_facts *facts, gw_error *error) {
    enum { SMALL = 1024, LARGE = 256 * 1024 };
    double small = 0, large = 0;
    size_t n = (size_t)s->tensors.count + 1;
    s->forward_us = calloc(n, sizeof *s->forward_us);
    s->backward_us = calloc(n, sizeof *s->backward_us);
    if (!s->forward_us || !s->backward_us) return gw_fail(error, GW_MEMORY, "out of memory for times of tensors");
    spread_compute(s);
    gw_status status = time_allreduce(s, SMALL, &small, error);
    if (!status) status = time_allreduce(s, LARGE, &large, error);
    *facts = (gw_schedule_facts){.alpha_us = small, .forward_us = s->forward_us, .backward_us = s->backward_us,
                                 .us_per_byte = (large - small) / ((LARGE - SMALL) * sizeof(float))};
    return status;
}

static gw_status set_schedule(assembly *s, gw_error *error) {
    const gw_setting *setting = &s->config->strategy->axes[GW_AXIS_SCHEDULE];
    const gw_policy *policy = gw_policy_of(setting->technique);
    gw_schedule_settings settings = policy->settings(setting->values);
    settings.one_queue = s->config->machine->at_once == 1;
    settings.parts = s->dispatch_model.servers ? 0 : s->config->ranks;
    int count = s->dispatch_model.servers ? s->config->ranks : 1;
    s->schedules = calloc((size_t)count, sizeof(gw_schedule *));
    gw_status status = s->schedules ? GW_OK : gw_fail(error, GW_MEMORY, "out of memory for %d schedules", count);
    for (; !status && s->schedule_count < count; s->schedule_count += !status)
        status = gw_schedule_open(&s->schedules[s->schedule_count], policy, &settings, s->tensors.what,
                                  s->tensors.count, error);
    if (status || !settings.measured || s->config->ranks == 1) return status;
    gw_schedule_facts facts;
    status = gather_facts(s, &facts, error);
    for (int i = 0; i < count && !status; i++) gw_schedule_cut(s->schedules[i], &settings, &facts);
    return status;
}

static bool stage_folds(const assembly *s, const gw_dispatch_stage *stage) {
    for (int k = 0; k < stage->count; k++) {
        int index, member;
        gw_plan_sim_spec spec = stage->specs[k];
        if (stage->team == GW_TEAM_HOST || stage->team == GW_TEAM_LANE)
            spec.team = gw_team_model_of(&s->teams, stage->team, 0, &index, &member);
        if (!gw_plan_sim_folds(&spec, &s->topology)) return false;
    }
    return true;
}

static bool all_fold(const assembly *s) {
    if (s->config->unfolded || s->fabric.spec.kind != GW_FABRIC_SWITCH || s->fabric.pair_count) return false;
    if (s->dispatch_model.servers) return false; /* servers are not like workers */
    for (int p = 0; p < gw_schedule_buckets(s->schedules[0]); p++)
        for (int i = 0; i < s->dispatches[p].count; i++)
            if (!stage_folds(s, &s->dispatches[p].stages[i])) return false;
    return s->teams.hosts > 1;
}

static gw_status set_dispatches(assembly *s, gw_error *error) {
    int buckets = gw_schedule_buckets(s->schedules[0]);
    s->dispatches = calloc((size_t)buckets + 1, sizeof *s->dispatches);
    if (!s->dispatches) return gw_fail(error, GW_MEMORY, "out of memory for %d buckets", buckets);
    gw_status status = gw_dispatch_model_plan(&s->dispatch_model, &s->tensors, s->schedules[0], s->dispatches, error);
    if (!status) s->fabric.folded = all_fold(s);
    return status;
}

/* As for a real job of this size; and what is not modelled. */
static gw_status check(const gw_predict_config *c, gw_error *error) {
    gw_strategy_facts job = {.hosts = c->ranks / c->per_host};
    gw_reducer_facts facts = {.world = c->ranks, .updates = true};
    gw_status status = gw_strategy_check(c->strategy, &job, error);
    if (!status) status = gw_strategy_check_step(c->strategy, &facts, error);
    if (status) return status;
    if (gw_strategy_is(c->strategy, GW_AXIS_ARCH, "mpi"))
        return gw_fail(error, GW_UNSUPPORTED, "arch=mpi is not predicted: how MPI's all-reduce works is not known");
    if (gw_strategy_is(c->strategy, GW_AXIS_ARCH, "ps") && gw_strategy_integer(c->strategy, GW_AXIS_ARCH, "replicas"))
        return gw_fail(error, GW_UNSUPPORTED,
                       "arch=ps:replicas=1 is not predicted: what servers copy to each other is not modelled; use "
                       "replicas=0");
    return GW_OK;
}

static gw_status set_up(assembly *s, gw_error *error) {
    const gw_predict_config *c = s->config;
    gw_status status = check(c, error);
    if (!status) status = set_network(s, error);
    if (!status) status = gw_dispatch_model_make(&s->dispatch_model, c->strategy, c->machine, &s->teams, error);
    if (!status) status = gw_dispatch_tensors_make(&s->tensors, &s->dispatch_model, c->profile, error);
    if (!status) status = set_schedule(s, error);
    return status ? status : set_dispatches(s, error);
}

static void take_down(assembly *s) {
    for (int p = 0; s->dispatches && p < gw_schedule_buckets(s->schedules[0]); p++) gw_dispatch_free(&s->dispatches[p]);
    free(s->dispatches);
    for (int i = 0; i < s->schedule_count; i++) gw_schedule_close(s->schedules[i]);
    free(s->schedules);
    gw_dispatch_tensors_free(&s->tensors);
    gw_team_model_close(&s->teams);
    free(s->backward_us);
    free(s->forward_us);
    free(s->host_of);
}

/* Steps from one exchange to the next. */
static int cycle_of(const gw_sync *sync, const double *values) {
    enum { CYCLE_MAX = 1000 };
    int first = -1;
    for (int step = 0; sync->exchanges && step < CYCLE_MAX; step++) {
        if (!sync->exchanges(values, GW_STEP_MODEL_FIRST + (uint64_t)step)) continue;
        if (first >= 0) return step - first;
        first = step;
    }
    return 1;
}

/* So many steps that workers are as far apart as the rule lets them, if the fast ones are a quarter faster; where they
 * are less, it matters less. */
static int warm_steps(const gw_sync *sync, const double *values) {
    enum { APART_MAX = 16 };
    if (!sync->rule) return 2 * cycle_of(sync, values);
    gw_sync_rule rule = sync->rule(values);
    return 4 + 4 * (rule.at_once && rule.staleness <= APART_MAX ? (int)rule.staleness : 0);
}

/* The number of steps whose mean is the prediction. Workers that do not wait for each other contend for the servers
 * differently in every step, so more steps are needed. */
static int counted_steps(const gw_sync *sync, const double *values, int warm) {
    enum { AT_ONCE_LEAST = 16 };
    bool at_once = sync->rule && sync->rule(values).at_once;
    return at_once && warm < AT_ONCE_LEAST ? AT_ONCE_LEAST : warm;
}

/* What a rank computes in a step. */
typedef struct computing {
    double seconds;      /* in all */
    double factor;       /* on the profile's times */
    double update;       /* seconds that the optimiser takes for a byte of parameters */
    double interference; /* seconds that computing loses for a byte that is exchanged beside it */
} computing;

/* The optimiser takes at most nine tenths of a step that contains it. */
static computing computing_of(const gw_predict_config *config) {
    const gw_machine *m = config->machine;
    double passes = gw_profile_seconds(config->profile) * m->compute;
    double bytes = (double)gw_profile_parameter_bytes(config->profile);
    double update = m->update > 0 ? bytes / m->update : 0;
    if (config->profile->whole_steps) update = fmin(update, 0.9 * passes);
    double seconds = config->profile->whole_steps ? passes : passes + update;
    return (computing){.seconds = seconds, .factor = m->compute * (seconds - update) / passes,
                       .update = bytes > 0 ? update / bytes : 0,
                       .interference = m->interference > 0 ? 1 / m->interference : 0};
}

gw_status gw_predict(const gw_predict_config *config, gw_prediction *prediction, gw_error *error) {
    const gw_setting *sync = &config->strategy->axes[GW_AXIS_SYNC];
    assembly s = {.config = config};
    gw_status status = set_up(&s, error);
    gw_step_model_result result;
    computing work = computing_of(config);
    if (!status) {
        const gw_sync *rule = gw_sync_of(sync->technique);
        int warm = warm_steps(rule, sync->values), counted = counted_steps(rule, sync->values, warm);
        gw_step_model_config steps = {.profile = config->profile, .tensors = &s.tensors, .schedules = s.schedules,
                                 .servers = s.dispatch_model.servers > 0, .teams = &s.teams,
                                 .dispatches = s.dispatches, .sync = rule,
                                 .sync_values = sync->values, .compute = work.factor,
                                 .interference = work.interference, .update = work.update,
                                 .decide = config->machine->decide,
                                 .at_once = (int)config->machine->at_once, .run = s.run,
                                 .warm = warm, .steps = warm + counted, .progress = config->progress,
                                 .ctx = config->ctx, .until = config->until};
        status = gw_step_model_run(&steps, &result, error);
    }
    if (!status) {
        *prediction = (gw_prediction){.step_seconds = result.step_seconds, .compute_seconds = work.seconds,
                                      .exposed_seconds = fmax(result.step_seconds - work.seconds, 0),
                                      .efficiency = work.seconds / result.step_seconds, .bytes = result.bytes,
                                      .messages = result.messages, .path = result.path, .folded = s.fabric.folded,
                                      .buckets = gw_schedule_buckets(s.schedules[0]), .simulated = result.simulated,
                                      .samples_per_second =
                                          config->ranks * config->profile->batch / result.step_seconds};
    }
    take_down(&s);
    return status;
}
