/* coded_open.c - makes a coded collective (gradwire/coded.h). Every rank checks its options, all ranks compare them
 * with those of rank 0 and agree that all checks passed, and only then does any rank continue. */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/log.h"
#include "base/sized.h"
#include "reducer/coded_internal.h"
#include "reducer/reducer_internal.h"

static const char call_name[] = "gw_coded_open";

/* Checks that need no other rank. */

static gw_status check_options(const gw_coded_options *o, gw_error *error) {
    if (o->collective != GW_COLL_ALLREDUCE && o->collective != GW_COLL_REDUCE_SCATTER &&
        o->collective != GW_COLL_ALLGATHER)
        return gw_fail(error, GW_INVALID,
                       "%s: the collective is %d: only all-reduce, reduce-scatter and all-gather take a codec",
                       call_name, (int)o->collective);
    if (!o->name || !*o->name) return gw_fail(error, GW_INVALID, "%s: the data have no name", call_name);
    if ((unsigned)o->dtype >= GW_DTYPES)
        return gw_fail(error, GW_INVALID, "%s: %s: %d is not a gw_dtype", call_name, o->name, (int)o->dtype);
    if (o->collective == GW_COLL_ALLREDUCE && o->counts)
        return gw_fail(error, GW_INVALID, "%s: %s: an all-reduce takes no counts", call_name, o->name);
    if (o->collective == GW_COLL_ALLGATHER) return GW_OK;
    if (o->op != GW_SUM && o->op != GW_AVG)
        return gw_fail(error, GW_INVALID, "%s: %s: values are combined by GW_AVG or GW_SUM", call_name, o->name);
    const char *why = gw_redop_refuses(o->dtype, o->op);
    if (!why) return GW_OK;
    return gw_fail(error, GW_UNSUPPORTED, "%s: %s: the %s of %s is not possible: %s", call_name, o->name,
                   gw_redop_name(o->op), gw_dtype_name(o->dtype), why);
}

/* Whether a strategy line names an axis: it replaces one of two techniques. */
static bool names_axis(const char *line, gw_axis axis) {
    bool named = false;
    for (int i = 0; i < 2; i++) {
        gw_strategy strategy;
        gw_strategy_default(&strategy);
        const gw_technique *before = strategy.axes[axis].technique = gw_techniques(axis)[i];
        named |= !gw_strategy_overlay(&strategy, line, NULL, NULL) && strategy.axes[axis].technique != before;
    }
    return named;
}

static gw_status check_axes(const char *line, gw_error *error) {
    for (int axis = 0; line && axis < GW_AXES; axis++) {
        if (axis == GW_AXIS_ARCH || axis == GW_AXIS_COMPRESS || !names_axis(line, (gw_axis)axis)) continue;
        return gw_fail(error, GW_INVALID,
                       "%s: the strategy \"%.200s\" sets %s, which a single collective does not have: leave it out",
                       call_name, line, gw_axis_name((gw_axis)axis));
    }
    return GW_OK;
}

/* Reduce-scatters and all-gathers encode the parts of the data apart, and never reduce payloads in flight. */
static gw_status check_codec_of_parts(const gw_codec_setup *codec, gw_collective collective, gw_error *error) {
    const char *name = codec->codec->technique.name, *what = gw_collective_name(collective);
    if (gw_codec_has_need(codec, GW_NEEDS_WHOLE_TENSOR))
        return gw_fail(error, GW_UNSUPPORTED, "%s: compress=%s with clip: parts are encoded apart in a %s: use clip=0",
                       call_name, name, what);
    if (gw_codec_has_need(codec, GW_NEEDS_SAME_STEP))
        return gw_fail(error, GW_UNSUPPORTED,
                       "%s: compress=%s:shared: payloads of a %s are not reduced in flight, so ranks share no scale: "
                       "leave shared out",
                       call_name, name, what);
    if (collective == GW_COLL_ALLGATHER && gw_codec_has_need(codec, GW_NEEDS_GRADIENTS))
        return gw_fail(error, GW_UNSUPPORTED,
                       "%s: compress=%s keeps a momentum of gradients, which the values of an all-gather are not: use "
                       "momentum=0, or topk",
                       call_name, name);
    return GW_OK;
}

static gw_status check_codec(const gw_coded *c, gw_error *error) {
    const gw_coded_options *o = &c->options;
    if (c->codec.codec->identity) return GW_OK;
    if (o->dtype != GW_F32)
        return gw_fail(error, GW_UNSUPPORTED, "%s: %s is of type %s, and compress=%s encodes f32: use compress=none",
                       call_name, o->name, gw_dtype_name(o->dtype), c->codec.codec->technique.name);
    gw_status status = gw_codec_check(&c->codec, error);
    return status || o->collective == GW_COLL_ALLREDUCE ? status
                                                        : check_codec_of_parts(&c->codec, o->collective, error);
}

