/* Training steps with an optimiser: each rank computes the gradients of its part of the data, and the reducer applies
 * SGD with momentum to their mean. The ranks learn the line y = 3 x + 1. */
#include <gradwire/reducer.h>
#include <stdio.h>

enum { SLOPE, OFFSET, TENSORS, STEPS = 200 };

static float weights[TENSORS], gradients[TENSORS], velocity[TENSORS];

/* Called by the library's thread when the mean of a gradient has arrived. */
static void sgd(void *ctx, const gw_reducer_update *u) {
    float *weight = u->weights, *momentum = velocity + u->tensor;
    const float *gradient = u->gradient;
    (void)ctx;
    for (size_t i = 0; i < u->count; i++) { /* a tensor has one element here */
        momentum[i] = 0.9f * momentum[i] + (float)u->scale * gradient[i];
        weight[i] -= 0.02f * momentum[i];
    }
}

/* Mean squared error over four points that no other rank has. */
static void backward(int rank) {
    gradients[SLOPE] = gradients[OFFSET] = 0;
    for (int i = 0; i < 4; i++) {
        float x = (float)(rank + i) / 4, error = weights[SLOPE] * x + weights[OFFSET] - (3 * x + 1);
        gradients[SLOPE] += error * x / 2;
        gradients[OFFSET] += error / 2;
    }
}

static gw_status train(gw_reducer *reducer, int rank) {
    gw_status status = GW_OK;
    for (int step = 0; step < STEPS && !status; step++) {
        for (int t = 0; t < TENSORS && !status; t++) status = gw_reducer_wait(reducer, t); /* before weights are used */
        if (!status) backward(rank);
        for (int t = TENSORS - 1; t >= 0 && !status; t--) status = gw_reducer_ready(reducer, t);
        if (!status) status = gw_reducer_end(reducer);
    }
    return status ? status : gw_reducer_flush(reducer);
}

int main(void) {
    gw_comm *comm;
    gw_reducer *reducer = NULL;
    gw_reducer_tensor tensors[TENSORS] = {
        [SLOPE] = {.name = "slope", .count = 1, .gradient = &gradients[SLOPE], .weights = &weights[SLOPE]},
        [OFFSET] = {.name = "offset", .count = 1, .gradient = &gradients[OFFSET], .weights = &weights[OFFSET]},
    };
    gw_reducer_options options = GW_REDUCER_OPTIONS_DEFAULT;
    options.update = sgd;
    if (gw_init(&comm, NULL) != GW_OK) return fprintf(stderr, "%s\n", gw_last_error(NULL)), 1;
    gw_status status = gw_reducer_commit(&reducer, comm, tensors, TENSORS, &options);
    if (!status) status = train(reducer, gw_rank(comm));
    if (status) return fprintf(stderr, "%s\n", gw_last_error(comm)), 1;
    printf("rank %d of %d: y = %.2f x + %.2f\n", gw_rank(comm), gw_size(comm), weights[SLOPE], weights[OFFSET]);
    gw_reducer_close(reducer);
    return gw_finalize(comm) != GW_OK;
}
