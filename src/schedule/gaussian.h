/* gaussian.h - a Gaussian process over points of the unit cube: from a few noisy observations it predicts mean and
 * variance elsewhere. Matern 5/2 kernel; length scales and signal are those of largest likelihood on a small grid.
 * LAPACKE does the linear algebra; it is loaded on demand.
 *
 * Rasmussen and Williams, Gaussian Processes for Machine Learning (2006), chapters 2 and 5. O(n^3) for each grid point
 * of the fit, O(n^2) for each expectation; n is small. */
#ifndef GW_SCHEDULE_GAUSSIAN_H
#define GW_SCHEDULE_GAUSSIAN_H

#include <stdbool.h>

#include "base/status.h"

#define GW_GAUSSIAN_AXES 3
#define GW_GAUSSIAN_POINTS 32

typedef struct gw_lapack gw_lapack; /* lapack.c: the functions that were loaded */

typedef struct gw_observation {
    double at[GW_GAUSSIAN_AXES]; /* each from 0 to 1 */
    double value;
    double variance; /* of the noise in value */
} gw_observation;

typedef struct gw_gaussian {
    const gw_lapack *lapack;
    int axes, count;
    const gw_observation *seen; /* the caller's */
    double mean;
    double length[GW_GAUSSIAN_AXES], signal;                /* of the kernel; signal: standard deviation */
    double factor[GW_GAUSSIAN_POINTS * GW_GAUSSIAN_POINTS]; /* Cholesky, lower, column by column */
    double weights[GW_GAUSSIAN_POINTS];                     /* covariance^-1 * (values - mean) */
} gw_gaussian;

typedef struct gw_expectation {
    double mean, deviation;
} gw_expectation;

/* Loads the library. GW_UNSUPPORTED, with what to install, where it is missing. It stays loaded. */
gw_status gw_lapack_load(const gw_lapack **lapack, gw_error *error);

/* Fits to `count` observations (1 to GW_GAUSSIAN_POINTS), which must outlive *process. False where no kernel of the
 * grid gives a covariance that can be factored. */
bool gw_gaussian_fit(gw_gaussian *process, const gw_lapack *lapack, const gw_observation *seen, int count, int axes);
gw_expectation gw_gaussian_at(const gw_gaussian *process, const double *at);

/* How much below `best` the value there is expected to be (0 where it is above). */
double gw_expected_improvement(gw_expectation there, double best);

#endif
