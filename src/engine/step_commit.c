/* step_commit.c - how a step begins: every rank checks what it was given, all agree that all can, and only then does
 * anybody go on. A rank that cannot tells the others why, so that nobody waits for it. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/units.h"
#include "engine/step.h"
#include "strategy/combine.h"

/* Agreeing. */

typedef struct reason {
    int32_t status;
    char text[GW_ERROR_TEXT_BYTES];
} reason;

gw_status gw_step_agree(gw_comm *comm, gw_status mine, gw_error *error) {
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
                        comm->node->endpoints[rank].host, why.text);
}

/* What one rank can find out by itself. */

static gw_tuned_model model_of(const gw_step_tensor *tensors, int count) {
    gw_tuned_model model = {.tensors = count};
    for (int i = 0; i < count; i++) {
        bool known = (unsigned)tensors[i].dtype < GW_DTYPES; /* commit says so otherwise */
        uint64_t bytes = known ? tensors[i].count * gw_dtype_bytes(tensors[i].dtype) : 0;
        model.bytes += bytes;
        if (bytes > model.largest) model.largest = bytes;
    }
    return model;
}

static gw_status resolve(gw_step *step, const gw_comm *comm, const char *line, gw_error *error) {
    step->strategy = comm->node->strategy;
    gw_status status = line ? gw_strategy_overlay(&step->strategy, line, NULL, error) : GW_OK;
    const gw_setting *have = &comm->node->strategy.axes[GW_AXIS_TRANSPORT];
    if (!status && memcmp(&step->strategy.axes[GW_AXIS_TRANSPORT], have, sizeof *have) != 0)
        status = gw_fail(error, GW_INVALID,
                         "gw_step_commit: the transport is chosen when a job is joined and cannot change for a step");
    return status ? status : gw_strategy_serve(&step->strategy, comm->node->place.servers, error);
}

/* Server processes serve the job's steps, not those of a part of its workers. */
static gw_status check_apart(const gw_comm *comm, const gw_step_options *options, gw_error *error) {
    const gw_node *node = comm->node;
    const char *tune = options->tune ? options->tune : getenv(GW_TUNE_VARIABLE);
    if (!node->place.servers) return GW_OK;
    if (comm->size != node->world - node->place.servers)
        return gw_fail(error, GW_UNSUPPORTED,
                       "gw_step_commit: with server processes (--servers) a step is one of all workers, and this "
                       "communicator has %d of %d",
                       comm->size, node->world - node->place.servers);
    if (tune && *tune && strcmp(tune, "off") != 0)
        return gw_fail(error, GW_UNSUPPORTED, "gw_step_commit: with server processes (--servers) a schedule is not "
                                              "tuned: they do not take part when pieces are cut anew");
    return GW_OK;
}

static gw_status find_snapshots(gw_step *step, gw_error *error) {
    bool writes = gw_strategy_is(&step->strategy, GW_AXIS_ARCH, "ps") &&
                  gw_strategy_integer(&step->strategy, GW_AXIS_ARCH, "snapshot") > 0;
    const char *folder = getenv("GRADWIRE_SNAPSHOTS");
    if (!writes) return GW_OK;
    if (!folder || !*folder)
        return gw_fail(error, GW_INVALID,
                       "arch=ps:snapshot=%lld: GRADWIRE_SNAPSHOTS (gradwire run --snapshots DIRECTORY) has to say "
                       "where servers write to",
                       (long long)gw_strategy_integer(&step->strategy, GW_AXIS_ARCH, "snapshot"));
    /* On every rank, as any of them may have to take a server over. */
    if (access(folder, W_OK) != 0)
        return gw_fail(error, GW_INVALID,
                       "GRADWIRE_SNAPSHOTS: %s cannot be written to: %s; it has to be there on every host", folder,
                       strerror(errno));
    snprintf(step->snapshots, sizeof step->snapshots, "%s", folder);
    return GW_OK;
}

static gw_status prepare(gw_step *step, const gw_comm *comm, const gw_step_tensor *tensors,
                         const gw_step_options *options, gw_error *error) {
    step->facts = (gw_step_facts){.world = comm->size, .updates = options->update != NULL,
                                  .sums = options->op == GW_SUM,
                           .clips = options->clip > 0, .apart = comm->node->place.servers > 0};
    gw_status status = resolve(step, comm, options->strategy, error);
    if (!status) status = gw_strategy_check_step(&step->strategy, &step->facts, error);
    if (!status) status = check_apart(comm, options, error);
    if (!status) status = find_snapshots(step, error);
    if (!status && step->facts.apart)
        status = gw_step_table_write(&step->table, &step->strategy, options, tensors, step->count, error);
    step->asked = step->strategy;
    return status;
}

