/* lapack.c - LAPACKE (Debian: liblapacke), loaded when a tuner needs it, so that no other program pays for it at start.
 */
#include "schedule/lapack.h"

#include <dlfcn.h>
#include <lapacke.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define NAME "liblapacke.so.3"

struct gw_lapack {
    __typeof__(LAPACKE_dpotrf_work) *potrf;
    __typeof__(LAPACKE_dpotrs_work) *potrs;
    __typeof__(LAPACKE_dtrtrs_work) *trtrs;
};

/* Found once for the process; read-only from then on. */
static gw_lapack found;
static char missing[256];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load(void) {
    static const char *const names[] = {"LAPACKE_dpotrf_work", "LAPACKE_dpotrs_work", "LAPACKE_dtrtrs_work"};
    void *functions[3] = {NULL}, *library = dlopen(NAME, RTLD_NOW | RTLD_LOCAL);
    bool complete = library != NULL;
    for (int i = 0; i < 3 && complete; i++) complete = (functions[i] = dlsym(library, names[i])) != NULL;
    _Static_assert(sizeof found == sizeof functions, "three functions");
    if (complete) {
        memcpy(&found, functions, sizeof found);
        return;
    }
    const char *why = dlerror();
    strncpy(missing, why ? why : NAME " is not complete", sizeof missing - 1);
    if (library) dlclose(library);
}

gw_status gw_lapack_load(const gw_lapack **lapack, gw_error *error) {
    pthread_once(&once, load);
    if (!found.potrf)
        return gw_fail(error, GW_UNSUPPORTED,
                       "tuning: LAPACKE cannot be loaded: %s; install it (Debian: liblapacke), or leave tuning off",
                       missing);
    *lapack = &found;
    return GW_OK;
}

bool gw_lapack_factor(const gw_lapack *lapack, double *matrix, int n) {
    return lapack->potrf(LAPACK_COL_MAJOR, 'L', n, matrix, n) == 0;
}

void gw_lapack_solve(const gw_lapack *lapack, const double *factor, int n, double *x) {
    lapack->potrs(LAPACK_COL_MAJOR, 'L', n, 1, factor, n, x, n);
}

void gw_lapack_solve_lower(const gw_lapack *lapack, const double *factor, int n, double *x) {
    lapack->trtrs(LAPACK_COL_MAJOR, 'L', 'N', 'N', n, 1, factor, n, x, n);
}
