/* tune.h - searches for the settings of a schedule that make a step shortest: Bayesian optimisation by a Gaussian
 * process with expected improvement, as in ByteScheduler (Peng et al. 2019) and DeAR (Zhang et al. 2023).
 *
 * The caller asks what to try and reports how long steps took. The tuner has no clock and no randomness, and knows
 * nothing of schedules: an axis is a size in bytes between two limits, searched by its logarithm. The first trial is
 * the preset, a few spread points follow, then those with the largest expected improvement. At the end the best and the
 * preset are tried again in turns, and the preset stays unless the other is faster by more than the noise. One thread.
 */
#ifndef GW_SCHEDULE_TUNE_H
#define GW_SCHEDULE_TUNE_H

#include "schedule/gaussian.h"

#define GW_TUNE_AXES GW_GAUSSIAN_AXES
#define GW_TUNE_TRIALS 15 /* at most, including those that compare the best with the preset */

typedef struct gw_tuner gw_tuner;

typedef struct gw_tune_axis {
    double lowest, highest; /* bytes, > 0 */
    double preset;          /* may lie outside the limits; 0: automatic */
} gw_tune_axis;

typedef struct gw_tune_trial {
    double values[GW_TUNE_AXES];
    double us;     /* of a step: the median */
    double spread; /* of the logarithm of a step: standard deviation */
    int steps;     /* timed steps */
} gw_tune_trial;

/* GW_UNSUPPORTED without LAPACKE. 1 to GW_TUNE_AXES axes. */
gw_status gw_tuner_open(gw_tuner **tuner, const gw_tune_axis *axes, int count, gw_error *error);
void gw_tuner_close(gw_tuner *tuner); /* NULL is fine */

/* What to try next. False: the search is over, and these are the values to keep. */
bool gw_tuner_next(gw_tuner *tuner, double values[GW_TUNE_AXES]);
/* The times of steps under the values that gw_tuner_next gave last; `count` > 0 of them. */
void gw_tuner_observe(gw_tuner *tuner, const double *us, int count);

int gw_tuner_axes(const gw_tuner *tuner);
int gw_tuner_trials(const gw_tuner *tuner); /* observed so far */
const gw_tune_trial *gw_tuner_trial(const gw_tuner *tuner, int trial);
/* Measured speed-up of the values to keep over the preset; 1: no faster. */
double gw_tuner_gain(const gw_tuner *tuner);

#endif
