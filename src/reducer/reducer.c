/* reducer.c - the calls of gradwire/reducer.h: they check arguments and wait; step_engine.c does the work.
 * reducer_open.c makes a reducer, resume.c moves it to another communicator. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ps/server_process.h"
#include "reducer/reducer_internal.h"
#include "runtime/recording.h"

static gw_status report(gw_status status, const gw_error *error) {
    return status ? gw_comm_set_last_error(error) : GW_OK;
}

/* The step engine's sentences do not name the call. */
static gw_status report_call(const char *call, gw_status status, const gw_error *error) {
    gw_error named = {.rank = -1};
    if (status) gw_fail(&named, status, "%s: %s", call, error->text);
    return report(status, &named);
}

/* Waiting. */

typedef struct awaited {
    const gw_reducer *reducer;
    int tensor;
    bool (*holds)(const gw_step_engine *step_engine, int tensor);
} awaited;

static bool failed(const gw_reducer *reducer) {
    return atomic_load(&reducer->comm->failed) || gw_step_engine_error(reducer->step_engine)->status;
}

static bool over(void *ctx) {
    const awaited *a = ctx;
    return a->holds(a->reducer->step_engine, a->tensor) || failed(a->reducer);
}

static gw_status failure(const gw_reducer *reducer) {
    if (atomic_load(&reducer->comm->failed)) return gw_comm_set_last_error(&reducer->comm->error);
    return gw_comm_set_last_error(gw_step_engine_error(reducer->step_engine));
}

/* The waiting of a call (docs/reference/glossary.md): the counter and the recording have the same. */
static void count_waiting(gw_reducer *reducer, int tensor, gw_time begun) {
    reducer->wait_ns += gw_clock_now() - begun;
    gw_step_engine_trace_waited(reducer->step_engine, tensor, begun);
}

static gw_status wait_until(gw_reducer *reducer, int tensor, bool (*holds)(const gw_step_engine *, int)) {
    awaited a = {reducer, tensor, holds};
    if (failed(reducer)) return failure(reducer);
    if (holds(reducer->step_engine, tensor)) return GW_OK;
    gw_time begun = gw_clock_now();
    gw_context_lock_to_drive(reducer->comm->context);
    gw_context_drive_until(reducer->comm->context, over, &a);
    gw_context_unlock(reducer->comm->context);
    count_waiting(reducer, tensor, begun);
    return holds(reducer->step_engine, tensor) ? GW_OK : failure(reducer);
}

typedef struct awaited_any {
    const gw_reducer *reducer;
    const int *tensors;
    int count;
} awaited_any;

/* The place of the first tensor that may be used; -1: none may. */
static int usable_of(const awaited_any *a) {
    for (int i = 0; i < a->count; i++)
        if (gw_step_engine_usable(a->reducer->step_engine, a->tensors[i])) return i;
    return -1;
}

static bool any_over(void *ctx) { return usable_of(ctx) >= 0 || failed(((const awaited_any *)ctx)->reducer); }

static gw_status wait_until_any(gw_reducer *reducer, const int *tensors, int count, int *which) {
    awaited_any a = {reducer, tensors, count};
    if (failed(reducer)) return failure(reducer);
    if ((*which = usable_of(&a)) >= 0) return GW_OK;
    gw_time begun = gw_clock_now();
    gw_context_lock_to_drive(reducer->comm->context);
    gw_context_drive_until(reducer->comm->context, any_over, &a);
    gw_context_unlock(reducer->comm->context);
    *which = usable_of(&a);
    count_waiting(reducer, tensors[*which < 0 ? 0 : *which], begun);
    return *which < 0 ? failure(reducer) : GW_OK;
}

/* Where the caller does not mark its steps, the reducer does, from one gw_reducer_end to the next. The first begins
 * with its first call. */
static gw_trace *records_steps(const gw_reducer *reducer) {
    gw_trace *trace = gw_comm_trace(reducer->comm);
    return trace && !gw_comm_marks_steps(reducer->comm) ? trace : NULL;
}

