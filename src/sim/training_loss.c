/* training_loss.c - a fault strikes a simulated training: the survivors agree on who goes on, as gw_shrink does, and
 * bring their tensors to the same step, as gw_step_move does (engine/standing.h). What is copied between ranks is
 * copied at once here: nobody dies in between. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/standing.h"
#include "sim/training_internal.h"

/* The fault. */

static void partition(school *s) {
    bool side[GW_TRAINING_WORLD_MAX];
    for (int r = 0; r < s->training->world; r++) side[r] = r >= s->training->victim;
    gw_sim_partition(s->net, side);
}

static void kill_rank(school *s, int rank) {
    if (s->trainees[rank].phase != OVER) gw_sim_kill(s->net, rank);
}

void gw_school_strike(school *s) {
    const gw_training *t = s->training;
    gw_time now = gw_sim_now(s->net);
    gw_error reason = {.rank = -1};
    if (t->fault == GW_SIM_KILL_TWO && !s->struck_again && now >= t->fault_at + t->second_at) {
        s->struck = s->struck_again = true;
        kill_rank(s, t->second);
    }
    if (!t->fault || s->struck || now < t->fault_at) return;
    s->struck = true;
    if (t->fault == GW_SIM_PARTITION) partition(s);
    else if (t->fault != GW_SIM_ABORT) kill_rank(s, t->victim);
    else if (s->trainees[t->victim].phase != OVER) {
        gw_fail_rank(&reason, GW_ABORTED, t->victim, "rank %d aborted: enough", t->victim);
        gw_core_abort(s->trainees[t->victim].core, &reason, now);
    }
}

/* Who goes on. */

static void ask(trainee *self) {
    self->phase = ASK;
    self->asked_in = gw_control_generation(gw_core_control(self->core));
    gw_core_shrink(self->core, self->answer_by, gw_sim_now(self->school->net));
}

void gw_school_lost(trainee *self) {
    self->waits = false;
    self->answer_by = gw_sim_now(self->school->net) + TRAINING_DEADLINE;
    ask(self);
}

bool gw_school_ask(trainee *self) {
    gw_error error = {.rank = -1};
    bool in[GW_TRAINING_WORLD_MAX];
    gw_control *control = gw_core_control(self->core);
    if (!gw_control_shrunk(control, in, &error)) return false;
    if (error.status && self->asked_in != gw_control_generation(control)) {
        ask(self); /* another was lost meanwhile */
    } else if (error.status) {
        self->phase = OUT;
        snprintf(self->why, sizeof self->why, "%.190s", error.text);
    } else {
        self->phase = MEET;
        self->failed = false;
        memcpy(self->in, in, sizeof in);
    }
    return true;
}

/* The meeting. */

static bool in_generation(const trainee *a, const trainee *b) {
    return gw_control_generation(gw_core_control(a->core)) == gw_control_generation(gw_core_control(b->core));
}

static bool all_are_here(const trainee *self) {
    const school *s = self->school;
    for (int r = 0; r < s->training->world; r++) {
        const trainee *other = &s->trainees[r];
        if (self->in[r] && (other->phase != MEET || other->failed || !in_generation(self, other))) return false;
    }
    return true;
}

static void move(trainee *self, gw_error *error) {
    bool in[GW_TRAINING_WORLD_MAX];
    uint32_t id = (gw_control_generation(gw_core_control(self->core)) << 20) + 1;
    memcpy(in, self->in, sizeof in);
    gw_core_drop(self->core, &self->rider);
    gw_status status = gw_stepper_part(self->stepper, error);
    gw_team_close(self->team);
    self->team = NULL;
    if (!status) status = gw_school_team(self, id, in, error);
    gw_stepper_config config = {.core = self->core, .team = self->team, .first_id = id + 1, .flat = self->flat};
    if (!status) status = gw_stepper_follow(&config, &self->school->training->strategy, error);
    if (!status) gw_stepper_rejoin(self->stepper, &config, error);
    gw_core_carry(self->core, &self->rider);
    gw_watch_free(&self->watch);
    self->watch.pieces = 0;
}

static void copy_layer(trainee *to, trainee *from, int layer) {
    float *target, *source;
    for (int which = 0;; which++) {
        size_t count = gw_stepper_shared(to->stepper, layer, which, false, &target);
        if (!count || !gw_stepper_shared(from->stepper, layer, which, true, &source)) break;
        memcpy(target, source, count * sizeof *target);
    }
}

static void level(trainee *const *members, const gw_standings *standings) {
    for (int layer = 0; layer < standings->tensors; layer++)
        for (int i = 0; i < standings->world; i++) {
            if (!gw_standings_behind(standings, i, layer)) continue;
            copy_layer(members[i], members[gw_standings_source(standings, layer)], layer);
            gw_stepper_caught_up(members[i]->stepper, layer, gw_standings_newest(standings, layer));
        }
}

static void check_level(school *s, trainee *const *members, int count) {
    const gw_training *t = s->training;
    for (int layer = 0; t->updates && !gw_school_averages_weights(s) && layer < t->layers; layer++)
        for (int i = 1; i < count; i++)
            if (memcmp(members[i]->weights + members[i]->at[layer], members[0]->weights + members[0]->at[layer],
                       t->layer[layer].count * sizeof(float)) != 0)
                gw_school_broken(s, "ranks %d and %d have met with different weights of layer %d", members[0]->rank,
                                 members[i]->rank, layer);
}

/* The last step has to be one after which all hold the same weights. */
static int end_of(const school *s, uint64_t next) {
    const gw_setting *setting = &s->training->strategy.axes[GW_AXIS_SYNC];
    const gw_sync *sync = gw_sync_of(setting->technique);
    uint64_t end = next + STEPS_AFTER;
    while (sync->exchanges && !sync->exchanges(setting->values, end - 1)) end++;
    return (int)end;
}

static void go_on(trainee *self, uint64_t next) {
    gw_stepper_begin_at(self->stepper, next);
    gw_stepper_resume(self->stepper);
    self->first = self->step = (int)next;
    self->end = end_of(self->school, next);
    self->layer = 0;
    self->moved = true;
    gw_school_begin(self, NEED, 0);
}

bool gw_school_meet(trainee *self) {
    school *s = self->school;
    trainee *members[GW_TRAINING_WORLD_MAX];
    gw_error error = {.rank = -1};
    if (self->failed) { /* another was lost */
        ask(self);
        return true;
    }
    if (!all_are_here(self)) return false;
    size_t entry = gw_standing_bytes(s->training->layers);
    gw_standings standings = {.tensors = s->training->layers, .entries = calloc(GW_TRAINING_WORLD_MAX, entry)};
    if (!standings.entries) abort();
    for (int r = 0; r < s->training->world; r++)
        if (self->in[r]) members[standings.world++] = &s->trainees[r];
    for (int i = 0; i < standings.world; i++) {
        move(members[i], &error);
        if (error.status) gw_school_broken(s, "rank %d cannot move its step: %s", members[i]->rank, error.text);
        gw_standing_write((gw_standing *)(void *)(standings.entries + (size_t)i * entry), members[i]->stepper,
                          standings.tensors, false);
    }
    level(members, &standings);
    check_level(s, members, standings.world);
    memset(s->hash, 0, sizeof s->hash);
    for (int i = 0; i < standings.world; i++) go_on(members[i], gw_standings_next(&standings));
    free(standings.entries);
    return true;
}
