/* control.c - see control.h. Cost: a heartbeat of 512 bytes to each neighbour every second (or deadline / 10, if
 * shorter); a flood is 2 log2 p messages for each rank. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/control_internal.h"

typedef gw_control_member member;

int gw_control_neighbours(int rank, int world, int neighbours[GW_CONTROL_LINKS_MAX]) {
    int count = 0;
    for (int peer = 0; peer < world; peer++) {
        int distance = (peer - rank + world) % world;
        int shorter = distance < world - distance ? distance : world - distance;
        if (shorter && (shorter & (shorter - 1)) == 0 && count < GW_CONTROL_LINKS_MAX) neighbours[count++] = peer;
    }
    return count;
}

gw_status gw_control_open(gw_control **out, const gw_control_config *config, const gw_control_events *events,
                          gw_time now, gw_error *error) {
    int rank = config->rank, world = config->world;
    gw_control *control = calloc(1, sizeof *control);
    if (!control) return gw_fail(error, GW_MEMORY, "out of memory for the control plane");
    *control = (gw_control){.rank = rank, .world = world, .deadline = config->deadline, .any_side = config->any_side,
                            .events = *events, .error = {.rank = -1}, .shrink = {.refused = {.rank = -1}},
                            .polled_at = now, .beat_at = now,
                            .members = calloc((size_t)world, sizeof(member)),
                            .voters = calloc((size_t)world, sizeof(gw_voter)),
                            .awaited = calloc((size_t)world, sizeof(int))};
    if (!control->members || !control->voters || !control->awaited) {
        gw_control_close(control);
        return gw_fail(error, GW_MEMORY, "out of memory for the control links of %d ranks", world);
    }
    control->beat_every = config->deadline / 10 < GW_SECOND ? config->deadline / 10 : GW_SECOND;
    if (control->beat_every == 0) control->beat_every = 1;
    for (int r = 0; r < world; r++) control->members[r] = (member){.in = true, .waits_for = -1, .heard_at = now};
    int neighbours[GW_CONTROL_LINKS_MAX], links = gw_control_neighbours(rank, world, neighbours);
    for (int i = 0; i < links; i++) {
        member *neighbour = &control->members[neighbours[i]];
        neighbour->linked = neighbour->is_neighbour = true;
    }
    *out = control;
    return GW_OK;
}

void gw_control_close(gw_control *control) {
    if (!control) return;
    gw_agreement_close(control->shrink.agreement);
    free(control->members);
    free(control->voters);
    free(control->awaited);
    free(control);
}

/* Flooding. */

void gw_control_send_neighbours(gw_control *control, const gw_control_message *message, int except) {
    for (int r = 0; r < control->world; r++)
        if (control->members[r].linked && control->members[r].is_neighbour && !control->members[r].lost && r != except)
            control->events.send(control->events.ctx, r, message);
}

gw_control_message gw_control_begin(gw_control *control, gw_control_kind kind, int subject, const char *text) {
    gw_control_message message = {.kind = (uint8_t)kind, .origin = control->rank, .subject = subject,
                                  .generation = control->generation, .lineage = control->lineage,
                                  .serial = ++control->serial};
    snprintf(message.text, sizeof message.text, "%.*s", (int)sizeof message.text - 1, text);
    return message;
}

void gw_control_flood(gw_control *control, gw_control_kind kind, int subject, const char *text) {
    gw_control_message message = gw_control_begin(control, kind, subject, text);
    gw_control_send_neighbours(control, &message, -1);
}

void gw_control_set_error(gw_control *control, gw_status status, int rank, const char *text) {
    if (control->error.status) return;
    gw_fail_rank(&control->error, status, rank, "%s", text);
    control->events.aborted(control->events.ctx, &control->error);
}