static void trace_begin(gw_reducer *reducer) {
    const gw_trace *trace = records_steps(reducer);
    if (trace && !gw_step_mark_open(&reducer->recorded, trace)) gw_step_mark_begin(&reducer->recorded, trace);
}

static void trace_end(gw_reducer *reducer) {
    char line[GW_CAPTURE_TEXT_MAX + 1];
    gw_trace *trace = records_steps(reducer);
    if (!trace) return;
    gw_strategy_print(&reducer->strategy, line, sizeof line);
    gw_step_mark_end(&reducer->recorded, trace, reducer->next_step, line);
}

/* The calls of a training step. */

static gw_status check(const gw_reducer *reducer, int tensor, const char *call) {
    gw_error error = {.rank = -1};
    if (reducer && gw_comm_forked(reducer->comm)) return GW_INVALID;
    if (reducer && tensor >= 0 && tensor < reducer->count) return GW_OK;
    if (!reducer) gw_fail(&error, GW_INVALID, "%s: the reducer is NULL", call);
    else gw_fail(&error, GW_INVALID, "%s: there is no tensor %d among %d", call, tensor, reducer->count);
    return gw_comm_set_last_error(&error);
}

/* A bucket may wait for gradients that are not ready, and some schedules wait for the end of the step: a call that
 * waited for them would deadlock its own caller. */
static gw_status check_ended(const gw_reducer *reducer, int tensor, const char *call) {
    gw_error error = {.rank = -1};
    if (failed(reducer) || !gw_step_engine_begun(reducer->step_engine, tensor)) return GW_OK;
    gw_fail(&error, GW_INVALID, "%s: %s is ready in a step that has not ended: call gw_reducer_end first", call,
            gw_step_engine_name(reducer->step_engine, tensor));
    return gw_comm_set_last_error(&error);
}

/* Called before a gradient is handed over, as a tensor or as factors. */
static gw_status before_ready(gw_reducer *reducer, int tensor, const char *call) {
    gw_status status = check(reducer, tensor, call);
    if (status) return status;
    trace_begin(reducer);
    if (failed(reducer)) return failure(reducer);
    if (gw_step_engine_accumulates(reducer->step_engine)) return GW_OK;
    /* A synchronization that runs ahead waits here for the previous step. */
    if (gw_step_engine_usable(reducer->step_engine, tensor) && !gw_step_engine_begun(reducer->step_engine, tensor))
        status = wait_until(reducer, tensor, gw_step_engine_settled);
    if (!status && gw_step_timing_runs(&reducer->timing))
        gw_step_timing_ready(&reducer->timing, tensor, gw_clock_now());
    return status;
}

/* Called after it. complete: the driver has work. */
static gw_status after_ready(gw_reducer *reducer, const char *call, gw_status status, bool complete,
                             const gw_error *error) {
    if (complete) gw_context_notify(reducer->comm->context);
    return report_call(call, status, error);
}

static gw_status ready(gw_reducer *reducer, const int *tensors, int count, const char *call) {
    gw_error error = {.rank = -1};
    bool complete = false;
    gw_status status = GW_OK;
    for (int i = 0; i < count && !status; i++) status = check(reducer, tensors[i], call);
    for (int i = 0; i < count && !status; i++) status = before_ready(reducer, tensors[i], call);
    if (status) return status;
    status = gw_step_engine_ready(reducer->step_engine, tensors, count, &complete, &error);
    return after_ready(reducer, call, status, complete, &error);
}

gw_status gw_reducer_ready(gw_reducer *reducer, int tensor) { return ready(reducer, &tensor, 1, "gw_reducer_ready"); }

gw_status gw_reducer_ready_many(gw_reducer *reducer, const int *tensors, int count) {
    gw_error error = {.rank = -1};
    if (!reducer || count < 0 || (count && !tensors))
        return report(gw_fail(&error, GW_INVALID,
                              "gw_reducer_ready_many: the reducer is NULL, or there is no list of %d tensors", count),
                      &error);
    return ready(reducer, tensors, count, "gw_reducer_ready_many");
}

