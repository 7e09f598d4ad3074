/* control.c - see control.h. Cost: a beat of 512 bytes to each neighbour a second at most; a flood is 2 log2 p messages
 * a rank. */
#include "engine/control.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct member {
    bool lost, left;
    bool in;              /* belongs to the current generation */
    bool wants_on;        /* has asked to shrink the current generation */
    int waits_for;        /* rank, -1: nobody */
    uint64_t serial_seen; /* of floods that it began */
} member;

typedef struct link_state {
    int rank;
    bool up;
    gw_time heard_at;
} link_state;

struct gw_control {
    int rank, world;
    gw_time deadline, beat_every;
    gw_control_events events;
    uint32_t generation;
    gw_error error;  /* first cause in this generation */
    uint64_t serial; /* of the last flood begun here */
    gw_time beat_at; /* of the next beat */
    gw_time polled_at;
    gw_time wait_began, wait_told; /* 0: not waiting, not yet told */
    char wait_what[GW_CONTROL_TEXT];
    gw_time shrink_began; /* 0: not shrinking */
    bool shrunk;          /* a decision is waiting to be taken */
    int links;
    link_state link[GW_CONTROL_LINKS_MAX];
    member *members; /* world entries */
};

int gw_control_neighbours(int rank, int world, int neighbours[GW_CONTROL_LINKS_MAX]) {
    int count = 0;
    for (int peer = 0; peer < world; peer++) {
        int distance = (peer - rank + world) % world;
        int shorter = distance < world - distance ? distance : world - distance;
        if (shorter && (shorter & (shorter - 1)) == 0 && count < GW_CONTROL_LINKS_MAX) neighbours[count++] = peer;
    }
    return count;
}

gw_status gw_control_open(gw_control **out, int rank, int world, gw_time deadline, const gw_control_events *events,
                          gw_time now, gw_error *error) {
    gw_control *control = calloc(1, sizeof *control);
    member *members = calloc((size_t)world, sizeof *members);
    if (!control || !members) {
        free(control);
        free(members);
        return gw_fail(error, GW_MEMORY, "out of memory for the control links of %d ranks", world);
    }
    *control = (gw_control){.rank = rank, .world = world, .deadline = deadline, .events = *events, .members = members,
                            .error = {.rank = -1}, .polled_at = now, .beat_at = now};
    control->beat_every = deadline / 10 < GW_SECOND ? deadline / 10 : GW_SECOND;
    if (control->beat_every == 0) control->beat_every = 1;
    for (int r = 0; r < world; r++) members[r] = (member){.in = true, .waits_for = -1};
    int neighbours[GW_CONTROL_LINKS_MAX];
    control->links = gw_control_neighbours(rank, world, neighbours);
    for (int i = 0; i < control->links; i++)
        control->link[i] = (link_state){.rank = neighbours[i], .up = true, .heard_at = now};
    *out = control;
    return GW_OK;
}

void gw_control_close(gw_control *control) {
    if (!control) return;
    free(control->members);
    free(control);
}

/* Flooding. */

static void pass_on(gw_control *control, const gw_control_message *message, int except) {
    for (int i = 0; i < control->links; i++)
        if (control->link[i].up && control->link[i].rank != except)
            control->events.send(control->events.ctx, control->link[i].rank, message);
}

static gw_control_message begin(gw_control *control, gw_control_kind kind, int subject, const char *text) {
    gw_control_message message = {.kind = (uint8_t)kind, .origin = control->rank, .subject = subject,
                                  .generation = control->generation, .serial = ++control->serial};
    snprintf(message.text, sizeof message.text, "%.*s", (int)sizeof message.text - 1, text);
    return message;
}

static void flood(gw_control *control, gw_control_kind kind, int subject, const char *text) {
    gw_control_message message = begin(control, kind, subject, text);
    pass_on(control, &message, -1);
}

static void set_error(gw_control *control, gw_status status, int rank, const char *text) {
    if (control->error.status) return;
    gw_fail_rank(&control->error, status, rank, "%s", text);
    control->events.aborted(control->events.ctx, &control->error);
}

void gw_control_abort(gw_control *control, const gw_error *error) {
    if (control->error.status) return;
    gw_control_message message = begin(control, GW_CONTROL_ABORT, error->rank, error->text);
    message.status = (uint8_t)error->status;
    pass_on(control, &message, -1);
    set_error(control, error->status, error->rank, message.text);
}

/* Deaths. */

static void bury(gw_control *control, int rank, const char *text) {
    member *who = &control->members[rank];
    if (who->lost || who->left) return;
    who->lost = true;
    for (int i = 0; i < control->links; i++)
        if (control->link[i].rank == rank) control->link[i].up = false;
    if (who->in) set_error(control, GW_PEER_LOST, rank, text);
    control->events.gone(control->events.ctx, rank, false, text);
}

