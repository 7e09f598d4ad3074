/* messages.c - see messages.h. */
#include "insight/messages.h"

#include <stdlib.h>

#define ORDER(a, b)                                                                                                    \
    if ((a) != (b)) return (a) < (b) ? -1 : 1

/* Puts the sent and the arrived event of a message next to each other, the sent one first. */
static int by_identity(const void *a, const void *b) {
    const gw_message *x = a, *y = b;
    ORDER(x->src, y->src);
    ORDER(x->dst, y->dst);
    ORDER(x->comm, y->comm);
    ORDER(x->number, y->number);
    ORDER(x->channel, y->channel);
    ORDER(x->index, y->index);
    ORDER(y->seen_sent, x->seen_sent);
    return 0;
}

static int by_time(const void *a, const void *b) {
    const gw_message *x = a, *y = b;
    ORDER(x->handed, y->handed);
    return by_identity(a, b);
}

static int by_arrival(const void *a, const void *b, void *list) {
    const gw_message *x = (const gw_message *)list + *(const size_t *)a,
                     *y = (const gw_message *)list + *(const size_t *)b;
    ORDER(x->dst, y->dst);
    ORDER(x->comm, y->comm);
    ORDER(x->number, y->number);
    ORDER(x->arrived, y->arrived);
    return 0;
}

static gw_message one_end(const gw_insight_event *e) {
    const gw_trace_event *is = &e->is;
    bool sent = is->kind == GW_TRACE_SENT;
    gw_message m = {.src = sent ? e->rank : is->peer, .dst = sent ? is->peer : e->rank, .comm = is->comm,
                    .index = is->index, .number = is->number, .channel = is->channel, .name = is->name,
                    .bytes = is->bytes, .seen_sent = sent, .seen_arrived = !sent, .handed = is->begin,
                    .left = is->end, .first = is->begin, .arrived = is->end};
    if (sent) m.queued = is->queued;
    else m.aside = is->queued;
    m.retries = is->retries;
    return m;
}

/* Corrects clock errors within the uncertainty: no message arrives before it is sent. */
static void join(gw_message *sent, const gw_message *arrived) {
    sent->seen_arrived = true;
    sent->first = arrived->first > sent->handed ? arrived->first : sent->handed;
    sent->arrived = arrived->arrived > sent->first ? arrived->arrived : sent->first;
    sent->aside = arrived->aside;
}

static bool same(const gw_message *a, const gw_message *b) {
    return a->src == b->src && a->dst == b->dst && a->comm == b->comm && a->number == b->number &&
           a->channel == b->channel && a->index == b->index;
}

static void join_ends(gw_messages *messages) {
    gw_message *list = messages->list;
    size_t kept = 0;
    for (size_t i = 0; i < messages->count; i++) {
        bool pair = kept && same(&list[kept - 1], &list[i]) && !list[kept - 1].seen_arrived && list[i].seen_arrived;
        if (pair) join(&list[kept - 1], &list[i]);
        else list[kept++] = list[i];
    }
    messages->count = kept;
}

static size_t collect(const gw_insight *in, gw_message *list) {
    static const gw_trace_kind ends[] = {GW_TRACE_SENT, GW_TRACE_ARRIVED};
    size_t count = 0, n;
    for (int r = 0; r < in->rank_count; r++)
        for (int k = 0; k < 2; k++) {
            const gw_insight_event *events = gw_insight_of(in, r, ends[k], &n);
            for (size_t i = 0; i < n; i++) {
                if (events[i].is.peer < 0 || events[i].is.peer >= in->rank_count) continue;
                if (list) list[count] = one_end(&events[i]);
                count++;
            }
        }
    return count;
}

gw_status gw_messages_make(const gw_insight *in, gw_messages *messages, gw_error *error) {
    size_t count = collect(in, NULL);
    *messages = (gw_messages){.list = calloc(count + 1, sizeof(gw_message)), .count = count};
    messages->arrivals = calloc(count + 1, sizeof *messages->arrivals);
    if (!messages->list || !messages->arrivals) {
        gw_messages_free(messages);
        return gw_fail(error, GW_MEMORY, "no memory for %zu messages", count);
    }
    collect(in, messages->list);
    qsort(messages->list, count, sizeof *messages->list, by_identity);
    join_ends(messages);
    qsort(messages->list, messages->count, sizeof *messages->list, by_time);
    for (size_t i = 0; i < messages->count; i++) messages->arrivals[i] = i;
    qsort_r(messages->arrivals, messages->count, sizeof *messages->arrivals, by_arrival, messages->list);
    return GW_OK;
}

void gw_messages_free(gw_messages *messages) {
    free(messages->list);
    free(messages->arrivals);
    *messages = (gw_messages){0};
}

const gw_message *gw_messages_last(const gw_messages *messages, int rank, uint32_t comm, uint64_t number, gw_time by) {
    gw_message wanted = {.dst = rank, .comm = comm, .number = number, .arrived = by};
    size_t low = 0, high = messages->count;
    while (low < high) { /* finds the first later one */
        size_t middle = (low + high) / 2, zero = 0;
        const gw_message *m = &messages->list[messages->arrivals[middle]];
        gw_message pair[2] = {*m, wanted};
        size_t one = 1;
        if (by_arrival(&zero, &one, pair) <= 0) low = middle + 1;
        else high = middle;
    }
    if (low == 0) return NULL;
    const gw_message *m = &messages->list[messages->arrivals[low - 1]];
    return m->dst == rank && m->comm == comm && m->number == number ? m : NULL;
}
