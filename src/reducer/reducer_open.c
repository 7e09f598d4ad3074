/* reducer_open.c - makes a reducer. Every rank checks its arguments, all ranks agree that all checks passed, and only
 * then does any rank continue. A rank that fails sends the reason to the others, so that none waits for it. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/dtype.h"
#include "base/log.h"
#include "base/sized.h"
#include "base/units.h"
#include "decide/candidates.h"
#include "reducer/reducer_internal.h"
#include "reducer/route_summary.h"
#include "strategy/combine.h"

/* Agreeing. */

typedef struct reason {
    int32_t status;
    char text[GW_ERROR_TEXT_BYTES];
} reason;

gw_status gw_reducer_agree(gw_comm *comm, gw_status mine, gw_error *error) {
    int32_t able = INT32_MAX, first = mine ? comm->rank : able;
    reason why = {.status = mine};
    if (comm->size == 1) return mine;
    if (mine) snprintf(why.text, sizeof why.text, "%s", error->text);
    gw_status status = gw_allreduce(comm, &first, &first, 1, GW_I32, GW_MIN);
    if (!status && first == able) return GW_OK;
    if (!status) status = gw_broadcast(comm, &why, &why, sizeof why, GW_U8, first);
    if (mine) return mine;
    if (status) return gw_fail(error, status, "%s", gw_last_error(comm));
    int rank = gw_team_member(comm->team, first);
    why.text[sizeof why.text - 1] = 0;
    return gw_fail_rank(error, (gw_status)why.status, rank, "rank %d on %s cannot take part: %.400s", rank,
                        comm->context->endpoints[rank].host, why.text);
}

/* Checks that need no other rank. */

static gw_tuned_model model_of(const gw_reducer_tensor *tensors, int count) {
    gw_tuned_model model = {.tensors = count};
    for (int i = 0; i < count; i++) {
        bool known = (unsigned)tensors[i].dtype < GW_DTYPES; /* an unknown type is refused later */
        uint64_t bytes = known ? tensors[i].count * gw_dtype_bytes(tensors[i].dtype) : 0;
        model.bytes += bytes;
        if (bytes > model.largest) model.largest = bytes;
    }
    return model;
}

static gw_status resolve(gw_reducer *reducer, const gw_comm *comm, const char *line, gw_error *error) {
    reducer->strategy = comm->context->strategy;
    gw_status status = line ? gw_strategy_overlay(&reducer->strategy, line, NULL, error) : GW_OK;
    const gw_setting *have = &comm->context->strategy.axes[GW_AXIS_TRANSPORT];
    if (!status && memcmp(&reducer->strategy.axes[GW_AXIS_TRANSPORT], have, sizeof *have) != 0)
        status =
            gw_fail(error, GW_INVALID,
                    "gw_reducer_commit: the transport is chosen when a job is joined and cannot change for a reducer");
    return status ? status : gw_strategy_apply_servers(&reducer->strategy, comm->context->job_env.servers, error);
}

/* Server processes serve a reducer of all workers, not of some of them. */
static gw_status check_apart(const gw_comm *comm, const gw_reducer_options *options, gw_error *error) {
    const gw_context *context = comm->context;
    const char *tune = options->tune ? options->tune : getenv(GW_TUNE_VARIABLE);
    if (!context->job_env.servers) return GW_OK;
    if (comm->size != context->world - context->job_env.servers)
        return gw_fail(error, GW_UNSUPPORTED,
                       "gw_reducer_commit: with server processes (--servers) a reducer is one of all workers, and this "
                       "communicator has %d of %d",
                       comm->size, context->world - context->job_env.servers);
    if (tune && *tune && strcmp(tune, "off") != 0)
        return gw_fail(error, GW_UNSUPPORTED,
                       "gw_reducer_commit: with server processes (--servers) a schedule is not "
                       "tuned: they do not take part when buckets are cut again");
    return GW_OK;
}

static gw_status check_momentum(const gw_reducer_options *options, gw_error *error) {
    if (options->momentum >= 0 && options->momentum <= 1) return GW_OK;
    return gw_fail(error, GW_INVALID, "gw_reducer_commit: the momentum of the optimiser is %g, and has to be 0 to 1",
                   options->momentum);
}

/* A kept one is not used: any number stands for it. */
static double momentum_of(const gw_reducer_options *options) {
    if (options->momentum_use == GW_MOMENTUM_UNSAID) return -1;
    return options->momentum_use == GW_MOMENTUM_KEPT ? 1 : options->momentum;
}

