/* serving_check.c - promises: see serving.h. Element i of the model counts the pushes of seat i mod workers. */
#include <math.h>
#include <stdlib.h>

#include "sim/serving_internal.h"

typedef gw_serving_job job;
typedef gw_serving_process process;

static int counted_by(const job *j, size_t element) { return (int)(element % (size_t)j->serving->workers); }

float gw_serving_gradient(const job *j, int seat, size_t element) {
    if (!j->counts) return (float)((element * 7 + (size_t)seat) % 11) - 5;
    return counted_by(j, element) == seat ? -1 : 0;
}

static bool is(const job *j, const char *sync) { return gw_strategy_is(&j->serving->strategy, GW_AXIS_SYNC, sync); }

/* Of the worker's own pushes: all of them, once. With backup some are not used. */
static void check_own(process *p, int tensor, size_t element, int count) {
    int used = count - (int)p->now.before[element], begun = p->now.begun[tensor];
    if (is(p->job, "backup") ? used < 0 || used > begun : used != begun)
        gw_serving_broken(p->job, "seat %d has pushed tensor %d %d times, and its answer counts %d", p->seat, tensor,
                          begun, used);
}

/* Of another's, who was there when the answer was given. */
static void check_other(process *p, int tensor, const process *other, size_t element, int count) {
    int used = count - (int)other->now.before[element], begun = p->now.begun[tensor];
    long mine = (long)p->first + begun, theirs = (long)other->first + used;
    if (used < 0 || used > other->now.begun[tensor])
        gw_serving_broken(p->job, "seat %d sees %d pushes of seat %d in tensor %d, which has made %d", p->seat, used,
                          other->seat, tensor, other->now.begun[tensor]);
    if (is(p->job, "bsp") && used != begun)
        gw_serving_broken(p->job, "seat %d: of seat %d %d pushes are in round %d of tensor %d", p->seat, other->seat,
                          used, begun, tensor);
    if (!is(p->job, "ssp")) return;
    long lead = (long)p->job->serving->strategy.axes[GW_AXIS_SYNC].values[0];
    if (mine - theirs > lead)
        gw_serving_broken(p->job, "seat %d is let go on at %ld in tensor %d, while seat %d is at %ld: leads by more "
                          "than %ld", p->seat, mine, tensor, other->seat, theirs, lead);
    if (theirs - mine > lead + 1)
        gw_serving_broken(p->job, "seat %d is at %ld in tensor %d, and seat %d has been let go on to %ld", p->seat,
                          mine, tensor, other->seat, theirs);
}

void gw_serving_check_pull(process *p, int tensor) {
    job *j = p->job;
    size_t end = j->at[tensor] + j->serving->count[tensor];
    for (size_t i = j->at[tensor]; i < end && j->counts && j->outcome->ok; i++) {
        const process *counted = &j->seats[counted_by(j, i)];
        int count = (int)p->weights[i];
        if (p->weights[i] != rintf(p->weights[i]) || count < 0)
            gw_serving_broken(j, "seat %d: weight %zu is %g, which counts nothing", p->seat, i, (double)p->weights[i]);
        if (counted == p) check_own(p, tensor, i, count);
        else if (counted->lives && counted->born <= p->now.begun_in[tensor]) check_other(p, tensor, counted, i, count);
    }
}

/* What servers have. */

static void read_servers(const job *j, float *weights) {
    for (int r = 0; r < j->world; r++) {
        const gw_stepper *stepper = j->seats[j->seat_of[r]].stepper;
        for (int t = 0; t < j->serving->tensors; t++) {
            size_t first, count;
            const float *kept = gw_ps_weights(gw_stepper_servers((gw_stepper *)(uintptr_t)stepper), t, &first, &count);
            for (size_t i = 0; kept && i < count; i++) weights[j->at[t] + first + i] = kept[i];
        }
    }
}

/* A life is over: what was answered is there, and nothing that was not begun. */
static void check_life(job *j, int seat, const gw_serving_life *l, const float *weights) {
    for (int t = 0; t < j->serving->tensors; t++)
        for (size_t i = j->at[t]; i < j->at[t] + j->serving->count[t]; i++) {
            int used = (int)weights[i] - (int)l->before[i];
            if (counted_by(j, i) != seat) continue;
            if (used > l->begun[t] || used < (is(j, "backup") ? 0 : l->answered[t])) {
                gw_serving_broken(j, "seat %d pushed tensor %d %d times, %d of them answered, and weight %zu counts %d",
                                  seat, t, l->begun[t], l->answered[t], i, used);
                return;
            }
        }
}

static float *weights_now(job *j) {
    float *weights = calloc(j->total + 1, sizeof *weights);
    if (!weights) abort();
    if (gw_serving_keeps(j)) read_servers(j, weights);
    else for (size_t i = 0; i < j->total; i++) weights[i] = j->seats[j->seat_of[0]].weights[i];
    return weights;
}

void gw_serving_check_lives(job *j) {
    if (!j->counts || !gw_serving_keeps(j)) return;
    float *weights = weights_now(j);
    for (int s = 0; s < j->serving->workers; s++) {
        process *p = &j->seats[s];
        if (p->past.before) check_life(j, s, &p->past, weights);
        free(p->past.before);
        p->past.before = NULL;
        for (size_t i = 0; p->lives && p->fresh && i < j->total; i++) p->now.before[i] = weights[i];
    }
    free(weights);
}

void gw_serving_check_end(job *j) {
    float *weights = weights_now(j);
    for (int s = 0; s < j->serving->workers; s++) {
        process *p = &j->seats[s];
        if (p->past.before) check_life(j, s, &p->past, weights);
        if (p->lives) check_life(j, s, &p->now, weights);
        for (size_t i = 0; is(j, "bsp") && p->lives && i < j->total; i++)
            if (p->weights[i] != weights[i])
                gw_serving_broken(j, "seat %d ends with other weights than others", p->seat);
    }
    free(weights);
}
