/* membership.c - gw_comm_split, gw_abort, and gw_shrink (continue without lost ranks). */
#include <stdlib.h>
#include <unistd.h>

#include "runtime/comm.h"

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

/* From sorted entries: the members of my colour, my index among them, and the number of lower colours. */
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
        return gw_comm_set_last_error(&error);
    }
    *out = NULL;
    if (gw_comm_forked(comm)) return GW_INVALID;
    if (comm->group) {
        gw_fail(&error, GW_INVALID, "gw_comm_split: it cannot be called inside a group");
        return gw_comm_set_last_error(&error);
    }
    gw_context *context = comm->context;
    split_entry *all = malloc((size_t)comm->size * sizeof *all);
    int *members = malloc((size_t)comm->size * sizeof *members), place = 0;
    gw_status status = GW_OK;
    if (!all || !members) {
        gw_fail(&error, GW_MEMORY, "out of memory for splitting a communicator of %d ranks", comm->size);
        status = gw_comm_set_last_error(&error);
    }
    gw_context_lock(context);
    split_entry mine = {.colour = colour, .key = key, .rank = comm->rank, .next_comm = context->next_comm};
    gw_context_unlock(context);
    if (!status) status = gw_allgather(comm, &mine, all, sizeof mine, GW_U8);
    if (!status) {
        uint32_t id = 0, before = 0, colours = 0;
        for (int i = 0; i < comm->size; i++)
            if (all[i].next_comm > id) id = all[i].next_comm;
        qsort(all, (size_t)comm->size, sizeof *all, by_colour_and_key);
        int count = pick_members(all, comm->size, colour, comm->rank, members, &place, &before, &colours);
        for (int i = 0; i < count; i++) members[i] = gw_team_member(comm->team, members[i]);
        gw_context_lock(context);
        if (context->next_comm < id + colours) context->next_comm = id + colours;
        gw_context_unlock(context);
        if (colour >= 0) status = gw_comm_open(out, context, id + before, members, count, place, &error);
        if (error.status) gw_comm_set_last_error(&error);
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
        return gw_comm_set_last_error(&error);
    }
    if (gw_comm_forked(comm)) return GW_INVALID;
    gw_context *context = comm->context;
    gw_fail_rank(&error, GW_ABORTED, context->rank, "rank %d on %s aborted: %s", context->rank,
                 context->endpoints[context->rank].host, reason ? reason : "no reason given");
    gw_context_lock(context);
    gw_core_abort(context->core, &error, gw_clock_now());
    gw_context_unlock(context);
    return GW_OK;
}

/* (L) is held. Waits for the survivors' agreement. The progress thread runs the agreement; a world of one has no
 * progress thread, so this thread polls too. */
static gw_status await_survivors(gw_comm *comm, gw_time until, bool *member, gw_error *error) {
    gw_context *context = comm->context;
    gw_control *control = gw_core_control(context->core);
    gw_core_shrink(context->core, until, gw_clock_now());
    while (!gw_control_shrunk(control, member, error)) {
        gw_time now = gw_clock_now();
        if (now >= gw_control_next(control)) gw_core_poll_control(context->core, now);
        gw_context_unlock(context);
        usleep(500);
        gw_context_lock(context);
    }
    if (!error->status) context->next_comm = (gw_control_generation(control) << 20) + 1;
    return error->status;
}

/* (L) is held. True if the job was shrunk after this communicator failed, and then failed again before any new
 * communicator existed. */
static bool failed_since(const gw_comm *comm) {
    gw_context *context = comm->context;
    uint32_t generation = gw_control_generation(gw_core_control(context->core));
    for (const gw_comm *other = context->comms; other; other = other->next)
        if (other->generation == generation) return false;
    return gw_control_error(gw_core_control(context->core))->status != GW_OK;
}

/* (L) is held. */
static gw_status check_shrinkable(const gw_comm *comm, gw_error *error) {
    gw_context *context = comm->context;
    if (!atomic_load(&comm->failed))
        return gw_fail(error, GW_INVALID, "gw_shrink: the communicator has not failed (gw_abort ends one)");
    if (comm->generation != gw_control_generation(gw_core_control(context->core)) && !failed_since(comm))
        return gw_fail(error, GW_INVALID, "gw_shrink: the job has been shrunk since this communicator failed");
    if (context->world > 1 && !context->connections)
        return gw_fail(error, GW_INVALID, "gw_shrink: the job has been regrouped since this communicator failed");
    if (context->everyone)
        return gw_fail(error, GW_UNSUPPORTED,
                       "gw_shrink: server processes (--servers) do not take part in it: start "
                       "the job with --elastic and call gw_regroup");
    if (context->world > GW_CONTROL_WORLD_MAX)
        return gw_fail(error, GW_UNSUPPORTED, "gw_shrink: a job of more than %d ranks cannot be shrunk",
                       GW_CONTROL_WORLD_MAX);
    return GW_OK;
}

/* One attempt: agrees on survivors, then opens their communicator, for which an eighth of the deadline is reserved.
 * Another rank may be lost meanwhile. */
static gw_status shrink_once(gw_comm *comm, gw_time until, bool *member, int *members, gw_comm **out, gw_error *error) {
    gw_context *context = comm->context;
    int count = 0, place = 0;
    gw_context_lock(context);
    gw_status status = await_survivors(comm, until - context->deadline / 8, member, error);
    uint32_t id = context->next_comm;
    if (!status) context->next_comm++;
    gw_context_unlock(context);
    if (status) return status;
    for (int r = 0; r < comm->size; r++) {
        int job_rank = gw_team_member(comm->team, r);
        if (!member[job_rank]) continue;
        if (r == comm->rank) place = count;
        members[count++] = job_rank;
    }
    return gw_comm_open_until(out, context, id, members, count, place, until, error);
}

/* True if a later generation than that one has begun and has failed too. Updates *generation. */
static bool lost_another(gw_context *context, uint32_t *generation) {
    gw_context_lock(context);
    uint32_t now = gw_control_generation(gw_core_control(context->core));
    bool lost = now != *generation && gw_engine_error(gw_core_engine(context->core))->status != GW_OK;
    gw_context_unlock(context);
    *generation = now;
    return lost;
}

gw_status gw_shrink(gw_comm *comm, gw_comm **out) {
    gw_error error = {.rank = -1};
    if (!comm || !out) {
        gw_fail(&error, GW_INVALID, "gw_shrink: the communicator or the place for the new one is NULL");
        return gw_comm_set_last_error(&error);
    }
    *out = NULL;
    if (gw_comm_forked(comm)) return GW_INVALID;
    gw_context *context = comm->context;
    gw_context_lock(context);
    gw_status status = check_shrinkable(comm, &error);
    uint32_t generation = gw_control_generation(gw_core_control(context->core));
    gw_context_unlock(context);
    if (status) return gw_comm_set_last_error(&error);
    bool *member = calloc((size_t)context->world, sizeof *member);
    int *members = malloc((size_t)comm->size * sizeof *members);
    gw_time until = gw_clock_now() + context->deadline;
    if (!member || !members) status = gw_fail(&error, GW_MEMORY, "out of memory for shrinking");
    else do {
            error = (gw_error){.rank = -1};
            status = shrink_once(comm, until, member, members, out, &error);
        } while (status && lost_another(context, &generation) && gw_clock_now() < until - context->deadline / 8);
    free(member);
    free(members);
    return status ? gw_comm_set_last_error(&error) : GW_OK;
}
