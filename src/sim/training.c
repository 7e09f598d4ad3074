/* training.c - see training.h. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/training_internal.h"

#define GAP 3               /* floats between gradients that lie apart */
#define LIMIT (3600 * GW_SECOND)
#define broken gw_school_broken

/* A promise did not hold: the first such is the outcome. */
void gw_school_broken(school *s, const char *format, ...) {
    if (!s->outcome->ok) return;
    s->outcome->ok = false;
    va_list args;
    va_start(args, format);
    vsnprintf(s->outcome->text, sizeof s->outcome->text, format, args);
    va_end(args);
}

/* Values. */

static float whole_number(int rank, int layer, int step, size_t element) {
    return (float)((rank + 1) * (int)(element % 13) + 3 * step + layer - 20);
}

static void fill_gradient(const trainee *self, int layer, float *gradient) {
    const gw_training *t = self->school->training;
    size_t count = t->layer[layer].count;
    if (t->gradient) t->gradient(self->rank, layer, self->step, self->weights + self->at[layer], count, gradient);
    else for (size_t i = 0; i < count; i++) gradient[i] = whole_number(self->rank, layer, self->step, i);
}

static double mean_of(const trainee *self, int layer, int step, size_t element) {
    double sum = 0;
    for (int r = 0; r < self->school->training->world; r++)
        if (self->in[r]) sum += whole_number(r, layer, step, element);
    return sum / gw_team_size(self->team);
}

uint64_t gw_school_hash(const float *values, size_t count) {
    const uint8_t *bytes = (const uint8_t *)values;
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < count * sizeof *values; i++) hash = (hash ^ bytes[i]) * 1099511628211u;
    return hash | 1; /* 0: nobody has it yet */
}

/* A combination of the gradients of a step has come back. */
static void check_result(trainee *self, int layer, int step, const float *values) {
    school *s = self->school;
    const gw_training *t = s->training;
    size_t count = t->layer[layer].count;
    uint64_t hash = gw_school_hash(values, count), *first = &s->hash[layer][step];
    if (!*first) *first = hash;
    if (hash != *first) broken(s, "rank %d has another result for layer %d of step %d than others", self->rank, layer,
                               step);
    for (size_t i = 0; s->exact && i < count; i++)
        if (fabs(values[i] - mean_of(self, layer, step, i)) > 1e-4) {
            broken(s, "rank %d, layer %d, step %d: element %zu is %g, not the mean %g", self->rank, layer, step, i,
                   (double)values[i], mean_of(self, layer, step, i));
            return;
        }
}

bool gw_school_averages_weights(const school *s) {
    return gw_strategy_is(&s->training->strategy, GW_AXIS_SYNC, "periodic");
}

static void update(void *ctx, const gw_step_update *u) {
    trainee *self = ctx;
    float *weights = u->weights;
    const float *gradient = u->gradient;
    for (size_t i = 0; i < u->count; i++) weights[i] -= GW_TRAINING_RATE * gradient[i];
    if (self->failed)
        broken(self->school, "rank %d updates layer %d by step %d after the failure", self->rank, u->tensor,
               (int)u->step);
    if (u->local) return;
    self->applied[u->tensor][u->step]++;
    if (!gw_school_averages_weights(self->school)) check_result(self, u->tensor, (int)u->step, gradient);
}

static void check_same_weights(trainee *self, int layer) {
    school *s = self->school;
    uint64_t hash = gw_school_hash(self->weights + self->at[layer], s->training->layer[layer].count);
    uint64_t *first = &s->hash[layer][self->end];
    if (!*first) *first = hash;
    if (hash != *first) broken(s, "rank %d ends with other weights of layer %d than others", self->rank, layer);
}

