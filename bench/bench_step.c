/* bench_step.c - what the step engine itself costs: 600 tensors of 1 KiB to 1 MiB (as many as DenseNet-201 has) over
 * shared memory, through gw_step and, in turns, the same bytes in the same pieces by all-reduces. A rank of a job:
 *
 *     gradwire run -n 2 --no-prefix -- bench/bench_step [STEPS [COMPUTE_MS]]
 *
 * A step hands over all gradients at once, ends, and waits for each tensor; with COMPUTE_MS the processor is kept busy
 * for so long between hand-overs, as a backward pass would. Printed by rank 0: medians; the engine's cost is the
 * processor time of the process beyond that of the plain all-reduces, and what calls cost that have nothing to do. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "gradwire.h"

#include "figures.h"

enum { TENSORS = 600, STEPS_MAX = 1000, CALLS = 1000000 };
#define FUSE (25 * 1000 * 1000)

typedef struct setup {
    gw_comm *comm;
    gw_step *step;
    gw_step_tensor tensors[TENSORS];
    char names[TENSORS][16];
    float *gradients;
    size_t count;
    double compute_ms;
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

static void compute(double ms) {
    gw_time until = gw_clock_now() + (gw_time)(ms * 1e6);
    while (ms > 0 && gw_clock_now() < until) {
    }
}

static void through_engine(setup *s) {
    for (int t = TENSORS - 1; t >= 0; t--) {
        compute(s->compute_ms / TENSORS);
        check(gw_step_ready(s->step, t), s->comm);
    }
    check(gw_step_end(s->step), s->comm);
    for (int t = 0; t < TENSORS; t++) check(gw_step_wait(s->step, t), s->comm);
}

/* The pieces that wfbp cuts: from the last tensor, closed before the one that would take it over FUSE. */
static void plainly(setup *s) {
    compute(s->compute_ms);
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

typedef struct spent {
    double clock_ms[STEPS_MAX], cpu_ms[STEPS_MAX];
} spent;

static void time_one(setup *s, void (*run)(setup *), spent *times, int i) {
    check(gw_barrier(s->comm), s->comm);
    double cpu = cpu_ms();
    gw_time begun = gw_clock_now();
    run(s);
    times->clock_ms[i] = (double)(gw_clock_now() - begun) / 1e6;
    times->cpu_ms[i] = cpu_ms() - cpu;
}

static double idle_call_ns(setup *s) {
    gw_time begun = gw_clock_now();
    for (int i = 0; i < CALLS; i++) check(gw_step_wait(s->step, i % TENSORS), s->comm);
    return (double)(gw_clock_now() - begun) / CALLS;
}

int main(int argc, char **argv) {
    static setup s;
    static spent engine, plain;
    int steps = argc > 1 ? atoi(argv[1]) : 40;
    if (steps < 1 || steps > STEPS_MAX) return 2;
    s.compute_ms = argc > 2 ? atof(argv[2]) : 0;
    check(gw_init(&s.comm, NULL), NULL);
    lay_out(&s);
    gw_step_options options = GW_STEP_OPTIONS_DEFAULT;
    options.strategy = "schedule=wfbp:fuse=25000000";
    options.tune = "off";
    check(gw_step_commit(&s.step, s.comm, s.tensors, TENSORS, &options), NULL);
    for (int i = 0; i < 3; i++) through_engine(&s), plainly(&s);
    for (int i = 0; i < steps; i++) {
        time_one(&s, plainly, &plain, i);
        time_one(&s, through_engine, &engine, i);
    }
    double idle = idle_call_ns(&s), step = median(engine.clock_ms, steps), alone = median(plain.clock_ms, steps);
    double cpu = median(engine.cpu_ms, steps), cpu_alone = median(plain.cpu_ms, steps);
    if (gw_rank(s.comm) == 0) {
        printf("%d tensors, %.1f MiB in %d pieces, %d ranks, medians of %d steps in turns\n", TENSORS,
               (double)s.count * sizeof(float) / 1048576, gw_step_count(s.step).pieces, gw_size(s.comm), steps);
        printf("step         %8.3f ms, plain all-reduces %8.3f ms: %+.2f %%\n", step, alone, (step / alone - 1) * 100);
        printf("processor    %8.3f ms, plain all-reduces %8.3f ms: %+.2f %% of the step\n", cpu, cpu_alone,
               (cpu - cpu_alone) / step * 100);
        printf("a call with nothing to do %8.1f ns\n", idle);
    }
    gw_step_close(s.step);
    gw_free(s.comm, s.gradients);
    gw_finalize(s.comm);
    return 0;
}