bool gw_reducer_wants_factors(const gw_reducer *reducer, int tensor) {
    return reducer && tensor >= 0 && tensor < reducer->count &&
           gw_step_engine_wants_factors(reducer->step_engine, tensor);
}

gw_status gw_reducer_ready_factors(gw_reducer *reducer, int tensor, const float *left, const float *right,
                                   size_t batch) {
    static const char call[] = "gw_reducer_ready_factors";
    gw_error error = {.rank = -1};
    bool complete = false;
    gw_status status = before_ready(reducer, tensor, call);
    if (status) return status;
    status = gw_step_engine_ready_factors(reducer->step_engine, tensor, left, right, batch, &complete, &error);
    return after_ready(reducer, call, status, complete, &error);
}

gw_status gw_reducer_absent(gw_reducer *reducer, int tensor) {
    static const char call[] = "gw_reducer_absent";
    gw_error error = {.rank = -1};
    bool complete = false;
    gw_status status = before_ready(reducer, tensor, call);
    if (status) return status;
    status = gw_step_engine_absent(reducer->step_engine, tensor, &complete, &error);
    return after_ready(reducer, call, status, complete, &error);
}

gw_status gw_reducer_accumulate(gw_reducer *reducer, bool on) {
    gw_status status = GW_OK;
    if (!reducer) return check(reducer, 0, "gw_reducer_accumulate");
    if (gw_comm_forked(reducer->comm)) return GW_INVALID;
    if (failed(reducer)) return failure(reducer);
    for (int i = 0; i < reducer->count && !status; i++) status = check_ended(reducer, i, "gw_reducer_accumulate");
    if (!status) gw_step_engine_accumulate(reducer->step_engine, on);
    return status;
}

gw_status gw_reducer_wait(gw_reducer *reducer, int tensor) {
    gw_status status = check(reducer, tensor, "gw_reducer_wait");
    if (!status) status = check_ended(reducer, tensor, "gw_reducer_wait");
    bool timed = !status && gw_step_timing_runs(&reducer->timing) && !gw_step_engine_accumulates(reducer->step_engine);
    if (!status) trace_begin(reducer);
    gw_time asked = timed ? gw_clock_now() : 0;
    if (!status) status = wait_until(reducer, tensor, gw_step_engine_usable);
    if (timed) gw_step_timing_wait(&reducer->timing, tensor, asked, gw_clock_now());
    return status;
}

gw_status gw_reducer_wait_any(gw_reducer *reducer, const int *tensors, int count, int *which) {
    static const char call[] = "gw_reducer_wait_any";
    gw_error error = {.rank = -1};
    gw_status status = GW_OK;
    if (!tensors || count < 1 || !which)
        return report(gw_fail(&error, GW_INVALID, "%s: there is no list of tensors, or no place for the result", call),
                      &error);
    for (int i = 0; i < count && !status; i++) status = check(reducer, tensors[i], call);
    for (int i = 0; i < count && !status; i++) status = check_ended(reducer, tensors[i], call);
    if (status) return status;
    trace_begin(reducer);
    bool timed = gw_step_timing_runs(&reducer->timing) && !gw_step_engine_accumulates(reducer->step_engine);
    gw_time asked = timed ? gw_clock_now() : 0;
    status = wait_until_any(reducer, tensors, count, which);
    if (timed && !status) gw_step_timing_wait(&reducer->timing, tensors[*which], asked, gw_clock_now());
    return status;
}