static gw_status find_snapshots(gw_reducer *reducer, gw_error *error) {
    bool writes = gw_strategy_is(&reducer->strategy, GW_AXIS_ARCH, "ps") &&
                  gw_strategy_integer(&reducer->strategy, GW_AXIS_ARCH, "snapshot") > 0;
    const char *folder = getenv("GRADWIRE_SNAPSHOTS");
    if (!writes) return GW_OK;
    if (!folder || !*folder)
        return gw_fail(error, GW_INVALID,
                       "arch=ps:snapshot=%lld: GRADWIRE_SNAPSHOTS (gradwire run --snapshots DIRECTORY) has to say "
                       "where servers write to",
                       (long long)gw_strategy_integer(&reducer->strategy, GW_AXIS_ARCH, "snapshot"));
    /* On every rank: any of them may have to take over a server. */
    if (access(folder, W_OK) != 0)
        return gw_fail(error, GW_INVALID,
                       "GRADWIRE_SNAPSHOTS: %s cannot be written to: %s; it has to be there on every host", folder,
                       strerror(errno));
    snprintf(reducer->snapshots, sizeof reducer->snapshots, "%s", folder);
    return GW_OK;
}

/* Tuning keeps the line, and looks for its sizes. */
static bool chooses(const gw_reducer *reducer, const gw_reducer_options *options) {
    const char *tune = options->tune ? options->tune : getenv(GW_TUNE_VARIABLE);
    bool tunes = tune && *tune && strcmp(tune, "off") != 0;
    return !tunes && !reducer->facts.apart && reducer->model.bytes > 0 && gw_candidates_apply(&reducer->strategy);
}

static gw_status prepare(gw_reducer *reducer, const gw_comm *comm, const gw_reducer_tensor *tensors,
                         const gw_reducer_options *options, gw_error *error) {
    reducer->facts = (gw_reducer_facts){.world = comm->size,
                                        .updates = options->update != NULL,
                                        .sums = options->op == GW_SUM,
                                        .clips = options->clip > 0,
                                        .apart = comm->context->job_env.servers > 0,
                                        .momentum = momentum_of(options),
                                        .keeps_momentum = options->momentum_use == GW_MOMENTUM_KEPT,
                                        .steps = options->steps};
    gw_status status = check_momentum(options, error);
    if (!status) status = resolve(reducer, comm, options->strategy, error);
    if (!status) gw_strategy_choose_codec(&reducer->strategy, &reducer->facts);
    if (!status && reducer->facts.clips) gw_strategy_apply_clip(&reducer->strategy);
    if (!status) status = gw_strategy_check_step(&reducer->strategy, &reducer->facts, error);
    if (!status) status = check_apart(comm, options, error);
    if (!status) status = find_snapshots(reducer, error);
    if (!status && reducer->facts.apart)
        status = gw_reducer_table_write(&reducer->table, &reducer->strategy, options, tensors, reducer->count, error);
    reducer->asked = reducer->strategy;
    reducer->chooses = !status && chooses(reducer, options);
    return status;
}

gw_status gw_reducer_alloc_pack_buffer(gw_reducer *reducer, gw_step_engine_config *config, gw_error *error) {
    if (reducer->flat_bytes && !(reducer->flat = gw_alloc(reducer->comm, reducer->flat_bytes)))
        return gw_fail(error, GW_MEMORY, "gw_reducer_commit: %s", gw_last_error(NULL));
    config->flat = reducer->flat;
    return GW_OK;
}

/* What the step engine gets of this host, from the communicator that the reducer has at the time. */

static void *alloc_shared(void *ctx, size_t bytes, gw_error *error) {
    return gw_comm_alloc(((gw_reducer *)ctx)->comm, bytes, error);
}

static void release_shared(void *ctx, void *memory) { gw_comm_release(((gw_reducer *)ctx)->comm, memory); }

static gw_status open_coll(void *ctx, uint32_t id, const int *members, int count, int self, gw_shm_coll **coll,
                           gw_error *error) {
    gw_context *context = ((gw_reducer *)ctx)->comm->context;
    return gw_context_open_coll(context, id, members, count, self, gw_clock_now() + context->deadline, coll, error);
}

