/* rank_core.c - see rank_core.h. */
#include "engine/rank_core.h"

#include <stdlib.h>

#include "engine/engine_internal.h"

/* A lost data link may be a consequence of another failure (an aborted peer that closes). The control plane has this
 * long to report the cause; then the lost link itself becomes the error. The end of a process is reported at once. */
#define GRACE (400 * GW_MILLISECOND)

struct gw_core {
    gw_core_config config;
    gw_engine *engine;
    gw_control *control;
    gw_error suspicion; /* a lost link whose cause the control plane may still report */
    gw_time suspected_at;
    bool unsettled;      /* the control plane has failed the generation, the engine not yet */
    uint32_t generation; /* of the engine */
    gw_progress_callback *callbacks;
    gw_time now;
    gw_time polled_at; /* when operations were last polled */
};

static void engine_failed(void *ctx, const gw_error *error) {
    gw_core *core = ctx;
    if (error->status == GW_PEER_LOST) {
        core->suspicion = *error;
        core->suspected_at = core->now;
    } else {
        gw_control_abort(core->control, error);
    }
}

static void engine_waiting(void *ctx, const int *awaited, int count, const char *what, gw_time deadline) {
    gw_core *core = ctx;
    gw_control_waiting(core->control, awaited, count, what, deadline, core->now);
}

static void engine_overdue(void *ctx, const int *awaited, int count, const char *what, gw_time deadline) {
    gw_core *core = ctx;
    gw_control_overdue(core->control, awaited, count, what, deadline, core->now);
}

static bool engine_heard(void *ctx, int rank) {
    gw_core *core = ctx;
    return gw_control_hears(core->control, rank, core->now);
}

static const char *host_name(void *ctx, int rank) {
    gw_core *core = ctx;
    return core->config.host_name(core->config.ctx, rank);
}

static void control_send(void *ctx, int neighbour, const gw_control_message *message) {
    gw_core *core = ctx;
    core->config.send(core->config.ctx, neighbour, message);
}

static void control_dial(void *ctx, int rank) {
    gw_core *core = ctx;
    if (core->config.dial) core->config.dial(core->config.ctx, rank);
}

static void control_aborted(void *ctx, const gw_error *error) {
    (void)error;
    gw_core *core = ctx;
    core->unsettled = true;
}

static void control_gone(void *ctx, int rank, bool left, const char *detail) {
    gw_core *core = ctx;
    gw_engine_peer_gone(core->engine, rank, left, detail);
}

static void control_returned(void *ctx, int rank) {
    gw_core *core = ctx;
    gw_engine_peer_returned(core->engine, rank);
}

static void control_slow(void *ctx, const char *sentence) {
    gw_core *core = ctx;
    core->config.slow(core->config.ctx, sentence);
}

gw_status gw_core_open(gw_core **out, const gw_core_config *config, gw_time now, gw_error *error) {
    gw_core *core = calloc(1, sizeof *core);
    if (!core) return gw_fail(error, GW_MEMORY, "out of memory for a rank");
    core->config = *config;
    core->now = now;
    gw_engine_config engine = {.rank = config->rank, .world = config->world, .deadline = config->deadline,
                               .events = {.ctx = core, .failed = engine_failed, .waiting = engine_waiting,
                                          .overdue = engine_overdue, .heard = engine_heard},
                               .host_name = host_name};
    gw_control_config control = {.rank = config->rank, .world = config->world, .deadline = config->deadline,
                                 .any_side = config->any_side};
    gw_control_events events = {.ctx = core, .send = control_send, .dial = control_dial, .aborted = control_aborted,
                                .gone = control_gone, .returned = control_returned, .slow = control_slow,
                                .host_name = host_name};
    gw_status status = gw_engine_open(&core->engine, &engine, error);
    if (!status) status = gw_control_open(&core->control, &control, &events, now, error);
    if (status) gw_core_close(core);
    else *out = core;
    return status;
}

void gw_core_close(gw_core *core) {
    if (!core) return;
    gw_control_close(core->control);
    gw_engine_close(core->engine);
    free(core);
}

gw_engine *gw_core_engine(gw_core *core) { return core->engine; }
gw_control *gw_core_control(gw_core *core) { return core->control; }