/* Between two steps: cuts other buckets. Everything is flushed, and all ranks have the same settings. */
static gw_status recut(gw_reducer *reducer, const gw_schedule_settings *settings, const gw_schedule_facts *facts) {
    gw_error error = {.rank = -1};
    gw_status status = gw_barrier(reducer->comm); /* a server's other workers may still push the old buckets */
    if (status) return status;
    gw_context_lock(reducer->comm->context);
    status = gw_step_engine_recut(reducer->step_engine, settings, facts, &error);
    gw_context_unlock(reducer->comm->context);
    if (status) return report(status, &error);
    gw_reducer_log_summary(reducer);
    return gw_barrier(reducer->comm); /* no message of a new bucket may reach a rank that has only the old ones */
}

gw_status gw_reducer_recut_by_timing(gw_reducer *reducer) {
    gw_status status = gw_reducer_flush(reducer);
    if (!status) status = gw_step_timing_broadcast(&reducer->timing, reducer->comm);
    if (status) return status;
    gw_schedule_facts facts = gw_step_timing_facts(&reducer->timing);
    gw_schedule_settings settings = *gw_schedule_current_settings(gw_step_engine_schedule(reducer->step_engine));
    return recut(reducer, &settings, &facts);
}

/* Server processes cut the same buckets. */
static gw_status recut_everywhere(gw_reducer *reducer) {
    gw_error error = {.rank = -1};
    gw_comm *everyone = reducer->comm->context->everyone;
    gw_status status = GW_OK;
    if (reducer->table.bytes)
        status = gw_servers_call(everyone, GW_SERVER_COMMAND_RECUT, reducer->number, NULL, &error);
    return status ? report(status, &error) : gw_reducer_recut_by_timing(reducer);
}

/* A trial of the tuner is over: cuts the buckets of the next trial, or the final ones. */
static gw_status recut_by_trial(gw_reducer *reducer) {
    gw_status status = gw_reducer_flush(reducer);
    if (!status) status = gw_tuning_end_trial(&reducer->tuning, reducer->comm, &reducer->strategy);
    if (status) return status;
    gw_schedule_settings settings = gw_step_engine_sizes(&reducer->strategy, reducer->comm->team);
    return recut(reducer, &settings, NULL);
}

gw_status gw_reducer_end(gw_reducer *reducer) {
    gw_error error = {.rank = -1};
    if (reducer && reducer->count == 0) return GW_OK;
    gw_status status = check(reducer, 0, "gw_reducer_end");
    if (status) return status;
    if (failed(reducer)) return failure(reducer);
    if (gw_step_engine_accumulates(reducer->step_engine)) return GW_OK;
    status = report_call("gw_reducer_end", gw_step_engine_end(reducer->step_engine, &error), &error);
    if (status) return status;
    trace_end(reducer);
    reducer->steps++;
    reducer->next_step++;
    gw_context_notify(reducer->comm->context);
    if (gw_tuning_runs(&reducer->tuning) && gw_tuning_step(&reducer->tuning, gw_clock_now()))
        return recut_by_trial(reducer);
    bool timed = gw_step_timing_runs(&reducer->timing);
    if (timed) gw_step_timing_end(&reducer->timing);
    if (timed && !gw_step_timing_runs(&reducer->timing) && gw_reducer_cuts_by_timing(reducer))
        status = recut_everywhere(reducer);
    return status || !reducer->decider ? status : gw_reducer_decide(reducer);
}

gw_status gw_reducer_begin_step(gw_reducer *reducer) {
    gw_error error = {.rank = -1};
    bool complete;
    gw_status status = failed(reducer) ? failure(reducer) : GW_OK;
    for (int i = 0; i < reducer->count && !status; i++)
        status = report(gw_step_engine_ready(reducer->step_engine, &i, 1, &complete, &error), &error);
    if (!status) status = report(gw_step_engine_end(reducer->step_engine, &error), &error);
    if (status) return status;
    reducer->steps++;
    reducer->next_step++;
    return GW_OK;
}

