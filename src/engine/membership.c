/* membership.c - who belongs to a communicator: splitting, aborting, and going on without the lost. */
#include <stdlib.h>
#include <unistd.h>

#include "engine/comm.h"

/* Splitting. */

typedef struct split_entry {
    int32_t colour, key, rank;
    uint32_t next_comm;
} split_entry;

static int by_colour_and_key(const void *left, const void *right) {
    const split_entry *a = left, *b = right;
    if (a->colour != b->colour) return a->colour < b->colour ? -1 : 1;
    if (a->key != b->key) return a->key < b->key ? -1 : 1;
    return a->rank < b->rank ? -1 : a->rank > b->rank;
}

/* Of the sorted entries: the members of my colour, my place among them, and how many colours stand before mine. */
static int pick_members(const split_entry *all, int size, int colour, int rank, int *members, int *place,
                        uint32_t *colours_before, uint32_t *colours) {
    int count = 0;
    *colours = *colours_before = 0;
    for (int i = 0; i < size; i++) {
        if (all[i].colour < 0) continue;
        if (i == 0 || all[i].colour != all[i - 1].colour) {
            ++*colours;
            if (all[i].colour < colour) ++*colours_before;
        }
        if (all[i].colour != colour) continue;
        if (all[i].rank == rank) *place = count;
        members[count++] = all[i].rank;
    }
    return count;
}

gw_status gw_comm_split(gw_comm *comm, int colour, int key, gw_comm **out) {
    gw_error error = {.rank = -1};
    if (!comm || !out) {
        gw_fail(&error, GW_INVALID, "gw_comm_split: the communicator or the place for the new one is NULL");
        return gw_comm_told(&error);
    }
    *out = NULL;
    if (gw_comm_forked(comm)) return GW_INVALID;
    if (comm->grouping) {
        gw_fail(&error, GW_INVALID, "gw_comm_split: it cannot be called inside a group");
        return gw_comm_told(&error);
    }
    gw_node *node = comm->node;
    split_entry *all = malloc((size_t)comm->size * sizeof *all);
    int *members = malloc((size_t)comm->size * sizeof *members), place = 0;
    gw_status status = GW_OK;
    if (!all || !members) {
        gw_fail(&error, GW_MEMORY, "out of memory for splitting a communicator of %d ranks", comm->size);
        status = gw_comm_told(&error);
    }
    gw_node_lock(node);
    split_entry mine = {.colour = colour, .key = key, .rank = comm->rank, .next_comm = node->next_comm};
    gw_node_unlock(node);
    if (!status) status = gw_allgather(comm, &mine, all, sizeof mine, GW_U8);
    if (!status) {
        uint32_t id = 0, before = 0, colours = 0;
        for (int i = 0; i < comm->size; i++)
            if (all[i].next_comm > id) id = all[i].next_comm;
        qsort(all, (size_t)comm->size, sizeof *all, by_colour_and_key);
        int count = pick_members(all, comm->size, colour, comm->rank, members, &place, &before, &colours);
        for (int i = 0; i < count; i++) members[i] = gw_team_member(comm->team, members[i]);
        gw_node_lock(node);
        if (node->next_comm < id + colours) node->next_comm = id + colours;
        gw_node_unlock(node);
        if (colour >= 0) status = gw_comm_open(out, node, id + before, members, count, place, &error);
        if (error.status) gw_comm_told(&error);
    }
    free(all);
    free(members);
    return status;
}

/* Aborting and shrinking. */

gw_status gw_abort(gw_comm *comm, const char *reason) {
    gw_error error = {.rank = -1};
    if (!comm) {
        gw_fail(&error, GW_INVALID, "gw_abort: the communicator is NULL");
        return gw_comm_told(&error);
    }
    if (gw_comm_forked(comm)) return GW_INVALID;
    gw_node *node = comm->node;
    gw_fail_rank(&error, GW_ABORTED, node->rank, "rank %d on %s aborted: %s", node->rank,
                 node->endpoints[node->rank].host, reason ? reason : "no reason given");
    gw_node_lock(node);
    gw_core_abort(node->core, &error, gw_clock_now());
    gw_node_unlock(node);
    return GW_OK;
}

