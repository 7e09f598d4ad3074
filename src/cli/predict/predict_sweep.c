/* predict_sweep.c - gradwire predict --sweep: efficiency over the number of ranks or the rate of links, for the given
 * strategies (default: wfbp, dear and fifo). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/suggest.h"
#include "base/units.h"
#include "cli/common/chart.h"
#include "cli/common/table.h"
#include "cli/predict/predict_options.h"
#include "schedule/schedule.h"

#define POINTS_MAX 24

typedef struct sweep {
    bool rates; /* else ranks */
    int points;
    double x[POINTS_MAX]; /* ranks, or bits per second */
    char labels[POINTS_MAX][GW_UNIT_TEXT];
    double efficiency[GW_PREDICT_STRATEGIES_MAX][POINTS_MAX]; /* per cent */
} sweep;

static const char *rate_label(double bits, char text[GW_UNIT_TEXT]) {
    bool giga = bits >= 1e9;
    snprintf(text, GW_UNIT_TEXT, "%.3g%s", giga ? bits / 1e9 : bits / 1e6, giga ? "G" : "M");
    return text;
}

/* Ranks double from point to point; rates go in steps of 1, 2, 5. */
static bool make_points(sweep *s, double low, double high) {
    static const double steps[] = {2, 2.5, 2};
    double x = low;
    for (int i = 0; x < high * 0.999; i++) {
        if (s->points == POINTS_MAX - 1) return false;
        s->x[s->points++] = x;
        x *= s->rates ? steps[i % 3] : 2;
    }
    s->x[s->points++] = high;
    for (int i = 0; i < s->points; i++) {
        if (s->rates) rate_label(s->x[i], s->labels[i]);
        else snprintf(s->labels[i], GW_UNIT_TEXT, "%.0f", s->x[i]);
    }
    return true;
}

static bool read_range(const char *text, const gw_predict_request *ask, sweep *s) {
    char low[GW_UNIT_TEXT], high[GW_UNIT_TEXT];
    double from, to;
    int64_t least, most;
    const char *equals = strchr(text, '='), *dots = strstr(text, "..");
    if (!equals || !dots || dots < equals) return false;
    size_t first = (size_t)(dots - equals - 1), second = strlen(dots + 2);
    if (first >= sizeof low || second >= sizeof high) return false;
    memcpy(low, equals + 1, first);
    low[first] = 0;
    strcpy(high, dots + 2);
    s->rates = strncmp(text, "rate=", 5) == 0;
    if (s->rates) {
        if (!gw_rate_parse(low, &from) || !gw_rate_parse(high, &to)) return false;
    } else {
        if (strncmp(text, "ranks=", 6) != 0 || !gw_integer_parse(low, 1, GW_PREDICT_RANKS_MAX, &least) ||
            !gw_integer_parse(high, 1, GW_PREDICT_RANKS_MAX, &most) || least % ask->per_host || most % ask->per_host)
            return false;
        from = (double)least;
        to = (double)most;
    }
    return from < to && make_points(s, from, to);
}

static bool fill(const gw_predict_request *asked, sweep *s) {
    for (int i = 0; i < s->points; i++) {
        gw_predict_request ask = *asked;
        if (s->rates) {
            ask.machine.rate = s->x[i] / 8;
            ask.machine.arch_count = ask.machine.link_count = 0;
        }
        int ranks = s->rates ? ask.ranks : (int)s->x[i];
        for (int k = 0; k < ask.strategy_count; k++) {
            gw_prediction prediction;
            if (!gw_predict_one(&ask, &ask.strategies[k], ranks, &prediction)) return false;
            s->efficiency[k][i] = 100 * prediction.efficiency;
            if (!ask.json) continue;
            gw_predict_json(&ask, &ask.strategies[k], ranks, &prediction);
            putchar('\n');
        }
    }
    return true;
}

