/* bench_rank.c - one rank of gradwire as the measured library: controlled by the driver, or in a job without a driver,
 * where all ranks go through the same sizes by themselves. See bench.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench/bench.h"
#include "cli/common/args.h"
#include "gradwire/coded.h"

static void *allocate(void *comm, size_t bytes) { return gw_alloc(comm, bytes); }

static void release(void *comm, void *memory) { gw_free(comm, memory); }

static bool enlist(void *comm, void *memory, size_t bytes) { return gw_register(comm, memory, bytes) == GW_OK; }

static void delist(void *comm, void *memory) { gw_unregister(comm, memory); }

static gw_status call(void *ctx, const gw_bench_case *c, const gw_bench_buffers *b, gw_error *error) {
    gw_comm *comm = ctx;
    gw_status status = GW_INVALID;
    switch (c->collective) {
    case GW_COLL_ALLREDUCE: status = gw_allreduce(comm, b->in, b->out, c->count, c->dtype, c->op); break;
    case GW_COLL_REDUCE: status = gw_reduce(comm, b->in, b->out, c->count, c->dtype, c->op, c->root); break;
    case GW_COLL_BROADCAST: status = gw_broadcast(comm, b->in, b->out, c->count, c->dtype, c->root); break;
    case GW_COLL_REDUCE_SCATTER: status = gw_reduce_scatter(comm, b->in, b->out, c->count, c->dtype, c->op); break;
    case GW_COLL_ALLGATHER: status = gw_allgather(comm, b->in, b->out, c->count, c->dtype); break;
    case GW_COLL_GATHER: status = gw_gather(comm, b->in, b->out, c->count, c->dtype, c->root); break;
    case GW_COLL_SCATTER: status = gw_scatter(comm, b->in, b->out, c->count, c->dtype, c->root); break;
    case GW_COLL_ALLTOALL: status = gw_alltoall(comm, b->in, b->out, c->count, c->dtype); break;
    case GW_COLL_BARRIER: status = gw_barrier(comm); break;
    default: break;
    }
    return status ? gw_fail(error, status, "%s", gw_last_error(comm)) : GW_OK;
}

static gw_status barrier(void *comm, gw_error *error) {
    gw_status status = gw_barrier(comm);
    return status ? gw_fail(error, status, "%s", gw_last_error(comm)) : GW_OK;
}

static const gw_bench_library gradwire = {
    .allocate = allocate, .release = release, .enlist = enlist, .delist = delist, .call = call};

/* ---- the memory bound ---- */

typedef float floats __attribute__((vector_size(32), aligned(4), may_alias));

/* The least memory traffic of an in-place all-reduce: each rank reads its buffer and writes it. */
static gw_status bound_call(void *ctx, const gw_bench_case *c, const gw_bench_buffers *b, gw_error *error) {
    (void)ctx;
    (void)error;
    float *values = b->out;
    size_t whole = c->count / 8;
    for (size_t i = 0; i < whole; i++) *(floats *)(values + 8 * i) = -*(floats *)(values + 8 * i);
    for (size_t i = 8 * whole; i < c->count; i++) values[i] = -values[i];
    return GW_OK;
}

static const gw_bench_library memory_bound = {.allocate = allocate, .release = release, .enlist = enlist,
                                              .delist = delist, .call = bound_call, .bound = true};

/* ---- compressed ---- */

typedef struct coded {
    gw_comm *comm;
    char strategy[256];   /* the codec of it; the job's strategy has the rest */
    gw_coded *collective; /* for `count` elements; NULL: none yet */
    size_t count;
} coded;

static void *coded_allocate(void *ctx, size_t bytes) { return gw_alloc(((coded *)ctx)->comm, bytes); }

static void coded_release(void *ctx, void *memory) { gw_free(((coded *)ctx)->comm, memory); }

static bool coded_enlist(void *ctx, void *memory, size_t bytes) {
    return gw_register(((coded *)ctx)->comm, memory, bytes) == GW_OK;
}

static void coded_delist(void *ctx, void *memory) { gw_unregister(((coded *)ctx)->comm, memory); }

static gw_status coded_open(coded *x, size_t count) {
    gw_coded_options options = GW_CODED_OPTIONS_DEFAULT;
    options.strategy = x->strategy;
    options.name = "bench";
    options.count = x->count = count;
    options.columns = count % 1024 == 0 ? 1024 : count;
    options.op = GW_SUM;
    gw_coded_close(x->collective);
    return gw_coded_open(&x->collective, x->comm, &options);
}

static gw_status coded_call(void *ctx, const gw_bench_case *c, const gw_bench_buffers *b, gw_error *error) {
    coded *x = ctx;
    gw_status status = !x->collective || x->count != c->count ? coded_open(x, c->count) : GW_OK;
    if (!status) status = gw_coded_run(x->collective, b->in, b->out);
    return status ? gw_fail(error, status, "%s", gw_last_error(x->comm)) : GW_OK;
}

