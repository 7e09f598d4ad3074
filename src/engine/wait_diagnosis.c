/* wait_diagnosis.c - finds the ranks that an operation waits for, and checks its deadline. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "engine/engine_internal.h"
#include "shm/shm_coll.h"

/* Size of the clause that says what is awaited. */
#define WHAT_BYTES (GW_TEXT_BYTES + 260)

/* A rank that knows a reason ends the job this part of the deadline before those that only wait: the first sentence is
 * the one that all get. */
#define KNOWS_EARLIER 16

#define ASK_AFTER (50 * GW_MILLISECOND)

typedef struct awaited {
    int *ranks; /* job ranks, world entries at most */
    int count;
    char what[WHAT_BYTES]; /* about the first rank */
} awaited;

/* True for the first rank: the caller then writes its clause. */
static bool add(awaited *list, int rank) {
    for (int i = 0; i < list->count; i++)
        if (list->ranks[i] == rank) return false;
    list->ranks[list->count++] = rank;
    return list->count == 1;
}

/* A tagged receive that no send has matched. */
static void add_sources(const gw_op *op, awaited *list) {
    char text[GW_TEXT_BYTES], from[24] = "any rank";
    for (int r = 0; r < op->team->size; r++) {
        int rank = op->team->members[r];
        if (r != op->team->rank && (op->pair_peer < 0 || op->pair_peer == rank)) add(list, rank);
    }
    if (op->pair_peer >= 0) snprintf(from, sizeof from, "rank %d", op->pair_peer);
    snprintf(list->what, WHAT_BYTES, "a message with tag %d from %s, of %s", op->spec.tag, from,
             gw_signature_message(&op->signature, text));
}

static void add_senders(const gw_op *op, awaited *list, const char *text) {
    for (uint32_t s = 0; s < op->plan.streams; s++) {
        const gw_stream_state *stream = &op->streams[s];
        if (stream->desc.kind != GW_STREAM_RECV || stream->done == stream->posted) continue;
        if (stream->recvs[stream->done % GW_PIPELINE].arrived) continue;
        if (add(list, stream->peer))
            snprintf(list->what, WHAT_BYTES, "message %" PRIu64 " of %" PRIu64 " from rank %d in %s", stream->done + 1,
                     stream->desc.actions, stream->peer, text);
    }
}

static void add_receivers(const gw_op *op, awaited *list, const char *text) {
    char message[GW_TEXT_BYTES];
    for (uint32_t s = 0; s < op->plan.streams; s++) {
        const gw_stream_state *stream = &op->streams[s];
        if (stream->desc.kind != GW_STREAM_SEND || stream->done == stream->desc.actions) continue;
        bool queued = stream->posted > stream->done;
        gw_action action;
        if (!queued) gw_plan_action(&op->plan, s, stream->posted, &action);
        if (!queued && !gw_op_holds(op, action.ready)) continue; /* it waits for another stream of this rank */
        if (!add(list, stream->peer)) continue;
        if (op->requested && !stream->granted) /* no receive has matched this send */
            snprintf(list->what, WHAT_BYTES, "rank %d to receive a message with tag %d, of %s", stream->peer,
                     op->spec.tag, gw_signature_message(&op->signature, message));
        else
            snprintf(list->what, WHAT_BYTES, "rank %d to %s message %" PRIu64 " of %" PRIu64 " in %s", stream->peer,
                     queued ? "take" : "make room for", stream->done + 1, stream->desc.actions, text);
    }
}

static void find_awaited(const gw_op *op, awaited *list) {
    char text[GW_TEXT_BYTES];
    gw_op_text(op, text);
    *list = (awaited){.ranks = op->engine->awaited};
    if (gw_op_unmatched(op)) {
        add_sources(op, list);
        return;
    }
    add_senders(op, list, text);
    add_receivers(op, list, text);
    int member = op->team->coll ? gw_shm_coll_awaited(op->team->coll) : -1;
    if (member >= 0 && add(list, member)) snprintf(list->what, WHAT_BYTES, "rank %d to reach %s", member, text);
    if (!list->count) snprintf(list->what, WHAT_BYTES, "%s", text);
}

/* Adds that large packets to one of these ranks get no answer, while small ones do; false: they all do, or none. */
static bool add_unanswered(const gw_engine *engine, awaited *list) {
    for (int i = 0; i < list->count; i++) {
        gw_unanswered packets = {0};
        gw_transport *transport = engine->peers[list->ranks[i]].transport;
        if (!transport || !transport->ops->unanswered) continue;
        if (!transport->ops->unanswered(transport, list->ranks[i], &packets)) continue;
        const gw_engine_events *events = &engine->config.events;
        if (!events->heard || !events->heard(events->ctx, list->ranks[i])) continue;
        size_t used = strlen(list->what);
        snprintf(
            list->what + used, WHAT_BYTES - used,
            " (packets of %u bytes to rank %d were sent %u times without an answer, but its heartbeats arrive: the "
            "path has a smaller MTU than the interface)",
            packets.bytes, list->ranks[i], packets.times);
        return true;
    }
    return false;
}

/* Grants all posted receives. Two ranks that made different calls may wait for each other, and no message shows it. A
 * grant contains this rank's signature, so the sender detects the mismatch. Receives that are granted already are
 * skipped. */
static void ask_senders(gw_op *op) {
    for (uint32_t s = 0; s < op->plan.streams; s++)
        if (op->streams[s].desc.kind == GW_STREAM_RECV && op->streams[s].done < op->streams[s].posted)
            gw_flow_grant_all(op, &op->streams[s], op->number);
}

static void check_deadline(gw_op *op, gw_time deadline) {
    gw_engine *engine = op->engine;
    gw_time waited = engine->now > op->progress_at ? engine->now - op->progress_at : 0;
    if (waited >= ASK_AFTER && !gw_op_unmatched(op)) ask_senders(op);
    bool soon = waited >= deadline - deadline / KNOWS_EARLIER;
    if (waited < deadline / 3 || (op->warned && !soon)) return;
    awaited list;
    find_awaited(op, &list);
    bool overdue = (add_unanswered(engine, &list) && soon) || waited >= deadline;
    const gw_engine_events *events = &engine->config.events;
    if (!op->warned) events->waiting(events->ctx, list.ranks, list.count, list.what, deadline);
    op->warned = true;
    if (overdue) events->overdue(events->ctx, list.ranks, list.count, list.what, deadline);
}

/* Checks the oldest operation that a caller waits for, since the cause of its delay delays the later ones too, and all
 * those with a deadline of their own. */
void gw_op_check_deadlines(gw_engine *engine) {
    bool oldest = true;
    for (gw_op *op = engine->active; op && !engine->halted; op = op->next) {
        if (op->spec.patient) continue;
        gw_time own = op->spec.deadline;
        if (oldest || own) check_deadline(op, own ? own : engine->config.deadline);
        oldest = false;
    }
}

void gw_op_expect(gw_op *op, bool expected, gw_time now) {
    if (expected && op->spec.patient) op->progress_at = now;
    op->spec.patient = !expected;
}
