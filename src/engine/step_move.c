/* step_move.c - a step goes on over another communicator, after a loss. The meetings are those of a rank that commits
 * (step_commit.c), since ranks that came anew do. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "engine/step.h"
#include "engine/stepper_ps.h"

static bool failed(const gw_step *step) {
    return atomic_load(&step->comm->failed) || gw_stepper_error(step->stepper)->status;
}

static gw_status check_over_servers(const gw_step *step, gw_error *error) {
    const gw_sync *sync = gw_sync_of(step->strategy.axes[GW_AXIS_SYNC].technique);
    const gw_technique *codec = step->strategy.axes[GW_AXIS_COMPRESS].technique;
    if (!gw_strategy_is(&step->strategy, GW_AXIS_ARCH, "ps"))
        return gw_fail(error, GW_UNSUPPORTED,
                       "gw_step_move: a step with arch=%s over servers cannot be moved; close it and commit another",
                       gw_strategy_name(&step->strategy, GW_AXIS_ARCH));
    if (strcmp(codec->name, "none") != 0)
        return gw_fail(error, GW_UNSUPPORTED,
                       "gw_step_move: a step over servers with compress=%s cannot be moved, since a push cannot be "
                       "encoded twice; close it and commit another",
                       codec->name);
    bool measured = gw_schedule_set_to(gw_stepper_schedule(step->stepper))->measured;
    if (sync->travels_apart || measured || gw_tuning_runs(&step->tuning))
        return gw_fail(error, GW_UNSUPPORTED,
                       "gw_step_move: a step over servers with sync=%s and schedule=%s%s cannot be moved; close it and "
                       "commit another",
                       sync->technique.name, step->strategy.axes[GW_AXIS_SCHEDULE].technique->name,
                       gw_tuning_runs(&step->tuning) ? ", which is being tuned," : "");
    return GW_OK;
}

static gw_status check_movable(gw_step *step, const gw_comm *comm, gw_error *error) {
    if (!step || !comm) return gw_fail(error, GW_INVALID, "gw_step_move: the step or the communicator is NULL");
    if (gw_stepper_servers(step->stepper)) return check_over_servers(step, error);
    if (!failed(step) && !gw_step_over(step))
        return gw_fail(error, GW_INVALID, "gw_step_move: the step has not failed, and something of it is under way: "
                                          "call gw_step_flush first");
    step->facts.world = comm->size;
    return gw_strategy_check_step(&step->asked, &step->facts, error);
}

static void tell_changes(const gw_step *step) {
    gw_ps *ps = gw_stepper_servers(step->stepper);
    if (step->comm->rank != 0) return;
    if (!ps) {
        gw_log(GW_LOG_WARN, 0, "step %llu is next, on %d rank%s", (unsigned long long)step->next, step->comm->size,
               step->comm->size == 1 ? "" : "s");
        return;
    }
    const gw_placement *p = gw_ps_placement(ps);
    int back = 0;
    for (int r = 0; r < p->world; r++) back += p->who[r].fresh;
    gw_log(GW_LOG_WARN, 0, "steps go on with %d worker%s, %d of %d ranks having just come", gw_placement_workers(p),
           gw_placement_workers(p) == 1 ? "" : "s", back, p->world);
}

/* The step's own communicator is another from here on, whatever comes: it can be moved again. */
static gw_status change_comm(gw_step *step, gw_comm *mine, gw_error *error) {
    gw_comm *old = step->comm;
    gw_node_lock(old->node);
    gw_step_dismount(step);
    gw_status status = gw_stepper_part(step->stepper, error);
    gw_engine_counters now = gw_engine_count(gw_core_engine(old->node->core));
    step->earlier.bytes_sent += now.bytes_sent - step->before.bytes_sent;
    step->earlier.messages_sent += now.messages_sent - step->before.messages_sent;
    step->before = now;
    gw_node_unlock(old->node);
    gw_free(old, step->flat);
    step->flat = NULL;
    step->comm = mine;
    gw_finalize(old);
    return status;
}

/* The stepper takes its place in the step's communicator. who: NULL without servers. */
static gw_status take_place(gw_step *step, const gw_attendant *who, gw_error *error) {
    gw_node *node = step->comm->node;
    gw_stepper_config config = {.core = node->core, .team = step->comm->team, .count = step->count, .attendants = who};
    gw_status status = gw_stepper_follow(&config, &step->strategy, error);
    if (!status) status = gw_step_take_memory(step, &config, error);
    if (status) return status;
    gw_node_lock(node);
    gw_step_take_ids(step, &config);
    status = gw_stepper_rejoin(step->stepper, &config, error);
    gw_node_unlock(node);
    return status;
}

gw_status gw_step_join_moved(gw_step *step, gw_comm *mine, gw_error *error) {
    gw_attendant *who = NULL;
    gw_stepper_config config = {.servers = gw_stepper_servers(step->stepper) != NULL};
    gw_status status = gw_step_agree(mine, change_comm(step, mine, error), error);
    if (!status) status = gw_step_attend(step, &config, &who, error);
    if (status) return status;
    status = gw_step_agree(step->comm, take_place(step, who, error), error);
    free(who);
    if (!status) status = gw_step_agree(step->comm, gw_step_hand_over(step, error), error);
    if (status) return status;
    gw_stepper_resume(step->stepper);
    gw_step_set_out(step);
    gw_node_nudge(step->comm->node);
    return GW_OK;
}

/* Sizes that were tuned, or are being, were right for other ranks. */
static gw_status move_collectives(gw_step *step, gw_comm *mine, gw_error *error) {
    gw_tuning_close(&step->tuning);
    gw_measure_close(&step->measure);
    step->strategy = step->asked;
    gw_status status = gw_step_begin_tuning(step, mine, error);
    if (status) {
        gw_finalize(mine);
        return status;
    }
    status = gw_step_join_moved(step, mine, error);
    return status ? status : gw_step_begin_measuring(step, error);
}

static gw_status move(gw_step *step, gw_comm *comm, gw_error *error) {
    gw_comm *mine = NULL;
    gw_status status = gw_step_meet(step, comm, &mine, error);
    if (status) return status;
    return gw_stepper_servers(step->stepper) ? gw_step_join_moved(step, mine, error)
                                             : move_collectives(step, mine, error);
}

gw_status gw_step_move(gw_step *step, gw_comm *comm) {
    gw_error error = {.rank = -1};
    gw_status status = check_movable(step, comm, &error);
    if (comm) status = gw_step_agree(comm, status, &error);
    if (!status) status = move(step, comm, &error);
    if (status) return gw_comm_told(&error);
    step->workers = comm->size;
    tell_changes(step);
    return GW_OK;
}
