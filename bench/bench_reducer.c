/* bench_reducer.c - the cost of the step engine: 600 tensors of 1 KiB to 1 MiB (as many as DenseNet-201 has) over
 * shared memory, through gw_reducer and, in turns, the same bytes in the same buckets by all-reduces. A rank of a job:
 *
 *     gradwire run -n 2 --no-prefix -- bench/bench_reducer [STEPS [COMPUTE_MS]]
 *
 * A step hands over all gradients, ends, and waits for each tensor. With COMPUTE_MS there is so much arithmetic between
 * the hand-overs, as in a backward pass: a fixed amount, so that a step takes longer if the engine uses the core. The
 * comparison is the same arithmetic followed by the all-reduces. Where every core computes, nothing can be hidden, and
 * the cost of the engine is the difference: in time, and in processor time of all threads. Rank 0 prints medians, and
 * the cost of calls that have nothing to do. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "gradwire/reducer.h"

#include "figures.h"

enum { TENSORS = 600, STEPS_MAX = 1000, CALLS = 1000000 };
#define FUSE (25 * 1000 * 1000)

typedef struct setup {
    gw_comm *comm;
    gw_reducer *reducer;
    gw_reducer_tensor tensors[TENSORS];
    char names[TENSORS][16];
    float *gradients;
    size_t count;
    long rounds; /* of arithmetic in a step */
} setup;

static void check(gw_status status, const gw_comm *comm) {
    if (status == GW_OK) return;
    fprintf(stderr, "bench_step: %s\n", gw_last_error(comm));
    exit(1);
}

/* Evenly over the logarithms of 1 KiB to 1 MiB, large and small mixed. */
static void lay_out(setup *s) {
    size_t at = 0;
    for (int i = 0; i < TENSORS; i++) {
        s->tensors[i].count = (size_t)(256 * pow(1024, (double)(i * 7 % TENSORS) / (TENSORS - 1)));
        s->count += s->tensors[i].count;
    }
    s->gradients = gw_alloc(s->comm, s->count * sizeof(float));
    if (!s->gradients) check(GW_MEMORY, NULL);
    for (size_t i = 0; i < s->count; i++) s->gradients[i] = 1;
    for (int i = 0; i < TENSORS; i++) {
        snprintf(s->names[i], sizeof s->names[i], "t%d", i);
        s->tensors[i].name = s->names[i];
        s->tensors[i].dtype = GW_F32;
        s->tensors[i].gradient = s->gradients + at;
        at += s->tensors[i].count;
    }
}

/* A round is about a tenth of a microsecond in the first cache. */
__attribute__((noinline)) static void compute(long rounds) {
    static float values[1024];
    for (long r = 0; r < rounds; r++) {
        for (int i = 0; i < 1024; i++) values[i] = values[i] * 0.999f + 0.001f;
        __asm__ volatile("" ::: "memory");
    }
}

/* How many rounds take so long; the same on all ranks, which look at the same time. */
static void calibrate(setup *s, double ms) {
    enum { LOOKS = 21, ROUNDS = 20000 };
    double took[LOOKS];
    for (int i = 0; i < LOOKS; i++) {
        check(gw_barrier(s->comm), s->comm);
        gw_time begun = gw_clock_now();
        compute(ROUNDS);
        took[i] = (double)(gw_clock_now() - begun) / 1e6;
    }
    double each = median(took, LOOKS) / ROUNDS;
    check(gw_allreduce(s->comm, &each, &each, 1, GW_F64, GW_AVG), s->comm);
    s->rounds = (long)(ms / each);
}

static void through_engine(setup *s) {
    for (int t = TENSORS - 1; t >= 0; t--) {
        compute(s->rounds / TENSORS);
        check(gw_reducer_ready(s->reducer, t), s->comm);
    }
    check(gw_reducer_end(s->reducer), s->comm);
    for (int t = 0; t < TENSORS; t++) check(gw_reducer_wait(s->reducer, t), s->comm);
}

