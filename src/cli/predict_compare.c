/* predict_compare.c - gradwire predict --compare all: every sensible strategy, the best first, and whether compression
 * would pay. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/predict.h"
#include "cli/table.h"

/* Schedules with every architecture; codecs with the two schedules that do best and the two that bound them. Codecs
 * travel by the forms of the exchange whatever the architecture is, so that is left to itself. */
static const char *const archs[] = {"ring", "halving", "tree", "hierarchical", NULL};
static const char *const schedules[] = {"fifo", "wfbp", "mgwfbp", "p3", "bytescheduler", "tictac", "dear", NULL};
static const char *const codecs[] = {"fp16", "int8", "qsgd:bits=4", "onebit", "terngrad", "topk:ratio=0.01", "dgc",
                                     "powersgd", NULL};
static const char *const coded_schedules[] = {"wfbp", "dear", NULL};
static const char *const syncs[] = {"delayed", "periodic", NULL};

static const char *const served_schedules[] = {"wfbp", "bytescheduler", NULL};

#define CANDIDATES_MAX 64
#define SERVED_RANKS_MAX 64 /* no host stands for others where servers are, so more would take minutes */

typedef struct candidate {
    gw_strategy strategy;
    gw_prediction prediction;
    bool coded, relaxed; /* not bsp: another computation, told apart */
} candidate;

typedef struct list {
    candidate candidates[CANDIDATES_MAX];
    int count;
} list;

static void add(list *l, const gw_predict_ask *ask, const char *line) {
    gw_error error = {.rank = -1};
    candidate *c = &l->candidates[l->count];
    *c = (candidate){.strategy = ask->strategies[0]};
    if (l->count == CANDIDATES_MAX || gw_strategy_overlay(&c->strategy, line, NULL, &error)) return;
    c->coded = !gw_strategy_is(&c->strategy, GW_AXIS_COMPRESS, "none");
    c->relaxed = !gw_strategy_is(&c->strategy, GW_AXIS_SYNC, "bsp");
    l->count++;
}

static void add_all(list *l, const gw_predict_ask *ask) {
    char line[128];
    for (int a = 0; archs[a]; a++) {
        if (strcmp(archs[a], "hierarchical") == 0 && ask->per_host == 1) continue;
        for (int s = 0; schedules[s]; s++) {
            bool halves = strcmp(schedules[s], "dear") == 0, whole = a >= 2; /* trees and hierarchies are not split */
            if (halves && whole) continue;
            snprintf(line, sizeof line, "arch=%s schedule=%s compress=none sync=bsp", archs[a], schedules[s]);
            add(l, ask, line);
        }
    }
    for (int c = 0; codecs[c]; c++)
        for (int s = 0; coded_schedules[s]; s++) {
            snprintf(line, sizeof line, "arch=auto schedule=%s compress=%s sync=bsp", coded_schedules[s], codecs[c]);
            add(l, ask, line);
        }
    for (int s = 0; served_schedules[s] && ask->ranks <= SERVED_RANKS_MAX; s++) {
        snprintf(line, sizeof line, "arch=ps:servers=%d schedule=%s compress=none sync=bsp", ask->ranks / ask->per_host,
                 served_schedules[s]);
        add(l, ask, line);
    }
    for (int i = 0; syncs[i]; i++) {
        snprintf(line, sizeof line, "arch=ring schedule=wfbp compress=none sync=%s", syncs[i]);
        add(l, ask, line);
    }
}

static int faster(const void *a, const void *b) {
    double x = ((const candidate *)a)->prediction.step_seconds, y = ((const candidate *)b)->prediction.step_seconds;
    return x < y ? -1 : x > y;
}

static void print_rows(const list *l) {
    gw_column columns[] = {{.title = "STEP ms", .right = true}, {.title = "SAMPLES/S", .right = true},
                           {.title = "EFFICIENCY", .right = true}, {.title = "EXPOSED ms", .right = true},
                           {.title = "SENT MB", .right = true}, {.title = "STRATEGY"}};
    gw_table table;
    gw_table_start(&table, stdout, columns, 6);
    gw_table_header(&table);
    for (int i = 0; i < l->count; i++) {
        const gw_prediction *p = &l->candidates[i].prediction;
        char cells[5][32], line[GW_STRATEGY_PRINT_BYTES];
        snprintf(cells[0], sizeof cells[0], "%.2f", p->step_seconds * 1e3);
        snprintf(cells[1], sizeof cells[1], "%.0f", p->samples_per_second);
        snprintf(cells[2], sizeof cells[2], "%.1f %%", p->efficiency * 100);
        snprintf(cells[3], sizeof cells[3], "%.2f", p->exposed_seconds * 1e3);
        snprintf(cells[4], sizeof cells[4], "%.2f", p->bytes / 1e6);
        const char *row[] = {cells[0], cells[1], cells[2], cells[3], cells[4],
                             gw_predict_brief(&l->candidates[i].strategy, line)};
        gw_table_row(&table, row);
    }
}

static const candidate *best(const list *l, bool coded) {
    for (int i = 0; i < l->count; i++)
        if (l->candidates[i].coded == coded && !l->candidates[i].relaxed) return &l->candidates[i];
    return NULL;
}

/* The list is sorted. */
static void print_verdict(const list *l) {
    const candidate *dense = best(l, false), *coded = best(l, true);
    char line[GW_STRATEGY_PRINT_BYTES];
    if (!dense || !coded) return;
    double gain = dense->prediction.step_seconds / coded->prediction.step_seconds - 1;
    if (gain > 0.02)
        printf("compression would pay: %s is %.0f %% faster than the best without (accuracy is another question)\n",
               gw_predict_brief(&coded->strategy, line), gain * 100);
    else
        printf("compression would not pay: the best with it gains %.1f %%, less than it may cost in accuracy\n",
               gain > 0 ? gain * 100 : 0.0);
}

int gw_predict_compare(const gw_predict_ask *ask) {
    list *l = calloc(1, sizeof *l);
    if (!l) return GW_EXIT_FAILED;
    add_all(l, ask);
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
    qsort(l->candidates, (size_t)l->count, sizeof l->candidates[0], faster);
    for (int i = 0; ask->json && i < l->count; i++) {
        gw_predict_json(ask, &l->candidates[i].strategy, ask->ranks, &l->candidates[i].prediction);
        putchar('\n');
    }
    if (!ask->json) {
        print_rows(l);
        print_verdict(l);
        if (ask->ranks > SERVED_RANKS_MAX)
            printf("servers are left out above %d ranks: name them, as in --strategy arch=ps:servers=%d\n",
                   SERVED_RANKS_MAX, ask->ranks / ask->per_host);
    }
    free(l);
    return kept ? 0 : GW_EXIT_FAILED;
}
