/* desk.c - see desk.h. A push costs O(workers). */
#include "server/desk_internal.h"

#include <stdlib.h>

typedef gw_desk_seat seat;
typedef gw_desk_worker worker;
typedef gw_stopwatch stopwatch;

gw_status gw_desk_open(gw_desk **out, const gw_sync_rule *rule, int workers, int parcels, gw_error *error) {
    gw_desk *d = calloc(1, sizeof *d);
    if (!d) return gw_fail(error, GW_MEMORY, "out of memory for a server");
    *d = (gw_desk){.rule = *rule, .workers = workers, .parcels = parcels, .present = workers};
    d->who = calloc((size_t)workers, sizeof *d->who);
    d->seats = calloc((size_t)workers * (size_t)parcels + 1, sizeof *d->seats);
    d->round = calloc((size_t)parcels + 1, sizeof *d->round);
    if (!d->who || !d->seats || !d->round) {
        gw_desk_close(d);
        return gw_fail(error, GW_MEMORY, "out of memory for a server of %d parcels", parcels);
    }
    *out = d;
    return GW_OK;
}

void gw_desk_close(gw_desk *d) {
    if (!d) return;
    free(d->who);
    free(d->seats);
    free(d->round);
    free(d);
}

static seat *at(const gw_desk *d, int parcel, int w) { return gw_desk_at(d, parcel, w); }

/* The least clock of those present, UINT64_MAX: nobody is. */
static uint64_t slowest(const gw_desk *d, int parcel) {
    uint64_t least = UINT64_MAX;
    for (int w = 0; w < d->workers; w++)
        if (!d->who[w].left && at(d, parcel, w)->clock < least) least = at(d, parcel, w)->clock;
    return least;
}

/* An answer is owed but may not go yet. */
static bool held(const gw_desk *d, int parcel, int w, uint64_t least) {
    const seat *s = at(d, parcel, w);
    if (!d->rule.at_once) return s->in;
    return s->waiting && least != UINT64_MAX && s->clock > least && s->clock - least > d->rule.lead;
}

/* Waiting times. */

static void count(stopwatch *s, int by, gw_time now) {
    if (s->count) s->total += now - s->since;
    s->since = now;
    s->count += by;
}

/* Counts a parcel in (by = 1), or out before it changes (by = -1). */
static void tally(gw_desk *d, int parcel, int by, gw_time now) {
    uint64_t least = d->rule.at_once ? slowest(d, parcel) : 0;
    bool any = false;
    for (int w = 0; w < d->workers; w++) {
        if (!held(d, parcel, w, least)) continue;
        any = true;
        count(&d->who[w].held, by, now);
    }
    for (int w = 0; any && w < d->workers; w++) {
        const seat *s = at(d, parcel, w);
        bool slow = d->rule.at_once ? s->clock == least : !s->in;
        if (slow && !d->who[w].left) count(&d->who[w].awaited, by, now);
    }
}

bool gw_desk_awaits(const gw_desk *d, int w) { return d->who[w].awaited.count > 0; }

gw_desk_times gw_desk_timed(const gw_desk *d, int w, gw_time now) {
    const worker *who = &d->who[w];
    return (gw_desk_times){.pushes = who->pushes, .late = who->late,
                           .held = who->held.total + (who->held.count ? now - who->held.since : 0),
                           .held_others = who->awaited.total + (who->awaited.count ? now - who->awaited.since : 0)};
}

void gw_desk_adopt(gw_desk *d, const gw_desk *old, gw_time now) {
    for (int w = 0; w < d->workers; w++) {
        gw_desk_times times = gw_desk_timed(old, w, now);
        d->who[w] = (worker){.left = old->who[w].left, .pushes = times.pushes, .late = times.late,
                             .held.total = times.held, .awaited.total = times.held_others};
    }
    d->present = old->present;
}

/* Pushes and answers. */

static int needed(const gw_desk *d) { return d->present - d->rule.spare; }

bool gw_desk_complete(const gw_desk *d, int parcel) {
    int in = 0;
    for (int w = 0; w < d->workers; w++) in += at(d, parcel, w)->in;
    return !d->rule.at_once && in > 0 && in >= needed(d);
}

/* Who is in the round, or has still to make the step that this one waits in. */
static int may_come(const gw_desk *d, int parcel, const seat *waits) {
    int count = 0;
    for (int w = 0; w < d->workers; w++) {
        const seat *s = at(d, parcel, w);
        count += s->in || (!d->who[w].left && s->made < waits->made);
    }
    return count;
}

static bool let_one_go(gw_desk *d, int parcel) {
    for (int w = 0; w < d->workers; w++) {
        seat *s = at(d, parcel, w);
        if (!s->in || may_come(d, parcel, s) >= needed(d)) continue;
        s->in = false;
        s->waiting = true;
        s->clock--;
        d->who[w].late++;
        return true;
    }
    return false;
}

/* With spare ones a worker falls behind: it makes steps that others have made before, who will not come again for its
 * sake. Where those who may come are too few it does not wait for them, and its push is not used. So nobody waits in
 * vain, however many parcels there are: of all who wait anywhere the one in the earliest step waits only for such as
 * are in earlier ones, and those compute. */
static void let_go(gw_desk *d, int parcel) {
    while (d->rule.spare && !gw_desk_complete(d, parcel) && let_one_go(d, parcel)) continue;
}

