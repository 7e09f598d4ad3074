/* clock_table.c - see clock_table.h. A push costs O(workers). */
#include "ps/clock_table_internal.h"

#include <stdlib.h>

typedef gw_clock_table_entry entry;
typedef gw_clock_table_worker worker;
typedef gw_stopwatch stopwatch;

gw_status gw_clock_table_open(gw_clock_table **out, const gw_sync_rule *rule, int workers, int partitions,
                              gw_error *error) {
    gw_clock_table *t = calloc(1, sizeof *t);
    if (!t) return gw_fail(error, GW_MEMORY, "out of memory for a server");
    *t = (gw_clock_table){.rule = *rule, .workers = workers, .partitions = partitions, .present = workers};
    t->per_worker = calloc((size_t)workers, sizeof *t->per_worker);
    t->entries = calloc((size_t)workers * (size_t)partitions + 1, sizeof *t->entries);
    t->round = calloc((size_t)partitions + 1, sizeof *t->round);
    t->joined = calloc((size_t)partitions + 1, sizeof *t->joined);
    if (!t->per_worker || !t->entries || !t->round || !t->joined) {
        gw_clock_table_close(t);
        return gw_fail(error, GW_MEMORY, "out of memory for a server of %d partitions", partitions);
    }
    *out = t;
    return GW_OK;
}

void gw_clock_table_close(gw_clock_table *t) {
    if (!t) return;
    free(t->per_worker);
    free(t->entries);
    free(t->round);
    free(t->joined);
    free(t);
}

static entry *at(const gw_clock_table *t, int partition, int w) { return gw_clock_table_at(t, partition, w); }

/* The lowest clock of the workers that have not left, UINT64_MAX: all have. */
static uint64_t slowest(const gw_clock_table *t, int partition) {
    uint64_t least = UINT64_MAX;
    for (int w = 0; w < t->workers; w++)
        if (!t->per_worker[w].left && at(t, partition, w)->clock < least) least = at(t, partition, w)->clock;
    return least;
}

/* An answer is owed but may not be sent yet. */
static bool held(const gw_clock_table *t, int partition, int w, uint64_t least) {
    const entry *e = at(t, partition, w);
    if (!t->rule.at_once) return e->in;
    return e->waiting && least != UINT64_MAX && e->clock > least && e->clock - least > t->rule.staleness;
}

/* Waiting times. */

static void count(stopwatch *s, int by, gw_time now) {
    if (s->count) s->total += now - s->since;
    s->since = now;
    s->count += by;
}

/* Adds a partition to the counts (by = 1), or removes it before it changes (by = -1). */
static void tally(gw_clock_table *t, int partition, int by, gw_time now) {
    uint64_t least = t->rule.at_once ? slowest(t, partition) : 0;
    bool any = false;
    for (int w = 0; w < t->workers; w++) {
        if (!held(t, partition, w, least)) continue;
        any = true;
        count(&t->per_worker[w].held, by, now);
    }
    for (int w = 0; any && w < t->workers; w++) {
        const entry *e = at(t, partition, w);
        bool slow = t->rule.at_once ? e->clock == least : !e->in;
        if (slow && !t->per_worker[w].left) count(&t->per_worker[w].awaited, by, now);
    }
}

bool gw_clock_table_awaits(const gw_clock_table *t, int w) { return t->per_worker[w].awaited.count > 0; }

gw_clock_table_times gw_clock_table_timed(const gw_clock_table *t, int w, gw_time now) {
    const worker *one = &t->per_worker[w];
    return (gw_clock_table_times){.pushes = one->pushes, .late = one->late,
                           .held = one->held.total + (one->held.count ? now - one->held.since : 0),
                           .held_others = one->awaited.total + (one->awaited.count ? now - one->awaited.since : 0)};
}

