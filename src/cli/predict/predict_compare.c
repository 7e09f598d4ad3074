/* predict_compare.c - gradwire predict --compare all: all sensible strategies, and whether compression would pay. The
 * exact ones and those that measurements have shown to be safe come first, then the others; the fastest of each
 * first. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/common/table.h"
#include "cli/predict/predict_options.h"
#include "compress/compress.h"
#include "decide/candidates.h"
#include "plan/plan.h"
#include "schedule/schedule.h"
#include "strategy/accuracy_risk.h"
#include "strategy/combine.h"
#include "sync/sync.h"

#define PAYS 0.02           /* what a codec must gain */
#define SERVED_RANKS_MAX 64 /* with servers every rank is simulated; more ranks would take minutes */

typedef struct candidate {
    gw_strategy strategy;
    gw_prediction prediction;
    gw_accuracy_risk risk;
    bool coded, relaxed; /* relaxed: not synchronous, so its result differs from bsp's */
} candidate;

typedef struct list {
    candidate *candidates;
    int count, room;
    bool full; /* out of memory */
} list;

static candidate *new_candidate(list *l) {
    if (l->count == l->room) {
        int room = l->room ? 2 * l->room : 64;
        candidate *grown = realloc(l->candidates, (size_t)room * sizeof *grown);
        if (!grown) {
            l->full = true;
            return NULL;
        }
        l->candidates = grown;
        l->room = room;
    }
    return &l->candidates[l->count];
}

__attribute__((format(printf, 3, 4))) static void add(list *l, const gw_predict_request *ask, const char *format, ...) {
    char line[512];
    gw_error error = {.rank = -1};
    candidate *c = new_candidate(l);
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (!c) return;
    *c = (candidate){.strategy = ask->strategies[0]};
    if (gw_strategy_overlay(&c->strategy, line, NULL, &error)) return;
    c->risk = gw_accuracy_risk_of(&c->strategy, ask->optimizer);
    c->coded = gw_strategy_compresses(&c->strategy);
    c->relaxed = !gw_sync_of(c->strategy.axes[GW_AXIS_SYNC].technique)->synchronous;
    l->count++;
}

/* Whether to list a plan: it must work over messages. If it also uses shared memory, hosts must have several ranks. */
static bool supports(const gw_plan_builder *builder, const gw_predict_request *ask, gw_collective collective) {
    int per_host[] = {0, 0};
    gw_plan_request request = {.collective = collective,
                               .topology = {.world = 2, .host_of = per_host},
                               .count = 2,
                               .root = -1,
                               .chunk_count = 1,
                               .pipeline = 1};
    return builder->refuses(&request) == NULL && !(builder->local && ask->per_host == 1);
}

/* Every architecture with every schedule. A schedule that splits the all-reduce needs a reduce-scatter plan. */
static void add_dense(list *l, const gw_predict_request *ask) {
    for (const gw_technique *const *a = gw_techniques(GW_AXIS_ARCH); *a; a++) {
        const gw_plan_builder *builder = gw_plan_find((*a)->name);
        if (!builder || !supports(builder, ask, GW_COLL_ALLREDUCE)) continue;
        for (const gw_technique *const *s = gw_schedule_techniques; *s; s++) {
            if (gw_policy_of(*s)->splits && !supports(builder, ask, GW_COLL_REDUCE_SCATTER)) continue;
            add(l, ask, "arch=%s schedule=%s compress=none sync=bsp", (*a)->name, (*s)->name);
        }
    }
}

/* Every codec with the default schedule and with schedules that split the all-reduce. arch=auto combines inside hosts
 * first where that saves bytes between them, so it is enough. */
static void add_coded(list *l, const gw_predict_request *ask) {
    for (const gw_codec *const *c = gw_codecs; *c; c++)
        for (const gw_technique *const *s = gw_schedule_techniques; *s && !(*c)->identity; s++)
            if (s == gw_schedule_techniques || gw_policy_of(*s)->splits)
                add(l, ask, "arch=auto schedule=%s compress=%s sync=bsp", (*s)->name, (*c)->technique.name);
}