static void count_lost(gw_desk *d, int w, uint64_t steps) {
    if (steps > d->who[w].lost) d->who[w].lost = steps;
}

/* Workers have seen later rounds than this desk, which is old: what came for earlier ones is answered without use. */
static void skip_to(gw_desk *d, int parcel, uint64_t round) {
    for (int w = 0; w < d->workers; w++) {
        seat *s = at(d, parcel, w);
        count_lost(d, w, round - d->round[parcel]);
        s->clock -= s->in;
        s->waiting |= s->in;
        s->in = false;
    }
    d->round[parcel] = round;
}

static gw_push push_at_once(gw_desk *d, int parcel, int w, uint64_t number) {
    seat *s = at(d, parcel, w);
    if (s->unknown) s->clock = number;
    s->unknown = false;
    if (number > s->clock && !(d->old && s->unheard)) return GW_PUSH_WRONG;
    if (number > s->clock) {
        count_lost(d, w, number - s->clock);
        s->clock = number;
    }
    d->who[w].pushes++;
    s->waiting = true;
    if (number < s->clock) return GW_PUSH_AGAIN;
    s->clock++;
    return GW_PUSH_APPLY;
}

static gw_push push(gw_desk *d, int parcel, int w, uint64_t round, uint64_t step) {
    seat *s = at(d, parcel, w);
    if (s->waiting || s->in || d->who[w].left) return GW_PUSH_WRONG;
    if (d->rule.at_once) return push_at_once(d, parcel, w, round);
    if (round > d->round[parcel] && !d->old) return GW_PUSH_WRONG;
    if (round > d->round[parcel]) skip_to(d, parcel, round);
    d->who[w].pushes++;
    s->made = step + 1;
    if (round < d->round[parcel]) {
        bool used = round < s->next;
        d->who[w].late += !used;
        s->waiting = true;
        return used ? GW_PUSH_AGAIN : GW_PUSH_LATE;
    }
    s->clock++;
    s->in = true;
    return gw_desk_complete(d, parcel) ? GW_PUSH_LAST : GW_PUSH_KEPT;
}

gw_push gw_desk_push(gw_desk *d, int parcel, int w, uint64_t round, uint64_t step, gw_time now) {
    tally(d, parcel, -1, now);
    gw_push what = push(d, parcel, w, round, step);
    seat *s = at(d, parcel, w);
    let_go(d, parcel);
    if (what == GW_PUSH_KEPT && !s->in) what = GW_PUSH_LATE;
    if (what != GW_PUSH_WRONG && s->unheard) {
        s->unheard = false;
        d->heard++;
    }
    tally(d, parcel, 1, now);
    return what;
}

bool gw_desk_in(const gw_desk *d, int parcel, int w) { return at(d, parcel, w)->in; }
uint64_t gw_desk_round(const gw_desk *d, int parcel) { return d->round[parcel]; }
uint64_t gw_desk_number(const gw_desk *d, int parcel, int w) {
    return d->rule.at_once ? at(d, parcel, w)->clock : d->round[parcel];
}
uint64_t gw_desk_clock(const gw_desk *d, int parcel, int w) { return at(d, parcel, w)->clock; }

void gw_desk_next(gw_desk *d, int parcel, gw_time now) {
    tally(d, parcel, -1, now);
    d->round[parcel]++;
    for (int w = 0; w < d->workers; w++) {
        seat *s = at(d, parcel, w);
        if (s->in) s->next = d->round[parcel];
        s->waiting |= s->in;
        s->in = false;
    }
    tally(d, parcel, 1, now);
}

int gw_desk_due(gw_desk *d, int parcel, gw_time now) {
    uint64_t least = d->rule.at_once ? slowest(d, parcel) : 0;
    for (int w = 0; w < d->workers; w++) {
        if (!at(d, parcel, w)->waiting || at(d, parcel, w)->unsafe || held(d, parcel, w, least)) continue;
        tally(d, parcel, -1, now);
        at(d, parcel, w)->waiting = false;
        tally(d, parcel, 1, now);
        return w;
    }
    return -1;
}

void gw_desk_leave(gw_desk *d, int w, gw_time now) {
    if (d->who[w].left) return;
    for (int p = 0; p < d->parcels; p++) tally(d, p, -1, now);
    d->who[w].left = true;
    d->present--;
    for (int p = 0; p < d->parcels; p++) {
        let_go(d, p);
        tally(d, p, 1, now);
    }
}

void gw_desk_made(gw_desk *d, int parcel, int w, uint64_t next, gw_time now) {
    tally(d, parcel, -1, now);
    at(d, parcel, w)->made = next;
    let_go(d, parcel);
    tally(d, parcel, 1, now);
}

bool gw_desk_left(const gw_desk *d, int w) { return d->who[w].left; }

bool gw_desk_idle(const gw_desk *d) {
    for (int i = 0; i < d->workers * d->parcels; i++)
        if (d->seats[i].in || d->seats[i].waiting) return false;
    return true;
}

/* Copies. */

void gw_desk_unsafe(gw_desk *d, int parcel, int w) {
    for (int i = w < 0 ? 0 : w; i < (w < 0 ? d->workers : w + 1); i++)
        at(d, parcel, i)->unsafe = true;
}

void gw_desk_safe(gw_desk *d, int parcel, int w) {
    for (int i = w < 0 ? 0 : w; i < (w < 0 ? d->workers : w + 1); i++) at(d, parcel, i)->unsafe = false;
}