static gw_status resolve(gw_coded *c, gw_error *error) {
    const gw_coded_options *o = &c->options;
    const gw_setting *compress = &c->strategy.axes[GW_AXIS_COMPRESS];
    c->strategy = c->given->context->strategy;
    gw_status status = o->strategy ? gw_strategy_overlay(&c->strategy, o->strategy, call_name, error) : GW_OK;
    if (!status) status = check_axes(o->strategy, error);
    if (status) return status;
    const char *arch = gw_strategy_name(&c->strategy, GW_AXIS_ARCH);
    if (strcmp(arch, "ps") == 0 || strcmp(arch, "sfb") == 0)
        return gw_fail(
            error, GW_UNSUPPORTED,
            "%s: arch=%s is for training steps (gw_reducer_commit): name another architecture in the strategy",
            call_name, arch);
    if (o->collective == GW_COLL_ALLREDUCE && c->given->context->job_env.servers)
        return gw_fail(error, GW_UNSUPPORTED,
                       "%s: this job has server processes (--servers), which take over its all-reduces through codecs: "
                       "use gw_reducer_commit",
                       call_name);
    /* There is no optimiser here whose momentum a codec could take over: only what the line asks for. */
    gw_codec_choose(compress->technique, c->strategy.axes[GW_AXIS_COMPRESS].values, &(gw_codec_run){0});
    status = gw_codec_from_setting(compress->technique, compress->values, &c->codec, error);
    return status ? status : check_codec(c, error);
}

/* Counts. */

static gw_status take_counts(gw_coded *c, gw_error *error) {
    const gw_coded_options *o = &c->options;
    size_t total = 0, world = (size_t)c->given->size, most = SIZE_MAX / 4 / gw_dtype_bytes(o->dtype);
    bool parts = o->collective != GW_COLL_ALLREDUCE, fits = true, whole = true;
    c->counts = calloc(world, sizeof *c->counts);
    if (!c->counts) return gw_fail(error, GW_MEMORY, "%s: out of memory for %zu counts", call_name, world);
    for (size_t r = 0; r < (parts ? world : 1); r++) {
        c->counts[r] = o->counts ? o->counts[r] : o->count;
        fits = fits && !__builtin_add_overflow(total, c->counts[r], &total) && total <= most;
        whole &= !o->columns || c->counts[r] % o->columns == 0;
    }
    size_t own = c->counts[parts ? c->given->rank : 0];
    c->in_count = o->collective == GW_COLL_ALLGATHER ? own : total;
    c->out_count = o->collective == GW_COLL_REDUCE_SCATTER ? own : total;
    if (!fits) return gw_fail(error, GW_INVALID, "%s: %s: so many elements do not fit in memory", call_name, o->name);
    if (whole) return GW_OK;
    return gw_fail(error, GW_INVALID, "%s: %s: a number of elements is not a multiple of %zu columns", call_name,
                   o->name, o->columns);
}

/* Agreement. */

static uint64_t hash_of(const size_t *counts, int size) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a, by counts instead of bytes */
    for (int r = 0; r < size; r++) hash = (hash ^ counts[r]) * UINT64_C(0x100000001b3);
    return hash;
}

static void describe(gw_coded *c) {
    const gw_coded_options *o = &c->options;
    bool gathers = o->collective == GW_COLL_ALLGATHER, even = true;
    size_t total = c->in_count > c->out_count ? c->in_count : c->out_count;
    gw_coded_facts *f = &c->facts;
    char arch[96], compress[160];
    for (int r = 1; o->counts && r < c->given->size; r++) even &= c->counts[r] == c->counts[0];
    memcpy(f->numbers,
           (uint64_t[8]){(uint64_t)o->collective, (uint64_t)o->dtype, gathers ? 0 : (uint64_t)o->op, o->columns,
                         o->seed, hash_of(c->counts, c->given->size), total, gw_codec_tensor_make(o->name, 1, 1).key},
           sizeof f->numbers);
    gw_strategy_print_axis(&c->strategy, GW_AXIS_ARCH, arch, sizeof arch);
    gw_strategy_print_axis(&c->strategy, GW_AXIS_COMPRESS, compress, sizeof compress);
    snprintf(f->text, sizeof f->text, "%s of %.80s, %zu%s x %s%s%s, %s %s", gw_collective_name(o->collective), o->name,
             total, even ? "" : " in uneven parts", gw_dtype_name(o->dtype), gathers ? "" : ", ",
             gathers ? "" : gw_redop_name(o->op), arch, compress);
}

