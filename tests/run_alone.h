/* run_alone.h - one collective on the virtual clock, for tests of the simulator by sizes. */
#ifndef GW_TEST_RUN_ALONE_H
#define GW_TEST_RUN_ALONE_H

#include <math.h>

#include "sim/run.h"
#include "test.h"

#define ALPHA 50e-6
#define BETA 8e-10 /* 10 Gbit/s */

typedef struct alone {
    gw_fabric fabric;
    gw_run_config config;
    int *hosts;
    /* What came out: when the first and the last rank were done, what it consisted of, and what was sent. */
    int finished;
    double first, last, bytes;
    gw_path path;
    uint64_t messages;
    gw_run *run;
} alone;

static inline void alone_done(void *ctx, int rank, int tag) {
    alone *a = ctx;
    (void)rank;
    (void)tag;
    double now = gw_run_now(a->run);
    if (!a->finished++) a->first = now;
    if (now >= a->last) a->path = *gw_run_path(a->run);
    if (now > a->last) a->last = now;
}

/* hosts of `locals` ranks each, in the topology that text says. */
static inline alone alone_make(const char *text, int hosts, int locals) {
    alone a = {.fabric = {.rate = 1 / BETA, .latency = ALPHA, .memory_rate = 1e10, .memory_latency = 1e-6}};
    gw_error error = {.rank = -1};
    gw_fabric_spec spec = {.kind = GW_FABRIC_SWITCH, .sides = {1, 1, 1}};
    CHECK_EQ(GW_OK, gw_fabric_parse(text, &spec, &error));
    CHECK_EQ(GW_OK, gw_fabric_make(&a.fabric, &spec, hosts, &error));
    a.hosts = calloc((size_t)(hosts * locals), sizeof *a.hosts);
    for (int r = 0; r < hosts * locals; r++) a.hosts[r] = r / locals;
    a.config = (gw_run_config){.topology = {.world = hosts * locals, .host_of = a.hosts}, .done = alone_done};
    return a;
}

/* Runs it from time 0 on all ranks; what came out is in *a. */
static inline void alone_run(alone *a, const gw_run_spec *spec) {
    gw_error error = {.rank = -1};
    gw_run_op *op = NULL;
    a->config.fabric = &a->fabric;
    a->config.ctx = a;
    a->finished = 0;
    a->first = a->last = 0;
    CHECK_EQ(GW_OK, gw_run_open(&a->run, &a->config, &error));
    CHECK_EQ(GW_OK, gw_run_prepare(a->run, spec, &op, &error));
    if (op)
        for (int r = 0; r < gw_run_ranks(a->run); r++) gw_run_start(a->run, op, r);
    while (gw_run_moment(a->run, &error)) continue;
    CHECK_STR("", error.text);
    CHECK_EQ(gw_run_ranks(a->run), a->finished);
    a->bytes = gw_run_bytes(a->run);
    a->messages = gw_run_messages(a->run);
    gw_run_close(a->run);
    a->run = NULL;
}

static inline void alone_free(alone *a) { free(a->hosts); }

static inline bool near(double expected, double actual, double tolerance) {
    bool good = fabs(actual - expected) <= tolerance * fabs(expected);
    if (!good) printf("    %.17g is not %.17g\n", actual, expected);
    return good;
}

#endif