static gw_status configure(gw_reducer *reducer, const gw_reducer_tensor *tensors, const gw_reducer_options *options,
                           gw_step_engine_config *config, gw_error *error) {
    reducer->sharing = (gw_host_sharing){reducer, alloc_shared, release_shared, open_coll, gw_shm_coll_close};
    *config = (gw_step_engine_config){.core = reducer->comm->context->core,
                                      .team = reducer->comm->team,
                                      .sharing = &reducer->sharing,
                                      .tensors = tensors,
                                      .count = reducer->count,
                                      .options = *options,
                                      .serves_only = reducer->serves_only};
    gw_status status = gw_step_engine_config_from_strategy(config, &reducer->strategy, error);
    config->snapshots = reducer->snapshots[0] ? reducer->snapshots : NULL;
    if (status) return status;
    if (gw_step_engine_updates_whole(config))
        gw_log(GW_LOG_INFO, reducer->comm->rank,
               "the update needs whole tensors: each belongs to one server, and is sent in one piece, whatever the "
               "schedule slices");
    reducer->flat_bytes = gw_step_engine_flat_bytes(config);
    return gw_reducer_alloc_pack_buffer(reducer, config, error);
}

/* Polling. */

static bool poll_step_engine(void *ctx, gw_time now) {
    return gw_step_engine_poll(((gw_reducer *)ctx)->step_engine, now);
}
static bool step_engine_busy(void *ctx) { return gw_step_engine_busy(((gw_reducer *)ctx)->step_engine); }

void gw_reducer_attach(gw_reducer *reducer) {
    reducer->callback = (gw_progress_callback){.ctx = reducer, .poll = poll_step_engine, .busy = step_engine_busy};
    gw_core_attach(reducer->comm->context->core, &reducer->callback);
    reducer->attached = true;
}

void gw_reducer_detach(gw_reducer *reducer) {
    if (reducer->attached) gw_core_detach(reducer->comm->context->core, &reducer->callback);
    reducer->attached = false;
}

/* Logging. */

void gw_reducer_log_summary(const gw_reducer *reducer) {
    char line[GW_STRATEGY_PRINT_BYTES];
    const gw_schedule *schedule = gw_step_engine_schedule(reducer->step_engine);
    gw_step_engine_payloads payloads = gw_step_engine_payload_memory(reducer->step_engine);
    gw_strategy_print(&reducer->strategy, line, sizeof line);
    gw_log(GW_LOG_INFO, reducer->comm->rank,
           "a reducer of %d tensors in %d buckets: %s; %zu bytes of memory, %zu of them kept by the codec, %zu for "
           "payloads (%zu in flight)",
           reducer->count, gw_schedule_buckets(schedule), line, gw_step_engine_memory_bytes(reducer->step_engine),
           gw_step_engine_codec_bytes(reducer->step_engine), payloads.memory, payloads.in_flight);
}

static void log_routes(const gw_reducer *reducer) {
    gw_route_use uses[GW_ROUTE_USES_MAX];
    char text[600];
    int count = gw_route_summary(reducer->step_engine, uses);
    for (int i = 0; i < count; i++) {
        gw_route_use_text(&uses[i], text, sizeof text);
        gw_log(GW_LOG_INFO, reducer->comm->rank, "route of %s", text);
    }
}

/* Which layers are sent as factors. */
static void describe_factors(const gw_reducer *reducer, const gw_reducer_tensor *tensors) {
    for (int i = 0; gw_strategy_is(&reducer->strategy, GW_AXIS_ARCH, "sfb") && i < reducer->count; i++) {
        const gw_reducer_tensor *t = &tensors[i];
        char matrix[GW_UNIT_TEXT], factors[GW_UNIT_TEXT];
        if (!t->batch || !t->rows) continue;
        gw_bytes_format(t->count * sizeof(float), matrix);
        gw_bytes_format(t->batch * (t->rows + t->count / t->rows) * sizeof(float), factors);
        gw_log(GW_LOG_INFO, reducer->comm->rank,
               "%s, %zu x %zu with a batch of %zu, is sent as %s: %s to each peer, the "
               "matrix is %s",
               t->name, t->rows, t->count / t->rows, t->batch,
               gw_step_engine_wants_factors(reducer->step_engine, i) ? "factors" : "a matrix", factors, matrix);
    }
}

/* Commit. */

void gw_reducer_reserve_team_ids(gw_reducer *reducer, gw_step_engine_config *config) {
    gw_context *context = reducer->comm->context;
    if (config->tensors) reducer->buckets_most = gw_step_engine_buckets_most(config->tensors, config->count);
    config->first_id = context->next_comm;
    context->next_comm += gw_step_engine_teams(config, reducer->buckets_most);
}

static gw_status open_step_engine(gw_reducer *reducer, gw_step_engine_config *config, gw_error *error) {
    gw_context *context = reducer->comm->context;
    gw_context_lock(context);
    gw_reducer_reserve_team_ids(reducer, config);
    gw_status status = gw_step_engine_open(&reducer->step_engine, config, error);
    gw_context_unlock(context);
    return status;
}

