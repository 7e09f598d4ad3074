/* reducer_sim.c - see reducer_sim.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/reducer_sim_internal.h"

#define GAP 3 /* floats between scattered gradients */
#define LIMIT (3600 * GW_SECOND)

/* Values. */

static float whole_number(int rank, int layer, int step, size_t element) {
    return (float)((rank + 1) * (int)(element % 13) + 3 * step + layer - 20);
}

static bool is_absent(const gw_reducer_sim *t, int rank, int layer, int step) {
    return (rank * 5 + layer * 3 + step) % 8 < t->absence;
}

static int micro_steps(const training_rank *self) {
    return (self->base.rank + self->step) % (self->sim->training->micro_steps + 1);
}

/* What must not be sent is not a number. */
static void fill_gradient(const training_rank *self, int layer, float *gradient) {
    const gw_reducer_sim *t = self->sim->training;
    size_t count = t->layer[layer].count;
    if (gw_step_engine_accumulates(self->step_engine) || is_absent(t, self->base.rank, layer, self->step)) {
        for (size_t i = 0; i < count; i++) gradient[i] = NAN;
        return;
    }
    if (t->gradient) t->gradient(self->base.rank, layer, self->step, self->weights + self->at[layer], count, gradient);
    else
        for (size_t i = 0; i < count; i++) gradient[i] = whole_number(self->base.rank, layer, self->step, i);
}

static double mean_of(const training_rank *self, int layer, int step, size_t element) {
    const gw_reducer_sim *t = self->sim->training;
    double sum = 0;
    for (int r = 0; r < t->world; r++)
        if (self->in[r] && !is_absent(t, r, layer, step)) sum += whole_number(r, layer, step, element);
    return sum / gw_team_size(self->team);
}

uint64_t gw_reducer_sim_hash(const float *values, size_t count) {
    const uint8_t *bytes = (const uint8_t *)values;
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < count * sizeof *values; i++) hash = (hash ^ bytes[i]) * 1099511628211u;
    return hash | 1; /* 0 means: no rank has it yet */
}

/* The combined gradient of a step has arrived. */
static void check_result(training_rank *self, int layer, int step, const float *values) {
    training_sim *s = self->sim;
    const gw_reducer_sim *t = s->training;
    size_t count = t->layer[layer].count;
    uint64_t hash = gw_reducer_sim_hash(values, count), *first = &s->hash[layer][step];
    if (!*first) *first = hash;
    if (hash != *first)
        broken(s, "rank %d has another result for layer %d of step %d than others", self->base.rank, layer, step);
    for (size_t i = 0; i < count; i++)
        if (isnan(values[i]) || (s->exact && fabs(values[i] - mean_of(self, layer, step, i)) > 1e-4)) {
            broken(s, "rank %d, layer %d, step %d: element %zu is %g, not the mean %g", self->base.rank, layer, step, i,
                   (double)values[i], mean_of(self, layer, step, i));
            return;
        }
}

bool gw_reducer_sim_averages_weights(const training_sim *s) {
    return gw_sync_of(s->training->strategy.axes[GW_AXIS_SYNC].technique)->local;
}

/* Servers update parts of tensors, by the gradient of one worker or of some: ranks hold what they got last. */
static bool pulls_weights(const training_sim *s) {
    return gw_sync_of(s->training->strategy.axes[GW_AXIS_SYNC].technique)->rule != NULL;
}

static void update(void *ctx, const gw_reducer_update *u) {
    training_rank *self = ctx;
    float *weights = u->weights;
    const float *gradient = u->gradient;
    float rate = GW_REDUCER_SIM_RATE * (float)(u->rate_scale * u->scale);
    for (size_t i = 0; i < u->count; i++) weights[i] -= rate * gradient[i];
    if (self->failed)
        broken(self->sim, "rank %d updates layer %d by step %d after the failure", self->base.rank, u->tensor,
               (int)u->step);
    if (u->temporary || pulls_weights(self->sim)) return;
    self->applied[u->tensor][u->step]++;
    if (!gw_reducer_sim_averages_weights(self->sim)) check_result(self, u->tensor, (int)u->step, gradient);
}

static void check_same_weights(training_rank *self, int layer) {
    training_sim *s = self->sim;
    uint64_t hash = gw_reducer_sim_hash(self->weights + self->at[layer], s->training->layer[layer].count);
    uint64_t *first = &s->hash[layer][self->end];
    if (!*first) *first = hash;
    if (hash != *first) broken(s, "rank %d ends with other weights of layer %d than others", self->base.rank, layer);
}