/* After the last flush: weights are what plain descent on the means gives. */
static void check_weights(trainee *self, int layer) {
    school *s = self->school;
    const gw_training *t = s->training;
    const float *weights = self->weights + self->at[layer];
    check_same_weights(self, layer);
    if (self->moved) return; /* a tensor may have missed the interrupted step */
    for (int step = 0; step < t->steps; step++)
        if (self->applied[layer][step] != 1)
            broken(s, "rank %d applied the gradient of layer %d of step %d %d times", self->rank, layer, step,
                   self->applied[layer][step]);
    for (size_t i = 0; s->exact && i < t->layer[layer].count; i++) {
        double expected = 0;
        for (int step = 0; step < t->steps; step++)
            expected -= (double)GW_TRAINING_RATE * mean_of(self, layer, step, i);
        if (fabs(weights[i] - expected) > 1e-3)
            broken(s, "rank %d, layer %d: weight %zu ends as %g, not %g", self->rank, layer, i, (double)weights[i],
                   expected);
    }
}

static void check_end(trainee *self) {
    school *s = self->school;
    const gw_training *t = s->training;
    if (gw_stepper_busy(self->stepper) || !gw_schedule_idle(gw_stepper_schedule(self->stepper)))
        broken(s, "rank %d: something is under way after the flush", self->rank);
    for (int i = 0; i < t->layers; i++) {
        if (t->updates) check_weights(self, i);
        else check_result(self, i, self->end - 1, self->gradients + self->at[i]);
        if (t->ended) t->ended(t->ctx, self->rank, i, self->weights + self->at[i], t->layer[i].count);
    }
}

/* A rank's program: each part returns false while it waits. */

void gw_school_begin(trainee *self, phase next, gw_time duration) {
    double longer = self->school->training->unevenness * gw_rng_unit(&self->rng);
    self->phase = next;
    self->until = gw_sim_now(self->school->net) + duration + (gw_time)(longer * (double)duration);
    gw_sim_timer(self->school->net, self->rank, self->until);
}

/* As calls of the library answer: a failure that is known is told at once; a call that waits looks first whether what
 * it waits for has come. False: it waits on, or has failed. */
static bool answered(trainee *self, bool (*holds)(const gw_stepper *, int), int layer) {
    bool here = (self->waits || !self->failed) && holds(self->stepper, layer);
    self->waits = !here;
    if (!here && self->failed) gw_school_lost(self);
    return here;
}

static bool need(trainee *self) {
    school *s = self->school;
    const gw_training *t = s->training;
    if (!answered(self, gw_stepper_usable, self->layer)) return false;
    if (self->layer == 0 && self->rank == 0) s->outcome->began[self->step] = gw_sim_now(s->net);
    if (self->step > self->first && !t->updates)
        check_result(self, self->layer, self->step - 1, self->gradients + self->at[self->layer]);
    gw_school_begin(self, FORWARD, t->layer[self->layer].forward);
    return true;
}

static bool forward(trainee *self) {
    const gw_training *t = self->school->training;
    if (++self->layer < t->layers) {
        self->phase = NEED;
        return true;
    }
    self->layer--;
    gw_school_begin(self, BACKWARD, t->layer[self->layer].backward);
    return true;
}

static void end_step(trainee *self) {
    gw_error error = {.rank = -1};
    if (gw_stepper_end(self->stepper, &error)) broken(self->school, "rank %d: %s", self->rank, error.text);
    self->layer = 0;
    self->phase = ++self->step < self->end ? NEED : FLUSH;
}

static bool hand(trainee *self) {
    gw_error error = {.rank = -1};
    if (!answered(self, gw_stepper_settled, self->layer)) return false; /* it had run ahead */
    fill_gradient(self, self->layer, self->gradients + self->at[self->layer]);
    bool complete;
    if (gw_stepper_ready(self->stepper, self->layer, &complete, &error))
        broken(self->school, "rank %d: %s", self->rank, error.text);
    if (--self->layer < 0) end_step(self);
    else gw_school_begin(self, BACKWARD, self->school->training->layer[self->layer].backward);
    return true;
}

/* Others may still be at work. */
static void leave(trainee *self) {
    self->phase = OVER;
    if (!self->school->training->fault) return;
    if (self->moved) self->school->outcome->survivors++;
    gw_control_leave(gw_core_control(self->core));
    gw_sim_shut(self->school->net, self->rank);
}

