/* reducer_sim_second.c - a second reducer of each simulated rank, on its own team: a small model that makes one step
 * after each step of the first, and stays in flight during the next one. Its two tensors become ready in one call. */
#include <math.h>
#include <stdio.h>

#include "sim/reducer_sim_internal.h"

static const size_t counts[] = {SECOND_FLOATS - 40, 40};

static float number_of(int rank, int step, size_t element) {
    return (float)((rank + 1) * (int)(element % 7) + 5 * step - 30);
}

static bool poll_second(void *ctx, gw_time now) {
    return gw_step_engine_poll(((training_rank *)ctx)->second.step_engine, now);
}
static bool second_busy(void *ctx) { return gw_step_engine_busy(((training_rank *)ctx)->second.step_engine); }

static gw_status join_team(training_rank *self, uint32_t id, gw_error *error) {
    return gw_control_sim_team(&self->base, &self->second.team, id, self->in, self->sim->training->host_of,
                               self->sim->training->rack_of, error);
}

gw_status gw_reducer_sim_second_open(training_rank *self, uint32_t id, gw_error *error) {
    second_reducer *second = &self->second;
    gw_reducer_tensor tensors[] = {{.name = "weight", .count = counts[0], .gradient = second->gradients},
                                   {.name = "bias", .count = counts[1], .gradient = second->gradients + counts[0]}};
    if (!self->sim->training->two) return GW_OK;
    gw_status status = join_team(self, id, error);
    gw_step_engine_config config = {.core = self->base.core, .team = second->team, .first_id = id + 1,
                                    .tensors = tensors, .count = 2, .options = {.op = GW_AVG}};
    if (!status) status = gw_step_engine_config_from_strategy(&config, &self->sim->training->second_strategy, error);
    if (!status) status = gw_step_engine_open(&second->step_engine, &config, error);
    if (status) return status;
    second->callback = (gw_progress_callback){.ctx = self, .poll = poll_second, .busy = second_busy};
    gw_core_attach(self->base.core, &second->callback);
    return GW_OK;
}

void gw_reducer_sim_second_close(training_rank *self) {
    if (self->second.step_engine) gw_core_detach(self->base.core, &self->second.callback);
    gw_step_engine_close(self->second.step_engine);
    gw_team_close(self->second.team);
}

/* Its last result is the mean over the ranks of its team. */
static void check_result(training_rank *self) {
    for (size_t i = 0; i < SECOND_FLOATS; i++) {
        double sum = 0;
        for (int r = 0; r < self->sim->training->world; r++)
            if (self->in[r]) sum += number_of(r, self->second.step - 1, i);
        if (fabs(self->second.gradients[i] - sum / gw_team_size(self->second.team)) < 1e-4) continue;
        broken(self->sim, "rank %d: element %zu of the second reducer is %g in step %d", self->base.rank, i,
               (double)self->second.gradients[i], self->second.step - 1);
        return;
    }
}

bool gw_reducer_sim_second_settled(training_rank *self) {
    second_reducer *second = &self->second;
    if (!second->step_engine) return true;
    for (int t = 0; t < 2; t++)
        if (!gw_reducer_sim_answered(self, second->step_engine, gw_step_engine_settled, t)) return false;
    if (second->handed_over) check_result(self);
    return true;
}

bool gw_reducer_sim_second_step(training_rank *self) {
    static const int both[] = {1, 0};
    second_reducer *second = &self->second;
    gw_error error = {.rank = -1};
    bool complete;
    if (!gw_reducer_sim_second_settled(self)) return false;
    if (!second->step_engine) return true;
    for (size_t i = 0; i < SECOND_FLOATS; i++) second->gradients[i] = number_of(self->base.rank, second->step, i);
    gw_step_engine_ready(second->step_engine, both, 2, &complete, &error);
    if (!error.status) gw_step_engine_end(second->step_engine, &error);
    if (error.status) broken(self->sim, "rank %d, second reducer: %s", self->base.rank, error.text);
    second->handed_over = true;
    second->step++;
    return true;
}

void gw_reducer_sim_second_move(training_rank *self, uint32_t id, gw_error *error) {
    second_reducer *second = &self->second;
    if (!second->step_engine || error->status) return;
    gw_core_detach(self->base.core, &second->callback);
    gw_status status = gw_step_engine_suspend(second->step_engine, error);
    gw_team_close(second->team);
    second->team = NULL;
    if (!status) status = join_team(self, id, error);
    gw_step_engine_config config = {.core = self->base.core, .team = second->team, .first_id = id + 1};
    if (!status) status = gw_step_engine_config_from_strategy(&config, &self->sim->training->second_strategy, error);
    if (!status) gw_step_engine_rejoin(second->step_engine, &config, error);
    gw_core_attach(self->base.core, &second->callback);
}

void gw_reducer_sim_second_go_on(training_rank *self, training_rank *const *members, int count) {
    second_reducer *second = &self->second;
    uint64_t next = 0;
    if (!second->step_engine) return;
    for (int i = 0; i < count; i++) {
        uint64_t made = gw_step_engine_furthest(members[i]->second.step_engine);
        if (made > next) next = made;
    }
    gw_step_engine_begin_at(second->step_engine, next);
    gw_step_engine_resume(second->step_engine);
    second->step = (int)next;
    second->handed_over = false;
}