/* The buckets of wfbp: from the last tensor, closed before the tensor that would exceed FUSE. */
static void plainly(setup *s) {
    compute(s->rounds / TENSORS * TENSORS);
    for (int end = TENSORS; end > 0;) {
        int first = end - 1;
        size_t count = s->tensors[first].count;
        while (first > 0 && (count + s->tensors[first - 1].count) * sizeof(float) <= FUSE)
            count += s->tensors[--first].count;
        float *at = s->tensors[first].gradient;
        check(gw_allreduce(s->comm, at, at, count, GW_F32, GW_AVG), s->comm);
        end = first;
    }
}

/* Milliseconds of each step. */
typedef struct spent {
    double clock[STEPS_MAX], cpu[STEPS_MAX];
} spent;

static void time_one(setup *s, void (*run)(setup *), spent *times, int i) {
    check(gw_barrier(s->comm), s->comm);
    double cpu = cpu_ms();
    gw_time begun = gw_clock_now();
    run(s);
    times->clock[i] = (double)(gw_clock_now() - begun) / 1e6;
    times->cpu[i] = cpu_ms() - cpu;
}

/* Differences of neighbours in time, because the machine's speed varies more than they do; the cores' speeds too, so
 * over all ranks. Sorts the times. */
static void compare(setup *s, const char *what, double *engine, double *plain, int steps) {
    double more[STEPS_MAX];
    check(gw_allreduce(s->comm, engine, engine, (size_t)steps, GW_F64, GW_AVG), s->comm);
    check(gw_allreduce(s->comm, plain, plain, (size_t)steps, GW_F64, GW_AVG), s->comm);
    for (int i = 0; i < steps; i++) more[i] = engine[i] - plain[i];
    double step = median(engine, steps), cost = median(more, steps);
    if (gw_rank(s->comm) > 0) return;
    printf("%-10s %8.3f ms a step, %8.3f ms without the engine, which costs %+6.3f ms, %+.2f %%\n", what, step,
           median(plain, steps), cost, cost / step * 100);
}

static double idle_call_ns(setup *s) {
    gw_time begun = gw_clock_now();
    for (int i = 0; i < CALLS; i++) check(gw_reducer_wait(s->reducer, i % TENSORS), s->comm);
    return (double)(gw_clock_now() - begun) / CALLS;
}

int main(int argc, char **argv) {
    static setup s;
    static spent engine, plain;
    int steps = argc > 1 ? atoi(argv[1]) : 40;
    if (steps < 1 || steps > STEPS_MAX) return 2;
    check(gw_init(&s.comm, NULL), NULL);
    calibrate(&s, argc > 2 ? atof(argv[2]) : 0);
    lay_out(&s);
    gw_reducer_options options = GW_REDUCER_OPTIONS_DEFAULT;
    options.strategy = "schedule=wfbp:fuse=25000000";
    options.tune = "off";
    check(gw_reducer_commit(&s.reducer, s.comm, s.tensors, TENSORS, &options), NULL);
    for (int i = 0; i < 3; i++) through_engine(&s), plainly(&s);
    for (int i = 0; i < steps; i++) {
        if (i % 2) time_one(&s, plainly, &plain, i), time_one(&s, through_engine, &engine, i);
        else time_one(&s, through_engine, &engine, i), time_one(&s, plainly, &plain, i);
    }
    if (gw_rank(s.comm) == 0)
        printf("%d tensors, %.1f MiB in %d pieces, %d ranks, medians of %d steps in turns\n", TENSORS,
               (double)s.count * sizeof(float) / 1048576, gw_reducer_read_counters(s.reducer).buckets, gw_size(s.comm),
               steps);
    compare(&s, "time", engine.clock, plain.clock, steps);
    compare(&s, "processor", engine.cpu, plain.cpu, steps);
    double idle = idle_call_ns(&s);
    if (gw_rank(s.comm) == 0) printf("a call with nothing to do %8.1f ns\n", idle);
    gw_reducer_close(s.reducer);
    gw_free(s.comm, s.gradients);
    gw_finalize(s.comm);
    return 0;
}
