/* tuning.c - see tuning.h. */
#include "reducer/tuning.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "reducer/tuning_file.h"
#include "sync/sync.h"

#define SMALLEST (64 * 1024.0)

/* What can be tuned. */

static void find_sizes(gw_tuning *t, const gw_technique *schedule) {
    for (int i = 0; schedule->params && schedule->params[i].name && t->axes < GW_TUNE_AXES; i++)
        if (schedule->params[i].kind == GW_PARAM_BYTES) t->param[t->axes++] = i;
}

/* If workers exchange at different times, or not in every step, step times do not show the cost of sizes. */
static bool steps_together(const gw_strategy *strategy) {
    const gw_sync *sync = gw_sync_of(strategy->axes[GW_AXIS_SYNC].technique);
    return !sync->rule && !sync->exchanges;
}

/* A slice above the largest tensor, or any size above the whole model, changes nothing. */
static gw_tune_axis make_axis(const gw_param *param, double preset, const gw_tuned_model *model) {
    double most = (double)(strcmp(param->name, "slice") == 0 ? model->largest : model->bytes);
    double highest = most < param->highest ? most : param->highest;
    double lowest = SMALLEST > param->lowest ? SMALLEST : param->lowest;
    return (gw_tune_axis){.lowest = lowest < highest ? lowest : highest, .highest = highest, .preset = preset};
}

static gw_status open_tuner(gw_tuning *t, const gw_setting *schedule, const gw_tuned_model *model, gw_error *error) {
    gw_tune_axis axes[GW_TUNE_AXES];
    for (int i = 0; i < t->axes; i++)
        axes[i] = make_axis(&schedule->technique->params[t->param[i]], schedule->values[t->param[i]], model);
    gw_status status = gw_tuner_open(&t->tuner, axes, t->axes, error);
    double preset[GW_TUNE_AXES]; /* the first trial: the strategy already has it */
    if (!status) gw_tuner_next(t->tuner, preset);
    return status;
}

/* Open and close. */

enum { FAILED = -1, TUNES, KNOWN };

/* True if there is something to tune; the same on every rank. */
static bool has_work(gw_tuning *t, const char *how, const gw_comm *comm, const gw_strategy *strategy,
                     const gw_tuned_model *model) {
    const gw_technique *schedule = strategy->axes[GW_AXIS_SCHEDULE].technique;
    if (!how || !*how || strcmp(how, "off") == 0 || gw_size(comm) == 1 || !model->bytes) return false;
    if (steps_together(strategy)) find_sizes(t, schedule);
    if (!t->axes && gw_rank(comm) == 0)
        gw_log(GW_LOG_INFO, 0, "schedule=%s with sync=%s has nothing to tune", schedule->name,
               gw_strategy_name(strategy, GW_AXIS_SYNC));
    return t->axes > 0;
}

/* Rank 0's part. KNOWN: sizes are those of the file. */
static int prepare(gw_tuning *t, const char *how, int ranks, const gw_strategy *strategy, const gw_tuned_model *model,
                   double *sizes, gw_error *error) {
    gw_strategy known;
    snprintf(t->model, sizeof t->model, "%d ranks, %d tensors, %llu bytes", ranks, model->tensors,
             (unsigned long long)model->bytes);
    if (strcmp(how, "on") != 0 && !(t->path = strdup(how))) {
        gw_fail(error, GW_MEMORY, "out of memory for a file name");
        return FAILED;
    }
    if (!t->path || !gw_tuning_file_read(t->path, t->model, strategy, &known))
        return open_tuner(t, &strategy->axes[GW_AXIS_SCHEDULE], model, error) ? FAILED : TUNES;
    for (int i = 0; i < t->axes; i++) sizes[i] = known.axes[GW_AXIS_SCHEDULE].values[t->param[i]];
    return KNOWN;
}

/* Rank 0's sizes. All ranks alike leave out one that no schedule may have. */
static void take_sizes(const gw_tuning *t, gw_strategy *strategy, const double *sizes) {
    gw_setting *schedule = &strategy->axes[GW_AXIS_SCHEDULE];
    for (int i = 0; i < t->axes; i++) {
        const gw_param *param = &schedule->technique->params[t->param[i]];
        bool is_auto = param->automatic && sizes[i] == param->auto_value;
        if (is_auto || (sizes[i] >= 1 && sizes[i] <= param->highest)) schedule->values[t->param[i]] = sizes[i];
    }
}

