/* bench_train_trace.c - the cost of recording a timeline and a capture in a training step. A rank of a job:
 *
 *     gradwire run -n 2 --no-prefix -- bench/bench_train_trace [PAIRS [STRATEGY]]
 *
 * The same job trains in short blocks, recorded and not in turns, so that noise hits both alike. Rank 0 prints medians
 * over the blocks, of the clock and of the processor time of its process, the recording's own thread included; the cost
 * is the median over neighbouring blocks. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "gradwire/trace.h"
#include "train/trainer.h"

#include "figures.h"

enum { BLOCK = 8, PAIRS_MAX = 1000 };

static void check(gw_status status, const char *text) {
    if (status == GW_OK) return;
    fprintf(stderr, "bench_train_trace: %s\n", text);
    exit(1);
}

typedef struct cost {
    double clock_ms, cpu_ms; /* of a step */
} cost;

/* Ends of a recording are not part of it: they happen once. What its thread still has to write is. */
static cost run_block(gw_comm *comm, gw_trainer *trainer, bool recorded) {
    gw_error error = {0};
    char timeline[64], capture[64];
    snprintf(timeline, sizeof timeline, "/tmp/bench_train_trace.%d.json", (int)getppid());
    snprintf(capture, sizeof capture, "/tmp/bench_train_trace.%d.gwt", (int)getppid());
    if (recorded) check(gw_trace_start(comm, timeline, capture), gw_last_error(comm));
    check(gw_trainer_step(trainer, &error), error.text);
    check(gw_barrier(comm), gw_last_error(comm));
    gw_time begun = gw_clock_now();
    double cpu = cpu_ms();
    for (int i = 0; i < BLOCK; i++) check(gw_trainer_step(trainer, &error), error.text);
    cost spent = {.clock_ms = (double)(gw_clock_now() - begun) / 1e6 / BLOCK};
    if (recorded) check(gw_trace_stop(comm), gw_last_error(comm));
    spent.cpu_ms = (cpu_ms() - cpu) / BLOCK;
    unlink(timeline);
    unlink(capture);
    check(gw_barrier(comm), gw_last_error(comm));
    return spent;
}

int main(int argc, char **argv) {
    static double clock_off[PAIRS_MAX], clock_on[PAIRS_MAX], cpu_off[PAIRS_MAX], cpu_on[PAIRS_MAX];
    static double clock_cost[PAIRS_MAX], cpu_cost[PAIRS_MAX];
    int pairs = argc > 1 ? atoi(argv[1]) : 30;
    gw_options options = GW_OPTIONS_DEFAULT;
    gw_error error = {0};
    gw_comm *comm = NULL;
    gw_trainer *trainer = NULL;
    if (pairs < 1 || pairs > PAIRS_MAX) pairs = 30;
    if (argc > 2) options.strategy = argv[2];
    check(gw_init(&comm, &options), gw_last_error(NULL));
    gw_train_settings settings = {.model = "cnn", .data = "synthetic:count=20000,height=28,width=28", .batch = 128,
                                  .accumulate = 1, .epochs = 1000, .optimiser = &gw_sgd, .tuning = gw_sgd.defaults,
                                  .rate = 0.01, .seed = 1};
    check(gw_trainer_create(comm, &settings, &trainer, &error), error.text);
    run_block(comm, trainer, false);
    for (int i = 0; i < pairs; i++) {
        cost off = run_block(comm, trainer, false), on = run_block(comm, trainer, true);
        clock_off[i] = off.clock_ms;
        clock_on[i] = on.clock_ms;
        cpu_off[i] = off.cpu_ms;
        cpu_on[i] = on.cpu_ms;
        clock_cost[i] = 100 * (on.clock_ms / off.clock_ms - 1);
        cpu_cost[i] = 100 * (on.cpu_ms / off.cpu_ms - 1);
    }
    if (gw_rank(comm) == 0)
        printf("a step of the cnn on %d ranks, %d pairs of %d steps: clock %.2f ms, recorded %.2f ms, cost %+.2f %%; "
               "processor %.2f ms, recorded %.2f ms, cost %+.2f %%\n",
               gw_size(comm), pairs, BLOCK, median(clock_off, pairs), median(clock_on, pairs),
               median(clock_cost, pairs), median(cpu_off, pairs), median(cpu_on, pairs), median(cpu_cost, pairs));
    gw_trainer_destroy(trainer);
    gw_finalize(comm);
    return 0;
}
