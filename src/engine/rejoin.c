/* rejoin.c - joining a job, and joining it again: the launcher of an elastic job (gradwire run --elastic, --restarts)
 * calls the roll anew when a rank dies, and everybody who is called meets again, as at the beginning, with links and
 * ranks of its own (as Elastic Horovod and TorchElastic do). Nothing of an earlier round can reach a later one. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "engine/comm.h"
#include "engine/node.h"

#define LOOK_US 5000 /* how often the roll is read while waiting for it */
#define LAUNCHER_SLACK GW_SECOND /* beyond the deadline, within which it ends a rank that hangs */

static char *copied(const char *text, bool *fits) {
    char *copy = text ? strdup(text) : NULL;
    if (text && !copy) *fits = false;
    return copy;
}

gw_status gw_options_copy(gw_options *copy, const gw_options *options, gw_error *error) {
    static const gw_options defaults = GW_OPTIONS_DEFAULT;
    bool fits = true;
    *copy = options ? *options : defaults;
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

/* Takes the place of the newest roll; false: there is none after that round. Not called: the rank becomes -1. */
static bool recalled(gw_place *place, int after) {
    gw_roll roll;
    if (!place->roll[0] || !gw_roll_read(&roll, place->roll) || roll.round <= after) return false;
    gw_place_recall(place, &roll);
    return true;
}

static gw_status not_called(const gw_place *place, gw_error *error) {
    return gw_fail(error, GW_ABORTED, "the job goes on without this process (it had seat %d)", place->seat);
}

/* It may be because others died, or are not there yet. */
static bool passes(gw_status status) {
    return status != GW_INVALID && status != GW_UNSUPPORTED && status != GW_MEMORY;
}

static gw_time patience(const gw_place *place, gw_time deadline) {
    return gw_clock_now() + deadline + (place->roll[0] ? LAUNCHER_SLACK : 0);
}

/* True: it has been called again. */
static bool look_again(gw_place *place, const gw_pulse *pulse) {
    bool called = recalled(place, place->round);
    if (pulse) gw_pulse_beat(pulse);
    usleep(LOOK_US);
    return called;
}

/* Whoever fails while others die is called again; each round has its own deadline. pulse: of the last round, whose
 * progress thread has ended; NULL: this is the first. */
static gw_status join_called(gw_node **node, const gw_options *options, gw_place *place, gw_time deadline,
                             const gw_pulse *pulse, gw_error *error) {
    gw_time until = patience(place, deadline);
    for (;;) {
        gw_error failed = {.rank = -1};
        if (place->rank < 0) return not_called(place, error);
        gw_status status = gw_node_open(node, options, place, until, &failed);
        bool again = status && passes(status) && place->roll[0] && gw_clock_now() < until, called = false;
        if (again) called = look_again(place, pulse);
        /* In a later round the launcher may correct a meeting place that is not valid: its name is not tried again. */
        while (status == GW_INVALID && place->round > 0 && !called && gw_clock_now() < until)
            called = look_again(place, pulse);
        if (called) until = patience(place, deadline);
        if (again || called) continue;
        if (status) *error = failed;
        return status;
    }
}

static gw_status join(gw_node **node, const gw_options *options, gw_error *error) {
    gw_place place;
    gw_time deadline;
    static const gw_options defaults = GW_OPTIONS_DEFAULT;
    gw_status status = gw_place_find(options, &place, error);
    if (!status) status = gw_node_deadline(options ? options : &defaults, &deadline, error);
    if (status) return status;
    recalled(&place, place.round); /* others may have died since this process was started */
    return join_called(node, options, &place, deadline, NULL, error);
}

/* Tells the launcher that nobody here goes on in the old round. It may be that no process has died. */
static void ask(gw_node *old) {
    gw_node_lock(old);
    int blamed = gw_control_error(gw_core_control(old->core))->rank;
    gw_node_unlock(old);
    gw_pulse_ask(&old->pulse, old->place.round + 1, blamed);
}

static gw_status rejoin(gw_node **node, gw_node *old, gw_error *error) {
    gw_place place = old->place;
    gw_time until = patience(&place, old->deadline);
    if (!place.roll[0])
        return gw_fail(error, GW_UNSUPPORTED,
                       "gw_regroup: nobody calls the ranks of this job together again: start it by gradwire run "
                       "--elastic or --restarts");
    ask(old);
    while (!recalled(&place, old->place.round)) {
        if (gw_clock_now() > until)
            return gw_fail(error, GW_TIMEOUT,
                           "gw_regroup: the launcher has not called the ranks together again before the deadline: it "
                           "does so when a process has died, or all wait in gw_regroup");
        gw_pulse_beat(&old->pulse); /* its progress thread has ended */
        usleep(LOOK_US);
    }
    return join_called(node, &old->options, &place, old->deadline, &old->pulse, error);
}

/* One try: joins after `old`, and opens the communicator of all. *joined is kept on failure, to go on after it. */
static gw_status regroup_once(gw_node *old, gw_node **joined, gw_comm **out, gw_error *error) {
    gw_status status = rejoin(joined, old, error);
    if (!status) status = gw_comm_open_world(*joined, out, error);
    if (!status)
        gw_log(GW_LOG_INFO, (*joined)->rank, "round %d: the job goes on with %d rank%s; seat %d is rank %d now",
               (*joined)->place.round, (*joined)->world, (*joined)->world == 1 ? "" : "s", (*joined)->place.seat,
               (*joined)->rank);
    return status;
}

/* Until nobody is lost meanwhile. */
static gw_status join_after(gw_node *old, gw_comm **out, gw_error *error) {
    gw_node *before = NULL, *joined = NULL;
    gw_status status;
    do {
        *error = (gw_error){.rank = -1};
        joined = NULL;
        status = regroup_once(before ? before : old, &joined, out, error);
        gw_node_leave(before);
        before = joined;
    } while (status && before && passes(status)); /* without a node nobody came in time */
    if (status) gw_node_leave(before);
    return status;
}

gw_status gw_regroup(gw_comm *comm, gw_comm **out) {
    gw_error error = {.rank = -1};
    if (!comm || !out) {
        gw_fail(&error, GW_INVALID, "gw_regroup: the communicator or the place for the new one is NULL");
        return gw_comm_told(&error);
    }
    *out = NULL;
    if (gw_comm_forked(comm)) return GW_INVALID;
    if (!atomic_load(&comm->failed)) {
        gw_fail(&error, GW_INVALID, "gw_regroup: the communicator has not failed (gw_abort ends one)");
        return gw_comm_told(&error);
    }
    gw_node_retire(comm->node);
    gw_status status = join_after(comm->node, out, &error);
    gw_pulse_close(&comm->node->pulse); /* nobody beats for it any more */
    return status ? gw_comm_told(&error) : GW_OK;
}

gw_status gw_world_join(gw_comm **comm, const gw_options *options, gw_error *error) {
    gw_node *node = NULL;
    gw_error later;
    gw_status status = join(&node, options, error);
    if (status) return status;
    status = gw_comm_open_world(node, comm, error);
    if (!status) return GW_OK;
    if (gw_status_of_loss(status) && node->place.roll[0]) {
        gw_node_retire(node);
        if (!join_after(node, comm, &later)) status = GW_OK;
    }
    gw_node_leave(node);
    return status;
}

int gw_seat(const gw_comm *comm) { return comm->node->place.seat; }
int gw_round(const gw_comm *comm) { return comm->node->place.round; }
