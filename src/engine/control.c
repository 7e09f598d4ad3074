/* control.c - see control.h. Cost: a beat of 512 bytes to each neighbour a second at most; a flood is 2 log2 p messages
 * a rank. */
#include "engine/control.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct member {
    bool lost, left;
    bool died;            /* lost, and proved: its process has ended; one that is only cut off or silent has not */
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
    gw_time wait_began;            /* 0: not waiting */
    bool wait_chosen, wait_told;   /* whom to name has been thought over; the user has been told */
    int *awaited, awaited_count;   /* world entries */
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
    int *awaited = calloc((size_t)world, sizeof *awaited);
    if (!control || !members || !awaited) {
        free(control);
        free(members);
        free(awaited);
        return gw_fail(error, GW_MEMORY, "out of memory for the control links of %d ranks", world);
    }
    *control = (gw_control){.rank = rank, .world = world, .deadline = deadline, .events = *events, .members = members,
                            .awaited = awaited,
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
    free(control->awaited);
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
    snprintf(text, sizeof text, "rank %d on %s is gone: %s (noticed by rank %d on %s); see its own output for why",
             rank, control->events.host_name(control->events.ctx, rank), detail, control->rank,
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

void gw_control_died(gw_control *control, int rank, const char *detail, gw_time now) {
    (void)now;
    control->members[rank].died = true;
    declare_lost(control, rank, detail);
}

/* Waiting. A rank may wait for several others at once, but tells of one: first of any, a little later, when the others
 * have told too, of one that does not wait itself. */

static bool waits_itself(const gw_control *control, int rank) {
    const member *who = &control->members[rank];
    return who->waits_for >= 0 || !who->in || who->left;
}

static int choose_awaited(const gw_control *control, const int *awaited, int count) {
    for (int i = 0; i < count; i++)
        if (!waits_itself(control, awaited[i])) return awaited[i];
    return count ? awaited[0] : -1;
}

void gw_control_waiting(gw_control *control, const int *awaited, int count, const char *what, gw_time now) {
    bool waits = what[0] != 0;
    int first = count ? awaited[0] : -1;
    if (count) memcpy(control->awaited, awaited, (size_t)count * sizeof *awaited);
    control->awaited_count = count;
    control->members[control->rank].waits_for = first;
    control->wait_began = waits ? now : 0;
    control->wait_chosen = control->wait_told = false;
    snprintf(control->wait_what, sizeof control->wait_what, "%s", what);
    flood(control, GW_CONTROL_WAIT, first, what);
}

static void tell_chosen(gw_control *control) {
    int chosen = choose_awaited(control, control->awaited, control->awaited_count);
    control->wait_chosen = true;
    if (chosen == control->members[control->rank].waits_for) return;
    control->members[control->rank].waits_for = chosen;
    flood(control, GW_CONTROL_WAIT, chosen, control->wait_what);
}

static bool silent(const gw_control *control, int rank, gw_time now) {
    for (int i = 0; i < control->links; i++)
        if (control->link[i].rank == rank) return now > control->link[i].heard_at + 3 * control->beat_every;
    return false;
}

/* All wait for each other: the one that holds all up is waited for by somebody, or is not even heard. */
static int root_of_circle(const gw_control *control, int awaited, gw_time now) {
    for (int r = 0; r < control->world; r++) {
        int root = control->members[r].waits_for;
        if (root >= 0 && root != control->rank && !waits_itself(control, root)) return root;
    }
    for (int i = 0; i < control->links; i++)
        if (!waits_itself(control, control->link[i].rank) && silent(control, control->link[i].rank, now))
            return control->link[i].rank;
    return awaited;
}

/* Follows who waits for whom from `awaited` to a rank that waits for nobody. */
static int root_of_wait(const gw_control *control, int awaited, gw_time now) {
    int rank = awaited;
    for (int steps = 0; steps < control->world; steps++) {
        int next = control->members[rank].waits_for;
        if (next < 0) return rank;
        if (next == control->rank || next == awaited) break;
        rank = next;
    }
    return root_of_circle(control, awaited, now);
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

/* Others are telling whom they wait for, and then whom they choose. */
static gw_time choose_at(const gw_control *control) { return control->wait_began + control->deadline / 24; }
static gw_time tell_at(const gw_control *control) { return control->wait_began + control->deadline / 12; }

static void tell_slow(gw_control *control, gw_time now) {
    int awaited = control->members[control->rank].waits_for;
    if (!control->wait_began) return;
    if (!control->wait_chosen && now >= choose_at(control)) {
        tell_chosen(control);
        return;
    }
    if (control->wait_told || awaited < 0 || now < tell_at(control)) return;
    control->wait_told = true;
    if (!speaks(control)) return;
    int slow = root_of_wait(control, awaited, now);
    char text[GW_CONTROL_TEXT + 256], alive[80];
    snprintf(text, sizeof text, "rank %d on %s is slow: rank %d has waited %.1f s for %s; %s; the deadline is %.1f s",
             slow, control->events.host_name(control->events.ctx, slow), control->rank,
             (double)(now - control->wait_began + control->deadline / 3) / (double)GW_SECOND, control->wait_what,
             alive_text(control, slow, now, alive), (double)control->deadline / (double)GW_SECOND);
    control->events.slow(control->events.ctx, text);
}

void gw_control_overdue(gw_control *control, const int *awaited, int count, const char *what, gw_time now) {
    int chosen = choose_awaited(control, awaited, count);
    int blamed = chosen < 0 ? -1 : root_of_wait(control, chosen, now);
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

static bool named(const gw_control_message *message, int rank) { return (message->text[rank / 8] >> (rank % 8)) & 1; }

/* One of those who are to go on may have been lost since that was decided. */
static void mourn(gw_control *control) {
    for (int r = 0; r < control->world; r++) {
        const member *who = &control->members[r];
        if (!who->in || !(who->lost || who->left)) continue;
        char text[GW_CONTROL_TEXT];
        snprintf(text, sizeof text, "rank %d on %s is gone: it %s while the job was shrunk; gw_shrink again", r,
                 control->events.host_name(control->events.ctx, r), who->lost ? "was lost" : "left the job");
        set_error(control, GW_PEER_LOST, r, text);
    }
}

static void adopt_members(gw_control *control, const gw_control_message *message) {
    for (int r = 0; r < control->world; r++) {
        member *who = &control->members[r];
        who->in = named(message, r);
        who->wants_on = false;
        who->waits_for = -1;
    }
    control->generation = message->generation + 1;
    control->error = (gw_error){.rank = -1};
    control->wait_began = control->shrink_began = 0;
    control->shrunk = true;
    mourn(control);
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

/* A rank that was to decide may die when it has told some; the next then decides otherwise, and both are heard. */
static void hear_members(gw_control *control, const gw_control_message *message) {
    if (control->world > GW_CONTROL_WORLD_MAX) return;
    if (message->generation == control->generation) {
        if (control->shrink_began && named(message, control->rank)) adopt_members(control, message);
        return;
    }
    if (message->generation + 1 != control->generation) return;
    bool same = true;
    for (int r = 0; r < control->world; r++) same = same && named(message, r) == control->members[r].in;
    gw_error error = {.rank = -1};
    gw_fail_rank(&error, GW_PEER_LOST, message->origin,
                 "ranks were lost while the job was shrunk, and rank %d on %s counts other survivors than rank %d on "
                 "%s; gw_shrink again",
                 message->origin, control->events.host_name(control->events.ctx, message->origin), control->rank,
                 control->events.host_name(control->events.ctx, control->rank));
    if (!same) gw_control_abort(control, &error);
}

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
        hear_members(control, message);
        break;
    case GW_CONTROL_BEAT: break;
    }
    if (control->shrink_began) decide(control, now > control->shrink_began + control->deadline);
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
    if (control->shrink_began) decide(control, now > control->shrink_began + control->deadline);
}

gw_time gw_control_next(const gw_control *control) {
    gw_time next = control->beat_at;
    if (!control->wait_began || control->wait_told) return next;
    gw_time tell = control->wait_chosen ? tell_at(control) : choose_at(control);
    return tell < next ? tell : next;
}

bool gw_control_lost(const gw_control *control, int rank) { return control->members[rank].lost; }
bool gw_control_dead(const gw_control *control, int rank) { return control->members[rank].died; }
bool gw_control_left(const gw_control *control, int rank) { return control->members[rank].left; }
const gw_error *gw_control_error(const gw_control *control) { return &control->error; }
uint32_t gw_control_generation(const gw_control *control) { return control->generation; }