static gw_status prepare(gw_coded *c, const gw_coded_options *given, gw_error *error) {
    if (!given) return gw_fail(error, GW_INVALID, "%s: the options are NULL", call_name);
    gw_sized_read(&c->options, sizeof c->options, given, given->size,
                  offsetof(gw_coded_options, seed) + sizeof(uint64_t), "gw_coded_open: gw_coded_options", error);
    gw_status status = error->status;
    if (!status) status = check_options(&c->options, error);
    if (!status) status = resolve(c, error);
    if (!status) status = take_counts(c, error);
    if (!status) describe(c);
    return status;
}

/* Collective. A rank that has failed takes part too, so that none waits for it. mine: NULL without memory. */
static gw_status compare(gw_comm *comm, const gw_coded_facts *mine, gw_status status, gw_error *error) {
    gw_coded_facts first = {.text = ""};
    bool known = !status && mine;
    if (known) first = *mine;
    gw_status sent = gw_broadcast(comm, &first, &first, sizeof first, GW_U8, 0);
    if (sent) return status ? status : gw_reducer_copy_last_error(sent, error);
    first.text[sizeof first.text - 1] = 0;
    if (known && first.text[0] && memcmp(&first, mine, sizeof first) != 0)
        status = gw_fail(error, GW_MISMATCH, "%s: rank 0 opens %s; this rank %s%s", call_name, first.text, mine->text,
                         strcmp(first.text, mine->text) ? "" : ", with another seed, columns or counts");
    return gw_reducer_agree(comm, status, error);
}

/* An all-reduce. */

static gw_status open_reducer(gw_coded *c, gw_error *error) {
    const gw_coded_options *o = &c->options;
    char line[GW_STRATEGY_PRINT_BYTES];
    gw_strategy strategy = c->strategy;
    c->out = c; /* anywhere: it moves to the output of each run */
    gw_strategy_overlay(&strategy, "sync=bsp schedule=fifo", NULL, NULL);
    gw_strategy_print(&strategy, line, sizeof line);
    gw_reducer_tensor tensor = {.name = o->name, .count = o->count, .dtype = o->dtype, .gradient = c->out,
                                .rows = o->columns ? o->count / o->columns : 0};
    gw_reducer_options options = GW_REDUCER_OPTIONS_DEFAULT;
    options.strategy = line;
    options.op = o->op;
    options.seed = o->seed;
    options.tune = "off";
    options.momentum_use = GW_MOMENTUM_OFFERED;
    gw_status status = gw_reducer_commit(&c->reducer, c->given, &tensor, 1, &options);
    if (status) return gw_reducer_copy_last_error(status, error);
    c->comm = c->reducer->comm;
    c->route = *gw_step_engine_route(c->reducer->step_engine, 0);
    return GW_OK;
}

/* Reduce-scatters and all-gathers. */

/* Racks are left out of account: parts are those of the caller, and a second level of them would save nothing. An
 * architecture that sends everything to one rank has no parts either: "auto" chooses, as for plain collectives. */
static void find_route(gw_coded *c) {
    gw_dtype dtype = c->options.dtype;
    const char *arch = gw_strategy_name(&c->strategy, GW_AXIS_ARCH);
    const gw_plan_builder *plan = gw_plan_find(arch);
    c->topology = *gw_team_topology(c->comm->team);
    c->topology.rack_of = NULL;
    c->topology.coll = false; /* a half by itself is never left out */
    gw_route_request request = {.arch = plan && plan->rooted ? "auto" : arch, .topology = &c->topology,
                                .codec = !c->codec.codec->identity, .splits = true,
                                .sums_in_type = dtype == GW_F32 || dtype == GW_F64};
    c->route = gw_route_of(&request);
}

/* In two levels: communicators of the host, and of each lane, its ranks in the order of hosts. */
static gw_status split_levels(gw_coded *c, const gw_lanes *lanes) {
    gw_status status = gw_comm_split(c->comm, lanes->host, c->comm->rank, &c->host);
    for (int lane = 0; !status && lane < lanes->lanes; lane++) {
        bool mine = lane >= lanes->first && lane < lanes->last;
        gw_comm *split = NULL;
        status = gw_comm_split(c->comm, mine ? 0 : -1, lanes->host, &split);
        if (mine && split) c->lanes[c->lane_count++] = split;
    }
    return status;
}