/* After the last flush: weights must be those of plain gradient descent on the means. */
static void check_weights(training_rank *self, int layer) {
    training_sim *s = self->sim;
    const gw_reducer_sim *t = s->training;
    const float *weights = self->weights + self->at[layer];
    check_same_weights(self, layer);
    if (self->moved) return; /* a tensor may have missed the interrupted step */
    for (int step = 0; step < t->steps; step++)
        if (self->applied[layer][step] != 1)
            broken(s, "rank %d applied the gradient of layer %d of step %d %d times", self->base.rank, layer, step,
                   self->applied[layer][step]);
    for (size_t i = 0; s->exact && i < t->layer[layer].count; i++) {
        double expected = 0;
        for (int step = 0; step < t->steps; step++)
            expected -= (double)GW_REDUCER_SIM_RATE * mean_of(self, layer, step, i);
        if (fabs(weights[i] - expected) > 1e-3)
            broken(s, "rank %d, layer %d: weight %zu ends as %g, not %g", self->base.rank, layer, i, (double)weights[i],
                   expected);
    }
}

static void check_end(training_rank *self) {
    training_sim *s = self->sim;
    const gw_reducer_sim *t = s->training;
    bool serves = gw_step_engine_servers(self->step_engine) != NULL; /* others may still push */
    if ((!serves && gw_step_engine_busy(self->step_engine)) ||
        !gw_schedule_idle(gw_step_engine_schedule(self->step_engine)))
        broken(s, "rank %d: something is in flight after the flush", self->base.rank);
    if (t->kept) t->kept(t->ctx, self->base.rank, self->step_engine);
    for (int i = 0; i < t->layers; i++) {
        if (t->updates && !pulls_weights(s)) check_weights(self, i);
        if (!t->updates) check_result(self, i, self->end - 1, self->gradients + self->at[i]);
        if (t->ended) t->ended(t->ctx, self->base.rank, i, self->weights + self->at[i], t->layer[i].count);
    }
}

/* A rank's program. Each part returns false while it waits. */

void gw_reducer_sim_begin(training_rank *self, phase next, gw_time duration) {
    double longer = self->sim->training->unevenness * gw_rng_unit(&self->rng);
    self->phase = next;
    self->until = gw_sim_now(self->base.sim->net) + duration + (gw_time)(longer * (double)duration);
    gw_sim_timer(self->base.sim->net, self->base.rank, self->until);
}

bool gw_reducer_sim_answered(training_rank *self, const gw_step_engine *step_engine,
                             bool (*holds)(const gw_step_engine *, int), int layer) {
    bool here = (self->waits || !self->failed) && holds(step_engine, layer);
    self->waits = !here;
    if (!here && self->failed) gw_reducer_sim_call_failed(self);
    return here;
}

static bool answered(training_rank *self, bool (*holds)(const gw_step_engine *, int), int layer) {
    return gw_reducer_sim_answered(self, self->step_engine, holds, layer);
}

static bool wait_for_layer(training_rank *self) {
    training_sim *s = self->sim;
    const gw_reducer_sim *t = s->training;
    if (!answered(self, gw_step_engine_usable, self->layer)) return false;
    if (self->layer == 0 && self->base.rank == 0 && self->pass == 0)
        s->outcome->began[self->step] = gw_sim_now(s->base.net);
    if (self->step > self->first && !t->updates && self->pass == 0)
        check_result(self, self->layer, self->step - 1, self->gradients + self->at[self->layer]);
    gw_reducer_sim_begin(self, FORWARD, t->layer[self->layer].forward);
    return true;
}

static bool forward(training_rank *self) {
    const gw_reducer_sim *t = self->sim->training;
    if (++self->layer < t->layers) {
        self->phase = WAIT;
        return true;
    }
    self->layer--;
    gw_reducer_sim_begin(self, BACKWARD, t->layer[self->layer].backward);
    return true;
}

void gw_reducer_sim_begin_step(training_rank *self) {
    self->pass = 0;
    self->layer = 0;
    gw_step_engine_accumulate(self->step_engine, micro_steps(self) > 0);
}

