/* measure.c - see measure.h. */
#include "engine/measure.h"

#include <stdlib.h>

#include "gradwire.h"

enum { ALPHA, PER_BYTE, TIMES };
enum { ROUNDS = 5, SMALL_FLOATS = 1024, LARGE_FLOATS = 256 * 1024 };

gw_status gw_measure_open(gw_measure *m, int count, gw_error *error) {
    *m = (gw_measure){.count = count, .forward_of = -1};
    m->values = calloc(TIMES + 2 * (size_t)count, sizeof *m->values);
    return m->values ? GW_OK : gw_fail(error, GW_MEMORY, "out of memory for times of %d tensors", count);
}

void gw_measure_close(gw_measure *m) {
    free(m->values);
    *m = (gw_measure){0};
}

bool gw_measure_runs(const gw_measure *m) { return m->values && m->steps < GW_MEASURE_STEPS; }

static double *forward(const gw_measure *m) { return m->values + TIMES; }
static double *backward(const gw_measure *m) { return m->values + TIMES + m->count; }

void gw_measure_wait(gw_measure *m, int tensor, gw_time asked, gw_time given) {
    if (m->forward_of >= 0) forward(m)[m->forward_of] += (double)(asked - m->last) / 1e3 / GW_MEASURE_STEPS;
    m->forward_of = tensor;
    m->last = given;
}

/* The first gradient of a step ends the last layer's forward pass as well as its backward: half of the time each. */
void gw_measure_ready(gw_measure *m, int tensor, gw_time now) {
    double us = (double)(now - m->last) / 1e3 / GW_MEASURE_STEPS;
    if (m->forward_of >= 0) {
        us /= 2;
        forward(m)[m->forward_of] += us;
    }
    if (m->last) backward(m)[tensor] += us;
    m->forward_of = -1;
    m->last = now;
}

void gw_measure_end(gw_measure *m) { m->steps++; }

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static gw_status time_allreduce(gw_comm *comm, float *buffer, size_t count, double *us) {
    double times[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        gw_time begun = gw_clock_now();
        gw_status status = gw_allreduce(comm, buffer, buffer, count, GW_F32, GW_SUM);
        if (status) return status;
        times[i] = (double)(gw_clock_now() - begun) / 1e3;
    }
    qsort(times, ROUNDS, sizeof *times, ascending);
    *us = times[ROUNDS / 2];
    return GW_OK;
}

gw_status gw_measure_exchanges(gw_measure *m, gw_comm *comm) {
    double small = 0, large = 0;
    float *buffer = gw_alloc(comm, LARGE_FLOATS * sizeof *buffer);
    if (!buffer) return GW_MEMORY;
    gw_status status = time_allreduce(comm, buffer, SMALL_FLOATS, &small);
    if (!status) status = time_allreduce(comm, buffer, LARGE_FLOATS, &large);
    gw_free(comm, buffer);
    double bytes = (LARGE_FLOATS - SMALL_FLOATS) * sizeof *buffer;
    m->values[PER_BYTE] = large > small ? (large - small) / bytes : 0;
    m->values[ALPHA] = small;
    return status;
}

gw_status gw_measure_share(gw_measure *m, gw_comm *comm) {
    return gw_broadcast(comm, m->values, m->values, TIMES + 2 * (size_t)m->count, GW_F64, 0);
}

gw_schedule_facts gw_measure_facts(const gw_measure *m) {
    return (gw_schedule_facts){.alpha_us = m->values[ALPHA], .us_per_byte = m->values[PER_BYTE],
                               .forward_us = forward(m), .backward_us = backward(m)};
}