gw_status gw_step_take_memory(gw_step *step, gw_stepper_config *config, gw_error *error) {
    if (step->flat_bytes && !(step->flat = gw_alloc(step->comm, step->flat_bytes)))
        return gw_fail(error, GW_MEMORY, "gw_step_commit: %s", gw_last_error(NULL));
    config->flat = step->flat;
    return GW_OK;
}

static gw_status configure(gw_step *step, const gw_step_tensor *tensors, const gw_step_options *options,
                           gw_stepper_config *config, gw_error *error) {
    *config = (gw_stepper_config){.core = step->comm->node->core, .team = step->comm->team, .tensors = tensors,
                                  .count = step->count, .options = *options, .serves_only = step->serves_only};
    gw_status status = gw_stepper_follow(config, &step->strategy, error);
    config->snapshots = step->snapshots[0] ? step->snapshots : NULL;
    if (status) return status;
    step->flat_bytes = gw_stepper_flat_bytes(config);
    return gw_step_take_memory(step, config, error);
}

/* Polling. */

static bool poll_stepper(void *ctx, gw_time now) { return gw_stepper_poll(((gw_step *)ctx)->stepper, now); }
static bool stepper_busy(void *ctx) { return gw_stepper_busy(((gw_step *)ctx)->stepper); }

void gw_step_ride(gw_step *step) {
    step->rider = (gw_rider){.ctx = step, .poll = poll_stepper, .busy = stepper_busy};
    gw_core_carry(step->comm->node->core, &step->rider);
    step->rides = true;
}

void gw_step_dismount(gw_step *step) {
    if (step->rides) gw_core_drop(step->comm->node->core, &step->rider);
    step->rides = false;
}

/* What comes of it, to the log. */

void gw_step_describe(const gw_step *step) {
    char line[GW_STRATEGY_PRINT_BYTES];
    const gw_schedule *schedule = gw_stepper_schedule(step->stepper);
    gw_strategy_print(&step->strategy, line, sizeof line);
    gw_log(GW_LOG_INFO, step->comm->rank,
           "a step of %d tensors in %d pieces: %s; %zu bytes of memory, %zu of them kept by the codec", step->count,
           gw_schedule_pieces(schedule), line, gw_stepper_memory_bytes(step->stepper),
           gw_stepper_codec_bytes(step->stepper));
}

/* Which form each fully connected layer takes. */
static void describe_factors(const gw_step *step, const gw_step_tensor *tensors) {
    for (int i = 0; gw_strategy_is(&step->strategy, GW_AXIS_ARCH, "sfb") && i < step->count; i++) {
        const gw_step_tensor *t = &tensors[i];
        char matrix[GW_UNIT_TEXT], factors[GW_UNIT_TEXT];
        if (!t->batch || !t->rows) continue;
        gw_bytes_format(t->count * sizeof(float), matrix);
        gw_bytes_format(t->batch * (t->rows + t->count / t->rows) * sizeof(float), factors);
        gw_log(GW_LOG_INFO, step->comm->rank, "%s, %zu x %zu with a batch of %zu, travels as %s: %s to each peer, the "
               "matrix is %s", t->name, t->rows, t->count / t->rows, t->batch,
               gw_stepper_wants_factors(step->stepper, i) ? "factors" : "a matrix", factors, matrix);
    }
}

/* Commit. */

void gw_step_take_ids(gw_step *step, gw_stepper_config *config) {
    gw_node *node = step->comm->node;
    config->first_id = node->next_comm;
    node->next_comm += gw_stepper_teams(config);
}

static gw_status open_stepper(gw_step *step, gw_stepper_config *config, gw_error *error) {
    gw_node *node = step->comm->node;
    gw_node_lock(node);
    gw_step_take_ids(step, config);
    gw_status status = gw_stepper_open(&step->stepper, config, error);
    gw_node_unlock(node);
    return status;
}

/* Pushes may come from now on. */
void gw_step_set_out(gw_step *step) {
    gw_node *node = step->comm->node;
    gw_node_lock(node);
    step->before = gw_engine_count(gw_core_engine(node->core));
    gw_step_ride(step);
    gw_node_unlock(node);
    step->fresh = false;
}

gw_status gw_step_begin_tuning(gw_step *step, gw_comm *comm, gw_error *error) {
    if (step->table.bytes) return GW_OK;
    return gw_tuning_open(&step->tuning, step->tune, comm, &step->strategy, &step->model, error);
}

gw_status gw_step_begin_measuring(gw_step *step, gw_error *error) {
    if (!gw_schedule_set_to(gw_stepper_schedule(step->stepper))->measured) return GW_OK;
    gw_status status = gw_measure_open(&step->measure, step->count, error);
    if (!status && (status = gw_measure_exchanges(&step->measure, step->comm)))
        gw_fail(error, status, "%s", gw_last_error(step->comm));
    return status;
}

