/* decider_tell.c - what strategy=auto says: one line for people, and the ranking for the file of decisions. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/units.h"
#include "decide/decider_internal.h"

#define RANKED_MOST 24 /* lines of a ranking */

/* The axes that were open. */
static const char *brief(const gw_decider *d, const gw_strategy *strategy, char text[GW_STRATEGY_PRINT_BYTES]) {
    size_t used = 0;
    text[0] = 0;
    for (int axis = 0; axis < GW_AXES; axis++) {
        const gw_setting *setting = &strategy->axes[axis];
        bool usual = setting->technique == gw_techniques((gw_axis)axis)[0] && axis != GW_AXIS_SCHEDULE;
        if (usual || !gw_strategy_is_open(&d->asked, (gw_axis)axis)) continue;
        if (used) used += (size_t)snprintf(text + used, GW_STRATEGY_PRINT_BYTES - used, " ");
        used += (size_t)gw_strategy_print_axis(strategy, (gw_axis)axis, text + used, GW_STRATEGY_PRINT_BYTES - used);
    }
    if (!used) snprintf(text, GW_STRATEGY_PRINT_BYTES, "arch=auto");
    return text;
}

/* "4 ranks on 2 hosts, 1 Gbit/s, 52 us; 1.56 MiB of gradients, 8.2 ms of computing a step" */
static void print_facts(const gw_decider *d, char *text, size_t size) {
    char latency[GW_UNIT_TEXT], bytes[GW_UNIT_TEXT], compute[GW_UNIT_TEXT], links[96] = "";
    double bits = d->machine.rate * 8;
    bool giga = bits >= 1e9;
    if (d->hosts > 1)
        snprintf(links, sizeof links, ", %.3g %cbit/s, %s", giga ? bits / 1e9 : bits / 1e6, giga ? 'G' : 'M',
                 gw_duration_format(d->machine.latency, latency));
    snprintf(text, size, "%d ranks on %d host%s%s; %s of gradients, %s of computing a step", d->comm->size, d->hosts,
             d->hosts == 1 ? "" : "s", links, gw_bytes_format(d->bytes, bytes),
             gw_duration_format(d->plan.compute, compute));
}

static void print_line(const gw_decider *d, int best, const gw_strategy *chosen) {
    char facts[256], line[GW_STRATEGY_PRINT_BYTES], old[GW_STRATEGY_PRINT_BYTES], took[GW_UNIT_TEXT],
        expected[GW_UNIT_TEXT];
    print_facts(d, facts, sizeof facts);
    if (best < 0) {
        gw_log_notice(-1,
                      "strategy=auto, step %llu: keeps %s, %s a step of which %.0f %% wait; no other is faster (%s)",
                      (unsigned long long)d->next_step, brief(d, chosen, line),
                      gw_duration_format(d->present.step, took), 100 * d->present.wait / d->present.step, facts);
        return;
    }
    const gw_trial *trial = &d->plan.trials[best];
    gw_log_notice(-1, "strategy=auto, step %llu: %s, %s a step (predicted %s), %.2f times as fast as %s (%s)",
                  (unsigned long long)d->next_step, brief(d, chosen, line), gw_duration_format(trial->measured, took),
                  gw_duration_format(trial->predicted, expected), d->present.step / trial->measured,
                  brief(d, &d->before, old), facts);
}

static double measured(const gw_decider *d, const gw_strategy *strategy) {
    char line[GW_STRATEGY_PRINT_BYTES];
    gw_strategy_print(strategy, line, sizeof line);
    for (int i = 0; i < d->plan.count; i++)
        if (strcmp(d->plan.trials[i].line, line) == 0) return d->plan.trials[i].measured;
    return gw_strategy_equal(strategy, &d->before) ? d->present.step : 0;
}

static void print_ranking(const gw_decider *d, FILE *out) {
    const gw_ranking *r = d->ranking;
    fprintf(out, "%-12s %-12s %s\n", "predicted", "measured", "strategy");
    for (int i = 0; r && i < r->count && i < RANKED_MOST; i++) {
        char predicted[GW_UNIT_TEXT], took[GW_UNIT_TEXT] = "-", line[GW_STRATEGY_PRINT_BYTES];
        double seconds = measured(d, &r->entries[i].strategy);
        if (seconds > 0) gw_duration_format(seconds, took);
        gw_strategy_print(&r->entries[i].strategy, line, sizeof line);
        fprintf(out, "%-12s %-12s %s\n", gw_duration_format(r->entries[i].seconds, predicted), took, line);
    }
    if (r && r->left) fprintf(out, "%d more were not predicted, for lack of time\n", r->left);
}

char *gw_decider_tell(const gw_decider *d, int best, const gw_strategy *chosen) {
    char facts[256], *text = NULL;
    size_t size;
    print_line(d, best, chosen);
    FILE *out = d->file ? open_memstream(&text, &size) : NULL;
    if (!out) return NULL;
    print_facts(d, facts, sizeof facts);
    fprintf(out, "%s\n", facts);
    print_ranking(d, out);
    fclose(out);
    return text;
}
