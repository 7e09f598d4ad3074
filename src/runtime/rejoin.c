/* rejoin.c - joining a job, and joining it again. When a rank dies, the launcher of an elastic job (gradwire run
 * --elastic, --restarts) writes a new roster. Its members meet again as at the start, with new links and new ranks (as
 * in Elastic Horovod and TorchElastic). No message of one generation can reach the next. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "runtime/comm.h"
#include "runtime/context.h"

#define POLL_US 5000 /* period of reading the roster while waiting for a new one */
#define LAUNCHER_SLACK                                                                                                 \
    GW_SECOND /* wait so long after the deadline, by which the launcher has killed a hanging rank                      \
               */

static char *copied(const char *text, bool *fits) {
    char *copy = text ? strdup(text) : NULL;
    if (text && !copy) *fits = false;
    return copy;
}

gw_status gw_options_copy(gw_options *copy, const gw_options *options, gw_error *error) {
    bool fits = true;
    *copy = *options;
    copy->strategy = copied(copy->strategy, &fits);
    copy->master_addr = copied(copy->master_addr, &fits);
    copy->token = copied(copy->token, &fits);
    copy->interfaces = copied(copy->interfaces, &fits);
    copy->ports = copied(copy->ports, &fits);
    copy->quorum = copied(copy->quorum, &fits);
    return fits ? GW_OK : gw_fail(error, GW_MEMORY, "out of memory for the options of a job");
}

void gw_options_free(gw_options *copy) {
    if (copy->token) explicit_bzero((char *)(uintptr_t)copy->token, strlen(copy->token));
    free((char *)(uintptr_t)copy->strategy);
    free((char *)(uintptr_t)copy->master_addr);
    free((char *)(uintptr_t)copy->token);
    free((char *)(uintptr_t)copy->interfaces);
    free((char *)(uintptr_t)copy->ports);
    free((char *)(uintptr_t)copy->quorum);
}

/* Updates job_env from the newest roster; false: none is newer than generation `after`. Not a member: rank -1. */
static bool read_newer_roster(gw_job_env *job_env, int after) {
    gw_roster roster;
    if (!job_env->roster[0] || !gw_roster_read(&roster, job_env->roster) || roster.generation <= after) return false;
    gw_job_env_apply_roster(job_env, &roster);
    return true;
}

static gw_status fail_not_member(const gw_job_env *job_env, gw_error *error) {
    return gw_fail(error, GW_ABORTED, "the job goes on without this process (its member id was %d)", job_env->member);
}

/* The cause may be that other ranks died or are not there yet. */
static bool is_transient(gw_status status) {
    return status != GW_INVALID && status != GW_UNSUPPORTED && status != GW_MEMORY;
}

static gw_time join_deadline(const gw_job_env *job_env, gw_time deadline) {
    return gw_clock_now() + deadline + (job_env->roster[0] ? LAUNCHER_SLACK : 0);
}

/* True if a newer roster was read. */
static bool poll_roster(gw_job_env *job_env, const gw_heartbeat *heartbeat) {
    bool newer = read_newer_roster(job_env, job_env->generation);
    if (heartbeat) gw_heartbeat_beat(heartbeat);
    usleep(POLL_US);
    return newer;
}

/* A join that fails because others die is repeated with the next roster; each generation has its own deadline.
 * heartbeat: of the last generation, whose progress thread has ended; NULL: this is the first. */
static gw_status join_generation(gw_context **context, const gw_options *options, gw_job_env *job_env, gw_time deadline,
                                 const gw_heartbeat *heartbeat, gw_error *error) {
    gw_time until = join_deadline(job_env, deadline);
    for (;;) {
        gw_error failed = {.rank = -1};
        if (job_env->rank < 0) return fail_not_member(job_env, error);
        gw_status status = gw_context_open(context, options, job_env, until, &failed);
        bool again = status && is_transient(status) && job_env->roster[0] && gw_clock_now() < until, newer = false;
        if (again) newer = poll_roster(job_env, heartbeat);
        /* In a later generation the launcher may correct an invalid rendezvous address: do not retry the same one. */
        while (status == GW_INVALID && job_env->generation > 0 && !newer && gw_clock_now() < until)
            newer = poll_roster(job_env, heartbeat);
        if (newer) until = join_deadline(job_env, deadline);
        if (again || newer) continue;
        if (status) *error = failed;
        return status;
    }
}

