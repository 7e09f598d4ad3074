/* ring_order.c - see ring_order.h. */
#include "arch/ring_order.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MESSAGE_BYTES 65536.0 /* links are compared by a message of this size */
#define UNKNOWN_FACTOR 4      /* an unmeasured link costs this many times the worst measured one */

/* --- around places --- */

typedef struct tour {
    uint64_t worst, sum; /* ns */
} tour;

static tour length(int count, const uint64_t *cost, const int *order) {
    tour t = {0};
    for (int i = 0; i < count; i++) {
        uint64_t link = cost[order[i] * count + order[(i + 1) % count]];
        t.sum += link;
        if (link > t.worst) t.worst = link;
    }
    return t;
}

static bool shorter(tour a, tour b) { return a.worst != b.worst ? a.worst < b.worst : a.sum < b.sum; }

static void nearest_neighbours(int count, const uint64_t *cost, int *order) {
    for (int i = 0; i < count; i++) order[i] = i;
    for (int i = 1; i < count; i++) {
        int best = i;
        const uint64_t *from = &cost[order[i - 1] * count];
        for (int j = i + 1; j < count; j++)
            if (from[order[j]] < from[order[best]]) best = j;
        int next = order[best];
        memmove(&order[i + 1], &order[i], (size_t)(best - i) * sizeof *order);
        order[i] = next;
    }
}

static void turn_round(int *order, int from, int to) {
    for (; from < to; from++, to--) {
        int kept = order[from];
        order[from] = order[to];
        order[to] = kept;
    }
}

static void move(int *order, int from, int to) {
    int moved = order[from];
    if (from < to) memmove(&order[from], &order[from + 1], (size_t)(to - from) * sizeof *order);
    else memmove(&order[to + 1], &order[to], (size_t)(from - to) * sizeof *order);
    order[to] = moved;
}

/* Reverses places i..j, or moves one of them to the place of the other, if that makes the tour shorter. */
static bool try_change(int count, const uint64_t *cost, int *order, int i, int j, tour *best) {
    for (int kind = 0; kind < 3; kind++) {
        if (kind == 0) turn_round(order, i, j);
        else move(order, kind == 1 ? i : j, kind == 1 ? j : i);
        tour now = length(count, cost, order);
        if (shorter(now, *best)) {
            *best = now;
            return true;
        }
        if (kind == 0) turn_round(order, i, j);
        else move(order, kind == 1 ? j : i, kind == 1 ? i : j);
    }
    return false;
}

/* Makes the tour shorter while it can; the first place stays. */
static tour improve(int count, const uint64_t *cost, int *order) {
    tour best = length(count, cost, order);
    for (bool better = true; better;) {
        better = false;
        for (int i = 1; i + 1 < count; i++)
            for (int j = i + 1; j < count; j++) better |= try_change(count, cost, order, i, j, &best);
    }
    return best;
}

static bool by_a_fifth(tour a, tour b) {
    if (5 * a.worst <= 4 * b.worst) return true;
    return a.worst <= b.worst && 5 * a.sum <= 4 * b.sum;
}

void gw_ring_order_ring(int count, const uint64_t *cost, int *order, int *scratch) {
    for (int i = 0; i < count; i++) scratch[i] = i;
    tour plain = length(count, cost, scratch), from_plain = improve(count, cost, scratch);
    nearest_neighbours(count, cost, order);
    tour best = improve(count, cost, order);
    if (!shorter(best, from_plain)) {
        best = from_plain;
        memcpy(order, scratch, (size_t)count * sizeof *order);
    }
    if (by_a_fifth(best, plain)) return;
    for (int i = 0; i < count; i++) order[i] = i;
}

/* --- of ranks --- */

typedef struct work {
    const gw_ring_order_facts *facts;
    int *order, *host_of; /* the caller's */
    int hosts;
    int *leader;          /* hosts: its rank with the best links */
    int *rings, *scratch; /* hosts: order and scratch of gw_ring_order_ring */
    uint64_t *reach;      /* world: cost of messages between a rank and all ranks of other hosts, ns */
    uint64_t *cost;       /* hosts * hosts, between leaders */
    uint64_t unknown;     /* ns */
} work;

static uint64_t known_ns(const gw_link_costs *wires, int from, int to) {
    size_t at = (size_t)from * (size_t)wires->count + (size_t)to;
    return (uint64_t)llround((wires->alpha[at] + MESSAGE_BYTES * wires->beta[at]) * 1e9);
}

static bool is_known(const gw_link_costs *wires, int from, int to) {
    return from != to && wires->beta[(size_t)from * (size_t)wires->count + (size_t)to] > 0;
}

static uint64_t worst_known(const gw_link_costs *wires) {
    uint64_t worst = 1;
    for (int from = 0; from < wires->count; from++)
        for (int to = 0; to < wires->count; to++)
            if (is_known(wires, from, to) && known_ns(wires, from, to) > worst) worst = known_ns(wires, from, to);
    return worst;
}

