/* lapack_absent.c - built where LAPACKE's header is missing: a tuner then gets an error that says so. */
#include "schedule/lapack.h"

gw_status gw_lapack_load(const gw_lapack **lapack, gw_error *error) {
    (void)lapack;
    return gw_fail(error, GW_UNSUPPORTED,
                   "tuning: this build has no LAPACKE: install it (Debian: liblapacke-dev) and build again, or leave "
                   "tuning off");
}

/* Never called: nothing was loaded. */
bool gw_lapack_factor(const gw_lapack *lapack, double *matrix, int n) {
    (void)lapack, (void)matrix, (void)n;
    return false;
}

void gw_lapack_solve(const gw_lapack *lapack, const double *factor, int n, double *x) {
    (void)lapack, (void)factor, (void)n, (void)x;
}

void gw_lapack_solve_lower(const gw_lapack *lapack, const double *factor, int n, double *x) {
    (void)lapack, (void)factor, (void)n, (void)x;
}
