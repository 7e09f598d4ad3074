/* fit_steps.c - see fit.h: reads measured steps, and searches the figures that predict them best. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/suggest.h"
#include "base/text_file.h"
#include "base/units.h"
#include "predict/fit.h"
#include "predict/median.h"
#include "profile/profile_load.h"

#define HEADER "profile,ranks,per_host,step_ms,strategy"
#define STEPS_MAX 1024

enum { FIELDS = 5, FIGURES_MAX = 5, ROUNDS = 200, RESTARTS = 10 };

/* Reading. */

/* The last field is a strategy, which may contain commas: joins its parts again. */
static void join_strategy(gw_text *lines) {
    for (int i = FIELDS; i < lines->count; i++) lines->fields[i][-1] = ',';
    if (lines->count > FIELDS) lines->count = FIELDS;
}

static gw_status read_step(gw_text *lines, gw_fit_step *step) {
    int64_t ranks, per_host;
    double ms;
    join_strategy(lines);
    if (lines->count != FIELDS)
        return gw_text_wrong(lines, "it has %d fields, not %d (" HEADER ")", lines->count, FIELDS);
    if (!gw_integer_parse(lines->fields[1], 1, GW_PREDICT_RANKS_MAX, &ranks) ||
        !gw_integer_parse(lines->fields[2], 1, ranks, &per_host) || ranks % per_host)
        return gw_text_wrong(lines, "ranks and per_host are whole numbers, and hosts are full");
    if (!gw_text_decimal(lines->fields[3], 1e9, &ms) || ms <= 0)
        return gw_text_wrong(lines, "step_ms is a number of milliseconds, more than 0");
    gw_error why = {.rank = -1};
    if (gw_strategy_parse(lines->fields[4], &step->strategy, &why) ||
        gw_profile_load(lines->fields[0], &step->profile, &why))
        return gw_text_wrong(lines, "%s", why.text);
    step->ranks = (int)ranks;
    step->per_host = (int)per_host;
    step->measured = ms / 1e3;
    return GW_OK;
}

gw_status gw_fit_steps_parse(const char *bytes, size_t size, const char *name, gw_fit_steps *steps, gw_error *error) {
    gw_text lines = {.at = bytes, .end = bytes + size, .name = name, .separator = ',', .error = error};
    gw_fit_steps made = {.steps = calloc(STEPS_MAX, sizeof *made.steps)};
    bool more, header = false;
    gw_status status = made.steps ? GW_OK : gw_fail(error, GW_MEMORY, "out of memory for measured steps");
    while (!status && !(status = gw_text_next(&lines, &more)) && more) {
        if (!header) {
            header = true;
            if (lines.count != FIELDS || strcmp(lines.fields[0], "profile") != 0 ||
                strcmp(lines.fields[4], "strategy") != 0)
                status = gw_text_wrong(&lines, "measured steps begin with the header " HEADER);
        } else if (made.count == STEPS_MAX) {
            status = gw_text_wrong(&lines, "there are more than %d steps", STEPS_MAX);
        } else {
            status = read_step(&lines, &made.steps[made.count]);
            if (!status) made.count++;
        }
    }
    if (!status && !made.count) status = gw_fail(error, GW_INVALID, "%s has no measured steps", name);
    if (status) gw_fit_steps_free(&made);
    else *steps = made;
    return status;
}

gw_status gw_fit_steps_read(const char *path, gw_fit_steps *steps, gw_error *error) {
    char *bytes;
    size_t size;
    gw_status status = gw_file_read(path, GW_TEXT_FILE_MAX, &bytes, &size, error);
    if (status) return status;
    status = gw_fit_steps_parse(bytes, size, path, steps, error);
    free(bytes);
    return status;
}

void gw_fit_steps_free(gw_fit_steps *steps) {
    for (int i = 0; i < steps->count; i++) gw_profile_free(&steps->steps[i].profile);
    free(steps->steps);
    *steps = (gw_fit_steps){.count = 0};
}

/* Searching. */

typedef struct search {
    gw_fit_steps *steps;
    const gw_fabric_spec *fabric;
    gw_machine *machine;
    double *figures[FIGURES_MAX]; /* the varied figures of the machine */
    double start[FIGURES_MAX];
    int count;
    gw_fit_progress *progress;
    void *ctx;
    int tried;
    gw_error *error;
    gw_status status;
} search;

static void put(search *s, const double *point) {
    for (int i = 0; i < s->count; i++) *s->figures[i] = s->start[i] * exp(point[i]);
}

/* The mean of squared logarithms of predicted over measured. If no step depends on a figure, a very weak penalty on
 * the distance from the start keeps it there. */
static double distance(search *s, const double *point) {
    double sum = 0, pull = 0;
    put(s, point);
    for (int i = 0; i < s->count; i++) pull += point[i] * point[i];
    for (int i = 0; i < s->steps->count && !s->status; i++) {
        gw_fit_step *step = &s->steps->steps[i];
        gw_prediction p;
        gw_predict_config config = {.profile = &step->profile, .strategy = &step->strategy, .machine = s->machine,
                                    .fabric = *s->fabric, .ranks = step->ranks, .per_host = step->per_host};
        s->status = gw_predict(&config, &p, s->error);
        if (s->status) return INFINITY;
        step->predicted = p.step_seconds;
        double log_ratio = log(step->predicted / step->measured);
        sum += log_ratio * log_ratio;
    }
    s->tried++;
    if (s->progress) s->progress(s->ctx, s->tried, sqrt(sum / s->steps->count));
    return sum / s->steps->count + 1e-7 * pull;
}

