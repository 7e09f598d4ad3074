/* reducer_sim_fault.c - injects a fault into a simulated training. The survivors agree on the ranks that go on, as
 * gw_shrink does, and bring their tensors to the same step, as gw_reducer_resume does (reducer/resume_progress.h).
 * Copies between ranks take no time here, so no rank dies in between. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reducer/resume_progress.h"
#include "sim/reducer_sim_internal.h"

/* The fault. */

static void partition(training_sim *s) {
    bool side[GW_REDUCER_SIM_WORLD_MAX];
    for (int r = 0; r < s->training->world; r++) side[r] = r >= s->training->victim;
    gw_sim_partition(s->base.net, side);
}

static void kill_rank(training_sim *s, int rank) {
    if (s->ranks[rank].phase != OVER) gw_sim_kill(s->base.net, rank);
}

void gw_reducer_sim_inject_fault(training_sim *s) {
    const gw_reducer_sim *t = s->training;
    gw_time now = gw_sim_now(s->base.net);
    gw_error reason = {.rank = -1};
    if (t->fault == GW_SIM_KILL_TWO && !s->second_injected && now >= t->fault_at + t->second_at) {
        s->fault_injected = s->second_injected = true;
        kill_rank(s, t->second);
    }
    if (!t->fault || s->fault_injected || now < t->fault_at) return;
    s->fault_injected = true;
    if (t->fault == GW_SIM_PARTITION) partition(s);
    else if (t->fault != GW_SIM_ABORT) kill_rank(s, t->victim);
    else if (s->ranks[t->victim].phase != OVER) {
        gw_fail_rank(&reason, GW_ABORTED, t->victim, "rank %d aborted: enough", t->victim);
        gw_core_abort(s->ranks[t->victim].base.core, &reason, now);
    }
}

/* The shrink. */

static void start_shrink(training_rank *self) {
    self->phase = SHRINK;
    self->shrink_generation = gw_control_generation(gw_core_control(self->base.core));
    gw_core_shrink(self->base.core, self->shrink_until, gw_sim_now(self->base.sim->net));
}

void gw_reducer_sim_call_failed(training_rank *self) {
    self->waits = false;
    self->shrink_until = gw_sim_now(self->base.sim->net) + TRAINING_DEADLINE;
    start_shrink(self);
}

bool gw_reducer_sim_shrink(training_rank *self) {
    gw_error error = {.rank = -1};
    bool in[GW_REDUCER_SIM_WORLD_MAX];
    gw_control *control = gw_core_control(self->base.core);
    if (!gw_control_shrunk(control, in, &error)) return false;
    if (error.status && self->shrink_generation != gw_control_generation(control)) {
        start_shrink(self); /* another rank was lost meanwhile */
    } else if (error.status) {
        self->phase = OUT;
        snprintf(self->why, sizeof self->why, "%.190s", error.text);
    } else {
        self->phase = RESUME;
        self->failed = false;
        memcpy(self->in, in, sizeof in);
    }
    return true;
}

/* The resume. */

static bool in_generation(const training_rank *a, const training_rank *b) {
    return gw_control_generation(gw_core_control(a->base.core)) == gw_control_generation(gw_core_control(b->base.core));
}

static bool all_arrived(const training_rank *self) {
    const training_sim *s = self->sim;
    for (int r = 0; r < s->training->world; r++) {
        const training_rank *other = &s->ranks[r];
        if (self->in[r] && (other->phase != RESUME || other->failed || !in_generation(self, other))) return false;
    }
    return true;
}

static void move(training_rank *self, gw_error *error) {
    bool in[GW_REDUCER_SIM_WORLD_MAX];
    uint32_t id = (gw_control_generation(gw_core_control(self->base.core)) << 20) + 1;
    memcpy(in, self->in, sizeof in);
    gw_core_detach(self->base.core, &self->callback);
    gw_status status = gw_step_engine_suspend(self->step_engine, error);
    gw_team_close(self->team);
    self->team = NULL;
    if (!status) status = gw_reducer_sim_team(self, id, in, error);
    gw_step_engine_config config = {.core = self->base.core, .team = self->team, .first_id = id + 1,
                                    .flat = self->flat};
    if (!status) status = gw_step_engine_config_from_strategy(&config, &self->sim->training->strategy, error);
    if (!status) gw_step_engine_rejoin(self->step_engine, &config, error);
    gw_core_attach(self->base.core, &self->callback);
    gw_reducer_sim_second_move(self, id + SECOND_TEAM, error);
    gw_schedule_check_free(&self->schedule_check);
    self->schedule_check.buckets = 0;
}

