/* ps_sim.c - see ps_sim.h: processes and their programs. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/ps_sim_internal.h"
#include "strategy/combine.h"

#define TEAM 1
#define LIMIT (600 * GW_SECOND) /* of virtual time, between two losses */

typedef gw_ps_sim_job job;
typedef gw_ps_sim_process process;

void gw_ps_sim_broken(job *j, const char *format, ...) {
    char what[400], line[GW_STRATEGY_PRINT_BYTES];
    if (!j->outcome->ok) return;
    j->outcome->ok = false;
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    gw_strategy_print(&j->spec->strategy, line, sizeof line);
    snprintf(j->outcome->text, sizeof j->outcome->text, "%.300s (generation %d, %d workers, %d apart, %.200s)", what,
             j->generation, j->spec->workers, j->spec->apart, line);
}

/* A worker's program. Each part returns false while it waits. */

static void compute(process *p, gw_ps_sim_phase next, gw_time at_most) {
    p->phase = next;
    p->until = gw_sim_now(p->base.sim->net) + gw_rng_below(&p->rng, at_most + 1);
    gw_sim_timer(p->base.sim->net, p->base.rank, p->until);
}

static bool pull(process *p) {
    if (!gw_step_engine_usable(p->step_engine, p->tensor)) return false;
    if (++p->tensor == p->job->spec->tensors) compute(p, GW_PS_SIM_COMPUTE, p->job->spec->pace[p->member]);
    return true;
}

static void end_step(process *p) {
    gw_error error = {.rank = -1};
    if (gw_step_engine_end(p->step_engine, &error)) gw_ps_sim_broken(p->job, "member %d: %s", p->member, error.text);
    p->steps_done++;
    p->job->outcome->pushes++;
    p->tensor = 0;
    p->phase = p->first + (uint64_t)p->steps_done < (uint64_t)p->job->spec->steps ? GW_PS_SIM_PULL : GW_PS_SIM_FLUSH;
}

static void compute_gradient(const process *p, int tensor) {
    const job *j = p->job;
    const gw_ps_sim_training *training = j->spec->training;
    float *gradient = p->gradients + j->at[tensor];
    if (training) training->gradient(p->member, p->steps_done, tensor, gradient);
    for (size_t i = 0; !training && i < j->spec->count[tensor]; i++)
        gradient[i] = gw_ps_sim_gradient(j, p->member, j->at[tensor] + i);
}

static bool hand_over(process *p) {
    job *j = p->job;
    int t = p->tensor - 1;
    gw_error error = {.rank = -1};
    bool complete;
    if (!gw_step_engine_settled(p->step_engine, t)) return false; /* the last exchange still runs */
    compute_gradient(p, t);
    p->now.begun[t]++;
    p->now.begun_in[t] = (uint32_t)j->generation;
    if (gw_step_engine_ready(p->step_engine, &t, 1, &complete, &error))
        gw_ps_sim_broken(j, "member %d: %s", p->member, error.text);
    p->tensor--;
    if (p->tensor == 0) end_step(p);
    else if (gw_rng_below(&p->rng, 2)) compute(p, GW_PS_SIM_HAND_OVER, j->spec->pace[p->member] / 8);
    return true;
}

static bool flush(process *p) {
    for (int t = 0; t < p->job->spec->tensors; t++)
        if (!gw_step_engine_settled(p->step_engine, t)) return false;
    gw_step_engine_settle(p->step_engine);
    p->phase = GW_PS_SIM_BARRIER;
    return true;
}

static bool all_reached(const job *j, gw_ps_sim_phase phase) {
    for (int r = 0; r < j->base.world; r++) {
        const process *p = &j->members[j->member_of[r]];
        if (gw_ps_sim_works(p) && p->lives && p->phase < phase) return false;
    }
    return true;
}

static bool barrier(process *p) {
    job *j = p->job;
    if (j->spec->meets && !all_reached(j, GW_PS_SIM_BARRIER)) return false;
    p->phase = GW_PS_SIM_LEAVE;
    gw_step_engine_leave(p->step_engine);
    for (int r = 0; r < j->base.world; r++) gw_sim_timer(j->base.net, r, gw_sim_now(j->base.net)); /* wake all */
    return true;
}

static bool leave(process *p) {
    if (!gw_step_engine_quiet(p->step_engine)) return false;
    p->phase = GW_PS_SIM_OVER;
    return true;
}