static bool flush(trainee *self) {
    const gw_training *t = self->school->training;
    for (int i = 0; i < t->layers; i++)
        if (!answered(self, gw_stepper_settled, i)) return false;
    gw_stepper_settle(self->stepper);
    if (self->rank == 0) self->school->outcome->began[self->end] = gw_sim_now(self->school->net);
    check_end(self);
    leave(self);
    return true;
}

static bool go_on(trainee *self) {
    bool computed = gw_sim_now(self->school->net) >= self->until;
    switch (self->phase) {
    case NEED: return need(self);
    case FORWARD: return computed && forward(self);
    case BACKWARD:
        if (computed) self->phase = HAND;
        return computed;
    case HAND: return hand(self);
    case FLUSH: return flush(self);
    case ASK: return gw_school_ask(self);
    case MEET: return gw_school_meet(self);
    case OVER:
    case OUT: break;
    }
    return false;
}

/* The network's events. */

static void check_stepper(trainee *self) {
    const char *wrong = gw_watch_look(&self->watch, gw_stepper_schedule(self->stepper));
    const gw_error *error = gw_stepper_error(self->stepper);
    if (wrong) broken(self->school, "rank %d: %s", self->rank, wrong);
    if (error->status) broken(self->school, "rank %d: %s", self->rank, error->text);
}

static void on_moved(void *ctx, int rank) {
    school *s = ctx;
    trainee *self = &s->trainees[rank];
    bool moved = true;
    while (moved && s->outcome->ok) {
        moved = gw_core_poll(self->core, gw_sim_now(s->net));
        if (!self->failed && self->phase < ASK) check_stepper(self);
        moved |= go_on(self);
    }
}

static void on_message(void *ctx, int from, int to, const void *bytes, size_t length) {
    school *s = ctx;
    gw_control_message message;
    gw_error error = {.rank = -1};
    if (length != GW_CONTROL_BYTES || gw_control_read(&message, bytes, s->training->world, &error))
        broken(s, "rank %d got a bad control message: %s", to, error.text);
    else gw_core_receive(s->trainees[to].core, from, &message, gw_sim_now(s->net));
    on_moved(ctx, to);
}

static void on_hang_up(void *ctx, int rank, int gone) {
    school *s = ctx;
    gw_core_link_lost(s->trainees[rank].core, gone, "connection closed", gw_sim_now(s->net));
}

static void on_connected(void *ctx, int rank, int peer) {
    school *s = ctx;
    gw_core_link_up(s->trainees[rank].core, peer, gw_sim_now(s->net));
    on_moved(ctx, rank);
}

static void on_refused(void *ctx, int rank, int peer) {
    school *s = ctx;
    gw_core_died(s->trainees[rank].core, peer, "its port is closed", gw_sim_now(s->net));
    on_moved(ctx, rank);
}

static void on_timer(void *ctx, int rank) {
    school *s = ctx;
    gw_school_strike(s);
    if (!gw_sim_alive(s->net, rank)) return;
    if (s->training->fault) gw_core_poll_control(s->trainees[rank].core, gw_sim_now(s->net));
    on_moved(ctx, rank);
}

/* What the core asks for. */

static const char *host_name(void *ctx, int rank) {
    (void)ctx, (void)rank;
    return "host";
}
static void send_control(void *ctx, int neighbour, const gw_control_message *message) {
    trainee *self = ctx;
    uint8_t bytes[GW_CONTROL_BYTES];
    if (!self->school->training->fault) return; /* nobody dies */
    gw_control_write(message, bytes);
    gw_sim_message(self->school->net, self->rank, neighbour, bytes, sizeof bytes);
}
static void dial(void *ctx, int rank) {
    trainee *self = ctx;
    gw_sim_dial(self->school->net, self->rank, rank);
}
static void failed(void *ctx, const gw_error *error) {
    trainee *self = ctx;
    self->failed = true;
    if (!self->school->struck) broken(self->school, "rank %d: %s", self->rank, error->text);
}
static void slow(void *ctx, const char *sentence) { (void)ctx, (void)sentence; }

/* Set-up. */

