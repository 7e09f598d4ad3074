/* shm_actions.c - the actions of a plan that are tasks of a shm collective: what they ask of it, and its errors. */
#include "engine/engine_internal.h"

/* The task cuts src, and dst is this rank's part of it. */
static bool cuts_src(const gw_action *action) {
    return action->task == GW_SHM_TASK_REDUCE_SCATTER || action->task == GW_SHM_TASK_SCATTER;
}

/* The task cuts dst, and src is this rank's part of it. */
static bool cuts_dst(const gw_action *action) {
    bool gathers = action->task == GW_SHM_TASK_ALLGATHER || action->task == GW_SHM_TASK_GATHER;
    return gathers && action->src.space == GW_SPACE_IN;
}

gw_coll_shift gw_op_coll_shift(const gw_team *team, const gw_action *action, const size_t *counts) {
    size_t offset = 0, length, count = cuts_src(action) ? action->src.count : action->dst.count;
    int local = gw_topology_local_rank(&team->topology, team->rank);
    for (int l = 0; action->by_counts && l < local; l++) offset += counts[l];
    if (!action->by_counts && local < action->lanes) gw_part(count, action->lanes, local, &offset, &length);
    return (gw_coll_shift){.in = cuts_dst(action) ? offset : 0, .out = cuts_src(action) ? offset : 0};
}

gw_shm_coll_op gw_op_coll_task(const gw_action *action, const gw_signature *signature, gw_reduction reduction) {
    gw_shm_coll_op task = {.task = action->task, .reduction = reduction,
                        .count = cuts_src(action) ? action->src.count : action->dst.count,
                        .lanes = action->lanes, .root = action->coll_root, .dst_wide = action->dst_wide};
    gw_signature_pack(signature, task.signature);
    return task;
}

void gw_op_coll_begun(gw_op *op, gw_stream_state *stream) {
    op->coll_started++;
    stream->coll_ticket = ++op->team->coll_tickets;
    stream->coll_running = true;
}

static int another_on_host(const gw_team *team) {
    int rank = 0;
    while (rank == team->rank || team->host_of[rank] != team->host_of[team->rank]) rank++;
    return team->members[rank];
}

/* A member aborts because of a failure that the control plane reports: treat the abort as a lost link. */
void gw_op_report_coll(gw_op *op, const gw_error *error) {
    if (error->status == GW_MISMATCH) {
        uint64_t packed[GW_SHM_COLL_SIGNATURE] = {0};
        int rank = error->rank == op->engine->config.rank ? another_on_host(op->team) : error->rank;
        gw_shm_coll_signature(op->team->coll, rank, packed);
        gw_flow_shm_mismatch(op, rank, packed);
    } else {
        gw_engine_report(op->engine, error->status == GW_ABORTED ? GW_PEER_LOST : error->status, error->rank, "%s",
                         error->text);
    }
}
