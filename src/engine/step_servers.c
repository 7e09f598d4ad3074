/* step_servers.c - ranks that come together over parameter servers: at a commit, and again when some were lost. Server
 * processes are called, everybody says who he is, all decide alike who serves (server/placement.h), and what servers
 * knew is handed over. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "engine/serve.h"
#include "engine/step.h"
#include "engine/stepper_ps.h"

gw_status gw_step_heard(gw_status status, gw_error *error) {
    return status ? gw_fail(error, status, "%s", gw_last_error(NULL)) : GW_OK;
}

/* Whoever leads the workers calls, whether it commits the step or moves it. */
gw_status gw_step_meet(gw_step *step, gw_comm *comm, gw_comm **mine, gw_error *error) {
    gw_comm *all = comm;
    if (step->table.bytes) {
        gw_node *node = comm->node;
        all = node->everyone;
        gw_node_lock(node);
        step->number = node->next_step++;
        gw_node_unlock(node);
        gw_status status = gw_servers_call(all, GW_ERRAND_STEP, step->number, &step->table, error);
        if (status) return status;
    }
    return gw_step_heard(gw_comm_split(all, 0, all->rank, mine), error);
}

gw_status gw_step_attend(gw_step *step, const gw_stepper_config *config, gw_attendant **out, gw_error *error) {
    gw_comm *comm = step->comm;
    if (!config->servers) return GW_OK;
    gw_attendant *who = calloc((size_t)comm->size, sizeof *who);
    if (!who) return gw_fail(error, GW_MEMORY, "out of memory for %d ranks", comm->size);
    gw_attendant mine = {.seat = comm->node->place.seat, .life = step->life, .serves = -1, .copies = -1,
                         .fresh = step->fresh, .only = step->serves_only, .first_step = step->base};
    if (step->stepper) gw_ps_attend(gw_stepper_servers(step->stepper), &mine);
    gw_status status = gw_step_heard(gw_allgather(comm, &mine, who, sizeof mine, GW_U8), error);
    if (status) free(who);
    else *out = who;
    return status;
}

/* Handing over. */

static gw_status send_state(gw_comm *office, const void *bytes, size_t count, int to, gw_error *error) {
    uint64_t length = count;
    gw_status status = gw_step_heard(gw_send(office, &length, 1, GW_I64, to), error);
    return status ? status : gw_step_heard(gw_send(office, bytes, count, GW_U8, to), error);
}

static gw_status receive_state(gw_comm *office, gw_ps *ps, int server, int from, gw_error *error) {
    uint64_t length = 0;
    gw_status status = gw_step_heard(gw_recv(office, &length, 1, GW_I64, from), error);
    if (status) return status;
    void *bytes = malloc(length + 1);
    if (!bytes) return gw_fail(error, GW_MEMORY, "out of memory for the %llu bytes of a server's state",
                               (unsigned long long)length);
    status = gw_step_heard(gw_recv(office, bytes, length, GW_U8, from), error);
    if (!status) status = gw_ps_take(ps, server, bytes, length, error);
    free(bytes);
    return status;
}

/* From one rank to another, or to itself. */
static gw_status pass_state(gw_comm *office, gw_ps *ps, int server, int from, int to, gw_error *error) {
    const void *bytes = NULL;
    size_t count = 0;
    if (to < 0 || (office->rank != from && office->rank != to)) return GW_OK;
    if (office->rank != from) return receive_state(office, ps, server, from, error);
    gw_status status = gw_ps_known(ps, server, &bytes, &count, error);
    if (status) return status;
    return to == from ? gw_ps_take(ps, server, bytes, count, error) : send_state(office, bytes, count, to, error);
}

/* Everybody has just been started. A server process has no weights, and gets those of the first rank. */
static gw_status begin_state(gw_comm *office, gw_ps *ps, int server, gw_error *error) {
    int to = gw_ps_placement(ps)->rank_of[server];
    size_t bytes = gw_ps_space(ps, server);
    gw_status status = GW_OK;
    if (gw_ps_gives_weights(ps) && office->rank == 0) {
        void *space = calloc(1, bytes + 1);
        if (!space) return gw_fail(error, GW_MEMORY, "out of memory for %zu bytes of weights", bytes);
        gw_ps_gather(ps, server, space);
        status = gw_step_heard(gw_send(office, space, bytes, GW_U8, to), error);
        free(space);
    }
    if (office->rank != to) return status;
    if (gw_ps_gives_weights(ps))
        status = gw_step_heard(gw_recv(office, gw_ps_space_weights(ps), bytes, GW_U8, 0), error);
    if (!status) gw_ps_fresh(ps);
    return status;
}

/* What nobody who is there knows comes from a snapshot. Whether there is one only the server's own rank finds out, and
 * nobody waits for anything from it before. */
static gw_status load_states(gw_comm *office, gw_ps *ps, gw_error *error) {
    const gw_placement *p = gw_ps_placement(ps);
    gw_status status = GW_OK;
    for (int s = 0; s < p->servers && !p->all_fresh && !status; s++)
        if (p->source[s] < 0 && p->rank_of[s] == office->rank) status = gw_ps_load(ps, error);
    return gw_step_agree(office, status, error);
}