static void print_figures(const gw_predict_request *ask, const sweep *s) {
    gw_column columns[1 + GW_PREDICT_STRATEGIES_MAX] = {{.title = s->rates ? "RATE" : "RANKS", .right = true}};
    char titles[GW_PREDICT_STRATEGIES_MAX][8], cells[GW_PREDICT_STRATEGIES_MAX][16];
    const char *row[1 + GW_PREDICT_STRATEGIES_MAX];
    gw_table table;
    for (int k = 0; k < ask->strategy_count; k++) {
        snprintf(titles[k], sizeof titles[k], "%c", 'a' + k);
        columns[k + 1] = (gw_column){.title = titles[k], .right = true, .width = 8};
    }
    gw_table_start(&table, stdout, columns, 1 + ask->strategy_count);
    gw_table_header(&table);
    for (int i = 0; i < s->points; i++) {
        row[0] = s->labels[i];
        for (int k = 0; k < ask->strategy_count; k++) {
            snprintf(cells[k], sizeof cells[k], "%.1f %%", s->efficiency[k][i]);
            row[k + 1] = cells[k];
        }
        gw_table_row(&table, row);
    }
}

static int draw(const gw_predict_request *ask, const sweep *s, const char *svg) {
    char names[GW_PREDICT_STRATEGIES_MAX][GW_STRATEGY_PRINT_BYTES], title[160], link[64];
    const char *labels[POINTS_MAX];
    gw_error error = {.rank = -1};
    if (s->rates) snprintf(title, sizeof title, "%s, %d ranks", ask->profile.name, ask->ranks);
    else snprintf(title, sizeof title, "%s, %s", ask->profile.name, gw_predict_link_text(&ask->machine, link));
    gw_chart chart = {.title = title, .x_title = s->rates ? "bit/s of a host's link" : "ranks",
                      .y_title = "scaling efficiency in per cent", .points = s->points, .x = s->x,
                      .x_labels = labels, .series = ask->strategy_count, .y_max = 100};
    for (int i = 0; i < s->points; i++) labels[i] = s->labels[i];
    for (int k = 0; k < ask->strategy_count; k++) {
        chart.names[k] = gw_predict_brief(&ask->strategies[k], names[k]);
        chart.y[k] = s->efficiency[k];
    }
    if (!ask->json) {
        puts(title);
        gw_chart_draw(&chart, stdout);
        print_figures(ask, s);
    }
    if (svg && gw_chart_svg(&chart, svg, &error)) {
        fprintf(stderr, "gradwire predict: %s\n", error.text);
        return GW_EXIT_FAILED;
    }
    if (svg && !ask->json) printf("chart written to %s\n", svg);
    return 0;
}

/* The schedules that most readers know: those that split the all-reduce, the default schedule, and the baselines. */
static void take_usual(gw_predict_request *ask, const gw_strategy *plain, gw_error *error) {
    ask->strategy_count = 0;
    for (int kind = 0; kind < 3; kind++)
        for (const gw_technique *const *t = gw_schedule_techniques; *t; t++) {
            const gw_policy *policy = gw_policy_of(*t);
            const bool is[] = {policy->splits, t == gw_schedule_techniques, policy->after_backward};
            if (!is[kind] || ask->strategy_count == GW_PREDICT_STRATEGIES_MAX) continue;
            char line[64];
            snprintf(line, sizeof line, "schedule=%s", (*t)->name);
            gw_strategy *strategy = &ask->strategies[ask->strategy_count++];
            *strategy = *plain;
            gw_strategy_overlay(strategy, line, NULL, error);
        }
}

int gw_predict_sweep(const gw_predict_request *asked, const char *range, const char *svg) {
    gw_predict_request ask = *asked;
    gw_error error = {.rank = -1};
    char quoted[GW_QUOTE_BYTES];
    sweep *s = calloc(1, sizeof *s);
    int code = GW_EXIT_FAILED;
    if (!s) return code;
    gw_strategy plain;
    gw_strategy_default(&plain);
    if (ask.strategy_count == 1 && gw_strategy_equal(&ask.strategies[0], &plain)) take_usual(&ask, &plain, &error);
    if (!read_range(range, &ask, s))
        code = gw_usage_error(&gw_command_predict,
                              "--sweep %s: write ranks=2..1024 (in whole hosts) or "
                              "rate=1gbit..100gbit, at most %d points",
                              gw_suggest_quote(range, quoted), POINTS_MAX);
    else if (fill(&ask, s)) code = draw(&ask, s, svg);
    free(s);
    return code;
}
