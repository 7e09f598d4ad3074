/* decider.c - see decider.h. */
#include "decide/decider.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "decide/decider_internal.h"
#include "decide/links.h"

#define WARM_STEPS 3
#define TRIAL_STEPS 5
#define HURRIED_STEPS 3 /* where it decides anew: what runs meanwhile may be slow */
#define BUDGET (2 * GW_SECOND)
#define WORTH                                                                                                          \
    0.97 /* a strategy replaces the present one if it is measured to take less than this share of its time             \
          */
/* Factors by which links and compute differ where there is something to decide anew. */
#define RATE_OTHER 1.5
#define LATENCY_OTHER 3
#define COMPUTE_OTHER 1.3

/* Opening. */

static void describe(gw_decider *d, const gw_decider_config *config) {
    const gw_topology *topology = gw_team_topology(d->comm->team);
    int least;
    d->hosts = gw_topology_hosts(topology);
    gw_topology_local_sizes(topology, &least, &d->per_host);
    snprintf(d->decisions.model, sizeof d->decisions.model, "%d ranks on %d hosts, %d tensors, %llu bytes",
             d->comm->size, d->hosts, config->tensors, (unsigned long long)config->bytes);
}

/* Rank 0's part: the file's decisions as text, "" if there is no file yet. */
static gw_status read_file(gw_decider *d, gw_decisions *found, gw_error *error) {
    if (!d->file || access(d->file, F_OK) != 0) return GW_OK;
    gw_status status = gw_decisions_read(found, d->file, error);
    if (status || strcmp(found->model, d->decisions.model) == 0) return status;
    gw_fail(error, GW_INVALID,
            "%s holds decisions for another job (%s), and this one has %s: remove it, or name another file", d->file,
            found->model, d->decisions.model);
    gw_decisions_free(found);
    return GW_INVALID;
}

typedef struct shared_decision {
    uint64_t step;
    char line[GW_STRATEGY_PRINT_BYTES];
} shared_decision;

/* A file must not replace what the line names. */
static gw_status check_named(const gw_decider *d, const gw_strategy *decided, gw_error *error) {
    for (int axis = 0; axis < GW_AXES; axis++) {
        char asked[GW_STRATEGY_PRINT_BYTES], found[GW_STRATEGY_PRINT_BYTES];
        if (gw_strategy_is_open(&d->asked, (gw_axis)axis)) continue;
        gw_strategy_print_axis(&d->asked, (gw_axis)axis, asked, sizeof asked);
        gw_strategy_print_axis(decided, (gw_axis)axis, found, sizeof found);
        if (strcmp(asked, found) != 0)
            return gw_fail(error, GW_INVALID,
                           "the file of decisions has %.100s, and the strategy names %.100s: leave that out, or name "
                           "another file",
                           found, asked);
    }
    return GW_OK;
}

/* Rank 0's decisions on all ranks. */
static gw_status share_decisions(gw_decider *d, const gw_decisions *found, gw_error *error) {
    int64_t count = found->count;
    gw_status status = gw_broadcast(d->comm, &count, &count, 1, GW_I64, 0);
    for (int i = 0; i < (int)count && !status; i++) {
        shared_decision one = {.step = 0};
        gw_strategy strategy = d->asked;
        if (d->comm->rank == 0) {
            one.step = found->entries[i].step;
            gw_strategy_print(&found->entries[i].strategy, one.line, sizeof one.line);
        }
        status = gw_broadcast(d->comm, &one, &one, sizeof one, GW_U8, 0);
        one.line[sizeof one.line - 1] = 0;
        if (!status && gw_strategy_overlay(&strategy, one.line, d->file, error)) return error->status;
        if (!status && check_named(d, &strategy, error)) return error->status;
        if (!status) gw_decisions_add(&d->decisions, one.step, &strategy, NULL);
    }
    d->replays = count > 0;
    return status ? gw_fail(error, status, "%s", gw_last_error(d->comm)) : GW_OK;
}

/* The strategy of a step in a run that is replayed. */
static const gw_strategy *replayed(const gw_decider *d, uint64_t step) {
    int at = 0;
    while (at + 1 < d->decisions.count && d->decisions.entries[at + 1].step <= step) at++;
    return &d->decisions.entries[at].strategy;
}