void gw_clock_table_adopt(gw_clock_table *t, const gw_clock_table *old, gw_time now) {
    for (int w = 0; w < t->workers; w++) {
        gw_clock_table_times times = gw_clock_table_timed(old, w, now);
        t->per_worker[w] = (worker){.left = old->per_worker[w].left, .pushes = times.pushes, .late = times.late,
                             .held.total = times.held, .awaited.total = times.held_others};
    }
    t->present = old->present;
}

/* Pushes and answers. */

static int needed(const gw_clock_table *t) { return t->present - t->rule.spare; }

bool gw_clock_table_complete(const gw_clock_table *t, int partition) {
    int in = 0;
    for (int w = 0; w < t->workers; w++) in += at(t, partition, w)->in;
    return !t->rule.at_once && in > 0 && in >= needed(t);
}

/* Counts the workers that are in the round, or have not yet made the step in which the given worker waits. */
static int may_come(const gw_clock_table *t, int partition, const entry *waits) {
    int count = 0;
    for (int w = 0; w < t->workers; w++) {
        const entry *e = at(t, partition, w);
        count += e->in || (!t->per_worker[w].left && e->made < waits->made);
    }
    return count;
}

static bool release_one(gw_clock_table *t, int partition) {
    for (int w = 0; w < t->workers; w++) {
        entry *e = at(t, partition, w);
        if (!e->in || may_come(t, partition, e) >= needed(t)) continue;
        e->in = false;
        e->waiting = true;
        e->clock--;
        t->per_worker[w].late++;
        return true;
    }
    return false;
}

/* With spare workers a straggler makes steps that its peers have already passed, and the peers do not push those steps
 * again. If too few workers may still join its round, the straggler does not wait, and its push is not used. So there
 * is no deadlock, whatever the number of partitions: of all waiting workers, the one in the earliest step waits only
 * for workers in earlier steps, and those compute. */
static void release_stragglers(gw_clock_table *t, int partition) {
    while (t->rule.spare && !gw_clock_table_complete(t, partition) && release_one(t, partition)) continue;
}

static void count_lost(gw_clock_table *t, int w, uint64_t steps) {
    if (steps > t->per_worker[w].lost) t->per_worker[w].lost = steps;
}

/* Workers have seen later rounds than this restored table: pushes of earlier rounds are answered and not used. */
static void skip_to(gw_clock_table *t, int partition, uint64_t round) {
    for (int w = 0; w < t->workers; w++) {
        entry *e = at(t, partition, w);
        count_lost(t, w, round - t->round[partition]);
        e->clock -= e->in;
        e->waiting |= e->in;
        e->in = false;
    }
    t->round[partition] = round;
}

static gw_push push_at_once(gw_clock_table *t, int partition, int w, uint64_t number) {
    entry *e = at(t, partition, w);
    if (e->clock_unknown) e->clock = number;
    e->clock_unknown = false;
    if (number > e->clock && !(t->old && e->no_push_yet)) return GW_PUSH_WRONG;
    if (number > e->clock) {
        count_lost(t, w, number - e->clock);
        e->clock = number;
    }
    t->per_worker[w].pushes++;
    e->waiting = true;
    if (number < e->clock) return GW_PUSH_AGAIN;
    e->clock++;
    return GW_PUSH_APPLY;
}

static gw_push push(gw_clock_table *t, int partition, int w, uint64_t round, uint64_t step) {
    entry *e = at(t, partition, w);
    if (e->waiting || e->in || t->per_worker[w].left) return GW_PUSH_WRONG;
    if (t->rule.at_once) return push_at_once(t, partition, w, round);
    if (round > t->round[partition] && !t->old) return GW_PUSH_WRONG;
    if (round > t->round[partition]) skip_to(t, partition, round);
    t->per_worker[w].pushes++;
    e->made = step + 1;
    if (round < t->round[partition]) {
        bool used = round < e->next;
        t->per_worker[w].late += !used;
        e->waiting = true;
        return used ? GW_PUSH_AGAIN : GW_PUSH_LATE;
    }
    e->clock++;
    e->in = true;
    return gw_clock_table_complete(t, partition) ? GW_PUSH_LAST : GW_PUSH_KEPT;
}