/* Pushes may come from now on. */
void gw_reducer_start_polling(gw_reducer *reducer) {
    gw_context *context = reducer->comm->context;
    gw_context_lock(context);
    reducer->before = gw_engine_count(gw_core_engine(context->core));
    gw_reducer_attach(reducer);
    gw_context_unlock(context);
    reducer->fresh = false;
}

gw_status gw_reducer_begin_tuning(gw_reducer *reducer, gw_comm *comm, gw_error *error) {
    if (reducer->table.bytes) return GW_OK;
    return gw_tuning_open(&reducer->tuning, reducer->tune, comm, &reducer->strategy, &reducer->model, error);
}

bool gw_reducer_cuts_by_timing(const gw_reducer *reducer) {
    return gw_schedule_current_settings(gw_step_engine_schedule(reducer->step_engine))->measured;
}

gw_status gw_reducer_begin_measuring(gw_reducer *reducer, gw_error *error) {
    if (!gw_reducer_cuts_by_timing(reducer)) return GW_OK;
    gw_status status = gw_step_timing_open(&reducer->timing, reducer->count, error);
    if (!status && (status = gw_step_timing_allreduces(&reducer->timing, reducer->comm)))
        gw_fail(error, status, "%s", gw_last_error(reducer->comm));
    return status;
}

/* All ranks that take part are in reducer->comm. */
static gw_status begin(gw_reducer *reducer, const gw_reducer_tensor *tensors, const gw_reducer_options *options,
                       gw_status so_far, gw_error *error) {
    gw_step_engine_config config;
    gw_ps_member *who = NULL;
    gw_status status = so_far;
    if (!status) status = configure(reducer, tensors, options, &config, error);
    status = gw_reducer_agree(reducer->comm, status, error);
    if (!status) status = gw_reducer_gather_members(reducer, &config, &who, error);
    if (status) return status;
    config.members = who;
    config.serial = reducer->serial;
    status = gw_reducer_agree(reducer->comm, open_step_engine(reducer, &config, error), error);
    free(who);
    if (!status) status = gw_reducer_agree(reducer->comm, gw_reducer_transfer_state(reducer, error), error);
    if (!status) gw_reducer_start_polling(reducer);
    return status;
}

static gw_status commit(gw_reducer *reducer, gw_comm *comm, const gw_reducer_tensor *tensors,
                        const gw_reducer_options *options, gw_error *error) {
    reducer->model = model_of(tensors, reducer->count);
    reducer->dense_bytes = reducer->model.bytes * 2 * (uint64_t)(comm->size - 1) / (uint64_t)comm->size;
    gw_status status = gw_reducer_agree(comm, prepare(reducer, comm, tensors, options, error), error);
    if (!status) status = gw_reducer_split_comm(reducer, comm, &reducer->comm, error);
    if (!status) status = gw_reducer_begin_tuning(reducer, reducer->comm, error);
    if (!status) status = gw_reducer_begin_deciding(reducer, reducer->comm, error);
    if (!status) status = begin(reducer, tensors, options, GW_OK, error);
    return status ? status : gw_reducer_begin_measuring(reducer, error);
}

static gw_reducer *make_reducer(const gw_comm *comm, int count, const gw_reducer_options *options, gw_error *error) {
    gw_reducer *reducer = calloc(1, sizeof *reducer);
    const char *file = options->decisions ? options->decisions : getenv("GRADWIRE_DECISIONS");
    char *tune = reducer && options->tune ? strdup(options->tune) : NULL;
    char *decisions = reducer && file ? strdup(file) : NULL;
    char *optimizer = reducer && options->optimizer ? strdup(options->optimizer) : NULL;
    if (!reducer || (options->tune && !tune) || (file && !decisions) || (options->optimizer && !optimizer)) {
        gw_fail(error, GW_MEMORY, "out of memory for a reducer");
        free(optimizer);
        free(decisions);
        free(tune);
        free(reducer);
        return NULL;
    }
    reducer->fresh = true;
    reducer->tune = tune;
    reducer->decisions = decisions;
    reducer->optimizer = optimizer;
    reducer->count = count;
    reducer->workers = comm->size;
    reducer->first_step = reducer->next_step = reducer->job_first_step = options->first_step;
    reducer->generation = (uint32_t)comm->context->job_env.generation;
    return reducer;
}

