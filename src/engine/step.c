/* step.c - the step API of gradwire.h: arguments are checked, threads meet, calls wait. The machine itself is
 * stepper.c. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/units.h"
#include "engine/recording.h"
#include "engine/step.h"
#include "strategy/combine.h"

static gw_status told(gw_status status, const gw_error *error) { return status ? gw_comm_told(error) : GW_OK; }

/* Commit. */

static gw_tuned_model model_of(const gw_step_tensor *tensors, int count) {
    gw_tuned_model model = {.tensors = count};
    for (int i = 0; i < count; i++) {
        bool known = (unsigned)tensors[i].dtype < GW_DTYPES; /* commit says so otherwise */
        uint64_t bytes = known ? tensors[i].count * gw_dtype_bytes(tensors[i].dtype) : 0;
        model.bytes += bytes;
        if (bytes > model.largest) model.largest = bytes;
    }
    return model;
}

static gw_status resolve(gw_step *step, const gw_comm *comm, const char *line, gw_error *error) {
    step->strategy = comm->node->strategy;
    if (!line) return GW_OK;
    gw_status status = gw_strategy_overlay(&step->strategy, line, NULL, error);
    const gw_setting *have = &comm->node->strategy.axes[GW_AXIS_TRANSPORT];
    if (!status && memcmp(&step->strategy.axes[GW_AXIS_TRANSPORT], have, sizeof *have) != 0)
        status = gw_fail(error, GW_INVALID,
                         "gw_step_commit: the transport is chosen when a job is joined and cannot change for a step");
    return status;
}

static gw_status tune(gw_step *step, const gw_step_options *options, const gw_tuned_model *model, gw_error *error) {
    return gw_tuning_open(&step->tuning, options->tune, step->comm, &step->strategy, model, error);
}

static gw_status configure(gw_step *step, const gw_step_tensor *tensors, const gw_step_options *options,
                           gw_stepper_config *config, gw_error *error) {
    gw_step_facts facts = {.world = step->comm->size, .updates = options->update != NULL,
                           .sums = options->op == GW_SUM, .clips = options->clip > 0};
    *config = (gw_stepper_config){.core = step->comm->node->core, .team = step->comm->team, .tensors = tensors,
                                  .count = step->count, .options = *options};
    gw_status status = gw_strategy_check_step(&step->strategy, &facts, error);
    if (!status) status = gw_stepper_follow(config, &step->strategy, error);
    if (status || !config->snapshot_every) return status;
    const char *folder = getenv("GRADWIRE_SNAPSHOTS");
    if (!folder || !*folder)
        return gw_fail(error, GW_INVALID,
                       "arch=ps:snapshot=%llu: GRADWIRE_SNAPSHOTS (gradwire run --snapshots DIRECTORY) has to say "
                       "where servers write to",
                       (unsigned long long)config->snapshot_every);
    /* On every rank, as any of them may have to take a server over. */
    if (access(folder, W_OK) != 0)
        return gw_fail(error, GW_INVALID,
                       "GRADWIRE_SNAPSHOTS: %s cannot be written to: %s; it has to be there on every host", folder,
                       strerror(errno));
    snprintf(step->snapshots, sizeof step->snapshots, "%s", folder);
    config->snapshots = step->snapshots;
    return GW_OK;
}

static gw_status take_memory(gw_step *step, gw_stepper_config *config, gw_error *error) {
    size_t bytes = gw_stepper_flat_bytes(config);
    if (bytes && !(step->flat = gw_alloc(step->comm, bytes)))
        return gw_fail(error, GW_MEMORY, "gw_step_commit: %s", gw_last_error(NULL));
    config->flat = step->flat;
    return GW_OK;
}

static bool poll_stepper(void *ctx, gw_time now) { return gw_stepper_poll(((gw_step *)ctx)->stepper, now); }
static bool stepper_busy(void *ctx) { return gw_stepper_busy(((gw_step *)ctx)->stepper); }

static gw_status open_stepper(gw_step *step, gw_stepper_config *config, gw_error *error) {
    gw_node *node = step->comm->node;
    gw_node_lock(node);
    config->first_id = node->next_comm;
    node->next_comm += gw_stepper_teams(config);
    gw_status status = gw_stepper_open(&step->stepper, config, error);
    if (!status) step->before = gw_engine_count(gw_core_engine(node->core));
    gw_node_unlock(node);
    return status;
}

