/* critical_path.c - see critical_path.h. */
#include "insight/critical_path.h"

#include <stdlib.h>

enum { PARTS_MAX = 1 << 20 }; /* a longer path loses its beginning */

#define AT_ONCE 2000 /* ns: an event that follows a wait this soon was caused by its end */

/* The state of the walk backwards. */
typedef struct walker {
    const gw_insight *in;
    const gw_operations *ops;
    const gw_messages *messages;
    gw_critical_path *path;
    gw_time begin;
    int rank;
    gw_time now;
    bool no_memory;
} walker;

const char *gw_critical_path_name(gw_critical_path_kind kind) {
    static const char *const names[] = {
#define NAME(name, text) text,
        GW_PATH_LIST(NAME)
#undef NAME
    };
    return names[kind];
}

/* Adds a part from `from` to now; now becomes `from`. */
static void add_part(walker *w, gw_critical_path_kind kind, int sender, uint32_t name, gw_time from) {
    gw_critical_path *path = w->path;
    if (from < w->begin) from = w->begin;
    if (from >= w->now) return;
    if (path->count == path->capacity) {
        size_t capacity = path->capacity ? 2 * path->capacity : 64;
        gw_critical_path_part *list = realloc(path->list, capacity * sizeof *list);
        w->no_memory |= !list;
        if (!list) return;
        path->list = list;
        path->capacity = capacity;
    }
    path->list[path->count++] = (gw_critical_path_part){.kind = kind, .rank = w->rank, .from = sender, .name = name,
                                                        .begin = from, .end = w->now};
    path->total[kind] += w->now - from;
    w->now = from;
}

/* ---- the caller's own work ---- */

static gw_critical_path_kind own_kind(gw_trace_kind kind) {
    switch (kind) {
    case GW_TRACE_FORWARD: return GW_PATH_FORWARD;
    case GW_TRACE_BACKWARD: return GW_PATH_BACKWARD;
    case GW_TRACE_APPLIED: return GW_PATH_UPDATE;
    default: return GW_PATH_CODING;
    }
}

/* The last event of these kinds that began before `by`; NULL: none. */
static const gw_trace_event *last_before(const walker *w, const gw_trace_kind *kinds, int count, gw_time by) {
    const gw_trace_event *best = NULL;
    for (int k = 0; k < count; k++) {
        size_t n, low = 0;
        const gw_insight_event *events = gw_insight_of(w->in, w->rank, kinds[k], &n);
        size_t high = n;
        while (low < high) {
            size_t middle = (low + high) / 2;
            if (events[middle].is.begin < by) low = middle + 1;
            else high = middle;
        }
        if (low && (!best || events[low - 1].is.begin > best->begin)) best = &events[low - 1].is;
    }
    return best;
}

/* Walks back to `until`, layer by layer. */
static void compute(walker *w, gw_time until) {
    static const gw_trace_kind own[] = {GW_TRACE_FORWARD, GW_TRACE_BACKWARD, GW_TRACE_APPLIED,
                                        GW_TRACE_ENCODED, GW_TRACE_DECODED,  GW_TRACE_REDUCED};
    while (w->now > until && w->path->count < PARTS_MAX && !w->no_memory) {
        const gw_trace_event *e = last_before(w, own, sizeof own / sizeof own[0], w->now);
        gw_time end = e && e->end > until ? (e->end < w->now ? e->end : w->now) : until;
        if (end < w->now) add_part(w, GW_PATH_OTHER, -1, 0, end);
        if (!e || w->now <= until) return;
        add_part(w, own_kind((gw_trace_kind)e->kind), -1, e->name, e->begin > until ? e->begin : until);
    }
}

/* ---- waits ---- */

/* Walks from message to message, back to the rank that had only just begun the operation. */
static void follow(walker *w, const gw_operation *op, const gw_message *m) {
    while (m && w->now > w->begin && w->path->count < PARTS_MAX && !w->no_memory) {
        gw_time begun = 0;
        add_part(w, GW_PATH_HANDLING, -1, m->name, m->arrived);
        if (m->handed >= w->now) return; /* within the uncertainty of the clocks */
        add_part(w, GW_PATH_WIRE, m->src, m->name, m->handed);
        w->rank = m->src;
        if (op) gw_operation_begun(w->ops, op, w->rank, &begun);
        const gw_message *before = gw_messages_last(w->messages, w->rank, m->comm, m->number, w->now);
        if (!before || before->arrived < begun) {
            add_part(w, GW_PATH_HANDLING, -1, m->name, begun ? begun : w->now);
            return;
        }
        m = before;
    }
}

static void wait_for(walker *w, const gw_trace_event *wait) {
    const gw_operation *op = gw_operations_awaited(w->ops, w->rank, wait, w->now);
    uint32_t comm = op ? op->comm : wait->comm;
    uint64_t number = op ? op->number : wait->number;
    const gw_message *last = gw_messages_last(w->messages, w->rank, comm, number, w->now);
    uint32_t name = op ? op->name : wait->name;
    if (last && last->arrived > wait->begin && comm) {
        follow(w, op, last);
    } else if (op && op->last_rank != w->rank && op->last_begin > wait->begin && op->last_begin < w->now) {
        add_part(w, GW_PATH_MEMORY, -1, name, op->last_begin);
        w->rank = op->last_rank;
    } else {
        bool messages = gw_messages_last(w->messages, w->rank, comm, number, UINT64_MAX) != NULL;
        add_part(w, !op ? GW_PATH_OTHER : messages ? GW_PATH_HANDLING : GW_PATH_MEMORY, -1, name, wait->begin);
    }
}

static void walk(walker *w) {
    static const gw_trace_kind waits[] = {GW_TRACE_WAITED};
    while (w->now > w->begin && w->path->count < PARTS_MAX && !w->no_memory) {
        gw_time before = w->now;
        int rank = w->rank;
        const gw_trace_event *wait = last_before(w, waits, 1, w->now);
        gw_time idle_from = wait && wait->end > w->begin ? wait->end : w->begin;
        if (wait && wait->end + AT_ONCE >= w->now && wait->end > w->begin) wait_for(w, wait);
        else compute(w, idle_from);
        if (w->now == before && w->rank == rank) add_part(w, GW_PATH_OTHER, -1, 0, wait ? wait->begin : w->begin);
        if (w->now == before && w->rank == rank) return;
    }
}

gw_status gw_critical_path_find(const gw_insight *in, const gw_operations *ops, const gw_messages *messages, int rank,
                                gw_time begin, gw_time end, gw_critical_path *path, gw_error *error) {
    *path = (gw_critical_path){.begin = begin, .end = end};
    walker w = {.in = in, .ops = ops, .messages = messages, .path = path, .begin = begin, .rank = rank, .now = end};
    walk(&w);
    if (w.no_memory) {
        gw_critical_path_free(path);
        return gw_fail(error, GW_MEMORY, "no memory for a critical path");
    }
    path->begin = w.now;
    for (size_t i = 0; i < path->count / 2; i++) {
        gw_critical_path_part swap = path->list[i];
        path->list[i] = path->list[path->count - 1 - i];
        path->list[path->count - 1 - i] = swap;
    }
    return GW_OK;
}

void gw_critical_path_free(gw_critical_path *path) {
    free(path->list);
    *path = (gw_critical_path){0};
}