static gw_status join(gw_context **context, const gw_options *options, gw_error *error) {
    gw_job_env job_env;
    gw_time deadline;
    gw_status status = gw_job_env_find(options, &job_env, error);
    if (!status) status = gw_context_deadline(options, &deadline, error);
    if (status) return status;
    read_newer_roster(&job_env, job_env.generation); /* others may have died since this process was started */
    return join_generation(context, options, &job_env, deadline, NULL, error);
}

/* Asks the launcher for another generation. If no process has died, the launcher does not know that one is needed. */
static void request_generation(gw_context *old) {
    gw_context_lock(old);
    int blamed = gw_control_error(gw_core_control(old->core))->rank;
    gw_context_unlock(old);
    gw_heartbeat_await(&old->heartbeat, old->job_env.generation + 1, blamed);
}

static gw_status rejoin(gw_context **context, gw_context *old, gw_error *error) {
    gw_job_env job_env = old->job_env;
    gw_time until = join_deadline(&job_env, old->deadline);
    if (!job_env.roster[0])
        return gw_fail(error, GW_UNSUPPORTED,
                       "gw_regroup: nobody calls the ranks of this job together again: start it by gradwire run "
                       "--elastic or --restarts");
    request_generation(old);
    while (!read_newer_roster(&job_env, old->job_env.generation)) {
        if (gw_clock_now() > until)
            return gw_fail(error, GW_TIMEOUT,
                           "gw_regroup: the launcher has not called the ranks together again before the deadline: it "
                           "does so when a process has died, or all wait in gw_regroup");
        gw_heartbeat_beat(&old->heartbeat); /* its progress thread has ended */
        usleep(POLL_US);
    }
    return join_generation(context, &old->options, &job_env, old->deadline, &old->heartbeat, error);
}

/* One attempt: joins after `old` and opens the world communicator. On failure *joined stays, for the next attempt. */
static gw_status regroup_once(gw_context *old, gw_context **joined, gw_comm **out, gw_error *error) {
    gw_status status = rejoin(joined, old, error);
    if (!status) status = gw_comm_open_world(*joined, out, error);
    if (!status)
        gw_log(GW_LOG_INFO, (*joined)->rank,
               "generation %d: the job continues with %d rank%s; member %d is now rank %d",
               (*joined)->job_env.generation, (*joined)->world, (*joined)->world == 1 ? "" : "s",
               (*joined)->job_env.member, (*joined)->rank);
    return status;
}

/* Repeats until no rank is lost meanwhile. */
static gw_status join_after(gw_context *old, gw_comm **out, gw_error *error) {
    gw_context *before = NULL, *joined = NULL;
    gw_status status;
    do {
        *error = (gw_error){.rank = -1};
        joined = NULL;
        status = regroup_once(before ? before : old, &joined, out, error);
        gw_context_leave(before);
        before = joined;
    } while (status && before && is_transient(status)); /* without a context, joining timed out */
    if (status) gw_context_leave(before);
    return status;
}

gw_status gw_regroup(gw_comm *comm, gw_comm **out) {
    gw_error error = {.rank = -1};
    if (!comm || !out) {
        gw_fail(&error, GW_INVALID, "gw_regroup: the communicator or the place for the new one is NULL");
        return gw_comm_set_last_error(&error);
    }
    *out = NULL;
    if (gw_comm_forked(comm)) return GW_INVALID;
    if (!atomic_load(&comm->failed)) {
        gw_fail(&error, GW_INVALID, "gw_regroup: the communicator has not failed (gw_abort ends one)");
        return gw_comm_set_last_error(&error);
    }
    gw_context_retire(comm->context);
    gw_status status = join_after(comm->context, out, &error);
    gw_heartbeat_close(&comm->context->heartbeat); /* nothing beats for it any more */
    return status ? gw_comm_set_last_error(&error) : GW_OK;
}

gw_status gw_world_join(gw_comm **comm, const gw_options *options, gw_error *error) {
    gw_context *context = NULL;
    gw_error later;
    gw_status status = join(&context, options, error);
    if (status) return status;
    status = gw_comm_open_world(context, comm, error);
    if (!status) return GW_OK;
    if (gw_status_is_loss(status) && context->job_env.roster[0]) {
        gw_context_retire(context);
        if (!join_after(context, comm, &later)) status = GW_OK;
    }
    gw_context_leave(context);
    return status;
}

int gw_member_id(const gw_comm *comm) { return comm->context->job_env.member; }
int gw_generation(const gw_comm *comm) { return comm->context->job_env.generation; }