void gw_control_abort(gw_control *control, const gw_error *error) {
    bool shrinking = control->shrink.phase == GW_SHRINK_ASKING && error->status == GW_ABORTED;
    if (shrinking) gw_control_shrink_abort(control, error);
    if (control->error.status) return;
    gw_control_message message = gw_control_begin(control, GW_CONTROL_ABORT, error->rank, error->text);
    message.status = (uint8_t)error->status;
    gw_control_send_neighbours(control, &message, -1);
    gw_control_set_error(control, error->status, error->rank, message.text);
}

/* Links and deaths. */

void gw_control_mark_lost(gw_control *control, int rank, const char *text) {
    member *who = &control->members[rank];
    if (who->lost || who->left) return;
    who->lost = true;
    if (who->in) gw_control_set_error(control, GW_PEER_LOST, rank, text);
    control->events.gone(control->events.ctx, rank, false, text);
}

static void declare_lost(gw_control *control, int rank, const char *detail) {
    const member *who = &control->members[rank];
    if (who->lost || who->left) return;
    char text[GW_CONTROL_TEXT];
    snprintf(text, sizeof text, "rank %d on %s is gone: %s (noticed by rank %d on %s); see its own output for why",
             rank, control->events.host_name(control->events.ctx, rank), detail, control->rank,
             control->events.host_name(control->events.ctx, control->rank));
    gw_control_message message = gw_control_begin(control, GW_CONTROL_LOST, rank, text);
    message.status = who->died ? GW_PEER_LOST : GW_OK;
    gw_control_send_neighbours(control, &message, -1);
    gw_control_mark_lost(control, rank, text);
}

void gw_control_link_up(gw_control *control, int rank, gw_time now) {
    control->members[rank].linked = true;
    control->members[rank].heard_at = now;
    gw_control_shrink_linked(control, rank, now);
}

void gw_control_link_lost(gw_control *control, int rank, const char *detail, gw_time now) {
    if (!control->members[rank].linked) return;
    control->members[rank].linked = control->members[rank].asked = false;
    if (control->shrink.phase == GW_SHRINK_ASKING) gw_control_mark_lost(control, rank, detail);
    else declare_lost(control, rank, detail);
    gw_control_shrink_unlinked(control, rank, now);
}

bool gw_control_is_neighbour(const gw_control *control, int rank) {
    return control->members[rank].is_neighbour && control->members[rank].linked;
}

/* The rank never acts in this job again. */
static void mark_gone(gw_control *control, int rank, gw_time now) {
    if (control->voters[rank].gone) return;
    control->voters[rank].gone = true;
    gw_control_shrink_gone(control, now);
}

void gw_control_died(gw_control *control, int rank, const char *detail, gw_time now) {
    if (control->members[rank].left) return;
    control->members[rank].died = true;
    declare_lost(control, rank, detail);
    mark_gone(control, rank, now);
}

/* Informs every rank that will see its link to this rank close, so that none reports a death. */
void gw_control_leave(gw_control *control) {
    gw_control_message message = gw_control_begin(control, GW_CONTROL_LEFT, control->rank, "");
    control->members[control->rank].left = control->voters[control->rank].gone = true;
    for (int r = 0; r < control->world; r++)
        if (control->members[r].linked) control->events.send(control->events.ctx, r, &message);
}

/* Receiving. */

static void on_abort(gw_control *control, const gw_control_message *message) {
    gw_error error = {.rank = -1};
    gw_fail_rank(&error, (gw_status)message->status, message->subject, "%s", message->text);
    if (message->ballot) gw_control_shrink_abort(control, &error);
    else gw_control_set_error(control, error.status, error.rank, error.text);
}

/* A loss without proof counts only if it is of this generation. A rank that was lost in an earlier one may have
 * returned. */
static void on_lost(gw_control *control, const gw_control_message *message, bool current, gw_time now) {
    if (message->subject == control->rank) {
        if (current) gw_control_set_error(control, GW_PEER_LOST, control->rank, message->text);
    } else if (message->status) {
        control->members[message->subject].died = true;
        gw_control_mark_lost(control, message->subject, message->text);
        mark_gone(control, message->subject, now);
    } else if (current) {
        gw_control_mark_lost(control, message->subject, message->text);
    }
}

