/* accuracy_risk.c - see accuracy_risk.h. */
#include "strategy/accuracy_risk.h"

#include <stdio.h>
#include <string.h>

#include "strategy/combine.h"
#include "sync/sync.h"

static bool is_exact(const gw_strategy *s) {
    return !gw_strategy_compresses(s) && gw_sync_of(s->axes[GW_AXIS_SYNC].technique)->synchronous;
}

static bool same_setting(const gw_setting *a, const gw_setting *b) {
    const gw_param *params = a->technique->params;
    if (a->technique != b->technique) return false;
    for (int i = 0; params && params[i].name; i++)
        if (strcmp(params[i].name, "limit") != 0 && a->values[i] != b->values[i]) return false;
    return true;
}

static bool is_of(const gw_accuracy_row *row, const gw_strategy *wanted) {
    gw_strategy s;
    if (gw_strategy_parse(row->line, &s, NULL)) return false;
    if (is_exact(wanted)) return is_exact(&s);
    return same_setting(&s.axes[GW_AXIS_COMPRESS], &wanted->axes[GW_AXIS_COMPRESS]) &&
           same_setting(&s.axes[GW_AXIS_SYNC], &wanted->axes[GW_AXIS_SYNC]);
}

/* Runs that differ only in their seed and their strategy. */
static bool same_task(const gw_accuracy_row *a, const gw_accuracy_row *b) {
    return strcmp(a->model, b->model) == 0 && strcmp(a->data, b->data) == 0 && a->workers == b->workers &&
           a->epochs == b->epochs && strcmp(a->optimizer, b->optimizer) == 0;
}

static const gw_accuracy_row *exact_beside(const gw_accuracy_row *rows, const gw_accuracy_row *run) {
    gw_strategy exact;
    gw_strategy_default(&exact);
    for (const gw_accuracy_row *row = rows; row->model; row++)
        if (same_task(row, run) && row->seed == run->seed && is_of(row, &exact)) return row;
    return NULL;
}

static bool is_first_of_task(const gw_accuracy_row *rows, const gw_accuracy_row *run, const gw_strategy *s) {
    for (const gw_accuracy_row *row = rows; row < run; row++)
        if (same_task(row, run) && is_of(row, s)) return false;
    return true;
}

/* Returns the number of runs of one task that have an exact one beside them; *points: what they lose on the mean. */
static int measure_task(const gw_accuracy_row *rows, const gw_accuracy_row *first, const gw_strategy *s,
                        double *points) {
    int runs = 0;
    double lost = 0;
    for (const gw_accuracy_row *row = first; row->model; row++) {
        if (!same_task(row, first) || !is_of(row, s)) continue;
        const gw_accuracy_row *exact = exact_beside(rows, row);
        if (!exact) continue;
        lost += 100 * (exact->accuracy - row->accuracy);
        runs++;
    }
    *points = runs ? lost / runs : 0;
    return runs;
}

/* "adam" and "adamw" differ in the decay only. */
static bool same_optimizer(const char *a, const char *b) {
    bool adams = strncmp(a, "adam", 4) == 0 && strncmp(b, "adam", 4) == 0;
    return strcmp(a, b) == 0 || (adams && strlen(a) <= 5 && strlen(b) <= 5);
}

static bool is_measured_with(const gw_accuracy_row *rows, const char *optimizer) {
    for (const gw_accuracy_row *row = rows; optimizer && row->model; row++)
        if (same_optimizer(row->optimizer, optimizer)) return true;
    return false;
}

static bool is_measured(const gw_accuracy_row *rows, const gw_strategy *s, const char *optimizer) {
    for (const gw_accuracy_row *row = rows; row->model; row++)
        if (same_optimizer(row->optimizer, optimizer) && is_of(row, s)) return true;
    return false;
}

/* Whether the strategy was measured with every optimiser of the rows. */
static bool covers_optimizers(const gw_accuracy_row *rows, const gw_strategy *s) {
    for (const gw_accuracy_row *row = rows; row->model; row++) {
        const gw_accuracy_row *first = rows;
        while (!same_optimizer(first->optimizer, row->optimizer)) first++;
        if (first == row && !is_measured(rows, s, row->optimizer)) return false;
    }
    return true;
}

gw_accuracy_risk gw_accuracy_risk_by(const gw_accuracy_row *rows, const gw_strategy *s, const char *optimizer) {
    gw_accuracy_risk risk = {.exact = is_exact(s)};
    const char *models[GW_ACCURACY_SAFE_MODELS] = {NULL};
    int known = 0;
    if (!is_measured_with(rows, optimizer)) optimizer = NULL;
    for (const gw_accuracy_row *row = rows; !risk.exact && row->model; row++) {
        double points;
        if (!is_of(row, s) || !is_first_of_task(rows, row, s)) continue;
        if (optimizer && !same_optimizer(row->optimizer, optimizer)) continue;
        int runs = measure_task(rows, row, s, &points);
        if (runs && (!risk.runs || points > risk.points)) risk.points = points;
        risk.runs += runs;
        bool fresh = runs >= GW_ACCURACY_SAFE_SEEDS && known < GW_ACCURACY_SAFE_MODELS;
        for (int i = 0; fresh && i < known; i++) fresh = strcmp(models[i], row->model) != 0;
        if (fresh) models[known++] = row->model;
    }
    risk.safe = risk.exact || (known == GW_ACCURACY_SAFE_MODELS && risk.points <= GW_ACCURACY_SAFE_POINTS &&
                               (optimizer || covers_optimizers(rows, s)));
    return risk;
}

gw_accuracy_risk gw_accuracy_risk_of(const gw_strategy *s, const char *optimizer) {
    return gw_accuracy_risk_by(gw_accuracy_rows, s, optimizer);
}

/* A gain is noise: nothing is lost. */
void gw_accuracy_risk_print(const gw_accuracy_risk *risk, char text[GW_ACCURACY_RISK_TEXT]) {
    double lost = risk->points > 0 ? risk->points : 0;
    const char *safe = risk->safe ? "safe, " : "";
    if (risk->exact) snprintf(text, GW_ACCURACY_RISK_TEXT, "exact");
    else if (risk->runs) snprintf(text, GW_ACCURACY_RISK_TEXT, "%s%.1f points", safe, lost);
    else snprintf(text, GW_ACCURACY_RISK_TEXT, "not measured");
}
