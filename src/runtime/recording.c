/* recording.c - the calls of gradwire/trace.h: output files and clock offsets of a recording, layers and steps.
 *
 * Each host has its own file: FILE on the host of the job's first rank, FILE.host1, FILE.host2 on others. So ranks of
 * different kernels never append to one file, even on a shared file system. Clock offsets are measured as in NTP: the
 * first rank of the communicator asks each other rank for its time; the reply with the shortest round trip counts. The
 * uncertainty is half of that round trip. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/comm.h"
#include "runtime/recording.h"

enum { ROUNDS = 16, PATH_BYTES = 4096 };

typedef struct alignment {
    int64_t offset;       /* ns, to be added to the own clock */
    uint64_t uncertainty; /* ns */
    uint64_t origin;      /* start of the recording, by the first rank's clock */
    uint64_t wall;        /* ns since 1970 */
} alignment;

static uint64_t wall_clock(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * GW_SECOND + (uint64_t)now.tv_nsec;
}

/* Measures the clock of one other rank; runs on the first rank. */
static gw_status ask(gw_comm *comm, int peer, alignment *theirs) {
    gw_time shortest = UINT64_MAX;
    gw_status status = GW_OK;
    for (int round = 0; !status && round < ROUNDS; round++) {
        gw_time there = 0, begun = gw_clock_now();
        status = gw_send(comm, &begun, 1, GW_I64, peer);
        if (!status) status = gw_recv(comm, &there, 1, GW_I64, peer);
        gw_time took = gw_clock_now() - begun;
        if (took >= shortest) continue;
        shortest = took;
        theirs->offset = (int64_t)(begun + took / 2 - there);
        theirs->uncertainty = took / 2;
    }
    return status;
}

static gw_status answer(gw_comm *comm) {
    gw_status status = GW_OK;
    for (int round = 0; !status && round < ROUNDS; round++) {
        gw_time asked;
        status = gw_recv(comm, &asked, 1, GW_I64, 0);
        gw_time now = gw_clock_now();
        if (!status) status = gw_send(comm, &now, 1, GW_I64, 0);
    }
    return status;
}

/* Ranks of one host share a clock. */
static bool same_clock(const gw_comm *comm, int rank) {
    const gw_topology *topology = gw_team_topology(comm->team);
    return topology->host_of[rank] == topology->host_of[0];
}

static gw_status align(gw_comm *comm, alignment *mine) {
    alignment all = {.origin = gw_clock_now(), .wall = wall_clock()};
    gw_status status = gw_broadcast(comm, &all, &all, sizeof all, GW_U8, 0);
    *mine = all;
    if (comm->rank != 0 && !same_clock(comm, comm->rank)) {
        if (!status) status = answer(comm);
        if (!status) status = gw_recv(comm, mine, sizeof *mine, GW_U8, 0);
    }
    for (int r = 1; comm->rank == 0 && !status && r < comm->size; r++) {
        alignment theirs = all;
        if (same_clock(comm, r)) continue;
        status = ask(comm, r, &theirs);
        if (!status) status = gw_send(comm, &theirs, sizeof theirs, GW_U8, r);
    }
    return status;
}

/* The path for this rank's host; NULL for NULL. */
static const char *own_path(const gw_context *context, const char *path, char text[PATH_BYTES]) {
    int host = context->host_of[context->rank];
    if (!path || !*path) return NULL;
    if (host == 0) snprintf(text, PATH_BYTES, "%s", path);
    else snprintf(text, PATH_BYTES, "%s.host%d", path, host);
    return text;
}

/* The first rank of each host creates its files; fails on all ranks if it fails on one. */
static gw_status create_files(gw_comm *comm, const char *timeline, const char *capture, gw_error *error) {
    int32_t none = comm->size, mine = none, first = none;
    if (comm->local_rank == 0 && gw_trace_create(timeline, capture, error) != GW_OK) mine = comm->rank;
    gw_status status = gw_allreduce(comm, &mine, &first, 1, GW_I32, GW_MIN);
    if (status || first == none) return status;
    return gw_fail(error, GW_SYSTEM, "rank %d cannot write the recording on its host", first);
}

