/* forward_graph.c - see forward_graph.h. Sets of tensors are bits: n^2 / 8 bytes in all. A pick of TAC takes n^2 / 64
 * words. */
#include "schedule/forward_graph.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BITS 64

struct gw_forward_graph {
    int count;
    size_t words;      /* of a set */
    uint64_t *needs;   /* a set for each operation */
    uint64_t *waiting; /* tensors that are not picked */
    uint64_t *seen;    /* of these, those whose M+ is known */
    int *left;         /* of each operation: tensors that it waits for */
    double *cost;      /* the time of their transfers */
    int *by_cost;      /* operations, cheapest first */
    double *compute;   /* of each tensor: P */
    double *impending; /* M+ */
    double *ended;     /* of each operation; of each place: the tensor's arrival */
    int *at;           /* the tensor of each place */
};

static uint64_t *needs_of(const gw_forward_graph *g, int op) { return g->needs + (size_t)op * g->words; }
static bool has(const uint64_t *set, int tensor) { return set[tensor / BITS] >> tensor % BITS & 1; }
static void add(uint64_t *set, int tensor) { set[tensor / BITS] |= UINT64_C(1) << tensor % BITS; }
static void drop(uint64_t *set, int tensor) { set[tensor / BITS] &= ~(UINT64_C(1) << tensor % BITS); }

static void close_over(gw_forward_graph *g, const gw_schedule_tensor *t, int op) {
    int chain = op - 1, count = t->after ? t->after_count : op > 0;
    const int *after = t->after ? t->after : &chain;
    for (int i = 0; i < count; i++)
        for (size_t w = 0; w < g->words; w++) needs_of(g, op)[w] |= needs_of(g, after[i])[w];
    if (t->count) add(needs_of(g, op), op);
}

gw_status gw_forward_graph_open(gw_forward_graph **out, const gw_schedule_tensor *tensors, int count, gw_error *error) {
    gw_forward_graph *g = calloc(1, sizeof *g);
    size_t n = (size_t)count + 1, words = n / BITS + 1;
    if (!g) return gw_fail(error, GW_MEMORY, "out of memory for a graph");
    *g = (gw_forward_graph){.count = count,
                            .words = words,
                            .needs = calloc(n * words, sizeof *g->needs),
                            .waiting = calloc(words, sizeof *g->waiting),
                            .seen = calloc(words, sizeof *g->seen),
                            .left = calloc(n, sizeof *g->left),
                            .cost = calloc(n, sizeof *g->cost),
                            .by_cost = calloc(n, sizeof *g->by_cost),
                            .compute = calloc(n, sizeof *g->compute),
                            .impending = calloc(n, sizeof *g->impending),
                            .ended = calloc(2 * n, sizeof *g->ended),
                            .at = calloc(n, sizeof *g->at)};
    if (!g->needs || !g->waiting || !g->seen || !g->left || !g->cost || !g->by_cost || !g->compute || !g->impending ||
        !g->ended || !g->at) {
        gw_forward_graph_close(g);
        return gw_fail(error, GW_MEMORY, "out of memory for a graph of %d tensors", count);
    }
    for (int t = 0; t < count; t++) close_over(g, &tensors[t], t);
    *out = g;
    return GW_OK;
}

void gw_forward_graph_close(gw_forward_graph *g) {
    if (!g) return;
    free(g->at);
    free(g->ended);
    free(g->impending);
    free(g->compute);
    free(g->by_cost);
    free(g->cost);
    free(g->left);
    free(g->seen);
    free(g->waiting);
    free(g->needs);
    free(g);
}

/* ---- what operations wait for ---- */

/* All tensors wait. transfer_us NULL: each takes 1. */
static void begin(gw_forward_graph *g, const double *transfer_us) {
    memset(g->waiting, 0, g->words * sizeof *g->waiting);
    for (int op = 0; op < g->count; op++) {
        g->left[op] = 0;
        g->cost[op] = 0;
        g->by_cost[op] = op;
        for (int t = 0; t <= op; t++)
            if (has(needs_of(g, op), t)) g->left[op]++, g->cost[op] += transfer_us ? transfer_us[t] : 1;
        if (has(needs_of(g, op), op)) add(g->waiting, op);
    }
}

static void pick(gw_forward_graph *g, int tensor, double transfer_us) {
    drop(g->waiting, tensor);
    for (int op = tensor; op < g->count; op++)
        if (has(needs_of(g, op), tensor)) g->left[op]--, g->cost[op] -= transfer_us;
}

