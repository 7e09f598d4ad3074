/* quick.c - a call that is one task of an idle board, or of the library under the transport, without an operation in
 * the engine.
 *
 * A small collective takes less time than laying out an operation, asking for the time and looking at every link. So a
 * caller that is going to wait starts the task alone and looks at it for a moment; if that was not enough, the call
 * becomes an operation like any other, which takes the running task over. The plan is asked once for each kind of call:
 * the task is kept for the next call that differs only in its buffers. */
#include "engine/engine_internal.h"

#include "base/dtype.h"

#define IDLE_WATCHES 12 /* of half a microsecond: two changes of process or three */

/* The whole of both buffers, and nothing to do before or after. */
static bool is_one_task(const gw_plan *plan, gw_action *step) {
    gw_stream stream;
    if (plan->streams != 1) return false;
    gw_plan_stream(plan, 0, &stream);
    if (stream.steps != 1) return false;
    gw_plan_step(plan, 0, 0, step);
    return step->kind == GW_STEP_NATIVE || (step->kind == GW_STEP_BOARD && step->task != GW_BOARD_REDUCE_SCATTER);
}

static bool prepare(gw_team *team, const gw_op_spec *spec) {
    gw_quick *quick = &team->quick;
    if (quick->made && quick->of.builder == spec->builder && gw_op_same_kind(&quick->of, spec)) return true;
    gw_plan plan;
    gw_action step;
    gw_plan_request request = gw_op_request(team, spec, gw_dtype_bytes(gw_accumulator(spec->dtype, spec->redop)));
    quick->made = gw_plan_make(&plan, spec->builder, &request, NULL) == GW_OK && is_one_task(&plan, &step);
    if (!quick->made) return false;
    quick->of = *spec;
    quick->signature = gw_op_sign(team, spec);
    if (step.kind == GW_STEP_NATIVE) return true;
    quick->task = gw_op_board_task(&step, &quick->signature,
                                   (gw_reduction){.dtype = spec->dtype, .op = spec->redop, .world = team->size});
    return true;
}

/* Where it fails an operation will find the same, and tell. */
static bool start_native(gw_team *team, const gw_op_spec *spec) {
    gw_quick *quick = &team->quick;
    quick->native = team->native->ops->native->start(team->native, spec->in, spec->out, spec->count, spec->dtype,
                                                     spec->redop, &quick->error);
    return quick->native != NULL;
}

static void start_on_board(gw_team *team, const gw_op_spec *spec) {
    gw_board_op *task = &team->quick.task;
    task->number = team->next_op;
    task->in = spec->in;
    task->out = spec->out;
    gw_board_start(team->board, task);
}

bool gw_quick_start(gw_team *team, const gw_op_spec *spec) {
    gw_engine *engine = team->engine;
    gw_quick *quick = &team->quick;
    bool native = team->native && spec->builder == &gw_plan_native;
    if (!native && (!team->board || spec->builder != &gw_plan_direct || spec->counts || spec->merge)) return false;
    if (engine->active || engine->halted || engine->error.status || engine->trace) return false;
    if (!engine->spare || !engine->spare->lane_room) return false; /* handing over must not need memory */
    if (!prepare(team, spec)) return false;
    quick->error.status = GW_OK;
    if (native && !start_native(team, spec)) return false;
    if (!native) start_on_board(team, spec);
    quick->running = true;
    return true;
}

static bool board_done(gw_team *team, bool watch) {
    uint64_t completed = 0;
    gw_error *error = &team->quick.error;
    if (watch ? gw_board_watch(team->board, &completed, error) : gw_board_poll(team->board, &completed, NULL, error))
        return false;
    if (completed == team->board_tickets) return false;
    team->board_tickets++;
    team->board_planned++;
    return true;
}

static bool native_done(gw_team *team) {
    gw_quick *quick = &team->quick;
    if (!team->native->ops->native->done(team->native, quick->native, &quick->error)) return false;
    quick->native = NULL;
    return !quick->error.status;
}

void gw_quick_note(const gw_team *team, gw_op_brief *brief) {
    *brief = (gw_op_brief){.signature = team->quick.signature, .number = team->next_op, .pair_peer = -1};
}

bool gw_quick_done(gw_team *team, bool watch) {
    gw_quick *quick = &team->quick;
    if (quick->error.status || !(quick->of.builder == &gw_plan_native ? native_done(team) : board_done(team, watch)))
        return false;
    team->history[team->next_op++ % GW_HISTORY] = quick->signature;
    quick->running = false;
    return true;
}

bool gw_quick_done_here(gw_team *team) {
    bool done = gw_quick_done(team, false);
    for (int i = 0; !done && i < IDLE_WATCHES && !team->quick.error.status; i++) {
        if (team->quick.of.builder == &gw_plan_native || !gw_board_core_is_idle(team->board)) break;
        done = gw_quick_done(team, true);
    }
    return done;
}

void gw_quick_hand_over(gw_op *op) {
    gw_quick *quick = &op->team->quick;
    quick->running = false;
    if (quick->of.builder == &gw_plan_native) {
        op->native_due--;
        op->lanes[0].native = quick->native;
        if (quick->error.status) gw_engine_report(op->engine, quick->error.status, -1, "%s", quick->error.text);
        return;
    }
    gw_op_board_begun(op, &op->lanes[0]);
    if (quick->error.status) gw_op_report_board(op, &quick->error);
}