static const gw_bench_library gradwire_coded = {.allocate = coded_allocate, .release = coded_release,
                                                .enlist = coded_enlist, .delist = coded_delist, .call = coded_call,
                                                .lossy = true};

static int complain(const char *text) {
    fprintf(stderr, "gradwire bench: %s\n", text);
    return GW_EXIT_FAILED;
}

int gw_bench_serve(const char *directory) {
    gw_comm *comm;
    gw_error error = {0};
    if (gw_init(&comm, NULL)) return complain(gw_last_error(NULL));
    const char *codec = getenv(GW_BENCH_COMPRESS);
    coded x = {.comm = comm};
    snprintf(x.strategy, sizeof x.strategy, "compress=%s", codec ? codec : "none");
    const gw_bench_library *library = getenv(GW_BENCH_BOUND) ? &memory_bound : codec ? &gradwire_coded : &gradwire;
    gw_status status =
        gw_side_channel_run(directory, library, codec ? (void *)&x : comm, gw_rank(comm), gw_size(comm), &error);
    gw_coded_close(x.collective);
    gw_finalize(comm);
    return status ? GW_EXIT_FAILED : 0; /* the driver knows the reason */
}

/* ---- without a driver ---- */

typedef struct alone {
    const gw_bench_settings *settings;
    gw_comm *comm;
    gw_bench_rank rank;
    gw_bench_job who;
    gw_report *report; /* rank 0 only */
} alone;

/* Replaces each time by that of the slowest rank, and the tally by that of all ranks. */
static gw_status combine(alone *a, uint64_t *times, int calls, gw_bench_tally *tally, gw_error *error) {
    gw_status status = gw_allreduce(a->comm, times, times, (size_t)calls, GW_I64, GW_MAX);
    if (!status) status = gw_allreduce(a->comm, tally, tally, sizeof *tally / 8, GW_I64, GW_SUM);
    return status ? gw_fail(error, status, "%s", gw_last_error(a->comm)) : GW_OK;
}

static gw_status one_size(alone *a, const gw_bench_case *c, gw_error *error) {
    gw_bench_case first = *c, rest = *c;
    gw_bench_work *work = NULL;
    uint64_t times[GW_BENCH_CALLS_MAX];
    gw_bench_tally warm = {0}, tally = {0};
    first.warmup = a->settings->warmup ? (int)a->settings->warmup : 5;
    first.calls = 3;
    gw_status status = gw_bench_open(&work, &a->rank, c, error);
    if (!status) status = gw_bench_measure(work, &first, times, &warm, error);
    if (!status) status = combine(a, times, 3, &warm, error);
    rest.calls = gw_bench_calls(a->settings, times[2]);
    if (!status) status = gw_bench_measure(work, &rest, times, &tally, error);
    if (!status) status = combine(a, times, rest.calls, &tally, error);
    gw_bench_close(work);
    tally.wrong += warm.wrong;
    gw_bench_result result = {.who = &a->who, .times = times, .calls = rest.calls, .tally = tally};
    if (!status && a->report) gw_report_size(a->report, c, &result, 1);
    return status;
}

static gw_status all_sizes(alone *a, gw_error *error) {
    gw_bench_case c = a->settings->first;
    uint64_t bytes = UINT64_MAX;
    gw_status status = GW_OK;
    if (c.root >= a->rank.world) return gw_fail(error, GW_INVALID, "--root %d is not one of the ranks", c.root);
    if (a->rank.rank == 0) a->report = gw_report_open(a->settings, a->rank.world, false);
    while (!status && gw_bench_next_size(a->settings, a->rank.world, &c, &bytes)) status = one_size(a, &c, error);
    return status;
}

int gw_bench_alone(const gw_bench_settings *settings) {
    alone a = {.settings = settings, .who = {.library = "gradwire", .listener = -1}};
    gw_options options = GW_OPTIONS_DEFAULT;
    gw_error error = {0};
    gw_strategy strategy;
    if (gw_bench_strategy(settings, NULL, &strategy, &error) != GW_OK) return complain(error.text);
    gw_strategy_print(&strategy, a.who.line, sizeof a.who.line);
    snprintf(a.who.arch, sizeof a.who.arch, "%s", gw_strategy_name(&strategy, GW_AXIS_ARCH));
    snprintf(a.who.transport, sizeof a.who.transport, "%s", gw_strategy_name(&strategy, GW_AXIS_TRANSPORT));
    options.strategy = a.who.line;
    if (gw_init(&a.comm, &options)) return complain(gw_last_error(NULL));
    a.rank = (gw_bench_rank){.library = &gradwire, .ctx = a.comm, .meet = barrier, .meet_ctx = a.comm,
                             .rank = gw_rank(a.comm), .world = gw_size(a.comm)};
    gw_status status = all_sizes(&a, &error);
    int wrong = a.report ? gw_report_close(a.report) : 0;
    gw_finalize(a.comm);
    if (status) return complain(error.text);
    return wrong ? GW_EXIT_FAILED : 0;
}