gw_status gw_reducer_flush(gw_reducer *reducer) {
    gw_status status = GW_OK;
    if (!reducer) return check(reducer, 0, "gw_reducer_flush");
    if (gw_comm_forked(reducer->comm)) return GW_INVALID;
    for (int i = 0; i < reducer->count && !status; i++) status = check_ended(reducer, i, "gw_reducer_flush");
    gw_time asked = gw_clock_now();
    for (int i = 0; i < reducer->count && !status; i++) status = wait_until(reducer, i, gw_step_engine_settled);
    if (!status) gw_step_engine_settle(reducer->step_engine);
    /* A caller that flushes in every step waits for all tensors before its forward pass. */
    if (!status && reducer->count && gw_step_timing_runs(&reducer->timing))
        gw_step_timing_wait(&reducer->timing, reducer->count - 1, asked, gw_clock_now());
    return status;
}

static bool quiet(void *ctx) {
    const gw_reducer *reducer = ctx;
    return failed(reducer) || gw_step_engine_quiet(reducer->step_engine);
}

bool gw_reducer_has_servers(const gw_reducer *reducer) {
    return reducer && gw_step_engine_servers(reducer->step_engine) != NULL;
}

bool gw_reducer_quiet(const gw_reducer *reducer) {
    gw_context_lock(reducer->comm->context);
    bool over = !failed(reducer) && gw_step_engine_quiet(reducer->step_engine);
    gw_context_unlock(reducer->comm->context);
    return over;
}

gw_status gw_reducer_leave(gw_reducer *reducer) {
    gw_status status = gw_reducer_flush(reducer);
    if (status) return status;
    gw_step_engine_leave(reducer->step_engine);
    gw_context_lock(reducer->comm->context);
    gw_context_drive_until(reducer->comm->context, quiet, reducer);
    gw_context_unlock(reducer->comm->context);
    return failed(reducer) && !gw_step_engine_quiet(reducer->step_engine) ? failure(reducer) : GW_OK;
}

static bool idle(void *ctx) {
    const gw_reducer *reducer = ctx;
    return failed(reducer) || !gw_step_engine_in_flight(reducer->step_engine);
}

/* True if the reducer is closed in the middle of a step. It then calls gw_abort, since other ranks wait for gradients
 * that will not come. */
static bool broken_off(gw_reducer *reducer) {
    int begun = 0;
    while (begun < reducer->count && !gw_step_engine_begun(reducer->step_engine, begun)) begun++;
    if (begun == reducer->count) return false;
    char reason[GW_ERROR_TEXT_BYTES / 2];
    snprintf(reason, sizeof reason, "it closed a reducer in a step that had not ended, in which %.100s was ready",
             gw_step_engine_name(reducer->step_engine, begun));
    if (reducer->comm->size > 1 && !failed(reducer)) gw_abort(reducer->comm, reason);
    return true;
}

void gw_reducer_close(gw_reducer *reducer) {
    if (!reducer || (reducer->comm && gw_comm_forked(reducer->comm))) return;
    gw_context *context = reducer->comm ? reducer->comm->context : NULL;
    if (reducer->attached) { /* else a commit or a resume failed */
        bool broken = broken_off(reducer);
        for (int i = 0; i < reducer->count && !broken; i++) wait_until(reducer, i, gw_step_engine_settled);
        gw_step_engine_leave(reducer->step_engine);
        gw_context_lock(context);
        gw_context_drive_until(context, broken ? idle : quiet, reducer);
        gw_reducer_detach(reducer);
        gw_context_unlock(context);
    }
    if (reducer->step_engine) {
        gw_context_lock(context);
        gw_step_engine_close(reducer->step_engine);
        gw_context_unlock(context);
    }
    gw_step_timing_close(&reducer->timing);
    gw_tuning_close(&reducer->tuning);
    gw_decider_close(reducer->decider);
    gw_reducer_table_free(&reducer->table);
    if (reducer->comm) {
        gw_free(reducer->comm, reducer->flat);
        gw_finalize(reducer->comm);
    }
    free(reducer->decisions);
    free(reducer->optimizer);
    free(reducer->tune);
    free(reducer);
}