static gw_status open_trace(gw_comm *comm, const char *timeline, const char *capture, const alignment *a,
                            gw_error *error) {
    gw_context *context = comm->context;
    gw_trace_config config = {.rank = context->rank, .timeline = timeline, .capture = capture,
                              .about = {.world = context->world, .host_number = context->host_of[context->rank],
                                        .offset = a->offset, .uncertainty = a->uncertainty, .origin = a->origin,
                                        .wall = a->wall}};
    snprintf(config.about.host, sizeof config.about.host, "%s", context->endpoints[context->rank].host);
    gw_strategy_print(&context->strategy, config.about.strategy, sizeof config.about.strategy);
    gw_trace *trace = NULL;
    gw_status status = gw_trace_open(&trace, &config, error);
    if (status) return status;
    gw_context_lock(context);
    context->trace = trace;
    gw_engine_trace(gw_core_engine(context->core), trace);
    gw_context_unlock(context);
    return GW_OK;
}

gw_status gw_trace_start(gw_comm *comm, const char *timeline, const char *capture) {
    gw_error error = {.rank = -1};
    char paths[2][PATH_BYTES];
    alignment aligned;
    if (!comm) gw_fail(&error, GW_INVALID, "gw_trace_start: the communicator is NULL");
    else if (gw_comm_forked(comm)) return GW_INVALID;
    else if (comm->group) gw_fail(&error, GW_INVALID, "gw_trace_start: a group is open");
    else if (comm->context->trace) gw_fail(&error, GW_INVALID, "gw_trace_start: a recording is under way already");
    else if (!timeline && !capture) gw_fail(&error, GW_INVALID, "gw_trace_start: no file is given");
    if (error.status) return gw_comm_set_last_error(&error);
    timeline = own_path(comm->context, timeline, paths[0]);
    capture = own_path(comm->context, capture, paths[1]);
    gw_status status = create_files(comm, timeline, capture, &error);
    if (!status) status = align(comm, &aligned);
    if (!status) status = open_trace(comm, timeline, capture, &aligned, &error);
    return error.status ? gw_comm_set_last_error(&error) : status;
}

void gw_context_end_trace(gw_context *context) {
    gw_context_lock(context);
    gw_trace *trace = context->trace;
    context->trace = NULL;
    atomic_store(&context->step_thread, 0);
    if (context->core) gw_engine_trace(gw_core_engine(context->core), NULL);
    gw_context_unlock(context);
    gw_trace_close(trace);
}

gw_status gw_trace_stop(gw_comm *comm) {
    gw_error error = {.rank = -1};
    if (!comm) gw_fail(&error, GW_INVALID, "gw_trace_stop: the communicator is NULL");
    else if (gw_comm_forked(comm)) return GW_INVALID;
    else if (!comm->context->trace) gw_fail(&error, GW_INVALID, "gw_trace_stop: no recording is under way");
    if (error.status) return gw_comm_set_last_error(&error);
    gw_context_end_trace(comm->context);
    return GW_OK;
}

gw_trace *gw_comm_trace(const gw_comm *comm) { return gw_context_forked(comm->context) ? NULL : comm->context->trace; }

bool gw_trace_runs(const gw_comm *comm) { return comm && gw_comm_trace(comm); }

void gw_trace_layer(gw_comm *comm, const char *layer, bool backward, uint64_t step, uint64_t begin, uint64_t end) {
    gw_trace *trace = comm ? gw_comm_trace(comm) : NULL;
    if (!trace || !layer) return;
    gw_trace_span(trace, backward ? GW_TRACE_BACKWARD : GW_TRACE_FORWARD, step, gw_trace_name(trace, layer), 0, 0,
                  begin, end < begin ? begin : end);
}

bool gw_comm_marks_steps(const gw_comm *comm) { return gw_step_mark_open(&comm->context->step, gw_comm_trace(comm)); }

void gw_trace_step_begin(gw_comm *comm) {
    gw_trace *trace = comm ? gw_comm_trace(comm) : NULL;
    if (!trace) return;
    gw_step_mark_begin(&comm->context->step, trace);
    atomic_store(&comm->context->step_thread, pthread_self());
}

void gw_trace_step_end(gw_comm *comm, uint64_t step, const char *strategy) {
    char line[GW_CAPTURE_TEXT_MAX + 1];
    gw_trace *trace = comm ? gw_comm_trace(comm) : NULL;
    if (!trace) return;
    if (!strategy) gw_strategy_print(&comm->context->strategy, line, sizeof line);
    gw_step_mark_end(&comm->context->step, trace, step, strategy ? strategy : line);
    atomic_store(&comm->context->step_thread, pthread_self());
}

static const char *variable(const char *name) {
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

bool gw_trace_wanted(void) { return variable(GW_TIMELINE_VARIABLE) || variable(GW_CAPTURE_VARIABLE); }

gw_status gw_trace_wanted_start(gw_comm *comm) {
    return gw_trace_start(comm, variable(GW_TIMELINE_VARIABLE), variable(GW_CAPTURE_VARIABLE));
}
