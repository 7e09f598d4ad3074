/* step.c - the step API of gradwire.h: arguments are checked, threads meet, calls wait. How a step begins is in
 * step_commit.c, the machine itself is stepper.c. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/units.h"
#include "engine/recording.h"
#include "engine/serve.h"
#include "engine/step.h"
#include "strategy/combine.h"

static gw_status told(gw_status status, const gw_error *error) { return status ? gw_comm_told(error) : GW_OK; }

/* Waiting. */

typedef struct awaited {
    const gw_step *step;
    int tensor;
    bool (*holds)(const gw_stepper *stepper, int tensor);
} awaited;

static bool failed(const gw_step *step) {
    return atomic_load(&step->comm->failed) || gw_stepper_error(step->stepper)->status;
}

static bool over(void *ctx) {
    const awaited *a = ctx;
    return a->holds(a->step->stepper, a->tensor) || failed(a->step);
}

static gw_status failure(const gw_step *step) {
    if (atomic_load(&step->comm->failed)) return gw_comm_told(&step->comm->error);
    return gw_comm_told(gw_stepper_error(step->stepper));
}

static gw_status wait_until(gw_step *step, int tensor, bool (*holds)(const gw_stepper *, int)) {
    awaited a = {step, tensor, holds};
    if (failed(step)) return failure(step);
    if (holds(step->stepper, tensor)) return GW_OK;
    gw_time begun = gw_clock_now();
    gw_node_lock_to_drive(step->comm->node);
    gw_node_drive_until(step->comm->node, over, &a);
    gw_node_unlock(step->comm->node);
    step->wait_ns += gw_clock_now() - begun;
    gw_stepper_trace_waited(step->stepper, tensor, begun);
    return holds(step->stepper, tensor) ? GW_OK : failure(step);
}

/* A step is recorded from the end of the one before, or, after a flush, from its first call. */
static void trace_begin(gw_step *step) {
    gw_trace *trace = gw_comm_trace(step->comm);
    if (trace && !step->began) step->began = gw_trace_now(trace);
}

static void trace_end(gw_step *step) {
    gw_trace *trace = gw_comm_trace(step->comm);
    gw_time now = trace ? gw_trace_now(trace) : 0;
    if (trace && step->began) gw_trace_span(trace, GW_TRACE_STEP, step->next, 0, 0, 0, step->began, now);
    step->began = now;
}

/* The calls of a step. */

static gw_status check(const gw_step *step, int tensor, const char *call) {
    gw_error error = {.rank = -1};
    if (step && gw_comm_forked(step->comm)) return GW_INVALID;
    if (step && tensor >= 0 && tensor < step->count) return GW_OK;
    if (!step) gw_fail(&error, GW_INVALID, "%s: the step is NULL", call);
    else gw_fail(&error, GW_INVALID, "%s: there is no tensor %d among %d", call, tensor, step->count);
    return gw_comm_told(&error);
}

/* What travels may wait for gradients that are not ready, and some schedules for the end: a call that waited for it
 * would wait for its own caller. */
static gw_status check_ended(const gw_step *step, int tensor, const char *call) {
    gw_error error = {.rank = -1};
    if (failed(step) || !gw_stepper_begun(step->stepper, tensor)) return GW_OK;
    gw_fail(&error, GW_INVALID, "%s: %s is ready in a step that has not ended: call gw_step_end first", call,
            gw_stepper_name(step->stepper, tensor));
    return gw_comm_told(&error);
}

/* What comes before a gradient is handed over, whatever its form. */
static gw_status before_ready(gw_step *step, int tensor, const char *call) {
    gw_status status = check(step, tensor, call);
    if (!status) trace_begin(step);
    /* A synchrony that runs ahead waits here for the step before. */
    if (!status && gw_stepper_usable(step->stepper, tensor) && !gw_stepper_begun(step->stepper, tensor))
        status = wait_until(step, tensor, gw_stepper_settled);
    if (!status && failed(step)) return failure(step);
    if (!status && gw_measure_runs(&step->measure)) gw_measure_ready(&step->measure, tensor, gw_clock_now());
    return status;
}

gw_status gw_step_ready(gw_step *step, int tensor) {
    gw_error error = {.rank = -1};
    bool complete = false;
    gw_status status = before_ready(step, tensor, "gw_step_ready");
    if (!status) status = told(gw_stepper_ready(step->stepper, tensor, &complete, &error), &error);
    if (complete) gw_node_nudge(step->comm->node);
    return status;
}

bool gw_step_wants_factors(const gw_step *step, int tensor) {
    return step && tensor >= 0 && tensor < step->count && gw_stepper_wants_factors(step->stepper, tensor);
}

gw_status gw_step_ready_factors(gw_step *step, int tensor, const float *left, const float *right, size_t batch) {
    gw_error error = {.rank = -1};
    bool complete = false;
    gw_status status = before_ready(step, tensor, "gw_step_ready_factors");
    if (!status)
        status = told(gw_stepper_ready_factors(step->stepper, tensor, left, right, batch, &complete, &error), &error);
    if (complete) gw_node_nudge(step->comm->node);
    return status;
}