void gw_step_ride(gw_step *step) {
    step->rider = (gw_rider){.ctx = step, .poll = poll_stepper, .busy = stepper_busy};
    gw_core_carry(step->comm->node->core, &step->rider);
    step->rides = true;
}

void gw_step_dismount(gw_step *step) {
    if (step->rides) gw_core_drop(step->comm->node->core, &step->rider);
    step->rides = false;
}

/* Servers wait for pushes from now on. */
static gw_status set_out(gw_step *step, gw_error *error) {
    gw_status status = gw_step_hand_over(step, error);
    if (status) return status;
    gw_node_lock(step->comm->node);
    gw_step_ride(step);
    gw_node_unlock(step->comm->node);
    return GW_OK;
}

static void describe(const gw_step *step) {
    char line[GW_STRATEGY_PRINT_BYTES];
    const gw_schedule *schedule = gw_stepper_schedule(step->stepper);
    gw_strategy_print(&step->strategy, line, sizeof line);
    gw_log(GW_LOG_INFO, step->comm->rank,
           "a step of %d tensors in %d pieces: %s; %zu bytes of memory, %zu of them kept by the codec", step->count,
           gw_schedule_pieces(schedule), line, gw_stepper_memory_bytes(step->stepper),
           gw_stepper_codec_bytes(step->stepper));
}

/* Which form each fully connected layer takes. */
static void describe_factors(const gw_step *step, const gw_step_tensor *tensors) {
    for (int i = 0; gw_strategy_is(&step->strategy, GW_AXIS_ARCH, "sfb") && i < step->count; i++) {
        const gw_step_tensor *t = &tensors[i];
        char matrix[GW_UNIT_TEXT], factors[GW_UNIT_TEXT];
        if (!t->batch || !t->rows) continue;
        gw_bytes_format(t->count * sizeof(float), matrix);
        gw_bytes_format(t->batch * (t->rows + t->count / t->rows) * sizeof(float), factors);
        gw_log(GW_LOG_INFO, step->comm->rank, "%s, %zu x %zu with a batch of %zu, travels as %s: %s to each peer, the "
               "matrix is %s", t->name, t->rows, t->count / t->rows, t->batch,
               gw_stepper_wants_factors(step->stepper, i) ? "factors" : "a matrix", factors, matrix);
    }
}

gw_status gw_step_commit(gw_step **out, gw_comm *comm, const gw_step_tensor *tensors, int count,
                         const gw_step_options *options) {
    static const gw_step_options defaults = GW_STEP_OPTIONS_DEFAULT;
    gw_error error = {.rank = -1};
    if (!out || !comm || count < 0 || (count && !tensors)) {
        gw_fail(&error, GW_INVALID, "gw_step_commit: the communicator, the tensors or the place for the step is NULL");
        return gw_comm_told(&error);
    }
    *out = NULL;
    gw_step *step = calloc(1, sizeof *step);
    if (!step) {
        gw_fail(&error, GW_MEMORY, "out of memory for a step");
        return gw_comm_told(&error);
    }
    if (!options) options = &defaults;
    step->count = count;
    step->first = step->base = options->first_step;
    step->life = (uint32_t)comm->node->place.round;
    gw_stepper_config config;
    gw_tuned_model model = model_of(tensors, count);
    gw_status status = told(resolve(step, comm, options->strategy, &error), &error);
    if (!status) status = gw_comm_split(comm, 0, comm->rank, &step->comm);
    if (!status) status = told(tune(step, options, &model, &error), &error);
    if (!status) status = told(configure(step, tensors, options, &config, &error), &error);
    if (!status) status = told(take_memory(step, &config, &error), &error);
    gw_attendant *who = NULL;
    if (!status) status = told(gw_step_attend(step, &config, &who, &error), &error);
    config.attendants = who;
    if (!status) status = told(open_stepper(step, &config, &error), &error);
    free(who);
    if (!status) status = told(set_out(step, &error), &error);
    if (!status && config.settings.measured) {
        status = told(gw_measure_open(&step->measure, count, &error), &error);
        if (!status) status = gw_measure_exchanges(&step->measure, step->comm);
    }
    if (status) {
        gw_step_close(step);
        return status;
    }
    step->dense_bytes = model.bytes * 2 * (uint64_t)(comm->size - 1) / (uint64_t)comm->size;
    describe(step);
    describe_factors(step, tensors);
    gw_node_nudge(comm->node); /* a server waits for pushes from now on */
    *out = step;
    return GW_OK;
}

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

