/* control_shrink.c - the survivors of a generation find each other, agree on the next one, and enter it.
 * Cost: a link to each survivor, and six messages over it. */
#include <stdio.h>

#include "control/control_internal.h"

#define BALLOTS_PER_DEADLINE 32 /* a ballot that takes longer is tried again */
#define POSITIONS                                                                                                      \
    8 /* the first 8 proposers start one ballot time apart; all others together, one ballot time later                 \
       */
#define DIAL_DELAY (20 * GW_MILLISECOND) /* the lower of two ranks dials first, so that not both dial */

static bool asking(const gw_control *c) { return c->shrink.phase == GW_SHRINK_ASKING; }
static gw_time ballot_time(const gw_control *c) {
    gw_time time = c->deadline / BALLOTS_PER_DEADLINE;
    return time ? time : 1;
}

/* Messages. */

static gw_members set_of(const gw_control *c, const gw_control_message *message) {
    gw_members text, set = {{0}};
    memcpy(text.bits, message->text, sizeof text.bits);
    for (int r = 0; r < c->world; r++)
        if (gw_members_has(&text, r)) gw_members_add(&set, r);
    return set;
}

static void send_set(gw_control *c, int to, gw_control_message message, const gw_members *set) {
    message.origin = c->rank;
    message.subject = -1;
    memcpy(message.text, set->bits, sizeof message.text);
    c->events.send(c->events.ctx, to, &message);
}

static void ask(gw_control *c, int to) {
    gw_members gone = {{0}};
    for (int r = 0; r < c->world; r++)
        if (c->voters[r].gone) gw_members_add(&gone, r);
    send_set(c, to, (gw_control_message){.kind = GW_CONTROL_SHRINK, .generation = c->generation, .lineage = c->lineage},
             &gone);
}

static void ask_all(gw_control *c) {
    for (int r = 0; r < c->world; r++)
        if (c->members[r].linked && c->members[r].in) ask(c, r);
}

static gw_members members_of(const gw_control *c) {
    gw_members set = {{0}};
    for (int r = 0; r < c->world; r++)
        if (c->members[r].in) gw_members_add(&set, r);
    return set;
}

static void send_members(gw_control *c, int to) {
    gw_members set = members_of(c);
    send_set(c, to, (gw_control_message){.kind = GW_CONTROL_MEMBERS, .generation = c->generation - 1,
                                         .lineage = c->lineage_before}, &set);
}

static void send_vote(void *ctx, int to, const gw_vote *vote) {
    static const uint8_t kinds[] = {[GW_VOTE_PREPARE] = GW_CONTROL_PREPARE,
                                    [GW_VOTE_PROMISE] = GW_CONTROL_PROMISE,
                                    [GW_VOTE_ACCEPT] = GW_CONTROL_ACCEPT,
                                    [GW_VOTE_ACCEPTED] = GW_CONTROL_ACCEPTED};
    gw_control *c = ctx;
    send_set(c, to, (gw_control_message){.kind = kinds[vote->kind], .generation = c->generation, .lineage = c->lineage,
                                         .ballot = vote->ballot, .accepted = vote->accepted}, &vote->set);
}

/* Ranks that answer. */

static gw_members reach(const gw_control *c) {
    gw_members set = {{0}};
    for (int r = 0; r < c->world; r++)
        if (r == c->rank || (c->members[r].asked && c->members[r].in && !c->voters[r].gone)) gw_members_add(&set, r);
    return set;
}

/* quorum=off: true if the side has more than half of the ranks that this rank hears. */
static bool most_that_answer(const gw_control *c, const gw_members *side) {
    gw_members all = reach(c);
    int inside = 0, outside = 0;
    for (int r = 0; r < c->world; r++) {
        inside += gw_members_has(&all, r) && gw_members_has(side, r);
        outside += gw_members_has(&all, r) && !gw_members_has(side, r);
    }
    return inside > outside;
}

static bool goes_on(void *ctx, const gw_members *side) {
    const gw_control *c = ctx;
    return c->any_side ? most_that_answer(c, side) : gw_quorum(c->voters, c->world, c->generation, side);
}