gw_status gw_step_wait(gw_step *step, int tensor) {
    gw_status status = check(step, tensor, "gw_step_wait");
    if (!status) status = check_ended(step, tensor, "gw_step_wait");
    bool timed = !status && gw_measure_runs(&step->measure);
    if (!status) trace_begin(step);
    gw_time asked = timed ? gw_clock_now() : 0;
    if (!status) status = wait_until(step, tensor, gw_stepper_usable);
    if (timed) gw_measure_wait(&step->measure, tensor, asked, gw_clock_now());
    return status;
}

/* Between two steps: other pieces from now on. All has been flushed, and all ranks know what they are to be. */
static gw_status cut_anew(gw_step *step, const gw_schedule_settings *settings, const gw_schedule_facts *facts) {
    gw_error error = {.rank = -1};
    gw_status status = gw_barrier(step->comm); /* a server's other workers may still push the old pieces */
    if (status) return status;
    gw_node_lock(step->comm->node);
    status = gw_stepper_recut(step->stepper, settings, facts, &error);
    gw_node_unlock(step->comm->node);
    if (status) return told(status, &error);
    gw_step_describe(step);
    return gw_barrier(step->comm); /* nothing of the new pieces may come to a rank that knows only the old */
}

/* What was measured is known to all from now on, and the pieces are cut by it. */
static gw_status cut_by_measure(gw_step *step) {
    gw_status status = gw_step_flush(step);
    if (!status) status = gw_measure_share(&step->measure, step->comm);
    if (status) return status;
    gw_schedule_facts facts = gw_measure_facts(&step->measure);
    gw_schedule_settings settings = *gw_schedule_set_to(gw_stepper_schedule(step->stepper));
    return cut_anew(step, &settings, &facts);
}

/* A trial of the tuner is over: the pieces of the next, or those that stay. */
static gw_status cut_by_trial(gw_step *step) {
    gw_status status = gw_step_flush(step);
    if (!status) status = gw_tuning_meet(&step->tuning, step->comm, &step->strategy);
    if (status) return status;
    const gw_setting *schedule = &step->strategy.axes[GW_AXIS_SCHEDULE];
    gw_schedule_settings settings = gw_policy_of(schedule->technique)->settings(schedule->values);
    return cut_anew(step, &settings, NULL);
}

gw_status gw_step_end(gw_step *step) {
    gw_error error = {.rank = -1};
    if (step && step->count == 0) return GW_OK;
    gw_status status = check(step, 0, "gw_step_end");
    if (!status && failed(step)) return failure(step);
    if (!status) status = told(gw_stepper_end(step->stepper, &error), &error);
    if (!status) {
        trace_end(step);
        step->steps++;
        step->next++;
        gw_node_nudge(step->comm->node);
    }
    if (status) return status;
    if (gw_tuning_runs(&step->tuning) && gw_tuning_step(&step->tuning, gw_clock_now())) return cut_by_trial(step);
    if (!gw_measure_runs(&step->measure)) return GW_OK;
    gw_measure_end(&step->measure);
    return gw_measure_runs(&step->measure) ? GW_OK : cut_by_measure(step);
}

gw_status gw_step_flush(gw_step *step) {
    gw_status status = GW_OK;
    if (!step) return check(step, 0, "gw_step_flush");
    if (gw_comm_forked(step->comm)) return GW_INVALID;
    for (int i = 0; i < step->count && !status; i++) status = check_ended(step, i, "gw_step_flush");
    for (int i = 0; i < step->count && !status; i++) status = wait_until(step, i, gw_stepper_settled);
    if (!status) gw_stepper_settle(step->stepper);
    step->began = 0;
    return status;
}

static bool quiet(void *ctx) {
    const gw_step *step = ctx;
    return failed(step) || gw_stepper_quiet(step->stepper);
}

bool gw_step_served(const gw_step *step) { return step && gw_stepper_servers(step->stepper) != NULL; }

bool gw_step_over(const gw_step *step) {
    gw_node_lock(step->comm->node);
    bool over = !failed(step) && gw_stepper_quiet(step->stepper);
    gw_node_unlock(step->comm->node);
    return over;
}

gw_status gw_step_leave(gw_step *step) {
    gw_status status = gw_step_flush(step);
    if (status) return status;
    gw_stepper_leave(step->stepper);
    gw_node_lock(step->comm->node);
    gw_node_drive_until(step->comm->node, quiet, step);
    gw_node_unlock(step->comm->node);
    return failed(step) && !gw_stepper_quiet(step->stepper) ? failure(step) : GW_OK;
}

static bool idle(void *ctx) {
    const gw_step *step = ctx;
    return failed(step) || !gw_stepper_carries(step->stepper);
}

/* Whether it is closed in the middle of a step, which the others learn: they wait for what will not come. */
static bool broken_off(gw_step *step) {
    int begun = 0;
    while (begun < step->count && !gw_stepper_begun(step->stepper, begun)) begun++;
    if (begun == step->count) return false;
    char reason[GW_ERROR_TEXT_BYTES / 2];
    snprintf(reason, sizeof reason, "it closed a step that had not ended, in which %.100s was ready",
             gw_stepper_name(step->stepper, begun));
    if (step->comm->size > 1 && !failed(step)) gw_abort(step->comm, reason);
    return true;
}

