/* server_setup.c - a reducer over parameter servers, at commit and after a loss. The first worker sends a command to
 * the server processes. Every rank sends a description of itself to all, so that all ranks compute the same placement
 * of servers (ps/placement.h). The state of each server is then sent to the rank that runs it. */
#include <stdlib.h>
#include <string.h>

#include "base/announced.h"
#include "base/log.h"
#include "ps/ps.h"
#include "ps/server_process.h"
#include "reducer/reducer_internal.h"

gw_status gw_reducer_copy_last_error(gw_status status, gw_error *error) {
    return status ? gw_fail(error, status, "%s", gw_last_error(NULL)) : GW_OK;
}

/* The first worker sends the server processes the same command for a commit and for a resume. */
gw_status gw_reducer_split_comm(gw_reducer *reducer, gw_comm *comm, gw_comm **mine, gw_error *error) {
    gw_comm *all = comm;
    if (reducer->table.bytes) {
        gw_context *context = comm->context;
        all = context->everyone;
        gw_context_lock(context);
        reducer->number = context->next_reducer++;
        gw_context_unlock(context);
        gw_status status = gw_servers_call(all, GW_SERVER_COMMAND_REDUCER, reducer->number, &reducer->table, error);
        if (status) return status;
    }
    return gw_reducer_copy_last_error(gw_comm_split(all, 0, all->rank, mine), error);
}

static uint32_t offer_serial(const gw_reducer *reducer) {
    gw_context *context = reducer->comm->context;
    gw_context_lock(context);
    uint32_t next = context->next_serial;
    gw_context_unlock(context);
    return reducer->fresh ? next : reducer->serial;
}

/* Takes the serial number that all ranks agree on; reducers that are committed later get higher ones. */
static void take_serial(gw_reducer *reducer, const gw_ps_member *who) {
    gw_context *context = reducer->comm->context;
    reducer->serial = gw_ps_serial(who, reducer->comm->size);
    gw_context_lock(context);
    if (context->next_serial <= reducer->serial) context->next_serial = reducer->serial + 1;
    gw_context_unlock(context);
}

gw_status gw_reducer_gather_members(gw_reducer *reducer, const gw_step_engine_config *config, gw_ps_member **out,
                                    gw_error *error) {
    gw_comm *comm = reducer->comm;
    if (!config->servers) return GW_OK;
    gw_ps_member *who = calloc((size_t)comm->size, sizeof *who);
    if (!who) return gw_fail(error, GW_MEMORY, "out of memory for %d ranks", comm->size);
    gw_ps_member mine = {.member = comm->context->job_env.member, .generation = reducer->generation, .serves = -1,
                         .copies = -1, .fresh = reducer->fresh, .serves_only = reducer->serves_only,
                         .serial = offer_serial(reducer), .first_step = reducer->job_first_step};
    if (reducer->step_engine) gw_ps_describe_member(gw_step_engine_servers(reducer->step_engine), &mine);
    gw_status status = gw_reducer_copy_last_error(gw_allgather(comm, &mine, who, sizeof mine, GW_U8), error);
    if (status) {
        free(who);
        return status;
    }
    take_serial(reducer, who);
    *out = who;
    return GW_OK;
}

/* Server state. */

static gw_status send_state(gw_comm *comm, const void *bytes, size_t count, int to, gw_error *error) {
    uint64_t length = count;
    gw_status status = gw_reducer_copy_last_error(gw_send(comm, &length, 1, GW_I64, to), error);
    return status ? status : gw_reducer_copy_last_error(gw_send(comm, bytes, count, GW_U8, to), error);
}

static gw_status receive_state(gw_comm *comm, gw_ps *ps, int server, int from, gw_error *error) {
    uint64_t length = 0;
    gw_status status = gw_reducer_copy_last_error(gw_recv(comm, &length, 1, GW_I64, from), error);
    if (status) return status;
    void *bytes = gw_announced_alloc(length, from, "a server's state", error);
    if (!bytes) return error->status;
    status = gw_reducer_copy_last_error(gw_recv(comm, bytes, length, GW_U8, from), error);
    if (!status) status = gw_ps_set_state(ps, server, bytes, length, error);
    free(bytes);
    return status;
}