typedef struct corner {
    double at[FIGURES_MAX], distance;
} corner;

static int nearer(const void *a, const void *b) {
    double x = ((const corner *)a)->distance, y = ((const corner *)b)->distance;
    return x < y ? -1 : x > y;
}

/* The point that mirrors the worst corner at the centre of the others, at `reach` times its distance. */
static corner reflect(search *s, const corner *corners, double reach) {
    corner made = {.distance = 0};
    for (int i = 0; i < s->count; i++) {
        double middle = 0;
        for (int c = 0; c < s->count; c++) middle += corners[c].at[i] / s->count;
        made.at[i] = middle + reach * (middle - corners[s->count].at[i]);
    }
    made.distance = distance(s, made.at);
    return made;
}

static void shrink(search *s, corner *corners) {
    for (int c = 1; c <= s->count; c++) {
        for (int i = 0; i < s->count; i++) corners[c].at[i] = (corners[0].at[i] + corners[c].at[i]) / 2;
        corners[c].distance = distance(s, corners[c].at);
    }
}

/* One move of the simplex, sorted from the nearest to the farthest. */
static void move(search *s, corner *corners) {
    corner *worst = &corners[s->count];
    corner mirrored = reflect(s, corners, 1);
    if (mirrored.distance < corners[0].distance) {
        corner further = reflect(s, corners, 2);
        *worst = further.distance < mirrored.distance ? further : mirrored;
    } else if (mirrored.distance < corners[s->count - 1].distance) {
        *worst = mirrored;
    } else {
        corner inside = reflect(s, corners, mirrored.distance < worst->distance ? 0.5 : -0.5);
        if (inside.distance < worst->distance && inside.distance < mirrored.distance) *worst = inside;
        else shrink(s, corners);
    }
}

/* Descends from a point until the simplex is small. */
static corner descend(search *s, const corner *from) {
    corner corners[FIGURES_MAX + 1];
    for (int c = 0; c <= s->count; c++) {
        corners[c] = *from;
        if (c) corners[c].at[c - 1] += 0.7;
        corners[c].distance = distance(s, corners[c].at);
    }
    for (int round = 0; round < ROUNDS && !s->status; round++) {
        qsort(corners, (size_t)s->count + 1, sizeof corners[0], nearer);
        double spread = 0;
        for (int i = 0; i < s->count; i++) spread += fabs(corners[0].at[i] - corners[s->count].at[i]);
        if (spread < 1e-5) break;
        move(s, corners);
    }
    qsort(corners, (size_t)s->count + 1, sizeof corners[0], nearer);
    return corners[0];
}

/* The best point of a coarse grid: 1/4, 1 and 4 times each figure. The step time has kinks where communication becomes
 * hidden behind compute, and a descent does not cross them. */
static corner look_around(search *s) {
    corner best = {.distance = INFINITY};
    int points = (int)lround(pow(3, s->count));
    for (int p = 0; p < points && !s->status; p++) {
        corner here = {.distance = 0};
        for (int i = 0, rest = p; i < s->count; i++, rest /= 3) here.at[i] = (rest % 3 - 1) * log(4);
        here.distance = distance(s, here.at);
        if (here.distance < best.distance) best = here;
    }
    return best;
}

/* A simplex may shrink before it reaches the minimum, so a new simplex starts where the last one ended, until the
 * result stops improving. */
static void find_nearest(search *s) {
    corner best = look_around(s);
    for (int again = 0; again < RESTARTS && !s->status; again++) {
        corner next = descend(s, &best);
        bool helped = next.distance < best.distance * (1 - 1e-3);
        if (next.distance < best.distance) best = next;
        if (!helped) break;
    }
    distance(s, best.at);
}

gw_status gw_fit_to_steps(gw_fit_steps *steps, gw_fit_varied moves, const gw_fabric_spec *fabric, gw_machine *machine,
                          gw_fit_progress *progress, void *ctx, gw_error *error) {
    gw_machine made = *machine;
    search s = {.steps = steps, .fabric = fabric, .machine = &made, .progress = progress, .ctx = ctx, .error = error};
    if (moves.latency || moves.rate) made.arch_count = made.link_count = 0; /* the fit replaces them */
    if (moves.latency) s.figures[s.count++] = &made.latency;
    if (moves.rate) s.figures[s.count++] = &made.rate;
    if (moves.queue) s.figures[s.count++] = &made.queue;
    if (moves.compute) s.figures[s.count++] = &made.compute;
    if (moves.reduce) s.figures[s.count++] = &made.reduce;
    for (int i = 0; i < s.count; i++) s.start[i] = *s.figures[i];
    if (s.count) find_nearest(&s);
    else distance(&s, s.start);
    if (s.status) return s.status;
    double errors[STEPS_MAX];
    for (int i = 0; i < steps->count; i++) errors[i] = fabs(steps->steps[i].predicted / steps->steps[i].measured - 1);
    made.error = gw_median(errors, steps->count);
    *machine = made;
    return GW_OK;
}
