/* tuning_file.c - see tuning_file.h. */
#include "reducer/tuning_file.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"

#define HEAD "# gradwire tune: "

void gw_tuning_schedule_print(const gw_strategy *strategy, char *text, size_t size) {
    const gw_setting *schedule = &strategy->axes[GW_AXIS_SCHEDULE];
    const gw_param *params = schedule->technique->params;
    char value[GW_PARAM_TEXT_BYTES];
    size_t used = (size_t)snprintf(text, size, "%s", schedule->technique->name);
    for (int i = 0; params && params[i].name && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%c%s=%s", i ? ',' : ':', params[i].name,
                                 gw_param_print(&params[i], schedule->values[i], value));
}

/* The first line names the model and the other axes: the sizes are not the best for another model or other axes. */
static void print_head(const char *model, const gw_strategy *strategy, char *text, size_t size) {
    gw_strategy others = *strategy;
    char line[GW_STRATEGY_PRINT_BYTES];
    gw_technique_default(others.axes[GW_AXIS_SCHEDULE].technique, others.axes[GW_AXIS_SCHEDULE].values);
    gw_strategy_print(&others, line, sizeof line);
    snprintf(text, size, HEAD "%s, %s", model, line);
}

bool gw_tuning_file_read(const char *path, const char *model, const gw_strategy *strategy, gw_strategy *known) {
    char text[GW_STRATEGY_INPUT_MAX + 1], head[GW_STRATEGY_PRINT_BYTES + 200];
    gw_error error;
    FILE *file = fopen(path, "re");
    if (!file) return false;
    size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = '\0';
    print_head(model, strategy, head, sizeof head);
    if (strncmp(text, head, strlen(head)) != 0 || text[strlen(head)] != '\n') return false;
    *known = *strategy;
    return gw_strategy_overlay(known, text, path, &error) == GW_OK &&
           known->axes[GW_AXIS_SCHEDULE].technique == strategy->axes[GW_AXIS_SCHEDULE].technique;
}

static void print_trials(FILE *file, const gw_tuner *tuner, const int *param, const gw_strategy *strategy) {
    const gw_param *params = strategy->axes[GW_AXIS_SCHEDULE].technique->params;
    char value[GW_PARAM_TEXT_BYTES];
    for (int i = 0; i < gw_tuner_trials(tuner); i++) {
        const gw_tune_trial *trial = gw_tuner_trial(tuner, i);
        fprintf(file, "# trial %d:", i + 1);
        for (int axis = 0; axis < gw_tuner_axes(tuner); axis++)
            fprintf(file, " %s %s", params[param[axis]].name,
                    gw_param_print(&params[param[axis]], trial->values[axis], value));
        fprintf(file, ", %.3f ms a step, %d steps, spread %.1f %%\n", trial->us / 1e3, trial->steps,
                trial->spread * 100);
    }
}

typedef struct findings {
    const char *model;
    const gw_tuner *tuner;
    const int *param;
    const gw_strategy *strategy;
} findings;

static void write_findings(const void *ctx, FILE *file) {
    const findings *f = ctx;
    char line[GW_STRATEGY_PRINT_BYTES + 200];
    print_head(f->model, f->strategy, line, sizeof line);
    fprintf(file, "%s\n", line);
    print_trials(file, f->tuner, f->param, f->strategy);
    gw_tuning_schedule_print(f->strategy, line, sizeof line);
    fprintf(file, "schedule=%s\n", line);
}

gw_status gw_tuning_file_write(const char *path, const char *model, const gw_tuner *tuner, const int *param,
                               const gw_strategy *strategy, gw_error *error) {
    findings f = {.model = model, .tuner = tuner, .param = param, .strategy = strategy};
    return gw_file_replace(path, write_findings, &f, error);
}
