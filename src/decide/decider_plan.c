/* decider_plan.c - what is tried: the best by prediction, then the best that cuts or codes gradients otherwise, then
 * the best of another architecture. Predictions that are close to each other err in the same way for the same
 * technique, so two more of one kind would tell little. Where it is decided anew, the last is left out. */
#include "decide/decider_internal.h"

bool gw_decider_distrusts(const gw_decider *d, const gw_strategy *strategy) {
    for (int i = 0; i < d->distrusted_count; i++)
        if (strategy->axes[GW_AXIS_COMPRESS].technique == d->distrusted[i]) return true;
    return false;
}

typedef struct taken_strategies {
    gw_strategy list[1 + GW_TRIALS_MAX]; /* the present one first */
    int count;
} taken_strategies;

static bool is_taken(const taken_strategies *t, const gw_strategy *strategy) {
    for (int i = 0; i < t->count; i++)
        if (gw_strategy_equal(&t->list[i], strategy)) return true;
    return false;
}

static bool has_technique(const taken_strategies *t, const gw_strategy *strategy, gw_axis axis) {
    for (int i = 0; i < t->count; i++)
        if (t->list[i].axes[axis].technique == strategy->axes[axis].technique) return true;
    return false;
}

/* Whether it suits the trial of that number. */
static bool is_wanted(const taken_strategies *t, const gw_strategy *strategy, int trial) {
    if (is_taken(t, strategy)) return false;
    if (trial == 0) return true;
    if (trial == 2) return !has_technique(t, strategy, GW_AXIS_ARCH);
    return !has_technique(t, strategy, GW_AXIS_SCHEDULE) || !has_technique(t, strategy, GW_AXIS_COMPRESS);
}

static const gw_ranked *find(const gw_decider *d, const taken_strategies *t, int trial) {
    const gw_ranking *r = d->ranking;
    bool distrusted = gw_decider_distrusts(d, &t->list[0]);
    for (int i = 0; i < r->count; i++) {
        const gw_ranked *one = &r->entries[i];
        if (!is_wanted(t, &one->strategy, trial)) continue;
        return gw_ranking_worth_trying(one->seconds, r->asked, d->present.step, distrusted) ? one : NULL;
    }
    return NULL;
}

void gw_decider_plan(gw_decider *d, const gw_strategy *present) {
    taken_strategies taken = {.list = {*present}, .count = 1};
    d->plan = (gw_trial_plan){.count = 0};
    if (!d->ranking) return;
    d->plan.present = d->ranking->asked;
    d->plan.compute = d->ranking->compute;
    for (int i = 0; i < (d->hurries ? GW_TRIALS_HURRIED : GW_TRIALS_MAX); i++) {
        const gw_ranked *one = find(d, &taken, i);
        if (!one) continue;
        gw_trial *trial = &d->plan.trials[d->plan.count++];
        *trial = (gw_trial){.predicted = one->seconds, .weight = one->weight};
        gw_strategy_print(&one->strategy, trial->line, sizeof trial->line);
        taken.list[taken.count++] = one->strategy;
    }
}