static bool go_on(process *p) {
    bool computed = gw_sim_now(p->base.sim->net) >= p->until;
    switch (p->phase) {
    case GW_PS_SIM_PULL: return pull(p);
    case GW_PS_SIM_COMPUTE:
        if (computed) p->phase = GW_PS_SIM_HAND_OVER;
        return computed;
    case GW_PS_SIM_HAND_OVER: return computed && hand_over(p);
    case GW_PS_SIM_FLUSH: return flush(p);
    case GW_PS_SIM_BARRIER: return barrier(p);
    case GW_PS_SIM_LEAVE: return leave(p);
    case GW_PS_SIM_OVER: break;
    }
    return false;
}

/* Checks answers on arrival, before another process can be lost. */
static void check_answers(process *p) {
    for (int t = 0; t < p->job->spec->tensors; t++) {
        if (p->now.answered[t] == p->now.begun[t] || !gw_step_engine_settled(p->step_engine, t)) continue;
        p->now.answered[t] = p->now.begun[t];
        gw_ps_sim_check_pull(p, t);
    }
}

/* The network's events. */

static void on_moved(void *ctx, int rank) {
    job *j = ctx;
    process *p = &j->members[j->member_of[rank]];
    bool moved = true;
    while (moved && j->outcome->ok && !p->failed) {
        moved = gw_core_poll(p->base.core, gw_sim_now(j->base.net));
        const gw_error *error = gw_step_engine_error(p->step_engine);
        if (error->status && !p->failed) gw_ps_sim_broken(j, "member %d: %s", p->member, error->text);
        if (p->failed || !j->outcome->ok) return;
        check_answers(p);
        moved |= go_on(p);
    }
}

static void on_timer(void *ctx, int rank) {
    job *j = ctx;
    gw_core_poll_control(j->members[j->member_of[rank]].base.core, gw_sim_now(j->base.net));
    on_moved(ctx, rank);
}

/* Callbacks of the core. */

static void failed(void *ctx, const gw_error *error) {
    process *p = ctx;
    p->failed = true;
    if (!p->job->loss) gw_ps_sim_broken(p->job, "member %d: %s", p->member, error->text);
}

/* Processes. */

gw_status gw_ps_sim_start_process(job *j, int member, gw_error *error) {
    process *p = &j->members[member];
    uint64_t stream = 100 + (uint64_t)member + 16 * (uint64_t)j->generation;
    *p = (process){.job = j,
                   .member = member,
                   .lives = true,
                   .fresh = true,
                   .born = (uint32_t)j->generation,
                   .past = p->past,
                   .rng = gw_rng_make(j->spec->seed, stream)};
    p->gradients = calloc(j->total + 1, sizeof *p->gradients);
    p->weights = calloc(j->total + 1, sizeof *p->weights);
    p->now.before = calloc(j->total + 1, sizeof *p->now.before);
    if (!p->gradients || !p->weights || !p->now.before)
        return gw_fail(error, GW_MEMORY, "out of memory for a simulated process");
    if (j->spec->training) memcpy(p->weights, j->spec->training->weights, j->total * sizeof *p->weights);
    return GW_OK;
}

void gw_ps_sim_disconnect(process *p) {
    gw_error over = {.status = GW_ABORTED, .rank = -1};
    if (!p->base.core) return;
    gw_engine_fail(gw_core_engine(p->base.core), &over);
    if (p->callback.ctx) gw_core_detach(p->base.core, &p->callback);
    p->callback.ctx = NULL;
}

/* The step engine must be detached from the team before. */
static void close_links(process *p) {
    gw_team_close(p->team);
    gw_core_close(p->base.core);
    p->team = NULL;
    p->base.core = NULL;
}

void gw_ps_sim_kill_process(process *p) {
    if (p->fresh) {
        free(p->now.before); /* it has made no push */
    } else if (p->lives) {
        free(p->past.before);
        p->past = p->now;
    }
    p->now.before = NULL;
    gw_ps_sim_disconnect(p);
    gw_step_engine_close(p->step_engine);
    close_links(p);
    free(p->flat);
    free(p->weights);
    free(p->gradients);
    p->step_engine = NULL;
    p->flat = p->weights = p->gradients = NULL;
    p->lives = false;
}