/* (L) is held. Waits for the survivors' decision, which the progress thread brings; a rank that is alone has none. */
static gw_status await_survivors(gw_comm *comm, gw_time until, bool *member, gw_error *error) {
    gw_node *node = comm->node;
    gw_control *control = gw_core_control(node->core);
    gw_core_shrink(node->core, until, gw_clock_now());
    while (!gw_control_shrunk(control, member, error)) {
        gw_time now = gw_clock_now();
        if (now >= gw_control_next(control)) gw_core_poll_control(node->core, now);
        gw_node_unlock(node);
        usleep(500);
        gw_node_lock(node);
    }
    if (!error->status) node->next_comm = (gw_control_generation(control) << 20) + 1;
    return error->status;
}

/* (L) is held. The job was shrunk after this communicator, failed again, and nobody here got a communicator of it. */
static bool failed_since(const gw_comm *comm) {
    gw_node *node = comm->node;
    uint32_t generation = gw_control_generation(gw_core_control(node->core));
    for (const gw_comm *other = node->comms; other; other = other->next)
        if (other->generation == generation) return false;
    return gw_control_error(gw_core_control(node->core))->status != GW_OK;
}

/* (L) is held. */
static gw_status check_shrinkable(const gw_comm *comm, gw_error *error) {
    gw_node *node = comm->node;
    if (!atomic_load(&comm->failed))
        return gw_fail(error, GW_INVALID, "gw_shrink: the communicator has not failed (gw_abort ends one)");
    if (comm->generation != gw_control_generation(gw_core_control(node->core)) && !failed_since(comm))
        return gw_fail(error, GW_INVALID, "gw_shrink: the job has been shrunk since this communicator failed");
    if (node->world > 1 && !node->gateway)
        return gw_fail(error, GW_INVALID, "gw_shrink: the job has been regrouped since this communicator failed");
    if (node->everyone)
        return gw_fail(error, GW_UNSUPPORTED, "gw_shrink: server processes (--servers) do not take part in it: start "
                                              "the job with --elastic and call gw_regroup");
    if (node->world > GW_CONTROL_WORLD_MAX)
        return gw_fail(error, GW_UNSUPPORTED, "gw_shrink: a job of more than %d ranks cannot be shrunk",
                       GW_CONTROL_WORLD_MAX);
    return GW_OK;
}

/* One try: the survivors of this communicator, and the new one of them, which an eighth of the deadline is kept for.
 * Another may be lost meanwhile. */
static gw_status shrink_once(gw_comm *comm, gw_time until, bool *member, int *members, gw_comm **out,
                             gw_error *error) {
    gw_node *node = comm->node;
    int count = 0, place = 0;
    gw_node_lock(node);
    gw_status status = await_survivors(comm, until - node->deadline / 8, member, error);
    uint32_t id = node->next_comm;
    if (!status) node->next_comm++;
    gw_node_unlock(node);
    if (status) return status;
    for (int r = 0; r < comm->size; r++) {
        int job_rank = gw_team_member(comm->team, r);
        if (!member[job_rank]) continue;
        if (r == comm->rank) place = count;
        members[count++] = job_rank;
    }
    return gw_comm_open_until(out, node, id, members, count, place, until, error);
}

/* Survivors were agreed on after that generation, and it is over with them too. */
static bool lost_another(gw_node *node, uint32_t *generation) {
    gw_node_lock(node);
    uint32_t now = gw_control_generation(gw_core_control(node->core));
    bool lost = now != *generation && gw_engine_error(gw_core_engine(node->core))->status != GW_OK;
    gw_node_unlock(node);
    *generation = now;
    return lost;
}

gw_status gw_shrink(gw_comm *comm, gw_comm **out) {
    gw_error error = {.rank = -1};
    if (!comm || !out) {
        gw_fail(&error, GW_INVALID, "gw_shrink: the communicator or the place for the new one is NULL");
        return gw_comm_told(&error);
    }
    *out = NULL;
    if (gw_comm_forked(comm)) return GW_INVALID;
    gw_node *node = comm->node;
    gw_node_lock(node);
    gw_status status = check_shrinkable(comm, &error);
    uint32_t generation = gw_control_generation(gw_core_control(node->core));
    gw_node_unlock(node);
    if (status) return gw_comm_told(&error);
    bool *member = calloc((size_t)node->world, sizeof *member);
    int *members = malloc((size_t)comm->size * sizeof *members);
    gw_time until = gw_clock_now() + node->deadline;
    if (!member || !members) status = gw_fail(&error, GW_MEMORY, "out of memory for shrinking");
    else do {
        error = (gw_error){.rank = -1};
        status = shrink_once(comm, until, member, members, out, &error);
    } while (status && lost_another(node, &generation) && gw_clock_now() < until - node->deadline / 8);
    free(member);
    free(members);
    return status ? gw_comm_told(&error) : GW_OK;
}