/* Servers with the default schedule and with schedules that limit the bytes in flight. */
static void add_served(list *l, const gw_predict_request *ask) {
    for (const gw_technique *const *s = gw_schedule_techniques; *s && ask->ranks <= SERVED_RANKS_MAX; s++) {
        if (s == gw_schedule_techniques || gw_technique_param(*s, "credit") >= 0)
            add(l, ask, "arch=ps:servers=%d schedule=%s compress=none sync=bsp", ask->ranks / ask->per_host,
                (*s)->name);
    }
}

static void add_all(list *l, const gw_predict_request *ask) {
    add_dense(l, ask);
    add_coded(l, ask);
    add_served(l, ask);
    for (const gw_technique *const *t = gw_sync_techniques + 1; *t; t++) {
        if (!gw_sync_of(*t)->rule) add(l, ask, "arch=ring schedule=wfbp compress=none sync=%s", (*t)->name);
        else if (ask->ranks <= SERVED_RANKS_MAX)
            add(l, ask, "arch=ps:servers=%d schedule=wfbp compress=none sync=%s", ask->ranks / ask->per_host,
                (*t)->name);
    }
}

static int better(const void *a, const void *b) {
    const candidate *p = a, *q = b;
    double x = p->prediction.step_seconds, y = q->prediction.step_seconds;
    if (p->risk.safe != q->risk.safe) return p->risk.safe ? -1 : 1;
    return x < y ? -1 : x > y;
}

static void print_rows(const list *l) {
    gw_column columns[] = {{.title = "STEP ms", .right = true},
                           {.title = "SAMPLES/S", .right = true},
                           {.title = "EFFICIENCY", .right = true},
                           {.title = "EXPOSED ms", .right = true},
                           {.title = "SENT MB", .right = true},
                           {.title = "RISK"},
                           {.title = "STRATEGY"}};
    gw_table table;
    gw_table_start(&table, stdout, columns, 7);
    gw_table_header(&table);
    for (int i = 0; i < l->count; i++) {
        const gw_prediction *p = &l->candidates[i].prediction;
        char cells[6][32], line[GW_STRATEGY_PRINT_BYTES];
        snprintf(cells[0], sizeof cells[0], "%.2f", p->step_seconds * 1e3);
        snprintf(cells[1], sizeof cells[1], "%.0f", p->samples_per_second);
        snprintf(cells[2], sizeof cells[2], "%.1f %%", p->efficiency * 100);
        snprintf(cells[3], sizeof cells[3], "%.2f", p->exposed_seconds * 1e3);
        snprintf(cells[4], sizeof cells[4], "%.2f", p->bytes / 1e6);
        gw_accuracy_risk_print(&l->candidates[i].risk, cells[5]);
        const char *row[] = {cells[0],
                             cells[1],
                             cells[2],
                             cells[3],
                             cells[4],
                             cells[5],
                             gw_predict_brief(&l->candidates[i].strategy, line)};
        gw_table_row(&table, row);
    }
}

/* The first of those with a codec or without one; safe: whether to look among the safe ones or the others. */
static const candidate *best(const list *l, bool coded, bool safe) {
    for (int i = 0; i < l->count; i++) {
        const candidate *c = &l->candidates[i];
        if (c->coded == coded && c->risk.safe == safe && !c->relaxed) return c;
    }
    return NULL;
}

static double gain_of(const candidate *coded, const candidate *dense) {
    return coded ? dense->prediction.step_seconds / coded->prediction.step_seconds - 1 : 0;
}

static void print_safe(const candidate *safe, const candidate *dense) {
    char line[GW_STRATEGY_PRINT_BYTES];
    printf(
        "compression would pay: %s is %.0f %% faster than the best exact one, and safe: %.1f points of accuracy lost "
        "at most, in %d runs\n",
        gw_predict_brief(&safe->strategy, line), gain_of(safe, dense) * 100, fmax(safe->risk.points, 0),
        safe->risk.runs);
}

