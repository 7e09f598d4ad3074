/* ps_sim_check.c - the checks of ps_sim.h. Element i of the model counts the pushes of member i mod workers. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/ps_sim_internal.h"

#define NEVER_REACHED 1e30 /* a limit of norms: gradients wait for each other, and keep their values */

typedef gw_ps_sim_job job;
typedef gw_ps_sim_process process;

static int counted_by(const job *j, size_t element) { return (int)(element % (size_t)j->spec->workers); }

/* The norm of a sum over workers changes with each loss, so it is not limited. */
static bool clips_own(const job *j) { return j->spec->clips && j->counts && gw_ps_sim_keeps(j); }

/* Clipping halves it, without rounding: the roots of n and 4n differ by a factor of 2. */
static float own_length(const job *j) { return clips_own(j) ? 2 : 1; }

float gw_ps_sim_gradient(const job *j, int member, size_t element) {
    if (!j->counts) return (float)((element * 7 + (size_t)member) % 11) - 5;
    return counted_by(j, element) == member ? -own_length(j) : 0;
}

double gw_ps_sim_clip(const job *j, int member) {
    size_t elements = 0;
    if (!j->spec->clips) return 0;
    if (!clips_own(j)) return NEVER_REACHED;
    for (size_t i = 0; i < j->total; i++) elements += counted_by(j, i) == member;
    return sqrt((double)elements);
}

/* Every step waits for all. */
static bool is_synchronous(const job *j) {
    const gw_setting *setting = &j->spec->strategy.axes[GW_AXIS_SYNC];
    const gw_sync *sync = gw_sync_of(setting->technique);
    return sync->synchronous || (sync->rule && !gw_sync_takes_back(sync, setting->values));
}

static gw_sync_rule rule_of(const job *j) {
    const gw_setting *sync = &j->spec->strategy.axes[GW_AXIS_SYNC];
    return gw_sync_of(sync->technique)->rule ? gw_sync_of(sync->technique)->rule(sync->values) : (gw_sync_rule){0};
}

/* The answer must contain each of the worker's own pushes once. With backup some are not used. */
static void check_own(process *p, int tensor, size_t element, int count) {
    int used = count - (int)p->now.before[element], begun = p->now.begun[tensor];
    if (rule_of(p->job).spare ? used < 0 || used > begun : used != begun)
        gw_ps_sim_broken(p->job, "member %d has pushed tensor %d %d times, and its answer counts %d", p->member, tensor,
                         begun, used);
}

/* Checks the pushes of another worker that was present when the answer was given. */
static void check_other(process *p, int tensor, const process *other, size_t element, int count) {
    int used = count - (int)other->now.before[element], begun = p->now.begun[tensor];
    long mine = (long)p->first + begun, theirs = (long)other->first + used;
    if (used < 0 || used > other->now.begun[tensor])
        gw_ps_sim_broken(p->job, "member %d sees %d pushes of member %d in tensor %d, which has made %d", p->member,
                         used, other->member, tensor, other->now.begun[tensor]);
    if (is_synchronous(p->job) && used != begun)
        gw_ps_sim_broken(p->job, "member %d: of member %d %d pushes are in round %d of tensor %d", p->member,
                         other->member, used, begun, tensor);
    gw_sync_rule rule = rule_of(p->job);
    if (!rule.at_once || rule.staleness == UINT64_MAX) return;
    long staleness = (long)rule.staleness;
    if (mine - theirs > staleness)
        gw_ps_sim_broken(p->job,
                         "member %d is let go on at %ld in tensor %d, while member %d is at %ld: leads by more "
                         "than %ld",
                         p->member, mine, tensor, other->member, theirs, staleness);
    if (theirs - mine > staleness + 1)
        gw_ps_sim_broken(p->job, "member %d is at %ld in tensor %d, and member %d has been let go on to %ld", p->member,
                         mine, tensor, other->member, theirs);
}