void gw_step_close(gw_step *step) {
    if (!step || (step->comm && gw_comm_forked(step->comm))) return;
    gw_node *node = step->comm ? step->comm->node : NULL;
    if (step->rides) { /* else it never began */
        bool broken = broken_off(step);
        for (int i = 0; i < step->count && !broken; i++) wait_until(step, i, gw_stepper_settled);
        gw_stepper_leave(step->stepper);
        gw_node_lock(node);
        gw_node_drive_until(node, broken ? idle : quiet, step);
        gw_step_dismount(step);
        gw_node_unlock(node);
    }
    if (step->stepper) {
        gw_node_lock(node);
        gw_stepper_close(step->stepper);
        gw_node_unlock(node);
    }
    gw_measure_close(&step->measure);
    gw_tuning_close(&step->tuning);
    gw_step_table_free(&step->table);
    if (step->comm) {
        gw_free(step->comm, step->flat);
        gw_finalize(step->comm);
    }
    free(step->tune);
    free(step);
}

/* What it came to. */

uint64_t gw_step_reached(const gw_step *step, int tensor) {
    bool known = step && tensor >= 0 && tensor < step->count;
    return known ? gw_stepper_reached(step->stepper, tensor) : 0;
}

gw_step_counters gw_step_count(const gw_step *step) {
    const gw_sync *sync = gw_sync_of(step->strategy.axes[GW_AXIS_SYNC].technique);
    gw_node *node = step->comm->node;
    if (gw_node_forked(node)) return (gw_step_counters){0};
    gw_node_lock(node);
    gw_engine_counters now = gw_engine_count(gw_core_engine(node->core));
    gw_node_unlock(node);
    return (gw_step_counters){.steps = step->steps,
                              .first_step = step->first,
                              .step = step->next,
                              .bytes_sent = step->earlier.bytes_sent + now.bytes_sent - step->before.bytes_sent,
                              .messages_sent = step->earlier.messages_sent + now.messages_sent -
                                               step->before.messages_sent,
                              .dense_bytes = step->dense_bytes * step->steps,
                              .wait_ns = step->wait_ns,
                              .pieces = gw_stepper_pieces(step->stepper),
                              .memory_bytes = gw_stepper_memory_bytes(step->stepper),
                              .codec_bytes = gw_stepper_codec_bytes(step->stepper),
                              .local = sync->local || sync->rule,
                              .agrees = gw_stepper_agrees(step->stepper),
                              .tuning = gw_tuning_runs(&step->tuning),
                              .trials = step->tuning.trials};
}

int gw_step_strategy(const gw_step *step, char *text, size_t size) {
    return gw_strategy_print(&step->strategy, text, size);
}

/* Each server knows of all workers, and each knows best of whom it waited for longest. */
gw_status gw_step_share_times(gw_step *step, gw_step_worker *workers, gw_error *error) {
    gw_comm *comm = step->comm;
    gw_node_lock(comm->node);
    for (int w = 0; w < step->workers; w++) {
        gw_desk_times times = gw_stepper_times(step->stepper, w, gw_clock_now());
        workers[w] = (gw_step_worker){times.pushes, times.late, times.held, times.held_others};
    }
    gw_node_unlock(comm->node);
    size_t numbers = (size_t)step->workers * (sizeof *workers / sizeof(int64_t));
    gw_status status = gw_allreduce(comm, workers, workers, numbers, GW_I64, GW_MAX);
    return status ? gw_fail(error, status, "%s", gw_last_error(comm)) : GW_OK;
}

gw_status gw_step_workers(gw_step *step, gw_step_worker *workers) {
    gw_error error = {.rank = -1};
    gw_status status = GW_OK;
    if (gw_comm_forked(step->comm)) return GW_INVALID;
    if (step->table.bytes)
        status = gw_servers_call(step->comm->node->everyone, GW_ERRAND_TIMES, step->number, NULL, &error);
    if (!status) status = gw_step_share_times(step, workers, &error);
    return told(status, &error);
}

size_t gw_step_state_bytes(const gw_step *step) { return gw_stepper_state_bytes(step->stepper); }

gw_status gw_step_state_save(gw_step *step, void *memory) {
    gw_status status = gw_step_flush(step);
    if (!status) gw_stepper_state_save(step->stepper, memory);
    return status;
}

gw_status gw_step_state_restore(gw_step *step, const void *memory, size_t bytes) {
    gw_error error = {.rank = -1};
    gw_status status = gw_step_flush(step);
    return status ? status : told(gw_stepper_state_restore(step->stepper, memory, bytes, &error), &error);
}

gw_status gw_step_state_take_over(gw_step *step, const void *memory, size_t bytes) {
    gw_error error = {.rank = -1};
    gw_status status = gw_step_flush(step);
    return status ? status : told(gw_stepper_state_take_over(step->stepper, memory, bytes, &error), &error);
}