gw_status gw_ps_sim_connect(process *p, int rank, gw_error *error) {
    job *j = p->job;
    bool all[GW_PS_SIM_MEMBERS_MAX];
    gw_core_config config = {.deadline = GW_PS_SIM_DEADLINE, .failed = failed};
    memset(all, true, sizeof all);
    close_links(p);
    p->failed = false;
    gw_status status = gw_control_sim_open_rank(&p->base, &j->base, rank, config, error);
    return status ? status : gw_control_sim_team(&p->base, &p->team, TEAM, all, NULL, NULL, error);
}

static void update(void *ctx, const gw_reducer_update *u) {
    float *weights = u->weights;
    const float *gradient = u->gradient;
    (void)ctx;
    for (size_t i = 0; i < u->count; i++) weights[i] -= (float)(u->rate_scale * u->scale) * gradient[i];
}

gw_status gw_ps_sim_commit(process *p, const gw_ps_member *who, gw_error *error) {
    job *j = p->job;
    char names[GW_PS_SIM_TENSORS_MAX][24];
    gw_reducer_tensor tensors[GW_PS_SIM_TENSORS_MAX];
    const gw_sync *sync = gw_sync_of(j->spec->strategy.axes[GW_AXIS_SYNC].technique);
    const gw_ps_sim_training *training = j->spec->training;
    bool sums = !training && (sync->rule || sync->synchronous);
    gw_step_engine_config config = {.core = p->base.core, .team = p->team, .first_id = TEAM + 1, .tensors = tensors,
                                .count = j->spec->tensors, .serves_only = !gw_ps_sim_works(p), .members = who,
                                .options = GW_REDUCER_OPTIONS_DEFAULT};
    config.options.op = sums ? GW_SUM : GW_AVG;
    config.options.seed = j->spec->seed;
    config.options.clip = gw_ps_sim_clip(j, p->member);
    config.options.update = training ? training->update : update;
    config.options.ctx = training ? training->ctx[p->member] : NULL;
    config.options.whole_tensors = training && training->whole_tensors;
    for (int t = 0; t < j->spec->tensors; t++) {
        snprintf(names[t], sizeof names[t], "tensor%d", t);
        tensors[t] = (gw_reducer_tensor){.name = names[t], .count = j->spec->count[t], .dtype = GW_F32,
                                      .gradient = p->gradients + j->at[t], .weights = p->weights + j->at[t]};
    }
    gw_status status = gw_step_engine_config_from_strategy(&config, &j->spec->strategy, error);
    if (status) return status;
    size_t bytes = gw_step_engine_flat_bytes(&config);
    if (bytes && !(p->flat = malloc(bytes))) return gw_fail(error, GW_MEMORY, "out of memory for a simulated process");
    config.flat = p->flat;
    return gw_step_engine_open(&p->step_engine, &config, error);
}

static bool poll_step_engine(void *ctx, gw_time now) { return gw_step_engine_poll(((process *)ctx)->step_engine, now); }
static bool step_engine_busy(void *ctx) { return gw_step_engine_busy(((process *)ctx)->step_engine); }

void gw_ps_sim_continue(process *p) {
    p->callback = (gw_progress_callback){.ctx = p, .poll = poll_step_engine, .busy = step_engine_busy};
    gw_core_attach(p->base.core, &p->callback);
    gw_sim_timer(p->base.sim->net, p->base.rank, 1);
    if (p->fresh && !gw_ps_sim_works(p)) {
        p->phase = GW_PS_SIM_LEAVE; /* a server makes no steps; it ends when all workers have left */
        gw_step_engine_leave(p->step_engine);
    } else if (p->fresh && p->first >= (uint64_t)p->job->spec->steps) {
        p->phase = GW_PS_SIM_FLUSH;
    }
    if (p->phase == GW_PS_SIM_COMPUTE || p->phase == GW_PS_SIM_HAND_OVER)
        compute(p, p->phase, p->job->spec->pace[p->member]);
    p->fresh = false;
}

/* The job. */

static bool all_failed(const job *j) {
    for (int r = 0; r < j->base.world; r++) {
        const process *p = &j->members[j->member_of[r]];
        if (p->lives && !p->fresh && !p->failed) return false;
    }
    return true;
}

static bool all_over(const job *j) {
    for (int r = 0; r < j->base.world; r++)
        if (j->members[j->member_of[r]].lives && j->members[j->member_of[r]].phase != GW_PS_SIM_OVER) return false;
    return true;
}

