/* Training goes on when a rank is lost: the others come together again. Run it with
 *
 *     gradwire run -n 3 --elastic -- ./lost_rank                  without the rank that was lost
 *     gradwire run -n 3 --restarts 1 -- ./lost_rank               the launcher starts it again
 *     gradwire run -n 3 --elastic -- ./lost_rank arch=ps:replicas=1 sync=asp
 *
 * With the word `die` first, rank 1 is killed in the middle of it. */
#include <gradwire/reducer.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STEPS = 60, COUNT = 8 };

static float weights[COUNT], gradient[COUNT];
static bool dies;

static void sgd(void *ctx, const gw_reducer_update *u) {
    float *weight = u->weights, rate = 0.1f * (float)u->rate_scale;
    const float *g = u->gradient;
    (void)ctx;
    for (size_t i = 0; i < u->count; i++) weight[i] -= rate * (float)u->scale * g[i];
}

/* After a failure: the ranks that are left, and those that were started again; the reducer goes on over them. */
static bool go_on(gw_comm **comm, gw_reducer *reducer) {
    gw_comm *next = NULL, *old = *comm;
    if (gw_regroup(old, &next) != GW_OK) return false; /* or gw_shrink, without gradwire run; gw_last_error says why */
    *comm = next;
    gw_status moved = gw_reducer_resume(reducer, next);
    gw_finalize(old);
    return moved == GW_OK || moved == GW_PEER_LOST; /* another one was lost meanwhile: the next call fails too */
}

static void backward(uint64_t step) {
    if (dies && step == STEPS / 2) raise(SIGKILL);
    for (int i = 0; i < COUNT; i++) gradient[i] = weights[i] - (float)i;
}

static gw_status one_step(gw_reducer *reducer, uint64_t step) {
    gw_status status = gw_reducer_wait(reducer, 0);
    if (!status) backward(step);
    if (!status) status = gw_reducer_ready(reducer, 0);
    return status ? status : gw_reducer_end(reducer);
}

/* Without servers the interrupted step is over: all ranks hold the same weights, and go on with the same step. */
static bool train(gw_comm **comm, gw_reducer *reducer) {
    uint64_t step = gw_reducer_read_counters(reducer).step;
    while (step < STEPS) {
        if (one_step(reducer, step) == GW_OK) {
            step++;
            continue;
        }
        if (!go_on(comm, reducer)) return false;
        step = gw_reducer_read_counters(reducer).step; /* the number of the next step, the same on all ranks */
    }
    return gw_reducer_flush(reducer) == GW_OK;
}

/* Over servers the interrupted step goes on: the call that failed is made again. */
static bool train_over_servers(gw_comm **comm, gw_reducer *reducer) {
    for (uint64_t step = gw_reducer_read_counters(reducer).step; step < STEPS; step++) {
        while (gw_reducer_wait(reducer, 0) != GW_OK)
            if (!go_on(comm, reducer)) return false;
        backward(step);
        while (gw_reducer_ready(reducer, 0) != GW_OK)
            if (!go_on(comm, reducer)) return false;
        while (gw_reducer_end(reducer) != GW_OK)
            if (!go_on(comm, reducer)) return false;
    }
    while (gw_reducer_flush(reducer) != GW_OK || gw_reducer_leave(reducer) != GW_OK)
        if (!go_on(comm, reducer)) return false;
    return true;
}

int main(int argc, char **argv) {
    char line[256] = "";
    gw_comm *comm;
    gw_reducer *reducer = NULL;
    gw_reducer_tensor tensor = {.name = "weights", .count = COUNT, .gradient = gradient, .weights = weights};
    gw_reducer_options options = GW_REDUCER_OPTIONS_DEFAULT;
    bool asked = argc > 1 && strcmp(argv[1], "die") == 0;
    for (int i = 1 + asked; i < argc; i++) snprintf(line + strlen(line), sizeof line - strlen(line), "%s ", argv[i]);
    options.strategy = line;
    options.update = sgd;
    if (gw_init(&comm, NULL) != GW_OK) return fprintf(stderr, "%s\n", gw_last_error(NULL)), 1;
    dies = asked && gw_rank(comm) == 1 && gw_generation(comm) == 0;
    if (gw_reducer_commit(&reducer, comm, &tensor, 1, &options) != GW_OK)
        return fprintf(stderr, "%s\n", gw_last_error(comm)), 1;
    bool done = gw_reducer_has_servers(reducer) ? train_over_servers(&comm, reducer) : train(&comm, reducer);
    if (!done) return fprintf(stderr, "%s\n", gw_last_error(comm)), 1;
    printf("member %d of %d ranks: the weights go from %.1f to %.1f\n", gw_member_id(comm), gw_size(comm), weights[0],
           weights[COUNT - 1]);
    gw_reducer_close(reducer);
    return gw_finalize(comm) != GW_OK;
}