static gw_status load(gw_decider *d, uint64_t first_step, gw_strategy *first, gw_error *error) {
    gw_decisions *found = calloc(1, sizeof *found);
    int32_t able = found != NULL && (d->comm->rank != 0 || read_file(d, found, error) == GW_OK);
    gw_status status = gw_allreduce(d->comm, &able, &able, 1, GW_I32, GW_MIN);
    if (!status && able) status = share_decisions(d, found, error);
    else if (!status && !error->status)
        status = gw_fail(error, GW_INVALID, "rank 0 cannot use the file of decisions %s, and has said why", d->file);
    if (found) gw_decisions_free(found);
    free(found);
    if (error->status) return error->status;
    if (status) return gw_fail(error, status, "%s", gw_last_error(d->comm));
    int64_t begin = (int64_t)first_step; /* a restarted rank does not know it */
    status = gw_allreduce(d->comm, &begin, &begin, 1, GW_I64, GW_MAX);
    if (d->replays) *first = *replayed(d, (uint64_t)begin);
    else gw_decisions_add(&d->decisions, (uint64_t)begin, first, NULL);
    return status ? gw_fail(error, status, "%s", gw_last_error(d->comm)) : GW_OK;
}

gw_status gw_decider_open(gw_decider **out, const gw_decider_config *config, gw_strategy *first, gw_error *error) {
    gw_decider *d = calloc(1, sizeof *d);
    gw_comm *comm = NULL;
    gw_status status = gw_comm_split(config->comm, 0, gw_rank(config->comm), &comm);
    if (!d || status) {
        gw_finalize(comm);
        free(d);
        return status ? gw_fail(error, status, "%s", gw_last_error(config->comm))
                      : gw_fail(error, GW_MEMORY, "out of memory for choosing a strategy");
    }
    *d = (gw_decider){.comm = comm,
                      .asked = *config->asked,
                      .bytes = config->bytes,
                      .optimizer = config->optimizer,
                      .timed_steps = config->timed_steps,
                      .machine = gw_machine_default(),
                      .file = config->file && *config->file ? strdup(config->file) : NULL};
    describe(d, config);
    status = load(d, config->first_step, first, error);
    if (status) gw_decider_close(d);
    else *out = d;
    return status;
}

void gw_decider_close(gw_decider *d) {
    if (!d) return;
    if (d->request) gw_wait(d->request);
    gw_finalize(d->comm);
    gw_decisions_free(&d->decisions);
    free(d->ranking);
    free(d->file);
    free(d);
}

bool gw_decider_settled(const gw_decider *d) { return d->replays || d->phase == GW_DECIDER_WATCHES; }
int gw_decider_trials(const gw_decider *d) { return d->trials; }

bool gw_decider_links(const gw_decider *d, gw_machine *machine) {
    if (d->basis.rate > 0) *machine = d->machine;
    return d->basis.rate > 0;
}

/* Steps. */

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The mean of the middle half: single disturbances do not count, and steps that are long and short in turn all do. */
static double middle(const double *values, int count) {
    double sorted[GW_DECIDER_WINDOW], sum = 0;
    int aside = count < 3 ? 0 : count < 8 ? 1 : count / 4;
    memcpy(sorted, values, (size_t)count * sizeof *sorted);
    qsort(sorted, (size_t)count, sizeof *sorted, ascending);
    for (int i = aside; i < count - aside; i++) sum += sorted[i];
    return sum / (count - 2 * aside);
}

/* Of the last `count` steps. */
static gw_watch_window window_of(const gw_decider *d, int count) {
    return (gw_watch_window){
        .step = middle(d->seconds, count), .wait = middle(d->waits, count), .exact = d->exact_share};
}

static void begin_window(gw_decider *d, int skip, int length) {
    d->skip = skip;
    d->length = length;
    d->filled = 0;
}

/* True at the end of a window. */
static bool note_step(gw_decider *d, const gw_decider_progress *progress) {
    double seconds = (double)(progress->now - d->last) * 1e-9;
    double waited = (double)(progress->waited_ns - d->last_waited) * 1e-9;
    bool counts = d->last && d->skip == 0;
    if (d->skip > 0) d->skip--;
    d->last = progress->now;
    d->last_waited = progress->waited_ns;
    d->exact_share = progress->exact_share;
    if (!counts || d->filled == d->length) return false; /* full: its figures are being shared */
    d->seconds[d->filled] = seconds;
    d->waits[d->filled++] = waited;
    return d->filled == d->length;
}

static gw_status start_sharing(gw_decider *d) {
    gw_watch_window window = window_of(d, d->length);
    d->shared[0] = window.step;
    d->shared[1] = window.wait;
    d->shared[2] = window.exact;
    return gw_allreduce_start(d->comm, d->shared, d->shared, 3, GW_F64, GW_AVG, &d->request);
}

static gw_status end_sharing(gw_decider *d, gw_decide_action *action) {
    gw_status status = gw_wait(d->request);
    d->request = NULL;
    if (status) return status;
    d->present = (gw_watch_window){d->shared[0], d->shared[1], d->shared[2]};
    gw_watch_verdict verdict = gw_watch_look(&d->watch, d->present);
    begin_window(d, 0, gw_watch_steps(&d->watch, d->present.step));
    d->distrusts = verdict == GW_WATCH_CODEC && !d->tolerates;
    if (verdict == GW_WATCH_NETWORK || d->distrusts) *action = GW_DECIDE_NOW;
    if (verdict == GW_WATCH_COMPUTE) {
        *action = GW_DECIDE_TIME_LAYERS;
        d->phase = GW_DECIDER_TIMES;
        begin_window(d, 0, d->timed_steps);
    }
    return GW_OK;
}