static uint64_t between(const work *w, int from, int to) {
    int a = w->facts->place_of[from], b = w->facts->place_of[to];
    return is_known(w->facts->wires, a, b) ? known_ns(w->facts->wires, a, b) : w->unknown;
}

/* Numbers hosts in the order in which their lowest ranks appear. */
static int number(const gw_ring_order_facts *facts, int *host_of) {
    int hosts = 0;
    for (int r = 0; r < facts->world; r++) {
        int same = 0;
        while (same < r && facts->host_of[same] != facts->host_of[r]) same++;
        host_of[r] = same < r ? host_of[same] : hosts++;
    }
    return hosts;
}

static void measure_reach(const work *w) {
    int world = w->facts->world;
    for (int r = 0; r < world; r++)
        for (int other = 0; other < world; other++)
            if (w->host_of[r] != w->host_of[other]) w->reach[r] += between(w, r, other) + between(w, other, r);
}

static void choose_leaders(const work *w) {
    for (int h = 0; h < w->hosts; h++) w->leader[h] = -1;
    for (int r = 0; r < w->facts->world; r++) {
        int *leader = &w->leader[w->host_of[r]];
        if (*leader < 0 || w->reach[r] < w->reach[*leader]) *leader = r;
    }
}

static void order_hosts(const work *w) {
    for (int a = 0; a < w->hosts; a++)
        for (int b = 0; b < w->hosts; b++)
            w->cost[a * w->hosts + b] = a == b ? 0 : between(w, w->leader[a], w->leader[b]);
    gw_ring_order_ring(w->hosts, w->cost, w->rings, w->scratch);
}

/* The ranks of a host, best links first; equal ones by rank. */
static int place_host(const work *w, int host, int at) {
    int first = at;
    for (int r = 0; r < w->facts->world; r++) {
        if (w->host_of[r] != host) continue;
        int to = at++;
        for (; to > first && w->reach[w->order[to - 1]] > w->reach[r]; to--) w->order[to] = w->order[to - 1];
        w->order[to] = r;
    }
    return at;
}

static void renumber(const work *w) {
    for (int i = 0; i < w->hosts; i++) w->scratch[w->rings[i]] = i;
    for (int r = 0; r < w->facts->world; r++) w->host_of[r] = w->scratch[w->host_of[r]];
}

static bool by_rank(const int *order, int world) {
    for (int i = 0; i < world; i++)
        if (order[i] != i) return false;
    return true;
}

/* The worst link in a ring of hosts, for messages of MESSAGE_BYTES; beta 0 if a link is not known. */
static gw_link_cost worst_wire(const work *w) {
    const gw_link_costs *wires = w->facts->wires;
    gw_link_cost worst = {0};
    uint64_t most = 0;
    for (int i = 0; wires && i < w->hosts; i++) {
        int from = w->facts->place_of[w->leader[w->rings[i]]];
        int to = w->facts->place_of[w->leader[w->rings[(i + 1) % w->hosts]]];
        if (!is_known(wires, from, to)) return (gw_link_cost){0};
        if (known_ns(wires, from, to) < most) continue;
        most = known_ns(wires, from, to);
        size_t at = (size_t)from * (size_t)wires->count + (size_t)to;
        worst = (gw_link_cost){wires->alpha[at], wires->beta[at]};
    }
    return worst;
}

static gw_link_cost ring_order(work *w) {
    for (int h = 0; h < w->hosts; h++) w->rings[h] = h;
    if (w->facts->wires && w->hosts > 1) {
        w->unknown = UNKNOWN_FACTOR * worst_known(w->facts->wires);
        measure_reach(w);
        choose_leaders(w);
        order_hosts(w);
    }
    for (int i = 0, at = 0; i < w->hosts; i++) at = place_host(w, w->rings[i], at);
    gw_link_cost worst = w->hosts > 1 ? worst_wire(w) : (gw_link_cost){0};
    renumber(w);
    return worst;
}

gw_status gw_ring_order_fill(const gw_ring_order_facts *facts, int *order, int *host_of, gw_topology *topology,
                             gw_error *error) {
    work w = {.facts = facts, .order = order, .host_of = host_of, .hosts = number(facts, host_of)};
    size_t hosts = (size_t)w.hosts, matrix = facts->wires ? hosts * hosts : 0;
    int *places = calloc(3 * hosts, sizeof *places);
    uint64_t *costs = calloc((size_t)facts->world + matrix, sizeof *costs);
    gw_status status =
        places && costs ? GW_OK : gw_fail(error, GW_MEMORY, "out of memory for an order of %d ranks", facts->world);
    if (!status) {
        w.leader = places;
        w.rings = places + hosts;
        w.scratch = places + 2 * hosts;
        w.reach = costs;
        w.cost = costs + facts->world;
        gw_link_cost worst = ring_order(&w);
        *topology = (gw_topology){.world = facts->world, .host_of = host_of, .wire = worst,
                                  .order = w.hosts == 1 || by_rank(order, facts->world) ? NULL : order};
    }
    free(places);
    free(costs);
    return status;
}