/* A member that has not asked and may still do so. */
static bool missing(const gw_control *c, int rank) {
    const gw_control_member *who = &c->members[rank];
    return rank != c->rank && who->in && !who->asked && !c->voters[rank].gone;
}

static bool any_missing(const gw_control *c, bool lost_too) {
    for (int r = 0; r < c->world; r++)
        if (missing(c, r) && (lost_too || !c->members[r].lost)) return true;
    return false;
}

/* The time until which this rank waits for members that have not asked, or that not all others hear. */
static gw_time patience_ends(const gw_control *c) {
    bool only_lost = any_missing(c, true) && !any_missing(c, false);
    return c->shrink.began + (c->shrink.until - c->shrink.began) / (only_lost ? 4 : 2);
}

static int position(const gw_control *c) {
    int lower = 0;
    for (int r = 0; r < c->rank; r++) lower += c->members[r].asked && c->members[r].in;
    return lower < POSITIONS ? lower : POSITIONS;
}

/* When this rank proposes. The lowest rank that has asked proposes first; if it does not succeed, the next ranks do. */
static gw_time ballot_at(const gw_control *c) {
    gw_members side = reach(c);
    if (!goes_on((void *)(uintptr_t)c, &side)) return UINT64_MAX;
    gw_time at = any_missing(c, !c->any_side) ? patience_ends(c) : c->shrink.changed_at;
    at += (gw_time)position(c) * ballot_time(c);
    return at > c->shrink.retry_at ? at : c->shrink.retry_at;
}

static void dial(gw_control *c, int rank) {
    const gw_control_member *who = &c->members[rank];
    if (rank != c->rank && who->in && !who->linked && !c->voters[rank].gone) c->events.dial(c->events.ctx, rank);
}

/* A link to a lost rank over which nothing has come for long is not used any more. */
static void forget_silent_links(gw_control *c, gw_time now) {
    for (int r = 0; r < c->world; r++)
        if (c->members[r].lost && now > c->members[r].heard_at + c->deadline / 2)
            c->members[r].linked = c->members[r].asked = false;
}

/* A rank whose link broke is most likely dead, and dialling proves it. */
static void dial_all(gw_control *c, bool lower_too) {
    for (int r = 0; r < c->world; r++)
        if (lower_too || r > c->rank || c->members[r].lost) dial(c, r);
    if (lower_too) c->shrink.dialled = true;
}

/* The next generation. */

/* FNV-1a. */
static uint32_t digest(uint32_t before, const gw_members *set) {
    uint32_t hash = before ^ UINT32_C(2166136261);
    for (size_t i = 0; i < sizeof set->bits; i++) hash = (hash ^ set->bits[i]) * UINT32_C(16777619);
    return hash;
}

static void end(gw_control *c, const gw_error *error) {
    c->shrink.phase = GW_SHRINK_OVER;
    c->shrink.result = *error;
}

/* A member of the new generation may have been lost since that was decided. */
static void check_members_lost(gw_control *c) {
    for (int r = 0; r < c->world; r++) {
        const gw_control_member *who = &c->members[r];
        if (!who->in || !(who->lost || who->left)) continue;
        char text[GW_CONTROL_TEXT];
        snprintf(text, sizeof text, "rank %d on %s is gone: it %s while the job was shrunk; gw_shrink again", r,
                 c->events.host_name(c->events.ctx, r), who->left ? "left the job" : "was lost");
        gw_control_set_error(c, GW_PEER_LOST, r, text);
    }
}

/* Floods go over links at distance 1, 2, 4, ... of the members' own numbering. */
static void choose_neighbours(gw_control *c, gw_time now) {
    int count = 0, place = 0, neighbours[GW_CONTROL_LINKS_MAX];
    for (int r = 0; r < c->world; r++) {
        c->members[r].is_neighbour = false;
        c->members[r].heard_at = now;
        if (r == c->rank) place = count;
        count += c->members[r].in;
    }
    int links = gw_control_neighbours(place, count, neighbours);
    for (int r = 0, at = 0; r < c->world; r++) {
        if (!c->members[r].in) continue;
        for (int i = 0; i < links; i++) c->members[r].is_neighbour |= neighbours[i] == at;
        if (c->members[r].is_neighbour) dial(c, r);
        at++;
    }
}