static gw_status open_machine(gw_coded *c, const gw_lanes *lanes, gw_error *error) {
    gw_team *all = c->comm->team, **teams = calloc((size_t)c->lane_count + 1, sizeof *teams);
    if (!teams) return gw_fail(error, GW_MEMORY, "%s: out of memory for %d lanes", call_name, c->lane_count);
    for (int l = 0; l < c->lane_count; l++) teams[l] = c->lanes[l]->team;
    gw_coded_parts_config config = {.collective = c->options.collective, .counts = c->counts,
                                    .columns = c->options.columns, .dtype = c->options.dtype, .redop = c->options.op,
                                    .name = c->options.name, .arch = gw_strategy_name(&c->strategy, GW_AXIS_ARCH),
                                    .chunk_bytes = (size_t)gw_strategy_integer(&c->strategy, GW_AXIS_ARCH, "chunk"),
                                    .coded = c->route.coded, .setup = c->codec, .seed = c->options.seed,
                                    .core = c->comm->context->core, .rank = c->comm->rank,
                                    .topology = &c->topology, .lanes = *lanes,
                                    .lane_teams = c->host ? teams : &all, .host_team = c->host ? c->host->team : NULL};
    if (c->host && !(c->by_lane = gw_alloc(c->host, gw_coded_parts_by_lane_bytes(&config) + 1)))
        gw_fail(error, GW_MEMORY, "%s: %s", call_name, gw_last_error(NULL));
    config.by_lane = c->by_lane;
    gw_context_lock(c->comm->context);
    gw_status status = error->status ? error->status : gw_coded_parts_open(&c->parts, &config, error);
    gw_context_unlock(c->comm->context);
    free(teams);
    return status;
}

static bool poll_parts(void *ctx, gw_time now) { return gw_coded_parts_poll(ctx, now); }
static bool parts_busy(void *ctx) { return !gw_coded_parts_over(ctx); }

static void attach(gw_coded *c) {
    gw_context_lock(c->comm->context);
    c->callback = (gw_progress_callback){.ctx = c->parts, .poll = poll_parts, .busy = parts_busy};
    gw_core_attach(c->comm->context->core, &c->callback);
    gw_context_unlock(c->comm->context);
}

static gw_status open_parts(gw_coded *c, gw_error *error) {
    gw_status status = gw_reducer_copy_last_error(gw_comm_split(c->given, 0, c->given->rank, &c->comm), error);
    if (status) return status;
    find_route(c);
    bool two_levels = c->route.in_lanes;
    gw_lanes lanes = gw_lanes_of(&c->topology, c->comm->rank, !two_levels);
    c->lanes = calloc((size_t)lanes.lanes, sizeof *c->lanes);
    if (!c->lanes) status = gw_fail(error, GW_MEMORY, "%s: out of memory for %d lanes", call_name, lanes.lanes);
    status = gw_reducer_agree(c->comm, status, error);
    if (!status && two_levels) status = gw_reducer_copy_last_error(split_levels(c, &lanes), error);
    if (!status) status = gw_reducer_agree(c->comm, open_machine(c, &lanes, error), error);
    if (!status) attach(c);
    return status;
}

/* Opening. */

static gw_status open_coded(gw_coded *c, gw_error *error) {
    gw_status status = c->options.collective == GW_COLL_ALLREDUCE ? open_reducer(c, error) : open_parts(c, error);
    c->options.strategy = c->options.name = NULL;
    c->options.counts = NULL;
    return status;
}

gw_status gw_coded_open(gw_coded **out, gw_comm *comm, const gw_coded_options *options) {
    gw_error error = {.rank = -1};
    if (out) *out = NULL;
    if (!out || !comm)
        return gw_invalid("%s: the communicator, or the place for the coded collective, is NULL", call_name);
    if (gw_comm_forked(comm)) return GW_INVALID;
    if (comm->group) return gw_invalid("%s: it cannot be called inside a group", call_name);
    gw_coded *c = calloc(1, sizeof *c);
    gw_status status = c ? GW_OK : gw_fail(&error, GW_MEMORY, "%s: out of memory", call_name);
    if (c) {
        c->given = comm;
        c->options = (gw_coded_options)GW_CODED_OPTIONS_DEFAULT;
        status = prepare(c, options, &error);
    }
    status = compare(comm, c ? &c->facts : NULL, status, &error);
    if (!status) status = open_coded(c, &error);
    if (status) {
        gw_coded_close(c);
        return gw_comm_set_failure(comm, &error);
    }
    char text[GW_ERROR_TEXT_BYTES];
    gw_coded_describe(c, text, sizeof text);
    gw_log(GW_LOG_INFO, comm->rank, "%s", text);
    *out = c;
    return GW_OK;
}
