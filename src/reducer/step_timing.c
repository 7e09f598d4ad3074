/* step_timing.c - see step_timing.h. */
#include "reducer/step_timing.h"

#include <stdlib.h>
#include <string.h>

#include "gradwire.h"

enum { ALPHA, PER_BYTE, TIMES };
enum { ROUNDS = 5, SMALL_FLOATS = 1024, LARGE_FLOATS = 256 * 1024 };

gw_status gw_step_timing_open(gw_step_timing *t, int count, gw_error *error) {
    *t = (gw_step_timing){.count = count, .forward_of = -1};
    t->values = calloc(TIMES + 2 * (size_t)count, sizeof *t->values);
    return t->values ? GW_OK : gw_fail(error, GW_MEMORY, "out of memory for times of %d tensors", count);
}

void gw_step_timing_close(gw_step_timing *t) {
    free(t->values);
    *t = (gw_step_timing){0};
}

bool gw_step_timing_runs(const gw_step_timing *t) { return t->values && t->steps < GW_MEASURE_STEPS; }

static double *forward(const gw_step_timing *t) { return t->values + TIMES; }
static double *backward(const gw_step_timing *t) { return t->values + TIMES + t->count; }

void gw_step_timing_wait(gw_step_timing *t, int tensor, gw_time asked, gw_time given) {
    if (t->forward_of >= 0) forward(t)[t->forward_of] += (double)(asked - t->last) / 1e3 / GW_MEASURE_STEPS;
    t->forward_of = tensor;
    t->last = given;
}

/* The first gradient of a step ends both passes of the last layer, forward and backward: each gets half of the time. */
void gw_step_timing_ready(gw_step_timing *t, int tensor, gw_time now) {
    double us = (double)(now - t->last) / 1e3 / GW_MEASURE_STEPS;
    if (t->forward_of >= 0) {
        us /= 2;
        forward(t)[t->forward_of] += us;
    }
    if (t->last) backward(t)[tensor] += us;
    t->forward_of = -1;
    t->last = now;
}

void gw_step_timing_end(gw_step_timing *t) { t->steps++; }

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

gw_status gw_step_timing_allreduces(gw_step_timing *t, gw_comm *comm) {
    double small = 0, large = 0;
    float *buffer = gw_alloc(comm, LARGE_FLOATS * sizeof *buffer);
    if (!buffer) return GW_MEMORY;
    gw_status status = time_allreduce(comm, buffer, SMALL_FLOATS, &small);
    if (!status) status = time_allreduce(comm, buffer, LARGE_FLOATS, &large);
    gw_free(comm, buffer);
    double bytes = (LARGE_FLOATS - SMALL_FLOATS) * sizeof *buffer;
    t->values[PER_BYTE] = large > small ? (large - small) / bytes : 0;
    t->values[ALPHA] = small;
    return status;
}

static gw_status broadcast_from(gw_step_timing *t, gw_comm *comm, int root) {
    return gw_broadcast(comm, t->values, t->values, TIMES + 2 * (size_t)t->count, GW_F64, root);
}

gw_status gw_step_timing_broadcast(gw_step_timing *t, gw_comm *comm) { return broadcast_from(t, comm, 0); }

gw_status gw_step_timing_broadcast_slowest(gw_step_timing *t, gw_comm *comm) {
    double total = 0, most;
    for (int i = 0; i < 2 * t->count; i++) total += t->values[TIMES + i];
    gw_status status = gw_allreduce(comm, &total, &most, 1, GW_F64, GW_MAX);
    int32_t slowest = total >= most ? gw_rank(comm) : INT32_MAX;
    if (!status) status = gw_allreduce(comm, &slowest, &slowest, 1, GW_I32, GW_MIN);
    return status ? status : broadcast_from(t, comm, slowest == INT32_MAX ? 0 : slowest);
}

void gw_step_timing_restart(gw_step_timing *t) {
    memset(t->values + TIMES, 0, 2 * (size_t)t->count * sizeof *t->values);
    t->steps = 0;
    t->last = 0;
    t->forward_of = -1;
}

gw_schedule_facts gw_step_timing_facts(const gw_step_timing *t) {
    return (gw_schedule_facts){.alpha_us = t->values[ALPHA], .us_per_byte = t->values[PER_BYTE],
                               .forward_us = forward(t), .backward_us = backward(t)};
}