void gw_ps_sim_check_pull(process *p, int tensor) {
    job *j = p->job;
    size_t end = j->at[tensor] + j->spec->count[tensor];
    for (size_t i = j->at[tensor]; i < end && j->counts && j->outcome->ok; i++) {
        const process *counted = &j->members[counted_by(j, i)];
        int count = (int)p->weights[i];
        if (p->weights[i] != rintf(p->weights[i]) || count < 0)
            gw_ps_sim_broken(j, "member %d: weight %zu is %g, which counts nothing", p->member, i,
                             (double)p->weights[i]);
        if (counted == p) check_own(p, tensor, i, count);
        else if (counted->lives && counted->born <= p->now.begun_in[tensor]) check_other(p, tensor, counted, i, count);
    }
}

/* Weights of the servers. */

static void read_servers(const job *j, float *weights) {
    for (int r = 0; r < j->base.world; r++) {
        const gw_step_engine *step_engine = j->members[j->member_of[r]].step_engine;
        for (int t = 0; t < j->spec->tensors; t++) {
            gw_stripes covers;
            const float *kept =
                gw_ps_weights(gw_step_engine_servers((gw_step_engine *)(uintptr_t)step_engine), t, &covers);
            uint64_t from = 0, run;
            for (; kept && gw_stripes_next(&covers, &from, covers.end, &run); from += run, kept += run)
                memcpy(weights + j->at[t] + from, kept, run * sizeof *kept);
        }
    }
}

/* A process has ended: all its answered pushes are counted, and none that it did not begin. */
static void check_life(job *j, int member, const gw_ps_sim_life *l, const float *weights) {
    for (int t = 0; t < j->spec->tensors; t++)
        for (size_t i = j->at[t]; i < j->at[t] + j->spec->count[t]; i++) {
            int used = (int)weights[i] - (int)l->before[i];
            if (counted_by(j, i) != member) continue;
            if (used > l->begun[t] || used < (rule_of(j).spare ? 0 : l->answered[t])) {
                gw_ps_sim_broken(j, "member %d pushed tensor %d %d times, %d of them answered, but weight %zu is %d",
                                 member, t, l->begun[t], l->answered[t], i, used);
                return;
            }
        }
}

static float *weights_now(job *j) {
    float *weights = calloc(j->total + 1, sizeof *weights);
    if (!weights) abort();
    if (gw_ps_sim_keeps(j)) read_servers(j, weights);
    else
        for (size_t i = 0; i < j->total; i++) weights[i] = j->members[j->member_of[0]].weights[i];
    return weights;
}

void gw_ps_sim_check_lives(job *j) {
    if (!j->counts || !gw_ps_sim_keeps(j)) return;
    float *weights = weights_now(j);
    for (int s = 0; s < j->spec->workers; s++) {
        process *p = &j->members[s];
        if (p->past.before) check_life(j, s, &p->past, weights);
        free(p->past.before);
        p->past.before = NULL;
        for (size_t i = 0; p->lives && p->fresh && i < j->total; i++) p->now.before[i] = weights[i];
    }
    free(weights);
}

/* Where servers keep the weights, a codec may encode them for each worker. */
static bool ends_equal(const job *j) { return is_synchronous(j) && (j->counts || !gw_ps_sim_keeps(j)); }

void gw_ps_sim_check_end(job *j) {
    float *weights = weights_now(j);
    if (j->spec->training) memcpy(j->spec->training->ended, weights, j->total * sizeof *weights);
    for (int s = 0; s < j->spec->workers; s++) {
        process *p = &j->members[s];
        if (j->counts && p->past.before) check_life(j, s, &p->past, weights);
        if (j->counts && p->lives) check_life(j, s, &p->now, weights);
        for (size_t i = 0; ends_equal(j) && p->lives && i < j->total; i++)
            if (p->weights[i] != weights[i])
                gw_ps_sim_broken(j, "member %d ends with other weights than others", p->member);
    }
    free(weights);
}
