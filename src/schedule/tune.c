/* tune.c - see tune.h. */
#include "schedule/tune.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    CONTEST = 4,    /* trials at the end, of the best and the preset in turns */
    STEPS_MAX = 16, /* timed steps of a trial that are used, at most */
    SEARCH = GW_TUNE_TRIALS - CONTEST,
};
#define WORTH 0.004      /* the search ends when the expected improvement is less than this part of a step */
#define NOISE_LEAST 1e-3 /* of a trial, as a part of a step: the least error of a median */

typedef enum stage { SEARCHING, COMPARING, OVER } stage;

struct gw_tuner {
    const gw_lapack *lapack;
    gw_tune_axis axes[GW_TUNE_AXES];
    int count;
    gw_tune_trial trials[GW_TUNE_TRIALS];
    gw_observation seen[GW_TUNE_TRIALS]; /* of the same trials */
    int told;
    double next[GW_TUNE_AXES];   /* in the unit cube: the point given last */
    double values[GW_TUNE_AXES]; /* the same as sizes */
    stage stage;
    int best;        /* COMPARING, OVER: the trial that the search found */
    int compared;    /* trials of the contest */
    bool keeps_best; /* OVER */
    double gain;
    gw_gaussian process;
};

/* An axis. */

/* What an automatic size amounts to is not known: it is searched as the middle. */
static double to_unit(const gw_tune_axis *axis, double value) {
    if (value == 0) return 0.5;
    return log(value / axis->lowest) / log(axis->highest / axis->lowest);
}

/* Whole KiB below a MiB, whole 64 KiB above: finer steps gain nothing, and these are readable. */
static double from_unit(const gw_tune_axis *axis, double at) {
    double bytes = axis->lowest * pow(axis->highest / axis->lowest, at), unit = bytes < 1 << 20 ? 1 << 10 : 1 << 16;
    bytes = floor(bytes / unit + 0.5) * unit;
    return bytes < axis->lowest ? axis->lowest : bytes > axis->highest ? axis->highest : bytes;
}

static void go_to(gw_tuner *t, const double *at) {
    memcpy(t->next, at, sizeof t->next);
    for (int i = 0; i < t->count; i++) t->values[i] = from_unit(&t->axes[i], at[i]);
}

static void return_to(gw_tuner *t, int trial) {
    memcpy(t->next, t->seen[trial].at, sizeof t->next);
    memcpy(t->values, t->trials[trial].values, sizeof t->values);
}

static void go_to_preset(gw_tuner *t) {
    for (int i = 0; i < t->count; i++) {
        t->next[i] = to_unit(&t->axes[i], t->axes[i].preset);
        t->values[i] = t->axes[i].preset;
    }
}

gw_status gw_tuner_open(gw_tuner **out, const gw_tune_axis *axes, int count, gw_error *error) {
    gw_tuner *t = calloc(1, sizeof *t);
    if (!t) return gw_fail(error, GW_MEMORY, "out of memory for a tuner");
    t->count = count;
    t->gain = 1;
    for (int i = 0; i < count; i++) {
        t->axes[i] = axes[i];
        if (axes[i].preset > 0 && axes[i].preset < axes[i].lowest) t->axes[i].lowest = axes[i].preset;
        if (t->axes[i].preset > axes[i].highest) t->axes[i].highest = axes[i].preset;
        if (t->axes[i].highest <= t->axes[i].lowest) t->axes[i].highest = t->axes[i].lowest * 2;
    }
    gw_status status = gw_lapack_load(&t->lapack, error);
    if (status) gw_tuner_close(t);
    else *out = t;
    return status;
}

void gw_tuner_close(gw_tuner *t) { free(t); }

/* The search. */

/* The Halton sequence: the digits of i in a base, reversed behind the point. It spreads any number of points evenly. */
static double halton(int i, int base) {
    double value = 0, part = 1;
    for (; i > 0; i /= base) {
        part /= base;
        value += part * (i % base);
    }
    return value;
}

static void spread_point(gw_tuner *t, int number) {
    static const int bases[GW_TUNE_AXES] = {2, 3, 5};
    double at[GW_TUNE_AXES] = {0};
    for (int i = 0; i < t->count; i++) at[i] = halton(number, bases[i]);
    go_to(t, at);
}

static int first_points(const gw_tuner *t) { return 3 + t->count; } /* including the preset */

static int candidates_of_axis(const gw_tuner *t) { return t->count == 1 ? 65 : t->count == 2 ? 25 : 13; }

static double least_expected(const gw_tuner *t) {
    double least = INFINITY;
    for (int i = 0; i < t->told; i++) {
        double mean = gw_gaussian_at(&t->process, t->seen[i].at).mean;
        if (mean < least) least = mean;
    }
    return least;
}

