/* reducer_read.c - what a reducer tells and keeps: counters, strategy, routes, times at servers, saved state. */
#include <stdlib.h>
#include <string.h>

#include "base/sized.h"
#include "ps/server_process.h"
#include "reducer/reducer_internal.h"
#include "reducer/route_summary.h"

static gw_status report(gw_status status, const gw_error *error) {
    return status ? gw_comm_set_last_error(error) : GW_OK;
}

uint64_t gw_reducer_reached(const gw_reducer *reducer, int tensor) {
    bool known = reducer && tensor >= 0 && tensor < reducer->count;
    return known ? gw_step_engine_reached(reducer->step_engine, tensor) : 0;
}

double gw_reducer_takes_momentum(const gw_reducer *reducer, int tensor) {
    bool known = reducer && tensor >= 0 && tensor < reducer->count;
    return known ? gw_step_engine_momentum(reducer->step_engine, tensor) : 0;
}

static gw_reducer_counters counters_of(const gw_reducer *reducer) {
    const gw_sync *sync = gw_sync_of(reducer->strategy.axes[GW_AXIS_SYNC].technique);
    gw_context *context = reducer->comm->context;
    if (gw_context_forked(context)) return (gw_reducer_counters){0};
    gw_context_lock(context);
    gw_engine_counters now = gw_engine_count(gw_core_engine(context->core));
    gw_context_unlock(context);
    gw_step_engine_nonfinite nonfinite = gw_step_engine_nonfinites(reducer->step_engine);
    return (gw_reducer_counters){
        .steps = reducer->steps,
        .first_step = reducer->first_step,
        .step = reducer->next_step,
        .bytes_sent = reducer->earlier.bytes_sent + now.bytes_sent - reducer->before.bytes_sent,
        .messages_sent = reducer->earlier.messages_sent + now.messages_sent - reducer->before.messages_sent,
        .dense_bytes = reducer->dense_bytes * reducer->steps,
        .wait_ns = reducer->wait_ns,
        .buckets = gw_step_engine_buckets(reducer->step_engine),
        .memory_bytes = gw_step_engine_memory_bytes(reducer->step_engine),
        .codec_bytes = gw_step_engine_codec_bytes(reducer->step_engine),
        .local_optimisers = sync->local || sync->rule,
        .weights_agree = gw_step_engine_agrees(reducer->step_engine),
        .tuning = gw_tuning_runs(&reducer->tuning) || (reducer->decider && !gw_decider_settled(reducer->decider)),
        .trials = reducer->decider ? gw_decider_trials(reducer->decider) : reducer->tuning.trials,
        .nonfinite = nonfinite.count,
        .nonfinite_step = nonfinite.step,
        .nonfinite_tensor = nonfinite.tensor};
}

void gw_reducer_read_counters_sized(const gw_reducer *reducer, void *counters, size_t size) {
    gw_reducer_counters now = counters_of(reducer);
    gw_sized_write(counters, size, &now, sizeof now);
}

int gw_reducer_strategy(const gw_reducer *reducer, char *text, size_t size) {
    return gw_strategy_print(&reducer->strategy, text, size);
}

int gw_reducer_routes(const gw_reducer *reducer, char *text, size_t size) {
    gw_route_use uses[GW_ROUTE_USES_MAX];
    size_t used = 0;
    if (size) *text = 0;
    if (!reducer || gw_comm_forked(reducer->comm)) return 0;
    gw_context_lock(reducer->comm->context);
    int count = gw_route_summary(reducer->step_engine, uses);
    for (int i = 0; i < count; i++) {
        if (i && used + 1 < size) text[used] = '\n';
        used += i > 0;
        used += (size_t)gw_route_use_text(&uses[i], used < size ? text + used : NULL, used < size ? size - used : 0);
    }
    gw_context_unlock(reducer->comm->context);
    return (int)used;
}