/* By insertion: the order changes little from pick to pick. */
static void sort_by_cost(gw_forward_graph *g) {
    for (int i = 1; i < g->count; i++) {
        int op = g->by_cost[i], at = i;
        for (; at > 0 && g->cost[g->by_cost[at - 1]] > g->cost[op]; at--) g->by_cost[at] = g->by_cost[at - 1];
        g->by_cost[at] = op;
    }
}

/* Adds the compute of an operation to P of the only tensor that it waits for. */
static void add_compute(gw_forward_graph *g, int op, double us) {
    for (size_t w = 0; w < g->words; w++) {
        uint64_t set = needs_of(g, op)[w] & g->waiting[w];
        if (set) g->compute[w * BITS + (size_t)__builtin_ctzll(set)] += us;
    }
}

/* M+ of the tensors that no cheaper operation waits for. */
static void note_impending(gw_forward_graph *g, int op) {
    for (size_t w = 0; w < g->words; w++) {
        uint64_t fresh = needs_of(g, op)[w] & g->waiting[w] & ~g->seen[w];
        g->seen[w] |= fresh;
        for (; fresh; fresh &= fresh - 1) g->impending[w * BITS + (size_t)__builtin_ctzll(fresh)] = g->cost[op];
    }
}

/* P and M+ of all tensors that wait. compute_us NULL: operations take no time. */
static void weigh(gw_forward_graph *g, const double *compute_us) {
    memset(g->seen, 0, g->words * sizeof *g->seen);
    for (int t = 0; t < g->count; t++) g->compute[t] = 0, g->impending[t] = INFINITY;
    sort_by_cost(g);
    for (int i = 0; i < g->count; i++) {
        int op = g->by_cost[i];
        if (g->left[op] > 1) note_impending(g, op);
        else if (g->left[op] == 1 && compute_us) add_compute(g, op, compute_us[op]);
    }
}

/* ---- orders ---- */

/* Tensors without elements come last: nothing is sent of them. */
static void place_rest(const gw_forward_graph *g, int *place, int next) {
    for (int t = 0; t < g->count; t++)
        if (!has(needs_of(g, t), t)) place[t] = next++;
}

void gw_forward_graph_tic(gw_forward_graph *g, int *place) {
    int next = 0;
    begin(g, NULL);
    weigh(g, NULL);
    for (;; next++) {
        int best = -1;
        for (int t = 0; t < g->count; t++)
            if (has(g->waiting, t) && (best < 0 || g->impending[t] < g->impending[best])) best = t;
        if (best < 0) break;
        drop(g->waiting, best);
        place[best] = next;
    }
    place_rest(g, place, next);
}

static bool before(const gw_forward_graph *g, int a, int b, const double *transfer_us) {
    double left = fmin(g->compute[b], transfer_us[a]), right = fmin(g->compute[a], transfer_us[b]);
    if (left < right || left > right) return left < right;
    return g->impending[a] < g->impending[b];
}

void gw_forward_graph_tac(gw_forward_graph *g, const double *transfer_us, const double *compute_us, int *place) {
    int next = 0;
    begin(g, transfer_us);
    for (;; next++) {
        int best = -1;
        weigh(g, compute_us);
        for (int t = 0; t < g->count; t++)
            if (has(g->waiting, t) && (best < 0 || before(g, t, best, transfer_us))) best = t;
        if (best < 0) break;
        pick(g, best, transfer_us[best]);
        place[best] = next;
    }
    place_rest(g, place, next);
}

/* ---- prediction ---- */

/* When an operation can run: its tensor has arrived and all that come before it have ended; INFINITY: not yet known. */
static double possible(const gw_forward_graph *g, int op, const double *arrived) {
    double at = has(needs_of(g, op), op) ? arrived[op] : 0;
    for (int t = 0; t < op; t++)
        if (has(needs_of(g, op), t) && g->ended[t] > at) at = g->ended[t];
    return at;
}

double gw_forward_graph_span(gw_forward_graph *g, const int *place, const double *transfer_us,
                             const double *compute_us) {
    double *arrived = g->ended + g->count + 1, now = 0;
    for (int t = 0; t < g->count; t++) g->at[place[t]] = t, g->ended[t] = INFINITY;
    for (int i = 0; i < g->count; i++) {
        int t = g->at[i];
        if (has(needs_of(g, t), t)) now += transfer_us[t];
        arrived[t] = now;
    }
    now = 0;
    for (int done = 0; done < g->count; done++) {
        int best = -1;
        double earliest = INFINITY;
        for (int op = 0; op < g->count; op++) {
            double from = isinf(g->ended[op]) ? fmax(possible(g, op, arrived), now) : INFINITY;
            if (from < earliest) earliest = from, best = op;
        }
        now = g->ended[best] = earliest + compute_us[best];
    }
    return now;
}