static void declare_lost(gw_control *control, int rank, const char *detail) {
    if (control->members[rank].lost || control->members[rank].left) return;
    char text[GW_CONTROL_TEXT];
    snprintf(text, sizeof text, "rank %d on %s is gone: %s (noticed by rank %d on %s); see its own output for why", rank,
             control->events.host_name(control->events.ctx, rank), detail, control->rank,
             control->events.host_name(control->events.ctx, control->rank));
    flood(control, GW_CONTROL_LOST, rank, text);
    bury(control, rank, text);
}

void gw_control_link_lost(gw_control *control, int neighbour, const char *detail, gw_time now) {
    (void)now;
    for (int i = 0; i < control->links; i++)
        if (control->link[i].rank == neighbour) control->link[i].up = false;
    declare_lost(control, neighbour, detail);
}

/* Waiting. */

void gw_control_waiting(gw_control *control, int awaited, const char *what, gw_time now) {
    bool waits = what[0] != 0;
    control->members[control->rank].waits_for = awaited;
    control->wait_began = waits ? now : 0;
    control->wait_told = 0;
    snprintf(control->wait_what, sizeof control->wait_what, "%s", what);
    flood(control, GW_CONTROL_WAIT, awaited, what);
}

/* Follows who waits for whom from `awaited` to a rank that waits for nobody. A circle ends where it began. */
static int root_of_wait(const gw_control *control, int awaited) {
    int rank = awaited;
    for (int steps = 0; rank >= 0 && steps < control->world; steps++) {
        int next = control->members[rank].waits_for;
        if (next < 0 || next == control->rank || next == awaited) return rank;
        rank = next;
    }
    return awaited;
}

static const char *alive_text(const gw_control *control, int rank, gw_time now, char text[80]) {
    for (int i = 0; i < control->links; i++) {
        if (control->link[i].rank != rank) continue;
        gw_time silent = now > control->link[i].heard_at ? now - control->link[i].heard_at : 0;
        bool beats = silent <= 3 * control->beat_every;
        snprintf(text, 80, beats ? "it is alive (heard %.1f s ago), but late" : "nothing heard of it for %.1f s",
                 (double)silent / (double)GW_SECOND);
        return text;
    }
    snprintf(text, 80, "it has not been reported dead");
    return text;
}

/* One rank speaks for all that wait: the lowest. */
static bool speaks(const gw_control *control) {
    for (int r = 0; r < control->rank; r++)
        if (control->members[r].waits_for >= 0 && !control->members[r].lost) return false;
    return true;
}

static void tell_slow(gw_control *control, gw_time now) {
    int awaited = control->members[control->rank].waits_for;
    if (!control->wait_began || control->wait_told || awaited < 0) return;
    if (now - control->wait_began < control->deadline / 12) return; /* others are telling whom they wait for */
    control->wait_told = now;
    if (!speaks(control)) return;
    int slow = root_of_wait(control, awaited);
    char text[GW_CONTROL_TEXT + 256], alive[80];
    snprintf(text, sizeof text, "rank %d on %s is slow: rank %d has waited %.1f s for %s; %s; the deadline is %.1f s",
             slow, control->events.host_name(control->events.ctx, slow), control->rank,
             (double)(now - control->wait_began + control->deadline / 3) / (double)GW_SECOND, control->wait_what,
             alive_text(control, slow, now, alive), (double)control->deadline / (double)GW_SECOND);
    control->events.slow(control->events.ctx, text);
}

void gw_control_overdue(gw_control *control, int awaited, const char *what, gw_time now) {
    int blamed = awaited < 0 ? -1 : root_of_wait(control, awaited);
    char alive[80];
    gw_error error = {.rank = -1};
    if (blamed < 0)
        gw_fail(&error, GW_TIMEOUT, "no progress for %.1f s (the deadline) on rank %d on %s: %s",
                (double)control->deadline / (double)GW_SECOND, control->rank,
                control->events.host_name(control->events.ctx, control->rank), what);
    else
        gw_fail_rank(&error, GW_TIMEOUT, blamed,
                     "rank %d on %s held up the job for %.1f s (the deadline): rank %d on %s waited for %s; %s", blamed,
                     control->events.host_name(control->events.ctx, blamed),
                     (double)control->deadline / (double)GW_SECOND, control->rank,
                     control->events.host_name(control->events.ctx, control->rank), what,
                     alive_text(control, blamed, now, alive));
    gw_control_abort(control, &error);
}

void gw_control_leave(gw_control *control) {
    control->members[control->rank].left = true;
    flood(control, GW_CONTROL_LEFT, control->rank, "");
}

/* Shrinking. */

static bool can_go_on(const member *who) { return who->in && !who->lost && !who->left; }

static void adopt_members(gw_control *control, const gw_control_message *message) {
    for (int r = 0; r < control->world; r++) {
        member *who = &control->members[r];
        who->in = (message->text[r / 8] >> (r % 8)) & 1;
        who->wants_on = false;
        who->waits_for = -1;
    }
    control->generation = message->generation + 1;
    control->error = (gw_error){.rank = -1};
    control->wait_began = control->shrink_began = 0;
    control->shrunk = true;
}