gw_status gw_tuning_open(gw_tuning *t, const char *how, gw_comm *comm, gw_strategy *strategy,
                         const gw_tuned_model *model, gw_error *error) {
    double shared[1 + GW_TUNE_AXES] = {0}; /* result of rank 0's prepare, sizes */
    *t = (gw_tuning){.step = -GW_TUNING_WARM_UP};
    if (!how) how = getenv(GW_TUNE_VARIABLE);
    if (!has_work(t, how, comm, strategy, model)) return GW_OK;
    if (gw_rank(comm) == 0) shared[0] = prepare(t, how, gw_size(comm), strategy, model, shared + 1, error);
    if (gw_broadcast(comm, shared, shared, 1 + GW_TUNE_AXES, GW_F64, 0))
        return gw_fail(error, GW_SYSTEM, "%s", gw_last_error(comm));
    if (shared[0] == FAILED && gw_rank(comm) != 0)
        return gw_fail(error, GW_UNSUPPORTED, "rank 0 cannot tune the schedule, and has said why");
    if (shared[0] == FAILED) return error->status;
    if (shared[0] == TUNES) return GW_OK;
    take_sizes(t, strategy, shared + 1);
    t->axes = 0;
    return GW_OK;
}

void gw_tuning_close(gw_tuning *t) {
    gw_tuner_close(t->tuner);
    free((char *)(uintptr_t)t->path);
    *t = (gw_tuning){0};
}

bool gw_tuning_runs(const gw_tuning *t) { return t->axes > 0; }

/* Trials. */

bool gw_tuning_step(gw_tuning *t, gw_time now) {
    if (t->step > 0) t->us[t->step - 1] = (double)(now - t->last) / 1e3;
    t->last = now;
    return t->step++ == GW_TUNING_STEPS;
}

static void log_trial(const gw_tuning *t, const gw_strategy *strategy) {
    char line[GW_STRATEGY_PRINT_BYTES];
    const gw_tune_trial *trial = gw_tuner_trial(t->tuner, t->trials);
    gw_tuning_schedule_print(strategy, line, sizeof line);
    gw_log(GW_LOG_INFO, 0, "tuning, trial %d: %s: %.3f ms a step", t->trials + 1, line, trial->us / 1e3);
}

static void log_end(const gw_tuning *t, const gw_strategy *strategy) {
    char line[GW_STRATEGY_PRINT_BYTES];
    gw_error error = {.rank = -1};
    gw_tuning_schedule_print(strategy, line, sizeof line);
    gw_log(GW_LOG_INFO, 0, "tuned in %d trials: %s, %.2f times as fast as it began", t->trials, line,
           gw_tuner_gain(t->tuner));
    if (t->path && gw_tuning_file_write(t->path, t->model, t->tuner, t->param, strategy, &error))
        gw_log(GW_LOG_WARN, 0, "%s", error.text);
}

/* Rank 0 adds the trial's times to the tuner and asks it for the next sizes. */
static void decide(gw_tuning *t, const gw_strategy *strategy, double shared[1 + GW_TUNE_AXES]) {
    gw_tuner_observe(t->tuner, t->us, GW_TUNING_STEPS);
    log_trial(t, strategy);
    shared[0] = gw_tuner_next(t->tuner, shared + 1);
}

gw_status gw_tuning_end_trial(gw_tuning *t, gw_comm *comm, gw_strategy *strategy) {
    double shared[1 + GW_TUNE_AXES] = {0};
    bool leads = gw_rank(comm) == 0;
    gw_status status = gw_allreduce(comm, t->us, t->us, GW_TUNING_STEPS, GW_F64, GW_AVG);
    if (!status && leads) decide(t, strategy, shared);
    if (!status) status = gw_broadcast(comm, shared, shared, 1 + GW_TUNE_AXES, GW_F64, 0);
    if (status) return status;
    take_sizes(t, strategy, shared + 1);
    t->trials++;
    t->step = 0;
    if (shared[0]) return GW_OK;
    if (leads) log_end(t, strategy);
    t->axes = 0;
    return GW_OK;
}