gw_push gw_clock_table_push(gw_clock_table *t, int partition, int w, uint64_t round, uint64_t step, gw_time now) {
    tally(t, partition, -1, now);
    gw_push what = push(t, partition, w, round, step);
    entry *e = at(t, partition, w);
    release_stragglers(t, partition);
    if (what == GW_PUSH_KEPT && !e->in) what = GW_PUSH_LATE;
    if (what != GW_PUSH_WRONG && e->no_push_yet) {
        e->no_push_yet = false;
        t->heard++;
    }
    tally(t, partition, 1, now);
    return what;
}

bool gw_clock_table_in(const gw_clock_table *t, int partition, int w) { return at(t, partition, w)->in; }
uint64_t gw_clock_table_round(const gw_clock_table *t, int partition) { return t->round[partition]; }
int gw_clock_table_joined(const gw_clock_table *t, int partition) { return t->joined[partition]; }
uint64_t gw_clock_table_number(const gw_clock_table *t, int partition, int w) {
    return t->rule.at_once ? at(t, partition, w)->clock : t->round[partition];
}
uint64_t gw_clock_table_clock(const gw_clock_table *t, int partition, int w) { return at(t, partition, w)->clock; }

void gw_clock_table_next(gw_clock_table *t, int partition, gw_time now) {
    tally(t, partition, -1, now);
    t->round[partition]++;
    t->joined[partition] = 0;
    for (int w = 0; w < t->workers; w++) {
        entry *e = at(t, partition, w);
        t->joined[partition] += e->in;
        if (e->in) e->next = t->round[partition];
        e->waiting |= e->in;
        e->in = false;
    }
    tally(t, partition, 1, now);
}

int gw_clock_table_due(gw_clock_table *t, int partition, gw_time now) {
    uint64_t least = t->rule.at_once ? slowest(t, partition) : 0;
    for (int w = 0; w < t->workers; w++) {
        if (!at(t, partition, w)->waiting || at(t, partition, w)->unsafe || held(t, partition, w, least)) continue;
        tally(t, partition, -1, now);
        at(t, partition, w)->waiting = false;
        tally(t, partition, 1, now);
        return w;
    }
    return -1;
}

void gw_clock_table_leave(gw_clock_table *t, int w, gw_time now) {
    if (t->per_worker[w].left) return;
    for (int p = 0; p < t->partitions; p++) tally(t, p, -1, now);
    t->per_worker[w].left = true;
    t->present--;
    for (int p = 0; p < t->partitions; p++) {
        release_stragglers(t, p);
        tally(t, p, 1, now);
    }
}

void gw_clock_table_worker_at_step(gw_clock_table *t, int partition, int w, uint64_t next, gw_time now) {
    tally(t, partition, -1, now);
    at(t, partition, w)->made = next;
    release_stragglers(t, partition);
    tally(t, partition, 1, now);
}

bool gw_clock_table_left(const gw_clock_table *t, int w) { return t->per_worker[w].left; }

bool gw_clock_table_idle(const gw_clock_table *t) {
    for (int i = 0; i < t->workers * t->partitions; i++)
        if (t->entries[i].in || t->entries[i].waiting) return false;
    return true;
}

/* Replicas. */

void gw_clock_table_unsafe(gw_clock_table *t, int partition, int w) {
    for (int i = w < 0 ? 0 : w; i < (w < 0 ? t->workers : w + 1); i++) at(t, partition, i)->unsafe = true;
}

void gw_clock_table_safe(gw_clock_table *t, int partition, int w) {
    for (int i = w < 0 ? 0 : w; i < (w < 0 ? t->workers : w + 1); i++) at(t, partition, i)->unsafe = false;
}