static void copy_layer(training_rank *to, training_rank *from, int layer) {
    float *target, *source;
    for (int which = 0;; which++) {
        size_t count = gw_step_engine_shared(to->step_engine, layer, which, false, &target);
        if (!count || !gw_step_engine_shared(from->step_engine, layer, which, true, &source)) break;
        memcpy(target, source, count * sizeof *target);
    }
}

static void catch_up(training_rank *const *members, const gw_progress_table *progress) {
    for (int layer = 0; layer < progress->tensors; layer++)
        for (int i = 0; i < progress->world; i++) {
            if (!gw_progress_table_behind(progress, i, layer)) continue;
            copy_layer(members[i], members[gw_progress_table_source(progress, layer)], layer);
            gw_step_engine_caught_up(members[i]->step_engine, layer, gw_progress_table_newest(progress, layer));
        }
}

static void check_same(training_sim *s, training_rank *const *members, int count) {
    const gw_reducer_sim *t = s->training;
    for (int layer = 0; t->updates && !gw_reducer_sim_averages_weights(s) && layer < t->layers; layer++)
        for (int i = 1; i < count; i++)
            if (memcmp(members[i]->weights + members[i]->at[layer], members[0]->weights + members[0]->at[layer],
                       t->layer[layer].count * sizeof(float)) != 0)
                broken(s, "ranks %d and %d resume with different weights of layer %d", members[0]->base.rank,
                       members[i]->base.rank, layer);
}

/* The number after the last step. The last step exchanges, so that all ranks then hold the same weights. */
static int end_of(const training_sim *s, uint64_t next) {
    const gw_setting *setting = &s->training->strategy.axes[GW_AXIS_SYNC];
    const gw_sync *sync = gw_sync_of(setting->technique);
    uint64_t end = next + STEPS_AFTER;
    while (sync->exchanges && !sync->exchanges(setting->values, end - 1)) end++;
    return (int)end;
}

static void go_on(training_rank *self, uint64_t next) {
    gw_step_engine_begin_at(self->step_engine, next);
    gw_step_engine_resume(self->step_engine);
    self->first = self->step = (int)next;
    self->end = end_of(self->sim, next);
    self->moved = true;
    gw_reducer_sim_begin_step(self);
    gw_reducer_sim_begin(self, WAIT, 0);
}

bool gw_reducer_sim_resume(training_rank *self) {
    training_sim *s = self->sim;
    training_rank *members[GW_REDUCER_SIM_WORLD_MAX];
    gw_error error = {.rank = -1};
    if (self->failed) { /* another rank was lost */
        start_shrink(self);
        return true;
    }
    if (!all_arrived(self)) return false;
    size_t entry = gw_rank_progress_bytes(s->training->layers);
    gw_progress_table progress = {.tensors = s->training->layers, .entries = calloc(GW_REDUCER_SIM_WORLD_MAX, entry)};
    if (!progress.entries) abort();
    for (int r = 0; r < s->training->world; r++)
        if (self->in[r]) members[progress.world++] = &s->ranks[r];
    for (int i = 0; i < progress.world; i++) {
        move(members[i], &error);
        if (error.status) broken(s, "rank %d cannot resume: %s", members[i]->base.rank, error.text);
        gw_rank_progress_write((gw_rank_progress *)(void *)(progress.entries + (size_t)i * entry),
                               members[i]->step_engine, progress.tensors, false);
    }
    catch_up(members, &progress);
    check_same(s, members, progress.world);
    memset(s->hash, 0, sizeof s->hash);
    for (int i = 0; i < progress.world; i++) gw_reducer_sim_second_go_on(members[i], members, progress.world);
    for (int i = 0; i < progress.world; i++) go_on(members[i], gw_progress_table_next(&progress));
    free(progress.entries);
    return true;
}