/* From one rank to another, or on the same rank. */
static gw_status pass_state(gw_comm *comm, gw_ps *ps, int server, int from, int to, gw_error *error) {
    const void *bytes = NULL;
    size_t count = 0;
    if (to < 0 || (comm->rank != from && comm->rank != to)) return GW_OK;
    if (comm->rank != from) return receive_state(comm, ps, server, from, error);
    gw_status status = gw_ps_get_state(ps, server, &bytes, &count, error);
    if (status) return status;
    return to == from ? gw_ps_set_state(ps, server, bytes, count, error) : send_state(comm, bytes, count, to, error);
}

/* All ranks have just started. A server process has no weights, and gets those of rank 0. */
static gw_status begin_state(gw_comm *comm, gw_ps *ps, int server, gw_error *error) {
    int to = gw_ps_placement(ps)->rank_of[server];
    size_t bytes = gw_ps_space(ps, server);
    gw_status status = GW_OK;
    if (gw_ps_gives_weights(ps) && comm->rank == 0) {
        void *space = calloc(1, bytes + 1);
        if (!space) return gw_fail(error, GW_MEMORY, "out of memory for %zu bytes of weights", bytes);
        gw_ps_pack_weights(ps, server, space);
        status = gw_reducer_copy_last_error(gw_send(comm, space, bytes, GW_U8, to), error);
        free(space);
    }
    if (comm->rank != to) return status;
    if (gw_ps_gives_weights(ps))
        status = gw_reducer_copy_last_error(gw_recv(comm, gw_ps_space_weights(ps), bytes, GW_U8, 0), error);
    if (!status) gw_ps_begin_fresh(ps);
    return status;
}

/* State that no rank holds comes from a snapshot. Only the server's own rank can tell whether there is one, so all
 * ranks agree before any of them waits for that state. */
static gw_status load_states(gw_comm *comm, gw_ps *ps, gw_error *error) {
    const gw_placement *p = gw_ps_placement(ps);
    gw_status status = GW_OK;
    for (int s = 0; s < p->servers && !p->all_fresh && !status; s++)
        if (p->source[s] < 0 && p->rank_of[s] == comm->rank) status = gw_ps_load_snapshot(ps, error);
    return gw_reducer_agree(comm, status, error);
}

/* Moves a server's state to the rank that runs it, and from there to its replica. */
static gw_status place_state(gw_comm *comm, gw_ps *ps, int server, gw_error *error) {
    const gw_placement *p = gw_ps_placement(ps);
    int to = p->rank_of[server], source = p->source[server];
    gw_status status = GW_OK;
    if (source >= 0) status = pass_state(comm, ps, server, source, to, error);
    else if (p->all_fresh) status = begin_state(comm, ps, server, error);
    return status ? status : pass_state(comm, ps, server, to, p->replica_of[server], error);
}

/* A restarted worker gets the numbers of its next pushes and the weights from one server. */
static gw_status admit_at(gw_comm *comm, gw_ps *ps, int server, int worker, gw_error *error) {
    int server_rank = gw_ps_placement(ps)->rank_of[server];
    size_t partitions = (size_t)gw_ps_partitions(ps), space = gw_ps_has_weights(ps) ? gw_ps_space(ps, server) : 0;
    if (comm->rank != server_rank && comm->rank != worker) return GW_OK;
    uint64_t *numbers = calloc(partitions + 1, sizeof *numbers);
    void *weights = malloc(space + 1);
    gw_status status = numbers && weights ? GW_OK : gw_fail(error, GW_MEMORY, "out of memory for a server's weights");
    if (!status && comm->rank == server_rank) {
        gw_ps_next_push_numbers(ps, worker, numbers);
        if (space) memcpy(weights, gw_ps_space_weights(ps), space);
        if (worker != server_rank)
            status = gw_reducer_copy_last_error(gw_send(comm, numbers, partitions, GW_I64, worker), error);
        if (!status && worker != server_rank)
            status = gw_reducer_copy_last_error(gw_send(comm, weights, space, GW_U8, worker), error);
    } else if (!status) {
        status = gw_reducer_copy_last_error(gw_recv(comm, numbers, partitions, GW_I64, server_rank), error);
        if (!status) status = gw_reducer_copy_last_error(gw_recv(comm, weights, space, GW_U8, server_rank), error);
    }
    if (!status && comm->rank == worker) gw_ps_begin_at(ps, server, numbers, space ? weights : NULL);
    free(numbers);
    free(weights);
    return status;
}