/* What is not safe is only worth a word where it would be faster than all that is. */
static void print_risky(const candidate *risky, const candidate *dense) {
    char line[GW_STRATEGY_PRINT_BYTES], text[GW_ACCURACY_RISK_TEXT];
    gw_accuracy_risk_print(&risky->risk, text);
    printf("%s would be %.0f %% faster than the best exact one, but is not safe: loss of accuracy %s\n",
           gw_predict_brief(&risky->strategy, line), gain_of(risky, dense) * 100, text);
}

/* The list must be sorted. */
static void print_verdict(const list *l) {
    const candidate *dense = best(l, false, true), *safe = best(l, true, true), *risky = best(l, true, false);
    if (!dense || (!safe && !risky)) return;
    double gain = fmax(gain_of(safe, dense), 0), more = (1 + gain_of(risky, dense)) / (1 + gain) - 1;
    if (gain > PAYS) print_safe(safe, dense);
    else
        printf("compression would not pay: the best safe codec gains %.1f %%, which no loss of accuracy is worth\n",
               gain * 100);
    if (more > PAYS) print_risky(risky, dense);
}

/* What strategy=auto would choose from under the line that was given. */
static void add_open(list *l, const gw_predict_request *ask) {
    gw_strategy *open = calloc(GW_CANDIDATES_MAX, sizeof *open);
    gw_candidate_facts facts = {
        .hosts = ask->ranks / ask->per_host, .per_host = ask->per_host, .optimizer = ask->optimizer};
    int count = open ? gw_candidates_list(&ask->strategies[0], &facts, open) : 0;
    l->full = !open;
    for (int i = 0; i < count; i++) {
        candidate *c = new_candidate(l);
        if (!c) break;
        *c = (candidate){.strategy = open[i], .risk = gw_accuracy_risk_of(&open[i], ask->optimizer)};
        c->coded = gw_strategy_compresses(&c->strategy);
        c->relaxed = !gw_sync_of(c->strategy.axes[GW_AXIS_SYNC].technique)->synchronous;
        l->count++;
    }
    free(open);
}

int gw_predict_compare(const gw_predict_request *ask, bool all) {
    list made = {NULL}, *l = &made;
    if (all) add_all(l, ask);
    else add_open(l, ask);
    if (l->full) fputs("gradwire predict: out of memory: not every strategy is compared\n", stderr);
    gw_time begun = gw_clock_now();
    int kept = 0;
    for (int i = 0; i < l->count; i++) {
        if (isatty(STDERR_FILENO) && gw_clock_now() - begun > 2 * GW_SECOND)
            fprintf(stderr, "\rstrategy %d of %d ", i + 1, l->count);
        if (gw_predict_one(ask, &l->candidates[i].strategy, ask->ranks, &l->candidates[i].prediction))
            l->candidates[kept++] = l->candidates[i];
    }
    if (isatty(STDERR_FILENO)) fprintf(stderr, "\r%30s\r", "");
    l->count = kept;
    if (kept) qsort(l->candidates, (size_t)l->count, sizeof l->candidates[0], better);
    for (int i = 0; ask->json && i < l->count; i++) {
        gw_predict_json(ask, &l->candidates[i].strategy, ask->ranks, &l->candidates[i].prediction);
        putchar('\n');
    }
    if (!ask->json) {
        print_rows(l);
        print_verdict(l);
        if (ask->ranks > SERVED_RANKS_MAX)
            printf("arch=ps is not compared above %d ranks: use --strategy arch=ps:servers=%d instead of --compare\n",
                   SERVED_RANKS_MAX, ask->ranks / ask->per_host);
    }
    free(l->candidates);
    return kept ? 0 : GW_EXIT_FAILED;
}