static void end_step(training_rank *self) {
    gw_error error = {.rank = -1};
    if (gw_step_engine_accumulates(self->step_engine)) {
        gw_step_engine_accumulate(self->step_engine, ++self->pass < micro_steps(self));
        self->layer = 0;
        self->phase = WAIT;
        return;
    }
    if (gw_step_engine_end(self->step_engine, &error)) broken(self->sim, "rank %d: %s", self->base.rank, error.text);
    self->step++;
    gw_reducer_sim_begin_step(self);
    self->phase = SECOND;
}

static bool second(training_rank *self) {
    if (!gw_reducer_sim_second_step(self)) return false;
    self->phase = self->step < self->end ? WAIT : FLUSH;
    return true;
}

static bool hand_over(training_rank *self) {
    gw_error error = {.rank = -1};
    bool complete, absent = is_absent(self->sim->training, self->base.rank, self->layer, self->step);
    if (!answered(self, gw_step_engine_settled, self->layer)) return false; /* the last exchange still runs */
    fill_gradient(self, self->layer, self->gradients + self->at[self->layer]);
    if (absent) gw_step_engine_absent(self->step_engine, self->layer, &complete, &error);
    else gw_step_engine_ready(self->step_engine, &self->layer, 1, &complete, &error);
    if (error.status) broken(self->sim, "rank %d: %s", self->base.rank, error.text);
    if (--self->layer < 0) end_step(self);
    else gw_reducer_sim_begin(self, BACKWARD, self->sim->training->layer[self->layer].backward);
    return true;
}

/* Other ranks may still train. */
static void leave(training_rank *self) {
    self->phase = OVER;
    gw_step_engine_leave(self->step_engine);
    if (!self->sim->training->fault) return;
    if (self->moved) self->sim->outcome->survivors++;
    gw_control_leave(gw_core_control(self->base.core));
    gw_sim_shut(self->base.sim->net, self->base.rank);
}

static bool flush(training_rank *self) {
    const gw_reducer_sim *t = self->sim->training;
    for (int i = 0; i < t->layers; i++)
        if (!answered(self, gw_step_engine_settled, i)) return false;
    if (!gw_reducer_sim_second_settled(self)) return false;
    gw_step_engine_settle(self->step_engine);
    if (self->base.rank == 0) self->sim->outcome->began[self->end] = gw_sim_now(self->base.sim->net);
    check_end(self);
    leave(self);
    return true;
}

static bool go_on(training_rank *self) {
    bool computed = gw_sim_now(self->base.sim->net) >= self->until;
    switch (self->phase) {
    case WAIT: return wait_for_layer(self);
    case FORWARD: return computed && forward(self);
    case BACKWARD:
        if (computed) self->phase = HAND_OVER;
        return computed;
    case HAND_OVER: return hand_over(self);
    case SECOND: return second(self);
    case FLUSH: return flush(self);
    case SHRINK: return gw_reducer_sim_shrink(self);
    case RESUME: return gw_reducer_sim_resume(self);
    case OVER:
    case OUT: break;
    }
    return false;
}

/* The network's events. */

static void check_step_engine(training_rank *self) {
    const char *wrong = gw_schedule_check_poll(&self->schedule_check, gw_step_engine_schedule(self->step_engine));
    const gw_error *error = gw_step_engine_error(self->step_engine);
    if (wrong) broken(self->sim, "rank %d: %s", self->base.rank, wrong);
    if (error->status) broken(self->sim, "rank %d: %s", self->base.rank, error->text);
}

static void on_moved(void *ctx, int rank) {
    training_sim *s = ctx;
    training_rank *self = &s->ranks[rank];
    bool moved = true;
    while (moved && s->outcome->ok) {
        moved = gw_core_poll(self->base.core, gw_sim_now(s->base.net));
        if (!self->failed && self->phase < SHRINK) check_step_engine(self);
        moved |= go_on(self);
    }
}

static void on_timer(void *ctx, int rank) {
    training_sim *s = ctx;
    gw_reducer_sim_inject_fault(s);
    if (!gw_sim_alive(s->base.net, rank)) return;
    if (s->training->fault) gw_core_poll_control(s->ranks[rank].base.core, gw_sim_now(s->base.net));
    on_moved(ctx, rank);
}

/* Callbacks of the core. */

static void send_control(void *ctx, int neighbour, const gw_control_message *message) {
    const training_rank *self = ctx;
    if (self->sim->training->fault) gw_control_sim_send(ctx, neighbour, message); /* no fault: no rank fails */
}