/* The point of largest expected improvement; false: none is worth a trial. */
static bool promising_point(gw_tuner *t) {
    if (!gw_gaussian_fit(&t->process, t->lapack, t->seen, t->told, t->count)) return false;
    int side = candidates_of_axis(t), total = 1;
    double least = least_expected(t), most = WORTH;
    bool found = false;
    for (int i = 0; i < t->count; i++) total *= side;
    for (int c = 0; c < total; c++) {
        double at[GW_TUNE_AXES] = {0};
        for (int i = 0, rest = c; i < t->count; i++, rest /= side) at[i] = (double)(rest % side) / (side - 1);
        double gain = gw_expected_improvement(gw_gaussian_at(&t->process, at), least);
        if (gain <= most) continue;
        most = gain;
        go_to(t, at);
        found = true;
    }
    return found;
}

static bool search_on(gw_tuner *t) {
    if (t->told >= SEARCH) return false;
    if (t->told == 0) go_to_preset(t);
    else if (t->told < first_points(t)) spread_point(t, t->told);
    else return promising_point(t);
    return true;
}

/* Compares the means that the Gaussian process expects at the trials, so that one lucky trial does not win. */
static int best_of_search(gw_tuner *t) {
    bool fits = gw_gaussian_fit(&t->process, t->lapack, t->seen, t->told, t->count);
    int best = 0;
    double least = INFINITY;
    for (int i = 0; i < t->told; i++) {
        double value = fits ? gw_gaussian_at(&t->process, t->seen[i].at).mean : t->seen[i].value;
        if (value >= least) continue;
        least = value;
        best = i;
    }
    return best;
}

/* The contest. */

static bool same_point(const gw_observation *a, const gw_observation *b) {
    return memcmp(a->at, b->at, sizeof a->at) == 0;
}

/* The mean over the trials of a point, and the variance of that mean: from the spread between the trials or from their
 * own variances, whichever is larger. */
static void of_point(const gw_tuner *t, int point, double *mean, double *variance) {
    double sum = 0, squares = 0, own = 0;
    int n = 0;
    for (int i = 0; i < t->told; i++) {
        if (!same_point(&t->seen[i], &t->seen[point])) continue;
        sum += t->seen[i].value;
        squares += t->seen[i].value * t->seen[i].value;
        own += t->seen[i].variance;
        n++;
    }
    *mean = sum / n;
    double between = n > 1 ? (squares / n - *mean * *mean) * n / (n - 1) : 0;
    *variance = fmax(between > 0 ? between : 0, own / n) / n;
}

static void decide(gw_tuner *t) {
    double best, preset, best_variance, preset_variance;
    of_point(t, t->best, &best, &best_variance);
    of_point(t, 0, &preset, &preset_variance);
    t->keeps_best = best < preset - sqrt(best_variance + preset_variance);
    t->gain = t->keeps_best ? exp(preset - best) : 1;
    t->stage = OVER;
}

static void compare_on(gw_tuner *t) {
    if (t->best == 0 || t->compared == CONTEST) {
        decide(t);
        return;
    }
    return_to(t, t->compared++ % 2 ? 0 : t->best);
}

bool gw_tuner_next(gw_tuner *t, double values[GW_TUNE_AXES]) {
    if (t->stage == SEARCHING && !search_on(t)) {
        t->best = best_of_search(t);
        t->stage = COMPARING;
    }
    if (t->stage == COMPARING) compare_on(t);
    if (t->stage == OVER) return_to(t, t->keeps_best ? t->best : 0);
    memcpy(values, t->values, sizeof t->values);
    return t->stage != OVER;
}

/* Observations. */

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *values, int count) {
    qsort(values, (size_t)count, sizeof *values, ascending);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

/* Gives all trials about the median noise: the few steps of one trial estimate their own noise badly, most of all in a
 * disturbed trial. */
static void share_noise(gw_tuner *t) {
    double spreads[GW_TUNE_TRIALS];
    for (int i = 0; i < t->told; i++) spreads[i] = t->trials[i].spread;
    double spread = median(spreads, t->told);
    for (int i = 0; i < t->told; i++)
        t->seen[i].variance = spread * spread / t->trials[i].steps + NOISE_LEAST * NOISE_LEAST;
}

void gw_tuner_observe(gw_tuner *t, const double *us, int count) {
    double sorted[STEPS_MAX], mean = 0, squares = 0;
    gw_tune_trial *trial = &t->trials[t->told];
    if (count > STEPS_MAX) count = STEPS_MAX;
    for (int i = 0; i < count; i++) mean += log(us[i]) / count;
    for (int i = 0; i < count; i++) squares += pow(log(us[i]) - mean, 2);
    memcpy(sorted, us, (size_t)count * sizeof *us);
    *trial = (gw_tune_trial){.us = median(sorted, count), .steps = count,
                             .spread = count > 1 ? sqrt(squares / (count - 1)) : 0};
    memcpy(trial->values, t->values, sizeof t->values);
    t->seen[t->told] = (gw_observation){.value = log(trial->us)};
    memcpy(t->seen[t->told++].at, t->next, sizeof t->next);
    share_noise(t);
}

int gw_tuner_axes(const gw_tuner *t) { return t->count; }
int gw_tuner_trials(const gw_tuner *t) { return t->told; }
const gw_tune_trial *gw_tuner_trial(const gw_tuner *t, int trial) { return &t->trials[trial]; }
double gw_tuner_gain(const gw_tuner *t) { return t->gain; }
