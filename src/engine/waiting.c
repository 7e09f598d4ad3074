/* waiting.c - whom an operation waits for, and for how long. */
#include <inttypes.h>
#include <stdio.h>

#include "engine/engine_internal.h"
#include "transport/board.h"

/* Room for a clause about what is awaited. */
#define WHAT_BYTES (GW_TEXT_BYTES + 80)

#define ASK_AFTER (50 * GW_MILLISECOND)

typedef struct awaited {
    int *ranks; /* job ranks, world entries at most */
    int count;
    char what[WHAT_BYTES]; /* of the first of them */
} awaited;

/* True for the first, whose clause is to be written. */
static bool add(awaited *list, int rank) {
    for (int i = 0; i < list->count; i++)
        if (list->ranks[i] == rank) return false;
    list->ranks[list->count++] = rank;
    return list->count == 1;
}

static void add_senders(const gw_op *op, awaited *list, const char *text) {
    for (uint32_t s = 0; s < op->plan.streams; s++) {
        const gw_lane *lane = &op->lanes[s];
        if (lane->stream.flow != GW_FLOW_RECV || lane->done == lane->posted) continue;
        if (lane->land[lane->done % GW_PIPELINE].arrived) continue;
        if (add(list, lane->peer))
            snprintf(list->what, WHAT_BYTES, "message %" PRIu64 " of %" PRIu64 " from rank %d in %s", lane->done + 1,
                     lane->stream.steps, lane->peer, text);
    }
}

static void add_receivers(const gw_op *op, awaited *list, const char *text) {
    for (uint32_t s = 0; s < op->plan.streams; s++) {
        const gw_lane *lane = &op->lanes[s];
        if (lane->stream.flow != GW_FLOW_SEND || lane->done == lane->stream.steps) continue;
        bool queued = lane->posted > lane->done;
        gw_action step;
        if (!queued) gw_plan_step(&op->plan, s, lane->posted, &step);
        if (!queued && !gw_op_holds(op, step.ready)) continue; /* it waits for another stream of this rank */
        if (add(list, lane->peer))
            snprintf(list->what, WHAT_BYTES, "rank %d to %s message %" PRIu64 " of %" PRIu64 " in %s", lane->peer,
                     queued ? "take" : "make room for", lane->done + 1, lane->stream.steps, text);
    }
}

static void find_awaited(const gw_op *op, awaited *list) {
    char text[GW_TEXT_BYTES];
    gw_op_text(op, text);
    *list = (awaited){.ranks = op->engine->awaited};
    add_senders(op, list, text);
    add_receivers(op, list, text);
    int member = op->team->board ? gw_board_awaited(op->team->board) : -1;
    if (member >= 0 && add(list, member)) snprintf(list->what, WHAT_BYTES, "rank %d to reach %s", member, text);
    if (!list->count) snprintf(list->what, WHAT_BYTES, "%s", text);
}

/* Whoever called something else may wait for this rank as this one waits for it, and nothing is sent that would show
 * it. A grant says what this rank has called; where one has gone already, nothing happens. */
static void ask_senders(gw_op *op) {
    for (uint32_t s = 0; s < op->plan.streams; s++)
        if (op->lanes[s].stream.flow == GW_FLOW_RECV && op->lanes[s].done < op->lanes[s].posted)
            gw_flow_grant_all(op, &op->lanes[s]);
}

/* Only the oldest operation that somebody waits for is looked at: what holds it up holds up those behind it. */
void gw_op_check_deadline(gw_op *oldest) {
    gw_engine *engine = oldest->engine;
    gw_op *op = oldest;
    while (op && op->spec.patient) op = op->next;
    if (!op) return;
    gw_time waited = engine->now > op->progress_at ? engine->now - op->progress_at : 0;
    if (waited >= ASK_AFTER) ask_senders(op);
    bool overdue = waited >= engine->config.deadline;
    if (waited < engine->config.deadline / 3 || (op->warned && !overdue)) return;
    awaited list;
    find_awaited(op, &list);
    if (!op->warned) engine->config.events.waiting(engine->config.events.ctx, list.ranks, list.count, list.what);
    op->warned = true;
    if (overdue) engine->config.events.overdue(engine->config.events.ctx, list.ranks, list.count, list.what);
}

void gw_op_expect(gw_op *op, bool expected, gw_time now) {
    if (expected && op->spec.patient) op->progress_at = now;
    op->spec.patient = !expected;
}
