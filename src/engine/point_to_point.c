/* point_to_point.c - sends and receives: their numbers, the announcements of tagged sends, and the tagged receives that
 * these match.
 *
 * Without tags, the n-th send of a rank to another matches the n-th receive. A tagged send is numbered too, but its
 * receive has no number until it is matched (tag_matching.c); from then on both go on as all operations do. */
#include "engine/engine_internal.h"

#include <assert.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>

/* The n-th operation from or to a team rank. */
static uint64_t numbered(const gw_team *team, bool sends, int peer, uint64_t n) {
    int sender = sends ? team->rank : peer, receiver = sends ? peer : team->rank;
    return GW_PAIR_OP | (sender < receiver ? 0 : GW_PAIR_DOWN) | n;
}

/* The team rank of a job rank; -1: not in the team. */
static int team_rank_of(const gw_team *team, int job_rank) {
    if (job_rank < team->size && team->members[job_rank] == job_rank) return job_rank;
    for (int r = 0; r < team->size; r++)
        if (team->members[r] == job_rank) return r;
    return -1;
}

bool gw_pair_over(const gw_team *team, int peer, uint64_t number) {
    int to = team ? team_rank_of(team, peer) : -1;
    if (to < 0) return false;
    if (!(number & GW_TAGGED_OP)) return team->sent_to && GW_OP_NUMBER(number) < team->sent_to[to];
    return team->tags && GW_OP_NUMBER(number) < team->tags->peers[to].sent;
}

uint64_t gw_team_reserve(gw_team *team, int peer) { return numbered(team, false, peer, team->received_from[peer]++); }

static gw_tag_matching *tags_of(gw_team *team) {
    if (!team->tags) team->tags = gw_tags_open(team->size);
    return team->tags;
}

static gw_status number_tagged(gw_op *op, gw_error *error) {
    gw_team *team = op->team;
    gw_tag_matching *tags = tags_of(team);
    int peer = op->spec.root;
    assert(op->spec.tag >= 0);
    if (!tags) return gw_fail(error, GW_MEMORY, "out of memory for tags of %d ranks", team->size);
    op->pair_peer = peer == GW_ANY_SOURCE ? -1 : team->members[peer];
    if (op->spec.collective == GW_COLL_SEND) {
        op->number = numbered(team, true, peer, GW_TAGGED_OP | tags->peers[peer].sent++);
    } else {
        op->number = op->offered = GW_UNMATCHED_OP;
        op->streams[0].peer = op->pair_peer;
    }
    return GW_OK;
}

gw_status gw_pair_number(gw_op *op, gw_error *error) {
    gw_team *team = op->team;
    int peer = op->spec.root;
    if (op->spec.tagged) return number_tagged(op, error);
    op->pair_peer = team->members[peer];
    if (op->spec.collective == GW_COLL_SEND) op->number = numbered(team, true, peer, team->sent_to[peer]++);
    else op->number = op->spec.number ? op->spec.number : gw_team_reserve(team, peer);
    return GW_OK;
}

/* The send is known: the receive gets its peer and number, and its buffers are posted, because the data may be arriving
 * right now. Grants wait until the operation is polled: no transport is called from within its own callbacks. */
static void bind(gw_op *op, const gw_tag_send *send) {
    gw_team *team = op->team;
    gw_stream_state *stream = &op->streams[0];
    op->spec.root = send->source;
    op->pair_peer = stream->peer = team->members[send->source];
    op->number = numbered(team, false, send->source, GW_TAGGED_OP | send->number);
    if (!gw_signature_equal(&op->signature, &send->signature)) {
        gw_engine_tag_mismatch(op, &send->signature);
        return;
    }
    gw_op_post_receives(op, stream);
    if (op->offered != op->number) stream->granted = 0; /* another send may use that grant */
    if (send->requested) stream->large_to = stream->posted;
    gw_op_progress(op);
    gw_op_mark(op);
}

static gw_op *op_of(gw_tag_recv *recv) { return (gw_op *)((uint8_t *)recv - offsetof(gw_op, tag_recv)); }

void gw_pair_match(gw_op *op) {
    gw_tag_send send;
    op->tag_recv = (gw_tag_recv){.source = op->spec.root, .tag = op->spec.tag};
    if (gw_tags_post(op->team->tags, &op->tag_recv, &send)) bind(op, &send);
    else if (op->pair_peer >= 0) gw_op_post_receives(op, &op->streams[0]);
}

/* Only the first receive from a source makes an offer, and only to the very next send: if that has the same tag, it is
 * sure to find a posted receive, this one or an earlier one from any source, whatever overtakes whatever. A one-sided
 * transport would write to the buffers of this receive even so: there the receive waits for the announcement. */
void gw_pair_offer(gw_op *op) {
    gw_stream_state *stream = &op->streams[0];
    gw_tag_matching *tags = op->team->tags;
    int source = op->spec.root;
    if (!stream->large_to || stream->signal_queued || gw_tags_first(tags, source) != &op->tag_recv) return;
    uint64_t next = numbered(op->team, false, source, GW_TAGGED_OP | tags->peers[source].announced);
    if (op->offered == next || op->engine->peers[op->pair_peer].transport->ops->writes_there) return;
    op->offered = next;
    stream->granted = 0;
    gw_flow_grant_all(op, stream, next);
}

