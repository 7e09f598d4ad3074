/* resume.c - after a loss, a reducer continues over another communicator. The collective calls are those of
 * gw_reducer_commit (reducer_open.c), in the same order, since restarted ranks make those meanwhile. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "ps/ps.h"
#include "reducer/reducer_internal.h"

static bool failed(const gw_reducer *reducer) {
    return atomic_load(&reducer->comm->failed) || gw_step_engine_error(reducer->step_engine)->status;
}

static gw_status check_over_servers(const gw_reducer *reducer, gw_error *error) {
    const gw_sync *sync = gw_sync_of(reducer->strategy.axes[GW_AXIS_SYNC].technique);
    const gw_technique *codec = reducer->strategy.axes[GW_AXIS_COMPRESS].technique;
    if (!gw_strategy_is(&reducer->strategy, GW_AXIS_ARCH, "ps"))
        return gw_fail(
            error, GW_UNSUPPORTED,
            "gw_reducer_resume: a reducer over servers with arch=%s cannot be resumed; close it and commit another",
            gw_strategy_name(&reducer->strategy, GW_AXIS_ARCH));
    if (gw_strategy_keeps_codec_state(&reducer->strategy))
        return gw_fail(
            error, GW_UNSUPPORTED,
            "gw_reducer_resume: a reducer over servers with compress=%s cannot be resumed, since a push cannot be "
            "encoded twice; close it and commit another",
            codec->name);
    bool measured = gw_schedule_current_settings(gw_step_engine_schedule(reducer->step_engine))->measured;
    if (sync->travels_apart || measured || gw_tuning_runs(&reducer->tuning))
        return gw_fail(
            error, GW_UNSUPPORTED,
            "gw_reducer_resume: a reducer over servers with sync=%s and schedule=%s%s cannot be resumed; close it and "
            "commit another",
            sync->technique.name, reducer->strategy.axes[GW_AXIS_SCHEDULE].technique->name,
            gw_tuning_runs(&reducer->tuning) ? ", which is being tuned," : "");
    return GW_OK;
}

static gw_status check_resumable(gw_reducer *reducer, const gw_comm *comm, gw_error *error) {
    if (!reducer || !comm)
        return gw_fail(error, GW_INVALID, "gw_reducer_resume: the reducer or the communicator is NULL");
    if (gw_step_engine_servers(reducer->step_engine)) return check_over_servers(reducer, error);
    if (!failed(reducer) && !gw_reducer_quiet(reducer))
        return gw_fail(error, GW_INVALID,
                       "gw_reducer_resume: the reducer has not failed, and a step of it is under way: "
                       "call gw_reducer_flush first");
    reducer->facts.world = comm->size;
    return gw_strategy_check_step(&reducer->asked, &reducer->facts, error);
}

static void log_changes(const gw_reducer *reducer) {
    gw_ps *ps = gw_step_engine_servers(reducer->step_engine);
    if (reducer->comm->rank != 0) return;
    if (!ps) {
        gw_log(GW_LOG_WARN, 0, "step %llu is next, on %d rank%s", (unsigned long long)reducer->next_step,
               reducer->comm->size, reducer->comm->size == 1 ? "" : "s");
        return;
    }
    const gw_placement *p = gw_ps_placement(ps);
    int back = 0;
    for (int r = 0; r < p->world; r++) back += p->members[r].fresh;
    gw_log(GW_LOG_WARN, 0, "steps go on with %d worker%s; %d of %d ranks have just joined", gw_placement_workers(p),
           gw_placement_workers(p) == 1 ? "" : "s", back, p->world);
}

/* The reducer has the new communicator from here on, even if this fails: it can be resumed again. */
static gw_status change_comm(gw_reducer *reducer, gw_comm *mine, gw_error *error) {
    gw_comm *old = reducer->comm;
    gw_context_lock(old->context);
    gw_reducer_detach(reducer);
    gw_status status = gw_step_engine_suspend(reducer->step_engine, error);
    gw_engine_counters now = gw_engine_count(gw_core_engine(old->context->core));
    reducer->earlier.bytes_sent += now.bytes_sent - reducer->before.bytes_sent;
    reducer->earlier.messages_sent += now.messages_sent - reducer->before.messages_sent;
    reducer->before = now;
    gw_context_unlock(old->context);
    gw_free(old, reducer->flat);
    reducer->flat = NULL;
    reducer->comm = mine;
    gw_finalize(old);
    return status;
}