static gw_status check_call(gw_reducer **out, const gw_comm *comm, const void *tensors, int count, gw_error *error) {
    if (!out || !comm || count < 0 || (count && !tensors))
        return gw_fail(error, GW_INVALID,
                       "gw_reducer_commit: the communicator, the tensors or the place for the reducer is NULL");
    if (comm->group) return gw_fail(error, GW_INVALID, "gw_reducer_commit: it cannot be called inside a group");
    return GW_OK;
}

/* Bytes of the first structs that could grow. */
#define OPTIONS_LEAST (offsetof(gw_reducer_options, rate) + sizeof(gw_reducer_rate_fn *))
#define TENSOR_LEAST (offsetof(gw_reducer_tensor, batch) + sizeof(size_t))

/* The caller's tensors as this library knows them; NULL: *error says why. */
static gw_reducer_tensor *read_tensors(const void *given, size_t size, int count, gw_error *error) {
    gw_reducer_tensor *tensors = calloc((size_t)count + 1, sizeof *tensors);
    if (!tensors) gw_fail(error, GW_MEMORY, "out of memory for %d tensors", count);
    for (int i = 0; tensors && i < count && !error->status; i++)
        gw_sized_read(&tensors[i], sizeof tensors[i], (const char *)given + (size_t)i * size, size, TENSOR_LEAST,
                      "gw_reducer_commit: gw_reducer_tensor", error);
    if (!error->status) return tensors;
    free(tensors);
    return NULL;
}

static gw_status commit_call(gw_reducer **out, gw_comm *comm, const gw_reducer_tensor *tensors, int count,
                             const gw_reducer_options *options, gw_error *error) {
    gw_reducer *reducer = make_reducer(comm, count, options, error);
    gw_status status =
        reducer ? commit(reducer, comm, tensors, options, error) : gw_reducer_agree(comm, GW_MEMORY, error);
    if (status) {
        gw_reducer_close(reducer);
        return status;
    }
    gw_reducer_log_summary(reducer);
    log_routes(reducer);
    describe_factors(reducer, tensors);
    gw_context_notify(comm->context); /* this rank's server may get pushes from now on */
    *out = reducer;
    return GW_OK;
}

gw_status gw_reducer_commit_sized(gw_reducer **out, gw_comm *comm, const void *given, size_t tensor_size, int count,
                                  const gw_reducer_options *given_options) {
    gw_reducer_options options = GW_REDUCER_OPTIONS_DEFAULT;
    gw_reducer_tensor *tensors = NULL;
    gw_error error = {.rank = -1};
    if (out) *out = NULL;
    gw_status status = check_call(out, comm, given, count, &error);
    if (status) return gw_comm_set_last_error(&error);
    if (given_options)
        gw_sized_read(&options, sizeof options, given_options, given_options->size, OPTIONS_LEAST,
                      "gw_reducer_commit: gw_reducer_options", &error);
    if (!error.status) tensors = read_tensors(given, tensor_size, count, &error);
    status = tensors ? commit_call(out, comm, tensors, count, &options, &error)
                     : gw_reducer_agree(comm, error.status, &error); /* the other ranks wait for this one */
    free(tensors);
    return status ? gw_comm_set_last_error(&error) : GW_OK;
}

gw_status gw_reducer_commit_as_server(gw_reducer **out, gw_comm *everyone, const gw_reducer_request *request,
                                      gw_status so_far, gw_error *error) {
    gw_reducer *reducer = make_reducer(everyone, request->count, &request->options, error);
    gw_comm *comm = NULL;
    gw_status status = reducer ? so_far : GW_MEMORY;
    if (gw_comm_split(everyone, 0, everyone->rank, &comm))
        status = gw_fail(error, GW_PEER_LOST, "%s", gw_last_error(everyone));
    if (reducer) {
        reducer->comm = comm;
        reducer->serves_only = true;
        reducer->workers = everyone->size - everyone->context->job_env.servers;
        if (!status) status = resolve(reducer, everyone, request->strategy, error);
        if (!status) status = find_snapshots(reducer, error);
    }
    if (!comm || !reducer) {
        if (comm) gw_reducer_agree(comm, status, error);
        gw_finalize(comm);
        free(reducer);
        return status;
    }
    status = begin(reducer, request->tensors, &request->options, status, error);
    if (!status) status = gw_reducer_begin_measuring(reducer, error);
    if (status) {
        gw_reducer_close(reducer);
        return status;
    }
    gw_step_engine_leave(reducer->step_engine); /* it makes no steps, and ends when all workers have left */
    gw_reducer_log_summary(reducer);
    gw_context_notify(everyone->context);
    *out = reducer;
    return GW_OK;
}