static gw_status admit_restarted(gw_reducer *reducer, gw_comm *comm, gw_ps *ps, gw_error *error) {
    const gw_placement *p = gw_ps_placement(ps);
    gw_status status = GW_OK;
    gw_ps_admit(ps);
    for (int r = 0; r < p->world && !status; r++) {
        if (!p->members[r].fresh || p->members[r].serves_only) continue;
        for (int s = 0; s < p->servers && !status; s++) status = admit_at(comm, ps, s, r, error);
        if (!status && comm->rank == r) {
            reducer->job_first_step = gw_placement_first_step(p);
            reducer->first_step = reducer->next_step = reducer->job_first_step + gw_placement_slowest_clock(p);
            gw_step_engine_begin_at(reducer->step_engine, reducer->first_step);
        }
    }
    return status;
}

/* Without weights on servers, a restarted worker cannot get the others' weights; and if a server is lost, some workers
 * may have received an answer that others have not. Where a server waits for all workers, one that joins while some of
 * its partitions are a round ahead of others would never be in step. */
static gw_status check_losses(const gw_ps *ps, const gw_setting *setting, gw_error *error) {
    const gw_placement *p = gw_ps_placement(ps);
    const gw_sync *sync = gw_sync_of(setting->technique);
    if (p->all_fresh || gw_sync_takes_back(sync, setting->values)) return GW_OK;
    for (int r = 0; r < p->world; r++)
        if (p->members[r].fresh && !p->members[r].serves_only)
            return gw_fail(error, GW_UNSUPPORTED,
                           "under sync=%s %s, and one that was started again cannot come back among the others: use "
                           "--elastic without --restarts, or sync=asp or ssp (with a staleness above 0)",
                           sync->technique.name,
                           sync->rule ? "every step waits for all workers" : "workers have the weights");
    for (int s = 0; s < p->servers && !gw_ps_has_weights(ps); s++)
        if (p->source[s] < 0)
            return gw_fail(error, GW_PEER_LOST,
                           "server %d is lost, and under sync=%s nobody knows which of its answers came: replicas=1 "
                           "keeps them on another rank",
                           s, sync->technique.name);
    return GW_OK;
}

gw_status gw_reducer_transfer_state(gw_reducer *reducer, gw_error *error) {
    gw_ps *ps = gw_step_engine_servers(reducer->step_engine);
    if (!ps) return gw_reducer_catch_up(reducer, error);
    const gw_placement *p = gw_ps_placement(ps);
    bool copies = false;
    for (int s = 0; s < p->servers; s++) copies |= p->replica_of[s] >= 0;
    gw_status status = check_losses(ps, &reducer->strategy.axes[GW_AXIS_SYNC], error);
    if (status) return status;
    if (p->all_fresh && !copies && !gw_ps_gives_weights(ps)) return gw_ps_transfer_done(ps, error);
    gw_comm *comm = NULL; /* not the reducer's: active messages arrive on that one */
    status = gw_reducer_copy_last_error(gw_comm_split(reducer->comm, 0, reducer->comm->rank, &comm), error);
    if (!status) status = load_states(comm, ps, error);
    for (int s = 0; s < p->servers && !status; s++) status = place_state(comm, ps, s, error);
    if (!status && !p->all_fresh) status = admit_restarted(reducer, comm, ps, error);
    if (!status) status = gw_ps_transfer_done(ps, error);
    gw_finalize(comm);
    return status;
}

gw_status gw_reducer_resume_as_server(gw_reducer *reducer, gw_comm *everyone, gw_error *error) {
    gw_comm *mine = NULL;
    gw_status status = gw_reducer_copy_last_error(gw_comm_split(everyone, 0, everyone->rank, &mine), error);
    if (!status) status = gw_reducer_rejoin(reducer, mine, error);
    if (!status) reducer->workers = everyone->size - everyone->context->job_env.servers;
    return status;
}