/* The pack buffer of the strategy that the ranks begin with again, which may not be the last one. */
static gw_status make_pack_buffer(gw_reducer *reducer, gw_step_engine_config *config, gw_error *error) {
    gw_reducer_tensor *tensors = NULL;
    if (!config->servers && !(tensors = gw_reducer_list_tensors(reducer, error))) return GW_MEMORY;
    config->tensors = tensors;
    if (tensors) reducer->flat_bytes = gw_step_engine_flat_bytes(config);
    config->tensors = NULL;
    free(tensors);
    return gw_reducer_alloc_pack_buffer(reducer, config, error);
}

/* The step engine joins the reducer's communicator. who: NULL without servers. */
static gw_status rejoin(gw_reducer *reducer, const gw_ps_member *who, gw_error *error) {
    gw_context *context = reducer->comm->context;
    gw_step_engine_config config = {
        .core = context->core, .team = reducer->comm->team, .count = reducer->count, .members = who};
    gw_status status = gw_step_engine_config_from_strategy(&config, &reducer->strategy, error);
    if (!status) status = make_pack_buffer(reducer, &config, error);
    if (status) return status;
    gw_context_lock(context);
    gw_reducer_reserve_team_ids(reducer, &config);
    status = gw_step_engine_rejoin(reducer->step_engine, &config, error);
    gw_context_unlock(context);
    return status;
}

gw_status gw_reducer_rejoin(gw_reducer *reducer, gw_comm *mine, gw_error *error) {
    gw_ps_member *who = NULL;
    gw_step_engine_config config = {.servers = gw_step_engine_servers(reducer->step_engine) != NULL};
    gw_status status = gw_reducer_agree(mine, change_comm(reducer, mine, error), error);
    if (!status) status = gw_reducer_gather_members(reducer, &config, &who, error);
    if (status) return status;
    status = gw_reducer_agree(reducer->comm, rejoin(reducer, who, error), error);
    free(who);
    if (!status) status = gw_reducer_agree(reducer->comm, gw_reducer_transfer_state(reducer, error), error);
    if (status) return status;
    gw_step_engine_resume(reducer->step_engine);
    gw_reducer_start_polling(reducer);
    gw_context_notify(reducer->comm->context);
    return GW_OK;
}

/* Tunes and measures again: the results so far were for other ranks. */
static gw_status resume_collectives(gw_reducer *reducer, gw_comm *mine, gw_error *error) {
    gw_tuning_close(&reducer->tuning);
    gw_step_timing_close(&reducer->timing);
    gw_decider_close(reducer->decider);
    reducer->decider = NULL;
    free(reducer->decisions); /* its file is that of other ranks */
    reducer->decisions = NULL;
    reducer->strategy = reducer->asked;
    gw_status status = gw_reducer_begin_tuning(reducer, mine, error);
    if (!status) status = gw_reducer_begin_deciding(reducer, mine, error);
    if (status) {
        gw_finalize(mine);
        return status;
    }
    status = gw_reducer_rejoin(reducer, mine, error);
    return status ? status : gw_reducer_begin_measuring(reducer, error);
}

static gw_status resume(gw_reducer *reducer, gw_comm *comm, gw_error *error) {
    gw_comm *mine = NULL;
    gw_status status = gw_reducer_split_comm(reducer, comm, &mine, error);
    if (status) return status;
    return gw_step_engine_servers(reducer->step_engine) ? gw_reducer_rejoin(reducer, mine, error)
                                                        : resume_collectives(reducer, mine, error);
}

gw_status gw_reducer_resume(gw_reducer *reducer, gw_comm *comm) {
    gw_error error = {.rank = -1};
    gw_status status = check_resumable(reducer, comm, &error);
    if (comm) status = gw_reducer_agree(comm, status, &error);
    if (!status) status = resume(reducer, comm, &error);
    if (status) return gw_comm_set_last_error(&error);
    reducer->workers = comm->size;
    log_changes(reducer);
    return GW_OK;
}
