/* program.c - uses every public struct: compiled against one version of the headers, run with the library of another.
 * */
#include <gradwire/reducer.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 1000, TENSORS = 3 };

static gw_comm *comm;

static void check(int right, const char *what) {
    if (right) return;
    printf("rank %d: %s: %s\n", comm ? gw_rank(comm) : -1, what, gw_last_error(comm));
    exit(1);
}

static void reduce_calls(void) {
    float in[COUNT], out[COUNT];
    gw_call call = GW_CALL_DEFAULT;
    for (int i = 0; i < COUNT; i++) in[i] = (float)(i + gw_rank(comm));
    call.in = in, call.out = out, call.count = COUNT, call.deadline_s = 10;
    check(gw_run(comm, &call) == GW_OK, "gw_run");
    int size = gw_size(comm);
    for (int i = 0; i < COUNT; i++) check(out[i] == (float)(size * i + size * (size - 1) / 2), "a sum");
}

static void train(void) {
    static float gradients[TENSORS][COUNT];
    gw_reducer *reducer = NULL;
    gw_reducer_tensor tensors[TENSORS];
    gw_reducer_options options = GW_REDUCER_OPTIONS_DEFAULT;
    static const char *const names[TENSORS] = {"a", "b", "c"};
    memset(tensors, 0, sizeof tensors);
    for (int t = 0; t < TENSORS; t++) {
        tensors[t].name = names[t], tensors[t].count = COUNT, tensors[t].gradient = gradients[t];
        for (int i = 0; i < COUNT; i++) gradients[t][i] = (float)(t + gw_rank(comm));
    }
    options.op = GW_SUM;
    check(gw_reducer_commit(&reducer, comm, tensors, TENSORS, &options) == GW_OK, "gw_reducer_commit");
    for (int t = TENSORS - 1; t >= 0; t--) check(gw_reducer_ready(reducer, t) == GW_OK, "gw_reducer_ready");
    check(gw_reducer_end(reducer) == GW_OK, "gw_reducer_end");
    int size = gw_size(comm);
    for (int t = 0; t < TENSORS; t++) {
        check(gw_reducer_wait(reducer, t) == GW_OK, "gw_reducer_wait");
        check(gradients[t][7] == (float)(size * t + size * (size - 1) / 2), "a gradient");
    }
    check(gw_reducer_read_counters(reducer).steps == 1, "the counters");
    gw_reducer_worker_stats stats[16];
    check(gw_reducer_workers(reducer, stats) == GW_OK && stats[size - 1].pushes == 0, "gw_reducer_workers");
    gw_reducer_close(reducer);
}

int main(void) {
    gw_options options = GW_OPTIONS_DEFAULT;
    options.deadline_s = 20;
    if (gw_init(&comm, &options) != GW_OK) {
        comm = NULL;
        printf("%s\n", gw_last_error(NULL));
        return 3;
    }
    reduce_calls();
    train();
    printf("rank %d: compiled against %d, runs with %d\n", gw_rank(comm), GW_VERSION_NUMBER, gw_version_number());
    return gw_finalize(comm) != GW_OK;
}