static void check_joined(gw_control *c) {
    if (c->shrink.phase != GW_SHRINK_JOINING || c->error.status) return;
    for (int r = 0; r < c->world; r++)
        if (c->members[r].in && c->voters[r].seen != c->generation) return;
    end(c, &(gw_error){.rank = -1});
}

/* A member that was lost, but has asked since then, is alive. */
static void update_member(gw_control *c, int rank, bool in) {
    gw_control_member *who = &c->members[rank];
    if (in) c->voters[rank].last = c->generation;
    if (in && who->lost && who->asked) {
        who->lost = false;
        c->events.returned(c->events.ctx, rank);
    }
    who->in = in;
    who->asked = false;
    who->waits_for = -1;
}

static void enter(gw_control *c, const gw_members *value, gw_time now) {
    c->generation++;
    c->lineage_before = c->lineage;
    c->lineage = digest(c->lineage, value);
    for (int r = 0; r < c->world; r++) update_member(c, r, gw_members_has(value, r));
    c->voters[c->rank].seen = c->generation;
    c->error = c->shrink.refused = (gw_error){.rank = -1};
    c->wait_began = 0;
    c->shrink.phase = GW_SHRINK_JOINING;
    c->shrink.began = now;
    gw_agreement_renew(c->shrink.agreement);
    choose_neighbours(c, now);
    for (int r = 0; r < c->world; r++)
        if (c->members[r].linked) send_members(c, r);
    check_members_lost(c);
    check_joined(c);
}

/* Cannot be undone: this rank leaves, so that the others count it as gone. */
void gw_control_set_excluded(gw_control *c, int from) {
    if (c->shrink.refused.status) return;
    gw_error error = {.rank = -1};
    gw_fail_rank(&error, GW_PEER_LOST, from,
                 "gw_shrink: the job goes on without this process, rank %d on %s, as rank %d on %s says: it called "
                 "gw_shrink too late, or not all others reach it",
                 c->rank, c->events.host_name(c->events.ctx, c->rank), from, c->events.host_name(c->events.ctx, from));
    c->shrink.refused = error;
    gw_control_leave(c);
    gw_control_set_error(c, error.status, error.rank, error.text);
    if (asking(c)) end(c, &error);
}

/* Voting. */

static void vote(gw_control *c, gw_time now) {
    gw_agreement *agreement = c->shrink.agreement;
    gw_members value;
    if (!asking(c)) return;
    bool proposing = gw_agreement_proposing(agreement), overdue = now >= c->shrink.voted_at + ballot_time(c);
    if (!proposing && now < ballot_at(c)) return;
    bool decided = proposing && gw_agreement_advance(agreement, overdue && now >= patience_ends(c), &value);
    if (!decided && (!proposing || overdue)) {
        c->shrink.voted_at = now;
        gw_agreement_propose(agreement);
        decided = gw_agreement_advance(agreement, false, &value);
    }
    if (decided) enter(c, &value, now);
}

static void reach_changed(gw_control *c, gw_time now) {
    if (!asking(c)) return;
    gw_members set = reach(c);
    c->shrink.changed_at = now;
    gw_agreement_reach(c->shrink.agreement, &set);
    vote(c, now);
}

void gw_control_shrink_linked(gw_control *c, int rank, gw_time now) {
    (void)now;
    if (asking(c) && c->members[rank].in) ask(c, rank);
    if (c->shrink.phase == GW_SHRINK_JOINING && c->members[rank].in) send_members(c, rank);
}

void gw_control_shrink_unlinked(gw_control *c, int rank, gw_time now) {
    if (!asking(c)) return;
    dial(c, rank);
    reach_changed(c, now);
}

void gw_control_shrink_gone(gw_control *c, gw_time now) {
    if (!asking(c)) return;
    ask_all(c); /* the others must know as well */
    reach_changed(c, now);
}

/* Receiving. */