/* Each server has times of all workers: take the largest. */
gw_status gw_reducer_share_times(gw_reducer *reducer, gw_reducer_worker_stats *workers, gw_error *error) {
    enum { NUMBERS = 4 };
    gw_comm *comm = reducer->comm;
    size_t count = (size_t)reducer->workers * NUMBERS;
    uint64_t *all = calloc(count + 1, sizeof *all);
    if (!all) return gw_fail(error, GW_MEMORY, "out of memory for the times of workers");
    gw_context_lock(comm->context);
    for (int w = 0; w < reducer->workers; w++) {
        gw_clock_table_times times = gw_step_engine_times(reducer->step_engine, w, gw_clock_now());
        memcpy(all + w * NUMBERS, (uint64_t[NUMBERS]){times.pushes, times.late, times.held, times.held_others},
               NUMBERS * sizeof *all);
    }
    gw_context_unlock(comm->context);
    gw_status status = gw_allreduce(comm, all, all, count, GW_I64, GW_MAX);
    for (int w = 0; !status && w < reducer->workers; w++) {
        const uint64_t *of = all + w * NUMBERS;
        workers[w] = (gw_reducer_worker_stats){.pushes = of[0], .late = of[1], .held_ns = of[2],
                                               .held_others_ns = of[3]};
    }
    free(all);
    return status ? gw_fail(error, status, "%s", gw_last_error(comm)) : GW_OK;
}

gw_status gw_reducer_workers_sized(gw_reducer *reducer, void *workers, size_t entry_size) {
    gw_error error = {.rank = -1};
    gw_status status = GW_OK;
    if (gw_comm_forked(reducer->comm)) return GW_INVALID;
    gw_reducer_worker_stats *stats = calloc((size_t)reducer->workers, sizeof *stats);
    if (!stats) status = gw_fail(&error, GW_MEMORY, "out of memory for the times of %d workers", reducer->workers);
    if (!status && reducer->table.bytes)
        status =
            gw_servers_call(reducer->comm->context->everyone, GW_SERVER_COMMAND_TIMES, reducer->number, NULL, &error);
    if (!status) status = gw_reducer_share_times(reducer, stats, &error);
    for (int w = 0; !status && w < reducer->workers; w++)
        gw_sized_write((char *)workers + (size_t)w * entry_size, entry_size, &stats[w], sizeof stats[w]);
    free(stats);
    return report(status, &error);
}

size_t gw_reducer_state_bytes(const gw_reducer *reducer) { return gw_step_engine_state_bytes(reducer->step_engine); }

gw_status gw_reducer_state_save(gw_reducer *reducer, void *memory) {
    gw_status status = gw_reducer_flush(reducer);
    if (!status) gw_step_engine_state_save(reducer->step_engine, memory);
    return status;
}

gw_status gw_reducer_state_restore(gw_reducer *reducer, const void *memory, size_t bytes) {
    gw_error error = {.rank = -1};
    /* Where the codec is chosen while training runs, the saved residuals may be those of another. */
    bool any_codec = reducer->chooses && gw_strategy_is_open(&reducer->asked, GW_AXIS_COMPRESS) &&
                     reducer->asked.accuracy == GW_ACCURACY_SAFE;
    gw_status status = gw_reducer_flush(reducer);
    if (status) return status;
    status = gw_step_engine_state_restore(reducer->step_engine, memory, bytes, any_codec, &error);
    return report(status, &error);
}

void gw_reducer_continue_at(gw_reducer *reducer, uint64_t step) {
    gw_context_lock(reducer->comm->context);
    gw_step_engine_begin_at(reducer->step_engine, step - reducer->steps);
    gw_context_unlock(reducer->comm->context);
    reducer->next_step = step;
}

gw_status gw_reducer_state_merge(gw_reducer *reducer, const void *memory, size_t bytes) {
    gw_error error = {.rank = -1};
    gw_status status = gw_reducer_flush(reducer);
    if (!status) status = report(gw_step_engine_state_take_over(reducer->step_engine, memory, bytes, &error), &error);
    return status;
}
