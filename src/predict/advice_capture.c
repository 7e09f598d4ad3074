/* advice_capture.c - see advice.h: what a recording says about a job. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "insight/intervals.h"
#include "predict/advice.h"
#include "predict/fit.h"
#include "predict/fit_capture.h"

#define SLOW_LINK 0.5 /* of the median rate */

static double seconds(gw_time ns) { return (double)ns / (double)GW_SECOND; }

/* ---- ranks ---- */

/* What a rank waited for each of the others in a step: its waiting for ranks in the steps that count, divided as in the
 * whole recording. */
static void add_awaited(const gw_view *view, int waiter, double for_ranks, gw_advice_rank *rank) {
    size_t ranks = (size_t)view->insight->rank_count;
    const uint64_t *row = view->waiting.matrix + (size_t)waiter * ranks;
    double all = 0;
    for (size_t r = 0; r < ranks; r++) all += (double)row[r];
    for (size_t r = 0; r < ranks && all > 0; r++)
        rank[r].awaited += for_ranks * (double)row[r] / all / (double)(ranks - 1);
}

static void set_ranks(const gw_view *view, gw_advice_rank *rank, gw_advice_facts *facts) {
    int recorded = 0;
    facts->rank = rank;
    facts->ranks = view->insight->rank_count;
    for (int r = 0; r < facts->ranks; r++) {
        gw_step_part sum;
        double steps = (double)gw_steps_sum(&view->steps, r, &sum);
        if (steps < 1) continue;
        recorded++;
        rank[r].compute = seconds(sum.compute) / steps;
        facts->step += seconds(sum.end) / steps;
        facts->exposed += seconds(sum.exposed) / steps;
        add_awaited(view, r, seconds(sum.for_ranks) / steps, rank);
    }
    facts->step /= recorded ? recorded : 1;
    facts->exposed /= recorded ? recorded : 1;
}

/* ---- the wire ---- */

/* The part of the intervals in the steps that count, of all their time. */
static double part_of_steps(const gw_view *view, const gw_intervals *intervals) {
    gw_intervals within = {0};
    gw_time length = 0;
    for (size_t i = 0; i < view->steps.count; i++) {
        const gw_step_times *step = &view->steps.list[i];
        if (!gw_steps_count(&view->steps, step)) continue;
        gw_intervals_append_within(&within, intervals, step->begin, step->end);
        length += step->end - step->begin;
    }
    gw_intervals_join(&within);
    double part = length ? fmin(seconds(gw_intervals_length(&within)) / seconds(length), 1) : 0;
    gw_intervals_free(&within);
    return part;
}

/* Of the host that sends longest: the part of a step in which messages of its ranks to other hosts are under way. */
static gw_status set_busy(const gw_view *view, gw_advice_facts *facts, gw_error *error) {
    const gw_insight *in = view->insight;
    gw_intervals *sent = calloc((size_t)in->rank_count, sizeof *sent); /* by host */
    if (!sent) return gw_fail(error, GW_MEMORY, "no memory for the messages of %d hosts", facts->hosts);
    for (size_t i = 0; i < view->messages.count; i++) {
        const gw_message *m = &view->messages.list[i];
        if (m->src >= in->rank_count || m->dst >= in->rank_count) continue;
        int from = in->ranks[m->src].about.host_number, to = in->ranks[m->dst].about.host_number;
        if (from != to && from < in->rank_count) gw_intervals_add(&sent[from], m->handed, m->arrived, 0, m->arrived);
    }
    for (int h = 0; h < in->rank_count; h++) {
        gw_intervals_join(&sent[h]);
        facts->busy = fmax(facts->busy, part_of_steps(view, &sent[h]));
        gw_intervals_free(&sent[h]);
    }
    free(sent);
    return GW_OK;
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

/* Links that are not much slower than the median get its figures: the rest is noise of a recording, in which few
 * messages had a link for themselves. */
static void even_out(gw_machine *m) {
    for (int i = 0; i < m->link_count; i++) {
        gw_fabric_pair *link = &m->links[i];
        if (link->rate >= SLOW_LINK * m->rate) link->rate = m->rate;
        link->latency = m->latency;
    }
}

static gw_status set_wire(const gw_view *view, gw_advice_facts *facts, gw_error *error) {
    gw_doctor_table table = {.count = 0};
    gw_error none = {.rank = -1};
    facts->machine = gw_machine_default();
    facts->hosts = gw_insight_hosts(view->insight);
    facts->busy = -1;
    count_messages(view, facts);
    if (facts->hosts < 2) return GW_OK;
    if (!gw_capture_codec(view->insight, &facts->machine)) gw_capture_reduce(view->insight, &facts->machine);
    gw_status status = set_busy(view, facts, error);
    if (!status) status = gw_capture_links(view->insight, &table, error);
    if (!status) gw_fit_links(&table, 1, &facts->machine, &none); /* fails without long messages: then the defaults */
    gw_doctor_table_free(&table);
    if (facts->machine.latency <= 0) facts->machine.latency = gw_machine_default().latency; /* no short messages */
    even_out(&facts->machine);
    return status;
}

gw_status gw_advice_of_capture(const gw_view *view, double budget, gw_advice *advice, gw_error *error) {
    gw_advice_facts facts = {.hosts = 1, .seconds = budget};
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
    bool all = gw_insight_ranks(view->insight) == facts.ranks && gw_insight_world(view->insight) <= facts.ranks;
    if (layers && all && gw_profile_parameter_bytes(&profile)) facts.profile = &profile;
    if (!status) gw_advice_make(&facts, advice);
    if (layers) gw_profile_free(&profile);
    free(rank);
    return status;
}