static void on_gone(gw_control *c, int from, const gw_members *gone, gw_time now) {
    char detail[80];
    snprintf(detail, sizeof detail, "rank %d has proved that its process ended", from);
    for (int r = 0; r < c->world; r++)
        if (r != c->rank && gw_members_has(gone, r) && !c->voters[r].gone) gw_control_died(c, r, detail, now);
}

static void on_ask(gw_control *c, int from, const gw_members *gone, gw_time now) {
    uint32_t generation = c->generation;
    on_gone(c, from, gone, now);
    if (c->members[from].asked || c->generation != generation) return;
    c->members[from].asked = true;
    reach_changed(c, now);
}

static void on_vote(gw_control *c, int from, const gw_control_message *message, const gw_members *set, gw_time now) {
    static const gw_vote_kind kinds[] = {[GW_CONTROL_PREPARE] = GW_VOTE_PREPARE,
                                         [GW_CONTROL_PROMISE] = GW_VOTE_PROMISE,
                                         [GW_CONTROL_ACCEPT] = GW_VOTE_ACCEPT,
                                         [GW_CONTROL_ACCEPTED] = GW_VOTE_ACCEPTED};
    if (!asking(c)) return;
    gw_vote heard = {.kind = kinds[message->kind], .ballot = message->ballot, .accepted = message->accepted,
                     .set = *set};
    gw_agreement_receive(c->shrink.agreement, from, &heard);
    if (heard.kind == GW_VOTE_PREPARE || heard.kind == GW_VOTE_ACCEPT) /* leave time for the other rank's ballot */
        c->shrink.retry_at = now + (gw_time)(1 + position(c)) * ballot_time(c);
    vote(c, now);
}

static void on_members(gw_control *c, int from, const gw_control_message *message, const gw_members *set, gw_time now) {
    gw_members mine = members_of(c);
    bool next = message->generation == c->generation && message->lineage == c->lineage;
    bool ahead = message->generation >= c->generation;
    if (ahead && !gw_members_has(set, c->rank)) {
        gw_control_set_excluded(c, from);
    } else if (asking(c) && next && gw_members_has(set, from)) {
        enter(c, set, now);
        c->voters[from].seen = c->generation;
    } else if (message->generation + 1 == c->generation && message->lineage == c->lineage_before &&
               gw_members_same(set, &mine)) {
        c->voters[from].seen = c->generation;
    }
    check_joined(c);
}

void gw_control_receive_shrink(gw_control *c, int from, const gw_control_message *message, gw_time now) {
    if (c->world > GW_CONTROL_WORLD_MAX || !c->members[from].linked || c->voters[from].gone) return;
    gw_members set = set_of(c, message);
    bool current = message->generation == c->generation && message->lineage == c->lineage && c->members[from].in;
    if (current) c->voters[from].seen = c->generation;
    if (message->kind == GW_CONTROL_MEMBERS) on_members(c, from, message, &set, now);
    else if (message->generation < c->generation && message->kind == GW_CONTROL_SHRINK) send_members(c, from);
    else if (current && message->kind == GW_CONTROL_SHRINK) on_ask(c, from, &set, now);
    else if (current) on_vote(c, from, message, &set, now);
}

/* Beginning and ending. */

static bool open_agreement(gw_control *c) {
    gw_agreement_events events = {.ctx = c, .send = send_vote, .goes_on = goes_on};
    gw_error error = {.rank = -1};
    if (!c->shrink.agreement && gw_agreement_open(&c->shrink.agreement, c->rank, c->world, &events, &error))
        end(c, &error);
    return c->shrink.agreement != NULL;
}

void gw_control_shrink(gw_control *c, gw_time until, gw_time now) {
    if (c->shrink.refused.status) {
        end(c, &c->shrink.refused);
        return;
    }
    if (!open_agreement(c)) return;
    c->shrink.phase = GW_SHRINK_ASKING;
    c->shrink.began = now;
    c->shrink.until = until;
    c->shrink.retry_at = 0;
    c->shrink.dialled = false;
    forget_silent_links(c, now);
    dial_all(c, false);
    ask_all(c);
    reach_changed(c, now);
}