static void failed(void *ctx, const gw_error *error) {
    training_rank *self = ctx;
    self->failed = true;
    if (!self->sim->fault_injected) broken(self->sim, "rank %d: %s", self->base.rank, error->text);
}

/* Set-up. */

static bool poll_step_engine(void *ctx, gw_time now) {
    training_rank *self = ctx;
    return gw_step_engine_poll(self->step_engine, now);
}
static bool step_engine_busy(void *ctx) { return gw_step_engine_busy(((training_rank *)ctx)->step_engine); }

gw_status gw_reducer_sim_team(training_rank *self, uint32_t id, const bool *in, gw_error *error) {
    const gw_reducer_sim *t = self->sim->training;
    for (int r = 0; r < t->world; r++) self->in[r] = in[r];
    gw_status status = gw_control_sim_team(&self->base, &self->team, id, in, t->host_of, t->rack_of, error);
    self->schedule_check.decides = !status && gw_team_rank(self->team) == 0;
    return status;
}

static gw_status open_core(training_rank *self, int rank, gw_error *error) {
    const gw_reducer_sim *t = self->sim->training;
    bool all[GW_REDUCER_SIM_WORLD_MAX];
    memset(all, true, sizeof all);
    gw_core_config config = {.deadline = t->fault ? TRAINING_DEADLINE : LIMIT, .send = send_control,
                             .failed = failed};
    gw_status status = gw_control_sim_open_rank(&self->base, &self->sim->base, rank, config, error);
    return status ? status : gw_reducer_sim_team(self, FIRST_TEAM, all, error);
}

static gw_status open_step_engine(training_rank *self, gw_error *error) {
    const gw_reducer_sim *t = self->sim->training;
    char names[GW_REDUCER_SIM_LAYERS_MAX][24];
    gw_reducer_tensor tensors[GW_REDUCER_SIM_LAYERS_MAX];
    gw_step_engine_config config = {.core = self->base.core,
                                    .team = self->team,
                                    .first_id = FIRST_TEAM + 1,
                                    .tensors = tensors,
                                    .count = t->layers,
                                    .payload_bytes_max = t->payload_bytes_max,
                                    .options = {.op = GW_AVG, .seed = t->seed, .clip = t->clip, .ctx = self}};
    for (int i = 0; i < t->layers; i++) {
        snprintf(names[i], sizeof names[i], "layer%d", i);
        tensors[i] = (gw_reducer_tensor){.name = names[i], .count = t->layer[i].count, .dtype = GW_F32,
                                      .gradient = self->gradients + self->at[i],
                                      .weights = self->weights + self->at[i], .rows = t->layer[i].rows};
    }
    if (t->updates) config.options.update = update;
    gw_status status = gw_step_engine_config_from_strategy(&config, &t->strategy, error);
    if (status) return status;
    size_t bytes = gw_step_engine_flat_bytes(&config);
    if (bytes && !(self->flat = malloc(bytes))) return gw_fail(error, GW_MEMORY, "out of memory for a simulated rank");
    config.flat = self->flat;
    status = gw_step_engine_open(&self->step_engine, &config, error);
    if (status) return status;
    self->callback = (gw_progress_callback){.ctx = self, .poll = poll_step_engine, .busy = step_engine_busy};
    gw_core_attach(self->base.core, &self->callback);
    return GW_OK;
}

static gw_status open_rank(training_sim *s, int rank, gw_error *error) {
    training_rank *self = &s->ranks[rank];
    const gw_reducer_sim *t = s->training;
    size_t total = 0;
    *self = (training_rank){.sim = s, .rng = gw_rng_make(t->seed, 100 + (uint64_t)rank), .phase = WAIT,
                            .end = t->steps};
    for (int i = 0; i < t->layers; i++) {
        self->at[i] = total;
        total += t->layer[i].count + (t->scattered ? GAP : 0);
    }
    self->gradients = calloc(total + 1, sizeof *self->gradients);
    self->weights = calloc(total + 1, sizeof *self->weights);
    if (!self->gradients || !self->weights) return gw_fail(error, GW_MEMORY, "out of memory for a simulated rank");
    gw_status status = open_core(self, rank, error);
    if (!status) status = open_step_engine(self, error);
    if (!status) status = gw_reducer_sim_second_open(self, FIRST_TEAM + SECOND_TEAM, error);
    if (!status) gw_reducer_sim_begin_step(self);
    return status;
}

