/* measure.c - see measure.h. */
#include "bench/measure.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "bench/data_pattern.h"

#define ALIGNMENT 4096

struct gw_bench_work {
    const gw_bench_rank *rank;
    gw_bench_case of;
    size_t total, element_bytes;
    void *large; /* total elements */
    void *small; /* a second buffer, if the collective does not work in place; for alltoall of total elements */
    gw_pattern own, root, all;
    gw_pattern *others; /* of each rank, if the collective gathers parts of all ranks */
};

typedef struct gw_bench_work work;

static bool collects(gw_collective collective) {
    return collective == GW_COLL_ALLGATHER || collective == GW_COLL_GATHER || collective == GW_COLL_ALLTOALL;
}

static size_t small_count(const gw_bench_case *c, int world) {
    switch (c->collective) {
    case GW_COLL_ALLTOALL: return gw_bench_total(c, world);
    case GW_COLL_REDUCE_SCATTER:
    case GW_COLL_GATHER:
    case GW_COLL_SCATTER: return c->count;
    default: return 0;
    }
}

/* Small memory can be registered only if it fills a page. */
static size_t whole(size_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

static bool takes_own(const work *w) { return w->of.memory == GW_BENCH_OWN && w->rank->library->allocate; }
static bool registers(const work *w) { return w->of.memory == GW_BENCH_REGISTERED && w->rank->library->enlist; }

static void *allocate(const work *w, size_t count) {
    size_t bytes = count ? count * w->element_bytes : 1;
    void *memory = NULL;
    if (takes_own(w)) return w->rank->library->allocate(w->rank->ctx, bytes);
    if (posix_memalign(&memory, ALIGNMENT, registers(w) ? whole(bytes) : bytes)) return NULL;
    if (!registers(w) || w->rank->library->enlist(w->rank->ctx, memory, whole(bytes))) return memory;
    free(memory);
    return NULL;
}

static void release(const work *w, void *memory) {
    if (takes_own(w)) {
        w->rank->library->release(w->rank->ctx, memory);
        return;
    }
    if (registers(w)) w->rank->library->delist(w->rank->ctx, memory);
    free(memory);
}

static gw_status make_patterns(work *w) {
    const gw_bench_case *c = &w->of;
    int world = w->rank->world;
    bool lossy = w->rank->library->lossy;
    gw_status status = gw_pattern_of_rank(&w->own, c->dtype, c->op, w->rank->rank, lossy);
    if (!status) status = gw_pattern_of_rank(&w->root, c->dtype, c->op, c->root, lossy);
    if (!status && gw_bench_reduces(c->collective)) status = gw_pattern_of_all(&w->all, c->dtype, c->op, world, lossy);
    if (status || !collects(c->collective)) return status;
    w->others = calloc((size_t)world, sizeof *w->others);
    if (!w->others) return GW_MEMORY;
    for (int r = 0; r < world && !status; r++) status = gw_pattern_of_rank(&w->others[r], c->dtype, c->op, r, lossy);
    return status;
}

static uint8_t *part(const work *w, void *buffer, int rank) {
    return (uint8_t *)buffer + (size_t)rank * w->of.count * w->element_bytes;
}

static bool is_root(const work *w) { return w->rank->rank == w->of.root; }

/* Rewrites every byte of every buffer, so that caches are as after a backward pass and no old value is correct. */
static void fill(const work *w, int salt) {
    const gw_bench_case *c = &w->of;
    int rank = w->rank->rank;
    memset(w->small, 0, small_count(c, w->rank->world) * w->element_bytes);
    switch (c->collective) {
    case GW_COLL_ALLREDUCE:
    case GW_COLL_REDUCE:
    case GW_COLL_REDUCE_SCATTER:
    case GW_COLL_ALLTOALL: gw_pattern_fill(&w->own, w->large, 0, w->total, salt); break;
    case GW_COLL_BROADCAST:
    case GW_COLL_SCATTER:
        if (is_root(w)) gw_pattern_fill(&w->root, w->large, 0, w->total, salt);
        else memset(w->large, 0, w->total * w->element_bytes);
        break;
    case GW_COLL_ALLGATHER:
        memset(w->large, 0, w->total * w->element_bytes);
        gw_pattern_fill(&w->own, part(w, w->large, rank), (size_t)rank * c->count, c->count, salt);
        break;
    case GW_COLL_GATHER:
        memset(w->large, 0, w->total * w->element_bytes);
        gw_pattern_fill(&w->own, w->small, (size_t)rank * c->count, c->count, salt);
        break;
    default: break;
    }
}

static size_t wrong_in_parts(const work *w, void *buffer, bool transposed, int salt) {
    size_t wrong = 0, count = w->of.count;
    for (int r = 0; r < w->rank->world; r++) {
        size_t first = (size_t)(transposed ? w->rank->rank : r) * count;
        wrong += gw_pattern_wrong(&w->others[r], part(w, buffer, r), first, count, salt);
    }
    return wrong;
}

/* A compressed all-reduce of f32. All elements count as wrong if the error is more than five times the norm of the sum.
 * Error feedback may lose more than that norm in one call, and returns it in later calls. */
static size_t far_off(const work *w, int salt) {
    float expected[GW_PATTERN_PERIOD];
    const float *got = w->large;
    double gap = 0, norm = 0;
    for (size_t at = 0; at < w->total; at += GW_PATTERN_PERIOD) {
        size_t count = w->total - at < GW_PATTERN_PERIOD ? w->total - at : GW_PATTERN_PERIOD;
        gw_pattern_fill(&w->all, expected, at, count, salt);
        for (size_t i = 0; i < count; i++) {
            double miss = (double)got[at + i] - (double)expected[i];
            gap += miss * miss;
            norm += (double)expected[i] * (double)expected[i];
        }
    }
    return gap <= 25 * norm ? 0 : w->total;
}

static size_t count_wrong(const work *w, int salt) {
    const gw_bench_case *c = &w->of;
    size_t own_first = (size_t)w->rank->rank * c->count;
    if (w->rank->library->bound) return 0;
    if (w->rank->library->lossy) return far_off(w, salt);
    switch (c->collective) {
    case GW_COLL_ALLREDUCE: return gw_pattern_wrong(&w->all, w->large, 0, w->total, salt);
    case GW_COLL_REDUCE: return is_root(w) ? gw_pattern_wrong(&w->all, w->large, 0, w->total, salt) : 0;
    case GW_COLL_REDUCE_SCATTER: return gw_pattern_wrong(&w->all, w->small, own_first, c->count, salt);
    case GW_COLL_BROADCAST: return gw_pattern_wrong(&w->root, w->large, 0, w->total, salt);
    case GW_COLL_SCATTER: return gw_pattern_wrong(&w->root, w->small, own_first, c->count, salt);
    case GW_COLL_ALLGATHER: return wrong_in_parts(w, w->large, false, salt);
    case GW_COLL_GATHER: return is_root(w) ? wrong_in_parts(w, w->large, false, salt) : 0;
    case GW_COLL_ALLTOALL: return wrong_in_parts(w, w->small, true, salt);
    default: return 0;
    }
}

static gw_bench_buffers buffers_of(const work *w) {
    switch (w->of.collective) {
    case GW_COLL_REDUCE: return (gw_bench_buffers){w->large, is_root(w) ? w->large : NULL};
    case GW_COLL_GATHER: return (gw_bench_buffers){w->small, is_root(w) ? w->large : NULL};
    case GW_COLL_ALLGATHER: return (gw_bench_buffers){part(w, w->large, w->rank->rank), w->large};
    case GW_COLL_REDUCE_SCATTER:
    case GW_COLL_SCATTER:
    case GW_COLL_ALLTOALL: return (gw_bench_buffers){w->large, w->small};
    default: return (gw_bench_buffers){w->large, w->large};
    }
}

gw_status gw_bench_open(gw_bench_work **out, const gw_bench_rank *rank, const gw_bench_case *c, gw_error *error) {
    work *w = calloc(1, sizeof *w);
    if (w) {
        *w = (work){.rank = rank, .of = *c, .total = gw_bench_total(c, rank->world),
                    .element_bytes = gw_dtype_bytes(c->dtype)};
        w->large = allocate(w, w->total);
        w->small = allocate(w, small_count(c, rank->world));
        *out = w;
        if (w->large && w->small && make_patterns(w) == GW_OK) return GW_OK;
    }
    gw_bench_close(w);
    *out = NULL;
    return gw_fail(error, GW_MEMORY, "rank %d has no memory%s for buffers of %zu bytes", rank->rank,
                   c->memory == GW_BENCH_REGISTERED ? " that can be registered" : "",
                   gw_bench_total(c, rank->world) * gw_dtype_bytes(c->dtype));
}

void gw_bench_close(gw_bench_work *w) {
    if (!w) return;
    gw_pattern_free(&w->own);
    gw_pattern_free(&w->root);
    gw_pattern_free(&w->all);
    for (int r = 0; w->others && r < w->rank->world; r++) gw_pattern_free(&w->others[r]);
    free(w->others);
    if (w->large) release(w, w->large);
    if (w->small) release(w, w->small);
    free(w);
}

bool gw_bench_fits(const gw_bench_work *w, const gw_bench_case *c) {
    const gw_bench_case *of = &w->of;
    return of->collective == c->collective && of->dtype == c->dtype && of->op == c->op && of->root == c->root &&
           of->count == c->count && of->memory == c->memory;
}

static uint64_t cpu_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * GW_SECOND + (uint64_t)now.tv_nsec;
}

gw_status gw_bench_measure(gw_bench_work *w, const gw_bench_case *c, uint64_t *times, gw_bench_tally *tally,
                           gw_error *error) {
    const gw_bench_rank *rank = w->rank;
    gw_bench_buffers buffers = buffers_of(w);
    gw_status status = GW_OK;
    *tally = (gw_bench_tally){0};
    for (int i = -c->warmup; i < c->calls && !status; i++) {
        int salt = (i + c->warmup) % GW_PATTERN_SALTS;
        fill(w, salt);
        status = rank->meet(rank->meet_ctx, error);
        if (status) break;
        uint64_t cpu = cpu_now();
        gw_time before = gw_clock_now();
        status = rank->library->call(rank->ctx, c, &buffers, error);
        gw_time after = gw_clock_now();
        if (i >= 0) times[i] = after - before, tally->cpu_ns += cpu_now() - cpu;
        if (!status && (i < 0 || c->check)) tally->wrong += count_wrong(w, salt);
    }
    /* No rank may free its buffers, or go on to another size, while others still run the call. */
    return status ? status : rank->meet(rank->meet_ctx, error);
}