bool gw_control_shrunk(gw_control *c, bool *member, gw_error *error) {
    if (c->shrink.phase == GW_SHRINK_JOINING && c->error.status) end(c, &c->error);
    if (c->shrink.phase != GW_SHRINK_OVER) return false;
    c->shrink.phase = GW_SHRINK_IDLE;
    *error = c->shrink.result;
    for (int r = 0; r < c->world; r++) member[r] = c->members[r].in;
    return true;
}

void gw_control_shrink_abort(gw_control *c, const gw_error *error) {
    if (c->shrink.refused.status || c->shrink.phase == GW_SHRINK_JOINING) return;
    c->shrink.refused = *error;
    gw_control_message message = gw_control_begin(c, GW_CONTROL_ABORT, error->rank, error->text);
    message.status = (uint8_t)error->status;
    message.ballot = 1;
    for (int r = 0; r < c->world; r++)
        if (c->members[r].linked && c->members[r].in) c->events.send(c->events.ctx, r, &message);
    if (asking(c)) end(c, error);
}

/* "rank 3 on a, rank 5 on b and 2 more". */
static int list(const gw_control *c, bool linked, char *text, size_t size) {
    int count = 0;
    size_t used = 0;
    text[0] = 0;
    for (int r = 0; r < c->world; r++) {
        if (!missing(c, r) || c->members[r].linked != linked) continue;
        if (count++ < 3 && used < size)
            used += (size_t)snprintf(text + used, size - used, "%srank %d on %.20s", count > 1 ? ", " : "", r,
                                     c->events.host_name(c->events.ctx, r));
    }
    if (count > 3 && used < size) snprintf(text + used, size - used, " and %d more", count - 3);
    return count;
}

static void give_up(gw_control *c) {
    char cut[100], late[100], behind[80] = "";
    int unreached = list(c, false, cut, sizeof cut), silent = list(c, true, late, sizeof late);
    int here = 1, all = 1, earlier = 0;
    for (int r = 0; r < c->world; r++) {
        if (r == c->rank || c->voters[r].gone) continue;
        here += c->members[r].in && c->members[r].asked;
        all += c->members[r].in;
        earlier += !c->members[r].in;
    }
    if (earlier) snprintf(behind, sizeof behind, "; nor are %d that were left behind before", earlier);
    gw_error error = {.rank = -1};
    gw_fail(&error, unreached || earlier ? GW_PEER_LOST : GW_TIMEOUT,
            "gw_shrink: %d of the %d ranks that are not proved dead have come together, %s%s%s%s%s%s%s; start the job "
            "again, or let every side go on by itself (quorum=off, GRADWIRE_QUORUM=off)",
            here, all, here == all && !earlier ? "but do not agree" : "which are too few to go on", behind,
            unreached ? "; not reached: " : "", cut, unreached ? " (a job may go on there)" : "",
            silent ? "; reached, but silent or not in gw_shrink: " : "", late);
    end(c, &error);
}

static void give_up_joining(gw_control *c) {
    gw_error error = {.rank = -1};
    for (int r = 0; r < c->world && !error.status; r++)
        if (c->members[r].in && c->voters[r].seen != c->generation)
            gw_fail_rank(&error, GW_PEER_LOST, r,
                         "rank %d on %s did not come along when the job was shrunk; gw_shrink "
                         "again",
                         r, c->events.host_name(c->events.ctx, r));
    gw_control_abort(c, &error);
}

void gw_control_shrink_poll(gw_control *c, gw_time now) {
    gw_control_shrinking *s = &c->shrink;
    if (s->phase == GW_SHRINK_JOINING && now >= s->began + (s->until - s->began) / 4) give_up_joining(c);
    if (!asking(c)) return;
    if (!s->dialled && now >= s->began + DIAL_DELAY) dial_all(c, true);
    if (now >= s->until) give_up(c);
    vote(c, now);
}

gw_time gw_control_shrink_next(const gw_control *c) {
    const gw_control_shrinking *s = &c->shrink;
    if (s->phase != GW_SHRINK_ASKING && s->phase != GW_SHRINK_JOINING) return UINT64_MAX;
    return asking(c) && !s->dialled ? s->began + DIAL_DELAY : c->polled_at + ballot_time(c) / 4 + 1;
}