/* All who take part have come together in step->comm. */
static gw_status begin(gw_step *step, const gw_step_tensor *tensors, const gw_step_options *options, gw_status so_far,
                       gw_error *error) {
    gw_stepper_config config;
    gw_attendant *who = NULL;
    gw_status status = so_far;
    if (!status) status = configure(step, tensors, options, &config, error);
    status = gw_step_agree(step->comm, status, error);
    if (!status) status = gw_step_attend(step, &config, &who, error);
    if (status) return status;
    config.attendants = who;
    status = gw_step_agree(step->comm, open_stepper(step, &config, error), error);
    free(who);
    if (!status) status = gw_step_agree(step->comm, gw_step_hand_over(step, error), error);
    if (!status) gw_step_set_out(step);
    return status;
}

static gw_status commit(gw_step *step, gw_comm *comm, const gw_step_tensor *tensors, const gw_step_options *options,
                        gw_error *error) {
    step->model = model_of(tensors, step->count);
    step->dense_bytes = step->model.bytes * 2 * (uint64_t)(comm->size - 1) / (uint64_t)comm->size;
    gw_status status = gw_step_agree(comm, prepare(step, comm, tensors, options, error), error);
    if (!status) status = gw_step_meet(step, comm, &step->comm, error);
    if (!status) status = gw_step_begin_tuning(step, step->comm, error);
    if (!status) status = begin(step, tensors, options, GW_OK, error);
    return status ? status : gw_step_begin_measuring(step, error);
}

static gw_step *make_step(const gw_comm *comm, int count, const gw_step_options *options, gw_error *error) {
    gw_step *step = calloc(1, sizeof *step);
    char *tune = step && options->tune ? strdup(options->tune) : NULL;
    if (!step || (options->tune && !tune)) {
        gw_fail(error, GW_MEMORY, "out of memory for a step");
        free(step);
        return NULL;
    }
    step->fresh = true;
    step->tune = tune;
    step->count = count;
    step->workers = comm->size;
    step->first = step->next = step->base = options->first_step;
    step->life = (uint32_t)comm->node->place.round;
    return step;
}

static gw_status check_call(gw_step **out, const gw_comm *comm, const gw_step_tensor *tensors, int count,
                            gw_error *error) {
    if (!out || !comm || count < 0 || (count && !tensors))
        return gw_fail(error, GW_INVALID,
                       "gw_step_commit: the communicator, the tensors or the place for the step is NULL");
    if (comm->grouping) return gw_fail(error, GW_INVALID, "gw_step_commit: it cannot be called inside a group");
    return GW_OK;
}

gw_status gw_step_commit(gw_step **out, gw_comm *comm, const gw_step_tensor *tensors, int count,
                         const gw_step_options *options) {
    static const gw_step_options defaults = GW_STEP_OPTIONS_DEFAULT;
    gw_error error = {.rank = -1};
    gw_step *step = NULL;
    if (!options) options = &defaults;
    if (out) *out = NULL;
    gw_status status = check_call(out, comm, tensors, count, &error);
    if (!status) {
        step = make_step(comm, count, options, &error);
        status = step ? commit(step, comm, tensors, options, &error) : gw_step_agree(comm, GW_MEMORY, &error);
    }
    if (status) {
        gw_step_close(step);
        return gw_comm_told(&error);
    }
    gw_step_describe(step);
    describe_factors(step, tensors);
    gw_node_nudge(comm->node); /* a server waits for pushes from now on */
    *out = step;
    return GW_OK;
}

gw_status gw_step_commit_served(gw_step **out, gw_comm *everyone, const gw_step_request *request, gw_status so_far,
                                gw_error *error) {
    gw_step *step = make_step(everyone, request->count, &request->options, error);
    gw_comm *comm = NULL;
    gw_status status = step ? so_far : GW_MEMORY;
    if (gw_comm_split(everyone, 0, everyone->rank, &comm))
        status = gw_fail(error, GW_PEER_LOST, "%s", gw_last_error(everyone));
    if (step) {
        step->comm = comm;
        step->serves_only = true;
        step->workers = everyone->size - everyone->node->place.servers;
        if (!status) status = resolve(step, everyone, request->strategy, error);
        if (!status) status = find_snapshots(step, error);
    }
    if (!comm || !step) {
        if (comm) gw_step_agree(comm, status, error);
        gw_finalize(comm);
        free(step);
        return status;
    }
    status = begin(step, request->tensors, &request->options, status, error);
    if (status) {
        gw_step_close(step);
        return status;
    }
    gw_stepper_leave(step->stepper); /* it makes no steps: it ends when all workers have left */
    gw_step_describe(step);
    gw_node_nudge(everyone->node);
    *out = step;
    return GW_OK;
}
