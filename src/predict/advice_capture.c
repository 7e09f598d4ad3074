/* advice_capture.c - see advice.h: what a recording says about a job. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "insight/intervals.h"
#include "predict/advice.h"
#include "predict/fit.h"
#include "predict/fit_capture.h"

static double seconds(gw_time ns) { return (double)ns / (double)GW_SECOND; }

/* ---- ranks ---- */

/* That a rank waited for another one, a step: its waiting for ranks in the steps that count, divided as in the whole
 * recording. */
static double waited_for(const gw_view *view, int waiter, int other) {
    size_t ranks = (size_t)view->insight->rank_count;
    const uint64_t *row = view->waiting.matrix + (size_t)waiter * ranks;
    gw_step_part sum;
    uint64_t steps = gw_steps_sum(&view->steps, waiter, &sum), all = 0;
    for (size_t r = 0; r < ranks; r++) all += row[r];
    return steps && all ? seconds(sum.for_ranks) / (double)steps * (double)row[other] / (double)all : 0;
}

static void set_ranks(const gw_view *view, gw_advice_rank *rank, gw_advice_facts *facts) {
    int ranks = view->insight->rank_count;
    for (int r = 0; r < ranks; r++) {
        gw_step_part sum;
        uint64_t steps = gw_steps_sum(&view->steps, r, &sum);
        if (!steps) continue;
        rank[r].compute = seconds(sum.compute) / (double)steps;
        rank[r].host = view->insight->ranks[r].about.host_number;
        facts->step += seconds(sum.end) / (double)steps / ranks;
        facts->exposed += seconds(sum.exposed) / (double)steps / ranks;
        for (int o = 0; o < ranks && ranks > 1; o++) rank[r].awaited += waited_for(view, o, r) / (ranks - 1);
    }
    facts->rank = rank;
    facts->ranks = ranks;
}

/* ---- the wire ---- */

/* Part of the counted steps in which messages of a host to others were under way. */
static double busy_of(const gw_view *view, int host) {
    const gw_insight *in = view->insight;
    gw_intervals all = {0}, within = {0};
    gw_time length = 0;
    for (size_t i = 0; i < view->messages.count; i++) {
        const gw_message *m = &view->messages.list[i];
        bool leaves = m->src < in->rank_count && m->dst < in->rank_count &&
                      in->ranks[m->src].about.host_number == host && in->ranks[m->dst].about.host_number != host;
        if (leaves) gw_intervals_add(&all, m->handed, m->arrived, 0, m->arrived);
    }
    gw_intervals_join(&all);
    for (size_t i = 0; i < view->steps.count; i++) {
        const gw_step_times *step = &view->steps.list[i];
        if (!gw_steps_count(&view->steps, step)) continue;
        gw_intervals_append_within(&within, &all, step->begin, step->end);
        length += step->end - step->begin;
    }
    gw_intervals_join(&within);
    double busy = length ? fmin(seconds(gw_intervals_length(&within)) / seconds(length), 1) : 0;
    gw_intervals_free(&all);
    gw_intervals_free(&within);
    return busy;
}

/* Messages and bytes of the counted steps, of a rank in a step. */
static void count_messages(const gw_view *view, gw_advice_facts *facts) {
    size_t steps = 0, at = 0;
    for (size_t i = 0; i < view->steps.count; i++) {
        const gw_step_times *step = &view->steps.list[i];
        if (!gw_steps_count(&view->steps, step)) continue;
        steps++;
        while (at < view->messages.count && view->messages.list[at].handed < step->begin) at++;
        for (; at < view->messages.count && view->messages.list[at].handed < step->end; at++) {
            facts->messages++;
            facts->bytes += (double)view->messages.list[at].bytes;
        }
    }
    double all = (double)(steps ? steps : 1) * facts->ranks;
    facts->messages /= all;
    facts->bytes /= all;
}

static gw_status set_wire(const gw_view *view, gw_advice_facts *facts, gw_error *error) {
    gw_doctor_table table = {.count = 0};
    gw_error none = {.rank = -1};
    facts->machine = gw_machine_default();
    facts->hosts = gw_insight_hosts(view->insight);
    facts->busy = -1;
    count_messages(view, facts);
    if (facts->hosts < 2) return GW_OK;
    for (int h = 0; h < facts->hosts; h++) facts->busy = fmax(facts->busy, busy_of(view, h));
    if (!gw_capture_codec(view->insight, &facts->machine)) gw_capture_reduce(view->insight, &facts->machine);
    gw_status status = gw_capture_links(view->insight, &table, error);
    if (!status) gw_fit_links(&table, 1, &facts->machine, &none); /* fails without long messages: then the defaults */
    gw_doctor_table_free(&table);
    if (facts->machine.latency <= 0) facts->machine.latency = gw_machine_default().latency; /* no short messages */
    return status;
}

gw_status gw_advice_of_capture(const gw_view *view, gw_advice *advice, gw_error *error) {
    gw_advice_facts facts = {.hosts = 1};
    gw_profile profile = {.count = 0};
    gw_error none = {.rank = -1};
    size_t changes;
    *advice = (gw_advice){.count = 0};
    if (!view->steps.count || view->insight->rank_count < 2) return GW_OK;
    gw_advice_rank *rank = calloc((size_t)view->insight->rank_count, sizeof *rank);
    if (!rank) return gw_fail(error, GW_MEMORY, "no memory for advice about %d ranks", view->insight->rank_count);
    set_ranks(view, rank, &facts);
    gw_status status = set_wire(view, &facts, error);
    facts.strategy = gw_view_strategy(view, &changes);
    bool layers = gw_capture_layers(view->insight, "the recording", &profile, &none) == GW_OK;
    if (layers && gw_profile_parameter_bytes(&profile)) facts.profile = &profile;
    if (!status) gw_advice_make(&facts, advice);
    if (layers) gw_profile_free(&profile);
    free(rank);
    return status;
}