static void close_rank(training_rank *self) {
    gw_error over = {.status = GW_ABORTED, .rank = -1};
    if (self->base.core) gw_engine_fail(gw_core_engine(self->base.core), &over); /* a check may have failed */
    if (self->step_engine) gw_core_detach(self->base.core, &self->callback);
    gw_step_engine_close(self->step_engine);
    gw_team_close(self->team);
    gw_reducer_sim_second_close(self);
    gw_core_close(self->base.core);
    gw_schedule_check_free(&self->schedule_check);
    free(self->flat);
    free(self->weights);
    free(self->gradients);
}

static bool all_over(const training_sim *s) {
    for (int r = 0; r < s->training->world; r++)
        if (gw_sim_alive(s->base.net, r) && s->ranks[r].phase != OVER && s->ranks[r].phase != OUT) return false;
    return true;
}

/* Runs with heartbeats, and injects the fault at its time. */
static void drive_with_fault(training_sim *s) {
    const gw_reducer_sim *t = s->training;
    gw_time beat = TRAINING_DEADLINE / 40, next = 0, limit = t->fault_at + t->second_at + 20 * TRAINING_DEADLINE;
    gw_sim_timer(s->base.net, 0, t->fault_at);
    gw_sim_timer(s->base.net, 0, t->fault_at + t->second_at);
    while (s->outcome->ok && !all_over(s) && gw_sim_now(s->base.net) < limit) {
        gw_control_sim_beat(&s->base, beat, &next);
        gw_reducer_sim_inject_fault(s);
        if (!gw_sim_step(s->base.net)) break;
        s->outcome->events++;
    }
}

/* Runs until no event is left: then all ranks must have ended, with nothing in flight. */
static void drive(training_sim *s) {
    for (int r = 0; r < s->training->world; r++) gw_sim_timer(s->base.net, r, 1);
    if (s->training->fault) drive_with_fault(s);
    else
        while (s->outcome->ok && gw_sim_now(s->base.net) < LIMIT && gw_sim_step(s->base.net)) s->outcome->events++;
    for (int r = 0; r < s->training->world; r++) {
        training_rank *self = &s->ranks[r];
        if (!gw_sim_alive(s->base.net, r) || self->phase == OUT) continue;
        if (self->phase != OVER)
            broken(s, "rank %d still waits: step %d, layer %d, phase %d", r, self->step, self->layer, self->phase);
        if (self->failed) continue; /* another rank was lost after this one had left */
        if (!gw_step_engine_quiet(self->step_engine) || gw_engine_pending(gw_core_engine(self->base.core)))
            broken(s, "rank %d: operations are left behind", r);
    }
}

static gw_control_sim_rank *rank_of(gw_control_sim *sim, int rank) { return &((training_sim *)sim)->ranks[rank].base; }

gw_status gw_reducer_sim_run(const gw_reducer_sim *t, gw_reducer_sim_outcome *outcome, gw_error *error) {
    training_sim *s = calloc(1, sizeof *s);
    if (!s) return gw_fail(error, GW_MEMORY, "out of memory for a simulated training");
    *outcome = (gw_reducer_sim_outcome){.ok = true};
    s->training = t;
    s->outcome = outcome;
    const gw_codec *codec = gw_codec_find(gw_strategy_name(&t->strategy, GW_AXIS_COMPRESS));
    int bits = t->world <= 9 ? 11 : 24; /* sums of small integers over few ranks stay below 2^11 */
    s->exact = !t->gradient && codec && codec->significand >= bits;
    gw_sim_config config = {.latency = t->latency, .bytes_per_second = t->bytes_per_second, .jitter = t->jitter,
                            .seed = t->seed};
    s->base = (gw_control_sim){.world = t->world, .rank_of = rank_of, .moved = on_moved, .timer = on_timer,
                               .ok = &outcome->ok, .text = outcome->text, .text_bytes = sizeof outcome->text};
    gw_status status = gw_control_sim_open(&s->base, config, error);
    for (int r = 0; !status && r < t->world; r++) status = open_rank(s, r, error);
    if (!status) drive(s);
    for (int r = 0; !status && r < t->world; r++)
        for (int q = 0; q < t->world; q++) outcome->sent[r][q] = gw_sim_sent_bytes(s->base.net, r, q);
    for (int r = 0; r < t->world; r++) close_rank(&s->ranks[r]);
    gw_sim_close(s->base.net);
    free(s);
    return status;
}