static gw_status watch_step(gw_decider *d, bool full, gw_decide_action *action) {
    if (d->request) return end_sharing(d, action);
    return full ? start_sharing(d) : GW_OK;
}

static void step_before_watch(gw_decider *d, bool full, gw_decide_action *action) {
    switch (d->phase) {
    case GW_DECIDER_WARMS:
        if (++d->warm < WARM_STEPS) return;
        d->phase = GW_DECIDER_TIMES;
        *action = GW_DECIDE_TIME_LAYERS;
        begin_window(d, 0, d->timed_steps);
        return;
    case GW_DECIDER_TIMES:
        if (!full) return;
        d->present = window_of(d, d->length);
        *action = GW_DECIDE_NOW;
        return;
    default:
        if (full) *action = GW_DECIDE_NOW;
    }
}

gw_status gw_decider_step(gw_decider *d, const gw_decider_progress *progress, gw_decide_action *action,
                          gw_error *error) {
    uint64_t next = progress->next_step;
    *action = GW_DECIDE_NOTHING;
    d->next_step = next;
    if (d->replays) {
        if (replayed(d, next) != replayed(d, next - 1)) *action = GW_DECIDE_NOW;
        return GW_OK;
    }
    bool full = note_step(d, progress);
    gw_status status = GW_OK;
    if (d->phase == GW_DECIDER_WATCHES) status = watch_step(d, full, action);
    else step_before_watch(d, full, action);
    return status ? gw_fail(error, status, "%s", gw_last_error(d->comm)) : GW_OK;
}

/* Deciding. */

static gw_decider_basis basis_of(const gw_decider *d, const gw_profile *profile) {
    gw_decider_basis b = {.latency = d->machine.latency, .rate = d->machine.rate, .slowest = d->machine.rate};
    for (int i = 0; i < d->machine.link_count; i++)
        if (d->machine.links[i].rate < b.slowest) b.slowest = d->machine.links[i].rate;
    for (int i = 0; i < profile->count; i++)
        b.compute += 1e-6 * (profile->layers[i].forward_us + profile->layers[i].backward_us);
    return b;
}

static bool differ(double a, double b, double factor) { return a > b * factor || b > a * factor; }

/* Steps that were longer for a while may have had other causes: then there is nothing to decide. All ranks have the
 * same figures. */
static bool basis_changes(gw_decider *d, const gw_profile *profile) {
    gw_decider_basis before = d->basis, now = basis_of(d, profile);
    bool changes = d->distrusts || before.rate == 0 || differ(before.rate, now.rate, RATE_OTHER) ||
                   differ(before.slowest, now.slowest, RATE_OTHER) ||
                   differ(before.latency, now.latency, LATENCY_OTHER) ||
                   differ(before.compute, now.compute, COMPUTE_OTHER);
    if (changes) d->basis = now;
    return changes;
}

/* The first stays: it is the present strategy's place. */
static int leave_out_distrusted(const gw_decider *d, gw_strategy *list, int count) {
    int kept = 1;
    for (int i = 1; i < count; i++)
        if (!gw_decider_distrusts(d, &list[i])) list[kept++] = list[i];
    return kept;
}

static void distrust(gw_decider *d, const gw_strategy *present) {
    if (d->distrusts && d->distrusted_count < GW_DISTRUSTED_MAX && gw_strategy_is_open(&d->asked, GW_AXIS_COMPRESS))
        d->distrusted[d->distrusted_count++] = present->axes[GW_AXIS_COMPRESS].technique;
    d->distrusts = false;
}

static void rank_candidates(gw_decider *d, const gw_profile *profile, const gw_strategy *present) {
    gw_strategy *list = calloc(GW_CANDIDATES_MAX, sizeof *list);
    gw_candidate_facts facts = {.hosts = d->hosts, .per_host = d->per_host, .optimizer = d->optimizer};
    gw_predict_config config = {.profile = profile,
                                .machine = &d->machine,
                                .ranks = d->hosts * d->per_host,
                                .per_host = d->per_host,
                                .fabric = {.kind = GW_FABRIC_SWITCH}};
    if (!d->ranking) d->ranking = malloc(sizeof *d->ranking);
    if (list && d->ranking) {
        int count = gw_candidates_list(&d->asked, &facts, list);
        count = leave_out_distrusted(d, list, count);
        list[0] = *present;
        gw_ranking_make(d->ranking, list, count, &config, d->optimizer, BUDGET);
    }
    free(list);
}

