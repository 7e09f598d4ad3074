/* Parameter servers: no worker waits for another one. Each worker pushes its gradient, a server updates with it when it
 * arrives, and the worker gets the weights of that moment. Run it with
 *
 *     gradwire run -n 3 --servers 1 -- ./servers       one server process
 *     gradwire run -n 3 -- ./servers                   the server is a thread beside rank 0 */
#include <gradwire/reducer.h>
#include <stdio.h>

enum { COUNT = 1000, STEPS = 300 };

/* Plain SGD. rate_scale is one over the number of workers, because each of their gradients makes an update. */
static void sgd(void *ctx, const gw_reducer_update *u) {
    float *weight = u->weights, rate = 0.1f * (float)u->rate_scale;
    const float *gradient = u->gradient;
    (void)ctx;
    for (size_t i = 0; i < u->count; i++) weight[i] -= rate * (float)u->scale * gradient[i];
}

/* The workers want different weights; the best for all of them together is the mean of their numbers. */
static gw_status train(gw_reducer *reducer, int rank, const float *weights, float *gradient) {
    gw_status status = GW_OK;
    for (int step = 0; step < STEPS && !status; step++) {
        status = gw_reducer_wait(reducer, 0);
        for (int i = 0; i < COUNT && !status; i++) gradient[i] = weights[i] - (float)rank;
        if (!status) status = gw_reducer_ready(reducer, 0);
        if (!status) status = gw_reducer_end(reducer);
    }
    if (!status) status = gw_reducer_flush(reducer);
    return status ? status : gw_reducer_leave(reducer); /* others may still need the server of this rank */
}

int main(void) {
    static float weights[COUNT], gradient[COUNT];
    gw_comm *comm;
    gw_reducer *reducer = NULL;
    gw_reducer_tensor tensor = {.name = "weights", .count = COUNT, .gradient = gradient, .weights = weights};
    gw_reducer_options options = GW_REDUCER_OPTIONS_DEFAULT;
    options.strategy = "arch=ps sync=ssp:staleness=4"; /* nobody is more than four steps ahead of the slowest */
    options.update = sgd;
    if (gw_init(&comm, NULL) != GW_OK) return fprintf(stderr, "%s\n", gw_last_error(NULL)), 1;
    gw_status status = gw_reducer_commit(&reducer, comm, &tensor, 1, &options);
    if (!status) status = train(reducer, gw_rank(comm), weights, gradient);
    if (status) return fprintf(stderr, "%s\n", gw_last_error(comm)), 1;
    printf("rank %d of %d: the weights are about %.0f\n", gw_rank(comm), gw_size(comm), weights[0]);
    gw_reducer_close(reducer);
    return gw_finalize(comm) != GW_OK;
}
