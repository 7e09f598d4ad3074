/* early_grants.c - grants for sends that are not started here yet. They wait in a list for each peer, which grows to
 * the number of its pending operations, and has a limit: a peer cannot fill this rank's memory. */
#include "engine/engine_internal.h"

#include <stdlib.h>

#define EARLY_GRANTS_MAX 32768

static bool grow(gw_peer *peer) {
    int room = peer->early_capacity ? 2 * peer->early_capacity : 8;
    gw_early_grant *grown = realloc(peer->early, (size_t)room * sizeof *grown);
    if (!grown) return false;
    peer->early = grown;
    peer->early_capacity = room;
    return true;
}

void gw_early_grants_keep(gw_engine *engine, int from, const gw_frame *frame) {
    gw_peer *peer = &engine->peers[from];
    for (int i = 0; i < peer->early_count; i++) {
        gw_early_grant *early = &peer->early[i];
        if (early->comm == frame->comm && early->op == frame->op && early->channel == frame->channel) {
            if (frame->index > early->granted) early->granted = frame->index;
            return;
        }
    }
    if (peer->early_count == EARLY_GRANTS_MAX) {
        gw_engine_report(engine, GW_PROTOCOL, from,
                         "rank %d on %s granted %d sends that this rank has not started: start operations in the same "
                         "order everywhere, and fewer ahead of the others",
                         from, engine->config.host_name(engine->config.events.ctx, from), EARLY_GRANTS_MAX);
        return;
    }
    if (peer->early_count == peer->early_capacity && !grow(peer)) {
        gw_engine_report(engine, GW_MEMORY, -1, "out of memory for grants of rank %d", from);
        return;
    }
    peer->early[peer->early_count++] =
        (gw_early_grant){.comm = frame->comm, .channel = frame->channel, .tag = frame->tag, .op = frame->op,
                         .granted = frame->index, .signature = gw_signature_of_frame(frame)};
}

void gw_early_grants_claim(gw_op *op, int job_rank) {
    gw_peer *peer = &op->engine->peers[job_rank];
    for (int i = 0; i < peer->early_count;) {
        gw_early_grant *early = &peer->early[i];
        if (early->comm != op->team->id || early->op != op->number) {
            i++;
            continue;
        }
        gw_stream_state *stream = gw_op_stream(op, GW_STREAM_SEND, job_rank, early->channel);
        gw_signature mine = gw_op_expects(op, job_rank, &(gw_frame){.kind = GW_FRAME_GRANT});
        bool equal = gw_signature_equal(&early->signature, &mine);
        bool offered = op->spec.tagged; /* to whatever send has this number: it need not fit */
        if (!equal && !offered) {
            gw_engine_mismatch(op->engine, job_rank, early->comm, early->op, &early->signature, &mine);
        } else if (stream && equal && gw_op_has_tag(op, early->tag) && early->granted > stream->granted) {
            stream->granted = early->granted;
        }
        peer->early[i] = peer->early[--peer->early_count];
    }
}