static bool poll_stepper(void *ctx, gw_time now) { return gw_stepper_poll(((trainee *)ctx)->stepper, now); }
static bool stepper_busy(void *ctx) { return gw_stepper_busy(((trainee *)ctx)->stepper); }

gw_status gw_school_team(trainee *self, uint32_t id, const bool *in, gw_error *error) {
    const gw_training *t = self->school->training;
    int members[GW_TRAINING_WORLD_MAX], hosts[GW_TRAINING_WORLD_MAX], count = 0, place = 0;
    for (int r = 0; r < t->world; r++) {
        self->in[r] = in[r];
        if (!in[r]) continue;
        if (r == self->rank) place = count;
        hosts[count] = t->host_of[r];
        members[count++] = r;
    }
    for (int i = 0, next = 0, last = -1; i < count; i++) { /* numbered from 0 on */
        if (hosts[i] != last) next += last >= 0, last = hosts[i];
        hosts[i] = next;
    }
    self->watch.decides = place == 0;
    gw_topology topology = {.world = count, .host_of = hosts};
    return gw_team_open(&self->team, gw_core_engine(self->core), id, place, members, &topology, NULL, error);
}

static gw_status open_core(trainee *self, gw_error *error) {
    const gw_training *t = self->school->training;
    bool all[GW_TRAINING_WORLD_MAX];
    gw_core_config config = {.rank = self->rank, .world = t->world,
                             .deadline = t->fault ? TRAINING_DEADLINE : LIMIT, .ctx = self, .host_name = host_name,
                             .send = send_control, .dial = dial, .failed = failed, .slow = slow};
    gw_status status = gw_core_open(&self->core, &config, 0, error);
    if (status) return status;
    gw_engine *engine = gw_core_engine(self->core);
    gw_transport *transport = gw_sim_transport(self->school->net, self->rank, gw_engine_sink(engine));
    for (int r = 0; r < t->world; r++) {
        all[r] = true;
        if (r != self->rank) gw_engine_route(engine, r, transport);
    }
    return gw_school_team(self, FIRST_TEAM, all, error);
}

static gw_status open_stepper(trainee *self, gw_error *error) {
    const gw_training *t = self->school->training;
    char names[GW_TRAINING_LAYERS_MAX][24];
    gw_step_tensor tensors[GW_TRAINING_LAYERS_MAX];
    gw_stepper_config config = {.core = self->core, .team = self->team, .first_id = FIRST_TEAM + 1, .tensors = tensors,
                                .count = t->layers, .options = {.op = GW_AVG, .seed = t->seed, .ctx = self}};
    for (int i = 0; i < t->layers; i++) {
        snprintf(names[i], sizeof names[i], "layer%d", i);
        tensors[i] = (gw_step_tensor){.name = names[i], .count = t->layer[i].count, .dtype = GW_F32,
                                      .gradient = self->gradients + self->at[i],
                                      .weights = self->weights + self->at[i]};
    }
    if (t->updates) config.options.update = update;
    gw_status status = gw_stepper_follow(&config, &t->strategy, error);
    if (status) return status;
    size_t bytes = gw_stepper_flat_bytes(&config);
    if (bytes && !(self->flat = malloc(bytes))) return gw_fail(error, GW_MEMORY, "out of memory for a simulated rank");
    config.flat = self->flat;
    status = gw_stepper_open(&self->stepper, &config, error);
    if (status) return status;
    self->rider = (gw_rider){.ctx = self, .poll = poll_stepper, .busy = stepper_busy};
    gw_core_carry(self->core, &self->rider);
    return GW_OK;
}

static gw_status open_trainee(school *s, int rank, gw_error *error) {
    trainee *self = &s->trainees[rank];
    const gw_training *t = s->training;
    size_t total = 0;
    *self = (trainee){.school = s, .rank = rank, .rng = gw_rng_make(t->seed, 100 + (uint64_t)rank), .phase = NEED,
                      .end = t->steps};
    for (int i = 0; i < t->layers; i++) {
        self->at[i] = total;
        total += t->layer[i].count + (t->scattered ? GAP : 0);
    }
    self->gradients = calloc(total + 1, sizeof *self->gradients);
    self->weights = calloc(total + 1, sizeof *self->weights);
    if (!self->gradients || !self->weights) return gw_fail(error, GW_MEMORY, "out of memory for a simulated rank");
    gw_status status = open_core(self, error);
    return status ? status : open_stepper(self, error);
}

