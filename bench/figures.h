/* figures.h - statistics for the small benchmarks of this folder. */
#ifndef GW_BENCH_FIGURES_H
#define GW_BENCH_FIGURES_H

#include <stdlib.h>
#include <time.h>

/* Of this process, all threads. */
static inline double cpu_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

static inline int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts them. */
static inline double median(double *values, int count) {
    qsort(values, (size_t)count, sizeof *values, by_size);
    return values[count / 2];
}

#endif