/* To the rank that runs it, and from there to its replica. */
static gw_status place_state(gw_comm *office, gw_ps *ps, int server, gw_error *error) {
    const gw_placement *p = gw_ps_placement(ps);
    int to = p->rank_of[server], source = p->source[server];
    gw_status status = GW_OK;
    if (source >= 0) status = pass_state(office, ps, server, source, to, error);
    else if (p->all_fresh) status = begin_state(office, ps, server, error);
    return status ? status : pass_state(office, ps, server, to, p->copy_of[server], error);
}

/* A worker that came anew gets the numbers of its pushes and the weights of one server. */
static gw_status welcome(gw_comm *office, gw_ps *ps, int server, int guest, gw_error *error) {
    int host = gw_ps_placement(ps)->rank_of[server];
    size_t parcels = (size_t)gw_ps_parcels(ps), space = gw_ps_has_weights(ps) ? gw_ps_space(ps, server) : 0;
    if (office->rank != host && office->rank != guest) return GW_OK;
    uint64_t *numbers = calloc(parcels + 1, sizeof *numbers);
    void *weights = malloc(space + 1);
    gw_status status = numbers && weights ? GW_OK : gw_fail(error, GW_MEMORY, "out of memory for a server's weights");
    if (!status && office->rank == host) {
        gw_ps_numbers(ps, guest, numbers);
        if (space) memcpy(weights, gw_ps_space_weights(ps), space);
        if (guest != host) status = gw_step_heard(gw_send(office, numbers, parcels, GW_I64, guest), error);
        if (!status && guest != host) status = gw_step_heard(gw_send(office, weights, space, GW_U8, guest), error);
    } else if (!status) {
        status = gw_step_heard(gw_recv(office, numbers, parcels, GW_I64, host), error);
        if (!status) status = gw_step_heard(gw_recv(office, weights, space, GW_U8, host), error);
    }
    if (!status && office->rank == guest) gw_ps_begin_at(ps, server, numbers, space ? weights : NULL);
    free(numbers);
    free(weights);
    return status;
}

static gw_status welcome_all(gw_step *step, gw_comm *office, gw_ps *ps, gw_error *error) {
    const gw_placement *p = gw_ps_placement(ps);
    gw_status status = GW_OK;
    gw_ps_admit(ps);
    for (int r = 0; r < p->world && !status; r++) {
        if (!p->who[r].fresh || p->who[r].only) continue;
        for (int s = 0; s < p->servers && !status; s++) status = welcome(office, ps, s, r, error);
        if (!status && office->rank == r) {
            step->base = gw_placement_first_step(p);
            step->first = step->next = step->base + gw_placement_floor(p);
            gw_stepper_begin_at(step->stepper, step->first);
        }
    }
    return status;
}

/* Without weights on the servers the others' are not to be had here, nor what some have been answered and some not. */
static gw_status check_losses(const gw_ps *ps, const gw_sync *sync, gw_error *error) {
    const gw_placement *p = gw_ps_placement(ps);
    if (p->all_fresh || gw_ps_has_weights(ps)) return GW_OK;
    for (int r = 0; r < p->world; r++)
        if (p->who[r].fresh && !p->who[r].only)
            return gw_fail(error, GW_UNSUPPORTED,
                           "under sync=%s workers have the weights, and one that was started again cannot come back "
                           "among the others: use --elastic without --restarts, or sync=asp or ssp",
                           sync->technique.name);
    for (int s = 0; s < p->servers; s++)
        if (p->source[s] < 0)
            return gw_fail(error, GW_PEER_LOST,
                           "server %d is lost, and under sync=%s nobody knows which of its answers came: replicas=1 "
                           "keeps them on another rank",
                           s, sync->technique.name);
    return GW_OK;
}

gw_status gw_step_hand_over(gw_step *step, gw_error *error) {
    gw_ps *ps = gw_stepper_servers(step->stepper);
    if (!ps) return gw_step_catch_up(step, error);
    const gw_placement *p = gw_ps_placement(ps);
    bool copies = false;
    for (int s = 0; s < p->servers; s++) copies |= p->copy_of[s] >= 0;
    gw_status status = check_losses(ps, gw_sync_of(step->strategy.axes[GW_AXIS_SYNC].technique), error);
    if (status) return status;
    if (p->all_fresh && !copies && !gw_ps_gives_weights(ps)) return gw_ps_settle(ps, error);
    gw_comm *office = NULL; /* its own, since the step's carries letters */
    status = gw_step_heard(gw_comm_split(step->comm, 0, step->comm->rank, &office), error);
    if (!status) status = load_states(office, ps, error);
    for (int s = 0; s < p->servers && !status; s++) status = place_state(office, ps, s, error);
    if (!status && !p->all_fresh) status = welcome_all(step, office, ps, error);
    if (!status) status = gw_ps_settle(ps, error);
    gw_finalize(office);
    return status;
}

gw_status gw_step_move_served(gw_step *step, gw_comm *everyone, gw_error *error) {
    gw_comm *mine = NULL;
    gw_status status = gw_step_heard(gw_comm_split(everyone, 0, everyone->rank, &mine), error);
    if (!status) status = gw_step_join_moved(step, mine, error);
    if (!status) step->workers = everyone->size - everyone->node->place.servers;
    return status;
}