/* The next receive from this source may make an offer now. */
static void mark_next(gw_tag_matching *tags, int source) {
    gw_tag_recv *first = gw_tags_first(tags, source);
    if (first) gw_op_mark(op_of(first));
}

static void report_refused(gw_engine *engine, int peer, const gw_frame *frame, const char *why) {
    gw_engine_report(engine, GW_PROTOCOL, peer,
                     "rank %d on %s announced send #%" PRIu64 " with tag %" PRIu32 " on communicator %u, %s", peer,
                     engine->config.host_name(engine->config.events.ctx, peer), GW_OP_NUMBER(frame->op), frame->tag,
                     frame->comm, why);
}

#define SAME_VERSION ": do all ranks run the same version of gradwire?"
#define TOO_MANY "but 65536 of its sends wait for receives that this rank has not posted: receive them, or send fewer"
static_assert(GW_TAG_SENDS_MAX == 65536, "the sentence says the number");

/* Keeps an RTS until its communicator is opened. A message is found in the unexpected queue then. */
static void keep_request(gw_engine *engine, int from, const gw_frame *frame) {
    gw_peer *peer = &engine->peers[from];
    if (peer->request_count == GW_TAG_SENDS_MAX) {
        report_refused(engine, from, frame, TOO_MANY);
        return;
    }
    if (peer->request_count == peer->request_capacity) {
        int room = peer->request_capacity ? 2 * peer->request_capacity : 8;
        gw_frame *grown = realloc(peer->requests, (size_t)room * sizeof *grown);
        if (!grown) {
            gw_engine_report(engine, GW_MEMORY, -1, "out of memory for announcements of rank %d", from);
            return;
        }
        peer->requests = grown;
        peer->request_capacity = room;
    }
    peer->requests[peer->request_count++] = *frame;
}

static void announce(gw_team *team, int source, const gw_frame *frame) {
    gw_engine *engine = team->engine;
    int peer = team->members[source];
    gw_tag_matching *tags = tags_of(team);
    gw_tag_send send = {.source = source, .tag = (int)frame->tag, .number = GW_OP_NUMBER(frame->op),
                        .requested = frame->kind == GW_FRAME_RTS, .signature = gw_signature_of_frame(frame)};
    gw_tag_verdict verdict = tags ? gw_tags_announce(tags, &send) : GW_TAG_NO_MEMORY;
    if (verdict == GW_TAG_SEEN) return;
    if (verdict == GW_TAG_TOO_MANY) report_refused(engine, peer, frame, TOO_MANY);
    if (verdict == GW_TAG_NO_MEMORY)
        gw_engine_report(engine, GW_MEMORY, -1, "out of memory for announcements of rank %d", peer);
    gw_tag_recv *recv;
    while (!engine->halted && gw_tags_next(tags, source, &send, &recv)) bind(op_of(recv), &send);
    if (!engine->halted) mark_next(tags, source);
}

void gw_pair_announced(gw_engine *engine, int peer, const gw_frame *frame) {
    gw_team *team = gw_engine_team(engine, frame->comm);
    int source = team ? team_rank_of(team, peer) : -1;
    if (!gw_frame_is_tagged(frame) || (team && source < 0))
        report_refused(engine, peer, frame, "where it sends nothing" SAME_VERSION);
    else if (team) announce(team, source, frame);
    else if (frame->kind == GW_FRAME_RTS) keep_request(engine, peer, frame);
}

static void claim_requests(gw_team *team, int source) {
    gw_peer *peer = &team->engine->peers[team->members[source]];
    int kept = 0;
    for (int i = 0; i < peer->request_count; i++)
        if (peer->requests[i].comm == team->id) announce(team, source, &peer->requests[i]);
        else peer->requests[kept++] = peer->requests[i];
    peer->request_count = kept;
}

void gw_pair_claim_early(gw_team *team) {
    for (int r = 0; r < team->size; r++) {
        const gw_peer *peer = &team->engine->peers[team->members[r]];
        claim_requests(team, r);
        for (int i = 0; peer->unexpected_used && i < GW_EAGER_SLOTS; i++) {
            const gw_unexpected *slot = &peer->unexpected[i];
            bool announces = slot->used && slot->frame.comm == team->id && gw_frame_is_tagged(&slot->frame);
            if (announces) announce(team, r, &slot->frame);
        }
    }
}

/* A receive from any source needs all ranks that have not left in order; if all have left, one of them. */
int gw_pair_lost_source(const gw_op *op) {
    const gw_team *team = op->team;
    const gw_peer *peers = op->engine->peers;
    int left = 0, last = -1;
    if (op->pair_peer >= 0) return peers[op->pair_peer].lost ? op->pair_peer : -1;
    for (int r = 0; r < team->size; r++) {
        int rank = team->members[r];
        if (r == team->rank || !peers[rank].lost) continue;
        if (!peers[rank].left) return rank;
        last = rank;
        left++;
    }
    return left == team->size - 1 ? last : -1;
}

void gw_pair_discard(gw_engine *engine) {
    for (int r = 0; r < engine->config.world; r++) engine->peers[r].request_count = 0;
    for (gw_team *team = engine->teams; team; team = team->next)
        if (team->tags) gw_tags_clear(team->tags);
}