static void on_left(gw_control *control, const gw_control_message *message, gw_time now) {
    int rank = message->origin;
    if (control->members[rank].left) return;
    if (message->generation > control->generation) gw_control_set_excluded(control, rank);
    control->members[rank].left = true;
    control->events.gone(control->events.ctx, rank, true, "it left the job by gw_finalize");
    mark_gone(control, rank, now);
}

static void on_flood(gw_control *control, const gw_control_message *message, gw_time now) {
    bool current = message->generation == control->generation && message->lineage == control->lineage;
    switch ((gw_control_kind)message->kind) {
    case GW_CONTROL_ABORT:
        if (current) on_abort(control, message);
        break;
    case GW_CONTROL_LOST: on_lost(control, message, current, now); break;
    case GW_CONTROL_LEFT: on_left(control, message, now); break;
    case GW_CONTROL_WAIT:
        if (current) control->members[message->origin].waits_for = message->subject;
        break;
    default: break;
    }
}

void gw_control_receive(gw_control *control, int neighbour, const gw_control_message *message, gw_time now) {
    member *origin = &control->members[message->origin];
    control->members[neighbour].heard_at = now;
    if (message->kind == GW_CONTROL_BEAT) return;
    if (message->kind >= GW_CONTROL_SHRINK) {
        if (message->origin == neighbour) gw_control_receive_shrink(control, neighbour, message, now);
        return;
    }
    if (message->origin == control->rank || message->serial <= origin->serial_seen) return;
    origin->serial_seen = message->serial;
    if (!origin->in && message->kind != GW_CONTROL_LEFT) return; /* the origin is not in this generation any more */
    gw_control_send_neighbours(control, message, neighbour);
    on_flood(control, message, now);
}

/* Time. */

/* A process that was stopped must not count the time of its own stop as silence of others. */
static void forgive_own_sleep(gw_control *control, gw_time now) {
    gw_time gap = now - control->polled_at;
    if (gap > 3 * control->beat_every)
        for (int r = 0; r < control->world; r++) control->members[r].heard_at += gap;
    control->polled_at = now;
}

static void check_silence(gw_control *control, gw_time now) {
    for (int r = 0; r < control->world; r++) {
        const member *who = &control->members[r];
        if (!who->linked || !who->is_neighbour || who->lost || who->left) continue;
        if (now < who->heard_at + control->deadline) continue;
        char detail[80];
        snprintf(detail, sizeof detail, "no heartbeat for %.1f s (stopped, or its network is cut)",
                 (double)(now - who->heard_at) / (double)GW_SECOND);
        declare_lost(control, r, detail);
    }
}

void gw_control_poll(gw_control *control, gw_time now) {
    forgive_own_sleep(control, now);
    if (now >= control->beat_at) {
        gw_control_message beat = {.kind = GW_CONTROL_BEAT, .origin = control->rank, .subject = -1,
                                   .generation = control->generation, .lineage = control->lineage};
        gw_control_send_neighbours(control, &beat, -1);
        control->beat_at = now + control->beat_every;
    }
    check_silence(control, now);
    gw_control_report_slow(control, now);
    gw_control_shrink_poll(control, now);
}

gw_time gw_control_next(const gw_control *control) {
    gw_time next = control->beat_at, report = gw_control_next_report(control), shrink = gw_control_shrink_next(control);
    if (report < next) next = report;
    return shrink < next ? shrink : next;
}

bool gw_control_lost(const gw_control *control, int rank) { return control->members[rank].lost; }
bool gw_control_dead(const gw_control *control, int rank) { return control->members[rank].died; }
bool gw_control_left(const gw_control *control, int rank) { return control->members[rank].left; }
const gw_error *gw_control_error(const gw_control *control) { return &control->error; }
uint32_t gw_control_generation(const gw_control *control) { return control->generation; }
