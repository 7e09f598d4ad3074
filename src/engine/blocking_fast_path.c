/* blocking_fast_path.c - blocking calls that are a single task of an idle shm collective, or of the transport's
 * library, run without an operation in the engine.
 *
 * A small collective takes less time than laying out an operation, reading the clock and polling every link. So a
 * blocking caller starts only the task and polls it for a moment. If that is not enough, the call becomes an ordinary
 * operation, which takes over the running task. The plan is made once for each kind of call: the task is kept for the
 * next call that differs only in its buffers. */
#include "engine/engine_internal.h"

#include "base/dtype.h"

#define IDLE_WATCHES 12 /* polls of half a microsecond each; together as long as two or three context switches */

/* The plan is one task on the whole of both buffers, with nothing before or after. */
static bool is_one_task(const gw_plan *plan, gw_action *action) {
    gw_stream stream;
    if (plan->streams != 1) return false;
    gw_plan_stream(plan, 0, &stream);
    if (stream.actions != 1) return false;
    gw_plan_action(plan, 0, 0, action);
    return action->kind == GW_ACTION_NATIVE || action->kind == GW_ACTION_SHM;
}

static bool prepare(gw_team *team, const gw_op_spec *spec) {
    gw_fast_path *fast = &team->fast;
    if (fast->made && fast->of.builder == spec->builder && gw_op_same_kind(&fast->of, spec)) return true;
    gw_plan plan;
    gw_action action;
    gw_plan_request request = gw_op_request(team, spec, gw_dtype_bytes(gw_accumulator(spec->dtype, spec->redop)));
    fast->made = gw_plan_make(&plan, spec->builder, &request, NULL) == GW_OK && is_one_task(&plan, &action);
    if (!fast->made) return false;
    fast->of = *spec;
    fast->signature = gw_op_sign(team, spec);
    if (action.kind == GW_ACTION_NATIVE) return true;
    fast->task = gw_op_coll_task(&action, &fast->signature, gw_op_reduction(team, spec));
    gw_coll_shift shift = gw_op_coll_shift(team, &action, NULL);
    fast->shift_in = shift.in * gw_dtype_bytes(spec->dtype);
    fast->shift_out = shift.out * gw_dtype_bytes(spec->dtype);
    return true;
}

/* On failure the operation that follows fails in the same way and reports it. */
static bool start_native(gw_team *team, const gw_op_spec *spec) {
    gw_fast_path *fast = &team->fast;
    fast->native = team->native->ops->native->start(team->native, spec->in, spec->out, spec->count, spec->dtype,
                                                    spec->redop, &fast->error);
    return fast->native != NULL;
}

static void start_on_coll(gw_team *team, const gw_op_spec *spec) {
    gw_shm_coll_op *task = &team->fast.task;
    task->number = team->next_op;
    task->in = gw_shifted(spec->in, team->fast.shift_in);
    task->out = gw_shifted(spec->out, team->fast.shift_out);
    gw_shm_coll_start(team->coll, task);
}

bool gw_fast_path_start(gw_team *team, const gw_op_spec *spec) {
    gw_engine *engine = team->engine;
    gw_fast_path *fast = &team->fast;
    bool native = team->native && spec->builder == &gw_plan_transport_allreduce;
    if (!native && (!team->coll || spec->builder != &gw_plan_direct || spec->counts || spec->merge)) return false;
    if (engine->active || engine->halted || engine->error.status || engine->trace) return false;
    if (!engine->spare || !engine->spare->stream_capacity) return false; /* gw_fast_path_hand_over must not allocate */
    if (!prepare(team, spec)) return false;
    fast->error.status = GW_OK;
    if (native && !start_native(team, spec)) return false;
    if (!native) start_on_coll(team, spec);
    fast->running = true;
    return true;
}

static bool coll_done(gw_team *team, bool watch) {
    uint64_t completed = 0;
    gw_error *error = &team->fast.error;
    if (watch ? gw_shm_coll_spin(team->coll, &completed, error) : gw_shm_coll_poll(team->coll, &completed, NULL, error))
        return false;
    if (completed == team->coll_tickets) return false;
    team->coll_tickets++;
    team->coll_planned++;
    return true;
}

static bool native_done(gw_team *team) {
    gw_fast_path *fast = &team->fast;
    if (!team->native->ops->native->done(team->native, fast->native, &fast->error)) return false;
    fast->native = NULL;
    return !fast->error.status;
}

void gw_fast_path_note(const gw_team *team, gw_op_brief *brief) {
    *brief = (gw_op_brief){.signature = team->fast.signature, .number = team->next_op, .pair_peer = -1,
                           .tag = -1};
}

bool gw_fast_path_done(gw_team *team, bool watch) {
    gw_fast_path *fast = &team->fast;
    if (fast->error.status ||
        !(fast->of.builder == &gw_plan_transport_allreduce ? native_done(team) : coll_done(team, watch)))
        return false;
    team->history[team->next_op++ % GW_HISTORY] = fast->signature;
    fast->running = false;
    return true;
}

bool gw_fast_path_done_shared_core(gw_team *team) {
    bool done = gw_fast_path_done(team, false);
    for (int i = 0; !done && i < IDLE_WATCHES && !team->fast.error.status; i++) {
        if (team->fast.of.builder == &gw_plan_transport_allreduce || !gw_shm_coll_core_is_idle(team->coll)) break;
        done = gw_fast_path_done(team, true);
    }
    return done;
}

void gw_fast_path_hand_over(gw_op *op) {
    gw_fast_path *fast = &op->team->fast;
    fast->running = false;
    if (fast->of.builder == &gw_plan_transport_allreduce) {
        op->native_due--;
        op->streams[0].native = fast->native;
        if (fast->error.status) gw_engine_report(op->engine, fast->error.status, -1, "%s", fast->error.text);
        return;
    }
    gw_op_coll_begun(op, &op->streams[0]);
    if (fast->error.status) gw_op_report_coll(op, &fast->error);
}
