/* lapack.h - the functions of LAPACKE that gaussian.c needs: factoring a symmetric positive matrix, and solving with
 * the factor. */
#ifndef GW_SCHEDULE_LAPACK_H
#define GW_SCHEDULE_LAPACK_H

#include <stdbool.h>

#include "schedule/gaussian.h"

/* The Cholesky factor of an n x n matrix, stored column by column, in the lower triangle. False: not positive
 * definite. */
bool gw_lapack_factor(const gw_lapack *lapack, double *matrix, int n);
/* x becomes (L Lt)^-1 x. */
void gw_lapack_solve(const gw_lapack *lapack, const double *factor, int n, double *x);
/* x becomes L^-1 x. */
void gw_lapack_solve_lower(const gw_lapack *lapack, const double *factor, int n, double *x);

#endif