void gw_core_attach(gw_core *core, gw_progress_callback *callback) {
    callback->next = core->callbacks;
    core->callbacks = callback;
}

void gw_core_detach(gw_core *core, gw_progress_callback *callback) {
    gw_progress_callback **at = &core->callbacks;
    while (*at != callback) at = &(*at)->next;
    *at = callback->next;
}

bool gw_core_busy(const gw_core *core) {
    if (gw_engine_pending(core->engine)) return true;
    for (const gw_progress_callback *callback = core->callbacks; callback; callback = callback->next)
        if (callback->busy(callback->ctx)) return true;
    return false;
}

/* The peer left in order, so there is no other cause to wait for. */
static bool explained(const gw_core *core) {
    return core->suspicion.rank >= 0 && gw_control_left(core->control, core->suspicion.rank);
}

/* Applies the decisions of callbacks, when no transport or engine function is on the stack. */
static void settle(gw_core *core) {
    if (core->generation != gw_control_generation(core->control)) { /* the job has been shrunk */
        core->generation = gw_control_generation(core->control);
        gw_engine_renew(core->engine);
    }
    if (core->suspicion.status && (explained(core) || core->now >= core->suspected_at + GRACE)) {
        gw_control_abort(core->control, &core->suspicion);
        core->suspicion = (gw_error){0};
    }
    if (!core->unsettled) return;
    core->unsettled = false;
    core->suspicion = (gw_error){0};
    gw_engine *engine = core->engine;
    gw_engine_fail(engine, gw_control_error(core->control));
    for (int t = 0; t < engine->transport_count; t++)
        engine->transports[t]->ops->reset(engine->transports[t], gw_control_generation(core->control) + 1);
    core->config.failed(core->config.ctx, gw_control_error(core->control));
}

bool gw_core_was_stopped(const gw_core *core, gw_time now) {
    gw_time gap = now - core->polled_at;
    return gap > core->config.deadline / 10 && gap > GW_SECOND / 5;
}

static void forgive_own_sleep(gw_core *core, gw_time now) {
    if (gw_core_was_stopped(core, now)) gw_engine_forgive(core->engine, now - core->polled_at);
    core->polled_at = now;
}

bool gw_core_poll(gw_core *core, gw_time now) {
    core->now = now;
    forgive_own_sleep(core, now);
    bool any = gw_engine_poll(core->engine, now);
    settle(core);
    for (gw_progress_callback *callback = core->callbacks; callback; callback = callback->next)
        any |= callback->poll(callback->ctx, now);
    return any;
}

void gw_core_poll_control(gw_core *core, gw_time now) {
    core->now = now;
    gw_control_poll(core->control, now);
    settle(core);
}

gw_status gw_core_start(gw_core *core, gw_op **op, gw_team *team, const gw_op_spec *spec, gw_time now,
                        gw_error *error) {
    core->now = now;
    if (gw_engine_pending(core->engine) == 0) core->polled_at = now; /* without operations nobody had to poll */
    gw_status status = gw_op_start(op, team, spec, now, error);
    settle(core);
    return status;
}

void gw_core_receive(gw_core *core, int neighbour, const gw_control_message *message, gw_time now) {
    core->now = now;
    gw_control_receive(core->control, neighbour, message, now);
    settle(core);
}

void gw_core_link_up(gw_core *core, int rank, gw_time now) {
    core->now = now;
    gw_control_link_up(core->control, rank, now);
    settle(core);
}

void gw_core_link_lost(gw_core *core, int neighbour, const char *detail, gw_time now) {
    core->now = now;
    gw_control_link_lost(core->control, neighbour, detail, now);
    settle(core);
}

void gw_core_died(gw_core *core, int rank, const char *detail, gw_time now) {
    core->now = now;
    gw_control_died(core->control, rank, detail, now);
    settle(core);
}

void gw_core_shrink(gw_core *core, gw_time until, gw_time now) {
    core->now = now;
    gw_control_shrink(core->control, until, now);
    settle(core);
}

void gw_core_abort(gw_core *core, const gw_error *error, gw_time now) {
    core->now = now;
    gw_control_abort(core->control, error);
    settle(core);
}