static void trace_end(gw_step *step, uint64_t number) {
    gw_trace *trace = gw_comm_trace(step->comm);
    gw_time now = trace ? gw_trace_now(trace) : 0;
    if (trace && step->began) gw_trace_span(trace, GW_TRACE_STEP, number, 0, 0, 0, step->began, now);
    step->began = now;
}

/* The calls of a step. */

static gw_status check(const gw_step *step, int tensor, const char *call) {
    gw_error error = {.rank = -1};
    if (step && tensor >= 0 && tensor < step->count) return GW_OK;
    if (!step) gw_fail(&error, GW_INVALID, "%s: the step is NULL", call);
    else gw_fail(&error, GW_INVALID, "%s: there is no tensor %d among %d", call, tensor, step->count);
    return gw_comm_told(&error);
}

/* What comes before a gradient is handed over, whatever its form. */
static gw_status before_ready(gw_step *step, int tensor, const char *call) {
    gw_status status = check(step, tensor, call);
    if (!status) trace_begin(step);
    /* A synchrony that runs ahead waits here for the step before. */
    if (!status && gw_stepper_usable(step->stepper, tensor))
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
    describe(step);
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
        trace_end(step, step->first + step->steps++);
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
    for (int i = 0; i < step->count && !status; i++) status = wait_until(step, i, gw_stepper_settled);
    if (!status) gw_stepper_settle(step->stepper);
    step->began = 0;
    return status;
}

static bool quiet(void *ctx) {
    const gw_step *step = ctx;
    return failed(step) || gw_stepper_quiet(step->stepper);
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

void gw_step_close(gw_step *step) {
    if (!step) return;
    if (step->stepper) {
        gw_node *node = step->comm->node;
        for (int i = 0; i < step->count; i++) wait_until(step, i, gw_stepper_settled);
        gw_stepper_leave(step->stepper);
        gw_node_lock(node);
        gw_node_drive_until(node, quiet, step);
        gw_step_dismount(step);
        gw_stepper_close(step->stepper);
        gw_node_unlock(node);
    }
    gw_measure_close(&step->measure);
    gw_tuning_close(&step->tuning);
    if (step->comm) {
        gw_free(step->comm, step->flat);
        gw_finalize(step->comm);
    }
    free(step);
}

/* What it came to. */

gw_step_counters gw_step_count(const gw_step *step) {
    const gw_sync *sync = gw_sync_of(step->strategy.axes[GW_AXIS_SYNC].technique);
    gw_node *node = step->comm->node;
    gw_node_lock(node);
    gw_engine_counters now = gw_engine_count(gw_core_engine(node->core));
    gw_node_unlock(node);
    return (gw_step_counters){.steps = step->steps,
                              .first_step = step->first,
                              .bytes_sent = now.bytes_sent - step->before.bytes_sent,
                              .messages_sent = now.messages_sent - step->before.messages_sent,
                              .dense_bytes = step->dense_bytes * step->steps,
                              .wait_ns = step->wait_ns,
                              .pieces = gw_schedule_pieces(gw_stepper_schedule(step->stepper)),
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

static uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

gw_status gw_step_workers(gw_step *step, gw_step_worker *workers) {
    gw_comm *comm = step->comm;
    size_t n = (size_t)comm->size;
    gw_error error = {.rank = -1};
    gw_step_worker *all = calloc(n * n, sizeof *all), *mine = all ? all + (size_t)comm->rank * n : NULL;
    if (!all) return told(gw_fail(&error, GW_MEMORY, "out of memory for the times of %zu workers", n), &error);
    gw_node_lock(comm->node);
    for (int w = 0; w < comm->size; w++) {
        gw_desk_times times = gw_stepper_times(step->stepper, w, gw_clock_now());
        mine[w] = (gw_step_worker){times.pushes, times.late, times.held, times.held_others};
    }
    gw_node_unlock(comm->node);
    gw_status status = gw_allgather(comm, mine, all, n * sizeof *all, GW_U8);
    for (size_t w = 0; !status && w < n; w++) {
        workers[w] = (gw_step_worker){0};
        for (size_t r = 0; r < n; r++) {
            const gw_step_worker *seen = &all[r * n + w];
            workers[w] = (gw_step_worker){larger(workers[w].pushes, seen->pushes), larger(workers[w].late, seen->late),
                                          larger(workers[w].held_ns, seen->held_ns),
                                          larger(workers[w].held_others_ns, seen->held_others_ns)};
        }
    }
    free(all);
    return status;
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