/* Windows and their lengths must be the same on all ranks. */
static gw_status share_present(gw_decider *d, gw_error *error) {
    double mine[2] = {d->present.step, d->present.wait};
    gw_status status = gw_allreduce(d->comm, mine, mine, 2, GW_F64, GW_AVG);
    d->present = (gw_watch_window){.step = mine[0], .wait = mine[1]};
    return status ? gw_fail(error, status, "%s", gw_last_error(d->comm)) : GW_OK;
}

static gw_status begin_trials(gw_decider *d, const gw_profile *profile, const gw_strategy *present, gw_error *error) {
    gw_status status = gw_links_measure(d->comm, &d->machine, error);
    if (!status) status = share_present(d, error);
    if (status) return status;
    d->before = *present;
    d->hurries = d->basis.rate > 0;
    d->trial = -1;
    d->plan.count = 0;
    d->changes = basis_changes(d, profile);
    if (!d->changes) return GW_OK;
    distrust(d, present);
    if (d->comm->rank == 0) {
        rank_candidates(d, profile, present);
        gw_decider_plan(d, present);
    }
    status = gw_broadcast(d->comm, &d->plan, &d->plan, sizeof d->plan, GW_U8, 0);
    return status ? gw_fail(error, status, "%s", gw_last_error(d->comm)) : GW_OK;
}

static gw_status strategy_of(gw_decider *d, int trial, gw_strategy *strategy, gw_error *error) {
    gw_strategy next = d->before;
    gw_status status = trial < 0 ? GW_OK : gw_strategy_overlay(&next, d->plan.trials[trial].line, NULL, error);
    *strategy = next;
    return status;
}

/* -1: what ran before. */
static int fastest(const gw_decider *d) {
    int best = -1;
    double least = d->present.step * gw_ranking_weight(&d->before, d->optimizer) * WORTH;
    for (int i = 0; i < d->plan.count; i++) {
        double weighed = d->plan.trials[i].measured * d->plan.trials[i].weight;
        if (weighed >= least) continue;
        best = i;
        least = weighed * (i + 1 < d->plan.count ? 0.99 : 1);
    }
    return best;
}

static void record(gw_decider *d, const gw_strategy *strategy, const char *why) {
    gw_error error = {.rank = -1};
    gw_decisions_add(&d->decisions, d->next_step, strategy, why);
    if (d->comm->rank == 0 && d->file && gw_decisions_write(&d->decisions, d->file, &error))
        gw_log(GW_LOG_WARN, 0, "%s", error.text);
}

static gw_status finish(gw_decider *d, gw_strategy *strategy, gw_error *error) {
    int best = fastest(d);
    gw_status status = strategy_of(d, best, strategy, error);
    char *why = d->comm->rank == 0 && d->changes ? gw_decider_tell(d, best, strategy) : NULL;
    if (!status && d->changes) record(d, strategy, why);
    free(why);
    d->tolerates = gw_decider_distrusts(d, strategy);
    gw_watch_begin(&d->watch, best < 0);
    d->phase = GW_DECIDER_WATCHES;
    begin_window(d, 1, gw_watch_steps(&d->watch, best < 0 ? d->present.step : d->plan.trials[best].measured));
    return status;
}

static gw_status end_trial(gw_decider *d, gw_error *error) {
    gw_watch_window window = window_of(d, d->length);
    gw_status status = gw_allreduce(d->comm, &window.step, &window.step, 1, GW_F64, GW_AVG);
    if (d->trial < 0) d->present.step = window.step;
    else d->plan.trials[d->trial].measured = window.step;
    return status ? gw_fail(error, status, "%s", gw_last_error(d->comm)) : GW_OK;
}

gw_status gw_decider_decide(gw_decider *d, const gw_profile *profile, gw_strategy *strategy, gw_error *error) {
    if (d->replays) {
        *strategy = *replayed(d, d->next_step);
        return GW_OK;
    }
    bool begins = d->phase != GW_DECIDER_TRIES;
    /* The window in which steps changed has some of both kinds; a codec that has lost its trust needs no other. */
    bool again = begins && d->phase == GW_DECIDER_WATCHES && !d->distrusts;
    gw_status status = begins ? begin_trials(d, profile, strategy, error) : end_trial(d, error);
    if (status) return status;
    if (!again || d->plan.count == 0) d->trial++;
    if (d->trial >= d->plan.count) return finish(d, strategy, error);
    d->phase = GW_DECIDER_TRIES;
    begin_window(d, 1, d->hurries ? HURRIED_STEPS : TRIAL_STEPS);
    if (d->trial < 0) return GW_OK;
    d->trials++;
    status = strategy_of(d, d->trial, strategy, error);
    gw_decisions_add(&d->decisions, d->next_step, strategy, "tried");
    return status;
}
