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

gw_accuracy_risk gw_accuracy_risk_by(const gw_accuracy_row *rows, const gw_strategy *s) {
    gw_accuracy_risk risk = {.exact = is_exact(s)};
    const char *models[GW_ACCURACY_SAFE_MODELS] = {NULL};
    int known = 0;
    for (const gw_accuracy_row *row = rows; !risk.exact && row->model; row++) {
        double points;
        if (!is_of(row, s) || !is_first_of_task(rows, row, s)) continue;
        int runs = measure_task(rows, row, s, &points);
        if (runs && (!risk.runs || points > risk.points)) risk.points = points;
        risk.runs += runs;
        bool fresh = runs >= GW_ACCURACY_SAFE_SEEDS && known < GW_ACCURACY_SAFE_MODELS;
        for (int i = 0; fresh && i < known; i++) fresh = strcmp(models[i], row->model) != 0;
        if (fresh) models[known++] = row->model;
    }
    risk.safe = risk.exact || (known == GW_ACCURACY_SAFE_MODELS && risk.points <= GW_ACCURACY_SAFE_POINTS);
    return risk;
}

gw_accuracy_risk gw_accuracy_risk_of(const gw_strategy *s) { return gw_accuracy_risk_by(gw_accuracy_rows, s); }

/* A gain is noise: nothing is lost. */
void gw_accuracy_risk_print(const gw_accuracy_risk *risk, char text[GW_ACCURACY_RISK_TEXT]) {
    double lost = risk->points > 0 ? risk->points : 0;
    const char *safe = risk->safe ? "safe, " : "";
    if (risk->exact) snprintf(text, GW_ACCURACY_RISK_TEXT, "exact");
    else if (risk->runs) snprintf(text, GW_ACCURACY_RISK_TEXT, "%s%.1f points", safe, lost);
    else snprintf(text, GW_ACCURACY_RISK_TEXT, "not measured");
}
