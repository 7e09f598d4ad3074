/* fit_plans.c - see fit_capture.h: speeds of architectures and of reductions. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "arch/cost.h"
#include "insight/operations.h"
#include "predict/fit_capture.h"
#include "predict/median.h"

enum { SMALL_BYTES = 4096, LARGE_BYTES = 64 * 1024 };

/* An all-reduce over the network, measured while no other operation ran. */
typedef struct sample {
    gw_time begin, end;             /* begin of the first rank, end of the last */
    const gw_plan_builder *builder; /* NULL: not usable */
    double rounds, bytes;           /* in closed form: sequential messages, bytes per rank */
    double seconds;                 /* since the last rank began */
} sample;

static int by_begin(const void *a, const void *b) {
    const sample *x = a, *y = b;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

/* "allreduce, ring" */
static const gw_plan_builder *builder_of(const char *name) {
    static const char prefix[] = "allreduce, ";
    return strncmp(name, prefix, sizeof prefix - 1) == 0 ? gw_plan_find(name + sizeof prefix - 1) : NULL;
}

static sample sample_of(const gw_insight *insight, const gw_operations *ops, const gw_operation *op,
                        gw_cost_inputs scene) {
    sample s = {.begin = op->first_begin, .end = op->end,
                .builder = builder_of(gw_insight_name(insight, ops->events[op->at]->is.name))};
    if (op->ranks != insight->rank_count || op->end <= op->last_begin || !op->bytes) s.builder = NULL;
    if (!s.builder) return s;
    scene.bytes = (double)op->bytes;
    gw_cost_terms work = gw_cost_terms_of(s.builder, &scene);
    s.rounds = work.rounds;
    s.bytes = work.bytes * work.crowd;
    s.seconds = (double)(op->end - op->last_begin) / GW_SECOND;
    if (s.rounds <= 0) s.builder = NULL;
    return s;
}

/* Keeps the samples that do not overlap with any other. */
static size_t keep_alone(sample *list, size_t count) {
    size_t kept = 0;
    gw_time busy_until = 0;
    if (count) qsort(list, count, sizeof *list, by_begin);
    for (size_t i = 0; i < count; i++) {
        sample s = list[i];
        bool alone = s.begin >= busy_until && (i + 1 == count || list[i + 1].begin >= s.end);
        if (s.end > busy_until) busy_until = s.end;
        if (alone && s.builder) list[kept++] = s;
    }
    return kept;
}

static double misses(const sample *s, const gw_arch_speed *speed) {
    return fabs((s->rounds * speed->latency + s->bytes / speed->rate) / s->seconds - 1);
}

/* False: too few operations were recorded. */
static bool fit_one(const sample *list, size_t count, const gw_plan_builder *builder, double latency, double *scratch,
                    gw_capture_arch *arch) {
    int small = 0, large = 0, all = 0;
    for (size_t i = 0; i < count; i++)
        if (list[i].builder == builder && list[i].bytes <= SMALL_BYTES)
            scratch[small++] = list[i].seconds / list[i].rounds;
    if (small) latency = gw_median(scratch, small);
    for (size_t i = 0; i < count; i++) {
        double left = list[i].seconds - list[i].rounds * latency;
        if (list[i].builder == builder && list[i].bytes >= LARGE_BYTES && left > 0)
            scratch[large++] = left / list[i].bytes;
    }
    if (!large) return false;
    *arch = (gw_capture_arch){.speed = {.latency = latency, .rate = 1 / gw_median(scratch, large)}};
    snprintf(arch->speed.name, sizeof arch->speed.name, "%s", builder->technique.name);
    for (size_t i = 0; i < count; i++)
        if (list[i].builder == builder) scratch[all++] = misses(&list[i], &arch->speed);
    arch->operations = all;
    arch->error = gw_median(scratch, all);
    return true;
}

static gw_cost_inputs scene_of(const gw_insight *insight) {
    gw_cost_inputs scene = {.collective = GW_COLL_ALLREDUCE, .ranks = insight->rank_count, .hosts = 1, .per_host = 1};
    for (int r = 0; r < insight->rank_count; r++) {
        int host = insight->ranks[r].about.host_number;
        if (insight->ranks[r].introduced && host >= scene.hosts && host < scene.ranks) scene.hosts = host + 1;
    }
    scene.per_host = (scene.ranks + scene.hosts - 1) / scene.hosts;
    return scene;
}

gw_status gw_capture_archs(const gw_insight *insight, double latency, gw_capture_arch found[GW_MACHINE_ARCHS_MAX],
                           int *count, gw_error *error) {
    gw_operations ops = {.count = 0};
    gw_cost_inputs scene = scene_of(insight);
    *count = 0;
    if (scene.hosts == 1) return GW_OK;
    gw_status status = gw_operations_make(insight, &ops, error);
    if (status) return status;
    sample *list = calloc(ops.count + 1, sizeof *list);
    double *scratch = calloc(ops.count + 1, sizeof *scratch);
    if (!list || !scratch) status = gw_fail(error, GW_MEMORY, "out of memory for %zu operations", ops.count);
    for (size_t i = 0; !status && i < ops.count; i++) list[i] = sample_of(insight, &ops, &ops.list[i], scene);
    size_t kept = status ? 0 : keep_alone(list, ops.count);
    for (int b = 0; !status && gw_plan_builders[b] && *count < GW_MACHINE_ARCHS_MAX; b++)
        *count += fit_one(list, kept, gw_plan_builders[b], latency, scratch, &found[*count]);
    free(scratch);
    free(list);
    gw_operations_free(&ops);
    return status;
}

/* Reductions. The engine records them with a communicator; those of a coded exchange have none and do not count. */
bool gw_capture_reduce(const gw_insight *insight, gw_machine *machine) {
    double *speeds = calloc(insight->event_count + 1, sizeof *speeds);
    int found = 0;
    for (int r = 0; speeds && r < insight->rank_count; r++) {
        size_t count;
        const gw_insight_event *events = gw_insight_of(insight, r, GW_TRACE_REDUCED, &count);
        for (size_t i = 0; i < count; i++) {
            const gw_trace_event *is = &events[i].is;
            if (is->comm && is->bytes && is->end > is->begin)
                speeds[found++] = (double)is->bytes * GW_SECOND / (double)(is->end - is->begin);
        }
    }
    if (found) machine->reduce = gw_median(speeds, found);
    free(speeds);
    return found > 0;
}