static bool any_over(const job *j) {
    for (int r = 0; r < j->base.world; r++)
        if (j->members[j->member_of[r]].phase == GW_PS_SIM_OVER) return true;
    return false;
}

/* Runs until all processes have ended, or all know of a loss. */
static void drive(job *j) {
    gw_time beat = GW_PS_SIM_DEADLINE / 30, next_beat = 0;
    while (j->outcome->ok && !all_over(j) && !(j->loss && all_failed(j)) && gw_sim_now(j->base.net) < LIMIT) {
        gw_control_sim_beat(&j->base, beat, &next_beat);
        if (!gw_sim_step(j->base.net)) break;
        j->outcome->events++;
        if (j->kill_after-- == 0 && !any_over(j)) gw_ps_sim_kill_one(j);
    }
    for (int r = 0; r < j->base.world && j->outcome->ok && !j->loss; r++) {
        const process *p = &j->members[j->member_of[r]];
        if (p->phase != GW_PS_SIM_OVER)
            gw_ps_sim_broken(j, "member %d still waits: step %d, tensor %d, phase %d", p->member, p->steps_done,
                             p->tensor, p->phase);
        if (gw_engine_pending(gw_core_engine(p->base.core)))
            gw_ps_sim_broken(j, "member %d: operations are left behind", p->member);
    }
}

static gw_status open_net(job *j, gw_error *error) {
    const gw_ps_sim *s = j->spec;
    gw_sim_config config = {.latency = s->latency, .bytes_per_second = s->bytes_per_second, .jitter = s->jitter,
                            .seed = s->seed + (uint64_t)j->generation};
    return gw_control_sim_open(&j->base, config, error);
}

/* Runs all live processes over new links, until they have ended or another is lost. */
static gw_status run_generation(job *j, gw_error *error) {
    gw_sim_net *old = j->base.net;
    j->base.world = 0;
    for (int s = 0; s < gw_ps_sim_members(j->spec); s++)
        if (j->members[s].lives) j->member_of[j->base.world++] = s;
    j->loss = false;
    gw_status status = open_net(j, error);
    if (!status) status = gw_ps_sim_regroup(j, error);
    gw_sim_close(old);
    if (!status && !j->loss) drive(j);
    return status;
}

static gw_control_sim_rank *rank_of(gw_control_sim *sim, int rank) {
    job *j = (job *)sim;
    return &j->members[j->member_of[rank]].base;
}

gw_status gw_ps_sim_run(const gw_ps_sim *s, gw_ps_sim_outcome *outcome, gw_error *error) {
    gw_status status = GW_OK;
    job *j = calloc(1, sizeof *j);
    if (!j) return gw_fail(error, GW_MEMORY, "out of memory for a simulated job");
    *outcome = (gw_ps_sim_outcome){.ok = true};
    *j = (job){.spec = s, .outcome = outcome, .rng = gw_rng_make(s->seed, 23), .interrupt_after = -1};
    j->base = (gw_control_sim){.rank_of = rank_of, .moved = on_moved, .timer = on_timer, .ok = &outcome->ok,
                               .text = outcome->text, .text_bytes = sizeof outcome->text};
    j->kill_after = (int)gw_rng_below(&j->rng, 300);
    for (int t = 0; t < s->tensors; t++) {
        j->at[t] = j->total;
        j->total += s->count[t];
    }
    const gw_codec *codec = gw_codec_find(gw_strategy_name(&s->strategy, GW_AXIS_COMPRESS));
    j->counts = !s->training && codec && codec->significand > 0 && !gw_strategy_keeps_codec_state(&s->strategy) &&
                (gw_ps_sim_keeps(j) || gw_sync_of(s->strategy.axes[GW_AXIS_SYNC].technique)->synchronous);
    for (int member = 0; member < gw_ps_sim_members(s) && !status; member++)
        status = gw_ps_sim_start_process(j, member, error);
    do {
        if (!status) status = run_generation(j, error);
        j->generation++;
    } while (!status && outcome->ok && j->loss && !any_over(j));
    if (!status && outcome->ok && !j->loss) gw_ps_sim_check_end(j);
    for (int member = 0; member < gw_ps_sim_members(s); member++) {
        gw_ps_sim_kill_process(&j->members[member]);
        free(j->members[member].past.before);
    }
    gw_sim_close(j->base.net);
    free(j);
    return status;
}
