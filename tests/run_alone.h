/* run_alone.h - one collective on the virtual clock, for tests of the simulator by sizes. */
#ifndef GW_TEST_RUN_ALONE_H
#define GW_TEST_RUN_ALONE_H

#include <math.h>

#include "sim/plan_sim.h"
#include "test.h"

#define ALPHA 50e-6
#define BETA 8e-10 /* 10 Gbit/s */

typedef struct alone {
    gw_fabric fabric;
    gw_plan_sim_config config;
    int *hosts;
    /* Results: when the first and the last rank were done, the time breakdown, and the bytes sent. */
    int finished;
    double first, last, bytes;
    gw_time_breakdown path;
    uint64_t messages;
    gw_plan_sim *sim;
} alone;

static inline void alone_done(void *ctx, int rank, int tag) {
    alone *a = ctx;
    (void)rank;
    (void)tag;
    double now = gw_plan_sim_now(a->sim);
    if (!a->finished++) a->first = now;
    if (now >= a->last) a->path = *gw_plan_sim_path(a->sim);
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
    a.config = (gw_plan_sim_config){.topology = {.world = hosts * locals, .host_of = a.hosts}, .done = alone_done};
    return a;
}

static inline void alone_start(alone *a, const gw_plan_sim_spec *spec) {
    gw_error error = {.rank = -1};
    gw_plan_sim_op *op = NULL;
    int members = spec->team ? spec->team->topology.world : a->config.topology.world;
    CHECK_EQ(GW_OK, gw_plan_sim_prepare(a->sim, spec, &op, &error));
    for (int m = 0; op && m < members; m++)
        if ((spec->team ? spec->team->ranks[m] : m) < gw_plan_sim_ranks(a->sim)) gw_plan_sim_start(a->sim, op, m);
}

/* Runs collectives from time 0, each rank being in one of them; the results are in *a. */
static inline void alone_run_teams(alone *a, const gw_plan_sim_spec *specs, int count) {
    gw_error error = {.rank = -1};
    a->config.fabric = &a->fabric;
    a->config.ctx = a;
    a->finished = 0;
    a->first = a->last = 0;
    CHECK_EQ(GW_OK, gw_plan_sim_open(&a->sim, &a->config, &error));
    for (int i = 0; i < count; i++) alone_start(a, &specs[i]);
    while (gw_plan_sim_run_next(a->sim, &error)) continue;
    CHECK_STR("", error.text);
    CHECK_EQ(gw_plan_sim_ranks(a->sim), a->finished);
    a->bytes = gw_plan_sim_bytes(a->sim);
    a->messages = gw_plan_sim_messages(a->sim);
    gw_plan_sim_close(a->sim);
    a->sim = NULL;
}

static inline void alone_run(alone *a, const gw_plan_sim_spec *spec) { alone_run_teams(a, spec, 1); }

static inline void alone_free(alone *a) { free(a->hosts); }

static inline bool near(double expected, double actual, double tolerance) {
    bool good = fabs(actual - expected) <= tolerance * fabs(expected);
    if (!good) printf("    %.17g is not %.17g\n", actual, expected);
    return good;
}

#endif