static void close_trainee(trainee *self) {
    gw_error over = {.status = GW_ABORTED, .rank = -1};
    if (self->core) gw_engine_fail(gw_core_engine(self->core), &over); /* where a promise was broken in mid-work */
    if (self->stepper) gw_core_drop(self->core, &self->rider);
    gw_stepper_close(self->stepper);
    gw_team_close(self->team);
    gw_core_close(self->core);
    gw_watch_free(&self->watch);
    free(self->flat);
    free(self->weights);
    free(self->gradients);
}

static bool all_over(const school *s) {
    for (int r = 0; r < s->training->world; r++)
        if (gw_sim_alive(s->net, r) && s->trainees[r].phase != OVER && s->trainees[r].phase != OUT) return false;
    return true;
}

/* Beats and faults come at their times. */
static void drive_with_fault(school *s) {
    const gw_training *t = s->training;
    gw_time beat = TRAINING_DEADLINE / 40, next = 0, limit = t->fault_at + t->second_at + 20 * TRAINING_DEADLINE;
    gw_sim_timer(s->net, 0, t->fault_at);
    gw_sim_timer(s->net, 0, t->fault_at + t->second_at);
    while (s->outcome->ok && !all_over(s) && gw_sim_now(s->net) < limit) {
        gw_time now = gw_sim_now(s->net);
        if (now >= next) {
            next = now + beat;
            for (int r = 0; r < t->world; r++) gw_sim_timer(s->net, r, next);
        }
        gw_school_strike(s);
        if (!gw_sim_step(s->net)) break;
        s->outcome->events++;
    }
}

/* Runs until nothing happens any more: then all are over, and nothing is on its way. */
static void drive(school *s) {
    for (int r = 0; r < s->training->world; r++) gw_sim_timer(s->net, r, 1);
    if (s->training->fault) drive_with_fault(s);
    else while (s->outcome->ok && gw_sim_now(s->net) < LIMIT && gw_sim_step(s->net)) s->outcome->events++;
    for (int r = 0; r < s->training->world; r++) {
        trainee *self = &s->trainees[r];
        if (!gw_sim_alive(s->net, r) || self->phase == OUT) continue;
        if (self->phase != OVER)
            broken(s, "rank %d still waits: step %d, layer %d, phase %d", r, self->step, self->layer, self->phase);
        if (self->failed) continue; /* another was lost when it had left */
        if (!gw_stepper_quiet(self->stepper) || gw_engine_pending(gw_core_engine(self->core)))
            broken(s, "rank %d: operations are left behind", r);
    }
}

gw_status gw_training_run(const gw_training *t, gw_training_outcome *outcome, gw_error *error) {
    school *s = calloc(1, sizeof *s);
    if (!s) return gw_fail(error, GW_MEMORY, "out of memory for a simulated training");
    *outcome = (gw_training_outcome){.ok = true};
    s->training = t;
    s->outcome = outcome;
    s->exact = !t->gradient && (gw_strategy_is(&t->strategy, GW_AXIS_COMPRESS, "none") ||
                                gw_strategy_is(&t->strategy, GW_AXIS_COMPRESS, "fp16"));
    gw_sim_config config = {.world = t->world, .latency = t->latency, .bytes_per_second = t->bytes_per_second,
                            .jitter = t->jitter, .seed = t->seed};
    gw_sim_events events = {.ctx = s, .message = on_message, .hang_up = on_hang_up, .timer = on_timer,
                            .moved = on_moved, .connected = on_connected, .refused = on_refused};
    gw_status status = gw_sim_open(&s->net, &config, &events, error);
    for (int r = 0; !status && r < t->world; r++) status = open_trainee(s, r, error);
    if (!status) drive(s);
    for (int r = 0; r < t->world; r++) close_trainee(&s->trainees[r]);
    gw_sim_close(s->net);
    free(s);
    return status;
}