static void decide(gw_control *control, bool overdue) {
    gw_control_message message = begin(control, GW_CONTROL_MEMBERS, -1, "");
    int lowest = -1;
    for (int r = control->world - 1; r >= 0; r--) {
        const member *who = &control->members[r];
        if (!can_go_on(who) || (overdue && !who->wants_on)) continue;
        if (!who->wants_on) return; /* somebody is still to ask */
        message.text[r / 8] = (char)(message.text[r / 8] | 1 << (r % 8));
        lowest = r;
    }
    if (lowest != control->rank) return;
    pass_on(control, &message, -1);
    adopt_members(control, &message);
}

void gw_control_shrink(gw_control *control, gw_time now) {
    control->members[control->rank].wants_on = true;
    control->shrink_began = now ? now : 1;
    control->shrunk = false;
    flood(control, GW_CONTROL_SHRINK, -1, "");
    decide(control, false);
}

bool gw_control_shrunk(gw_control *control, bool *members) {
    if (!control->shrunk) return false;
    control->shrunk = false;
    for (int r = 0; r < control->world; r++) members[r] = control->members[r].in;
    return true;
}

/* Hearing. */

static void hear_flood(gw_control *control, const gw_control_message *message, gw_time now) {
    member *origin = &control->members[message->origin];
    bool current = message->generation == control->generation;
    switch ((gw_control_kind)message->kind) {
    case GW_CONTROL_ABORT:
        if (current) set_error(control, (gw_status)message->status, message->subject, message->text);
        break;
    case GW_CONTROL_LOST:
        if (message->subject == control->rank) {
            if (current) set_error(control, GW_PEER_LOST, control->rank, message->text);
        } else {
            bury(control, message->subject, message->text);
        }
        break;
    case GW_CONTROL_LEFT:
        if (origin->left) break;
        origin->left = true;
        control->events.gone(control->events.ctx, message->origin, true, "it left the job by gw_finalize");
        break;
    case GW_CONTROL_WAIT:
        if (current) origin->waits_for = message->subject;
        break;
    case GW_CONTROL_SHRINK:
        if (current) origin->wants_on = true;
        break;
    case GW_CONTROL_MEMBERS:
        if (current && control->shrink_began && (message->text[control->rank / 8] >> (control->rank % 8)) & 1)
            adopt_members(control, message);
        break;
    case GW_CONTROL_BEAT: break;
    }
    if (control->shrink_began) decide(control, now - control->shrink_began > control->deadline);
}

void gw_control_receive(gw_control *control, int neighbour, const gw_control_message *message, gw_time now) {
    for (int i = 0; i < control->links; i++)
        if (control->link[i].rank == neighbour) control->link[i].heard_at = now;
    if (message->kind == GW_CONTROL_BEAT) return;
    member *origin = &control->members[message->origin];
    if (message->origin == control->rank || message->serial <= origin->serial_seen) return;
    origin->serial_seen = message->serial;
    pass_on(control, message, neighbour);
    hear_flood(control, message, now);
}

/* Time. */

/* A process that was itself stopped must not take its own sleep for the silence of others. */
static void forgive_own_sleep(gw_control *control, gw_time now) {
    gw_time gap = now - control->polled_at;
    if (gap > 3 * control->beat_every)
        for (int i = 0; i < control->links; i++) control->link[i].heard_at += gap;
    control->polled_at = now;
}

static void check_silence(gw_control *control, gw_time now) {
    for (int i = 0; i < control->links; i++) {
        link_state *link = &control->link[i];
        if (!link->up || control->members[link->rank].left || now < link->heard_at + control->deadline) continue;
        char detail[80];
        snprintf(detail, sizeof detail, "no heartbeat for %.1f s (stopped, or its network is cut)",
                 (double)(now - link->heard_at) / (double)GW_SECOND);
        declare_lost(control, link->rank, detail);
    }
}

void gw_control_poll(gw_control *control, gw_time now) {
    forgive_own_sleep(control, now);
    if (now >= control->beat_at) {
        gw_control_message beat = {.kind = GW_CONTROL_BEAT, .origin = control->rank, .subject = -1,
                                   .generation = control->generation};
        pass_on(control, &beat, -1);
        control->beat_at = now + control->beat_every;
    }
    check_silence(control, now);
    tell_slow(control, now);
    if (control->shrink_began) decide(control, now - control->shrink_began > control->deadline);
}

gw_time gw_control_next(const gw_control *control) { return control->beat_at; }

bool gw_control_lost(const gw_control *control, int rank) { return control->members[rank].lost; }
bool gw_control_left(const gw_control *control, int rank) { return control->members[rank].left; }
const gw_error *gw_control_error(const gw_control *control) { return &control->error; }
uint32_t gw_control_generation(const gw_control *control) { return control->generation; }
