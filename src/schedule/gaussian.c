/* gaussian.c - see gaussian.h. */
#include "schedule/gaussian.h"

#include <math.h>
#include <string.h>

#include "schedule/lapack.h"

#define JITTER 1e-10 /* keeps a covariance of repeated points positive */

/* The grid of the fit. Values are logarithms of times: 0.1 is a tenth. */
static const double lengths[] = {0.15, 0.3, 0.6, 1.2};
static const double signals[] = {0.02, 0.06, 0.2, 0.6};
enum { LENGTHS = sizeof lengths / sizeof lengths[0], SIGNALS = sizeof signals / sizeof signals[0] };

static double covariance(const gw_gaussian *g, const double *a, const double *b) {
    double squares = 0;
    for (int i = 0; i < g->axes; i++) {
        double distance = (a[i] - b[i]) / g->length[i];
        squares += distance * distance;
    }
    double r = sqrt(5 * squares);
    return g->signal * g->signal * (1 + r + r * r / 3) * exp(-r);
}

static bool factor(gw_gaussian *g) {
    int n = g->count;
    for (int column = 0; column < n; column++)
        for (int row = column; row < n; row++)
            g->factor[column * n + row] = covariance(g, g->seen[row].at, g->seen[column].at) +
                                          (row == column ? g->seen[row].variance + JITTER : 0);
    return gw_lapack_factor(g->lapack, g->factor, n);
}

static void weigh(gw_gaussian *g) {
    for (int i = 0; i < g->count; i++) g->weights[i] = g->seen[i].value - g->mean;
    gw_lapack_solve(g->lapack, g->factor, g->count, g->weights);
}

/* Log-likelihood, up to a constant. Few points fit almost any length: the prior prefers the middle of the grid. */
static double likelihood(gw_gaussian *g) {
    double sum = 0;
    weigh(g);
    for (int i = 0; i < g->count; i++)
        sum -= 0.5 * (g->seen[i].value - g->mean) * g->weights[i] + log(g->factor[i * g->count + i]);
    for (int i = 0; i < g->axes; i++) sum -= 0.5 * pow(log(g->length[i] / 0.4) / 0.8, 2);
    return sum;
}

static void choose_lengths(gw_gaussian *g, int choice) {
    for (int i = 0; i < g->axes; i++, choice /= LENGTHS) g->length[i] = lengths[choice % LENGTHS];
}

bool gw_gaussian_fit(gw_gaussian *g, const gw_lapack *lapack, const gw_observation *seen, int count, int axes) {
    int choices = 1, best_choice = -1, best_signal = 0;
    double best = -INFINITY;
    *g = (gw_gaussian){.lapack = lapack, .axes = axes, .count = count, .seen = seen};
    for (int i = 0; i < count; i++) g->mean += seen[i].value / count;
    for (int i = 0; i < axes; i++) choices *= LENGTHS;
    for (int choice = 0; choice < choices; choice++)
        for (int s = 0; s < SIGNALS; s++) {
            choose_lengths(g, choice);
            g->signal = signals[s];
            double likely = factor(g) ? likelihood(g) : -INFINITY;
            if (likely <= best) continue;
            best = likely;
            best_choice = choice;
            best_signal = s;
        }
    if (best_choice < 0) return false;
    choose_lengths(g, best_choice);
    g->signal = signals[best_signal];
    factor(g);
    weigh(g);
    return true;
}

gw_expectation gw_gaussian_at(const gw_gaussian *g, const double *at) {
    double with[GW_GAUSSIAN_POINTS];
    double mean = g->mean, variance = g->signal * g->signal;
    for (int i = 0; i < g->count; i++) {
        with[i] = covariance(g, at, g->seen[i].at);
        mean += with[i] * g->weights[i];
    }
    gw_lapack_solve_lower(g->lapack, g->factor, g->count, with);
    for (int i = 0; i < g->count; i++) variance -= with[i] * with[i];
    return (gw_expectation){mean, variance > 0 ? sqrt(variance) : 0};
}

double gw_expected_improvement(gw_expectation there, double best) {
    double gain = best - there.mean;
    if (there.deviation < 1e-12) return gain > 0 ? gain : 0;
    double z = gain / there.deviation;
    double below = 0.5 * erfc(-z * M_SQRT1_2), density = exp(-0.5 * z * z) * M_2_SQRTPI * M_SQRT1_2 / 2;
    double expected = gain * below + there.deviation * density;
    return expected > 0 ? expected : 0;
}
