/* bandwidth_sharing.c - see bandwidth_sharing.h. */
#include "sim/bandwidth_sharing.h"

#include <stdlib.h>
#include <string.h>

struct gw_flow_line {
    gw_net_flow *flow;
    int link;
    gw_flow_line *next, *previous; /* of the active flows on this link */
};

typedef struct link {
    double rate;
    double free, level; /* scratch of settling: rate not assigned yet; that rate divided by the open flows */
    double carried;     /* bytes of all loads */
    double burst, tokens, used, since; /* bytes, bytes at `since`, bytes per second of all flows, seconds */
    gw_flow_line *flows;
    int active, open; /* flows on it; those of them without a rate yet (scratch) */
    bool dirty;
    uint64_t visited;
} link;

struct gw_flow_net {
    gw_events *events;
    link *links;
    int count;
    uint64_t round; /* number of the settling, for `visited` */
    bool bursty;    /* some link has a burst */
    int *dirty;     /* dirty_count links whose flows have changed */
    int dirty_count;
    int *group;          /* links of the group that is being settled */
    gw_net_flow **flows; /* of the group */
    size_t flow_room;
    struct chunk *chunks; /* memory of lines */
};

typedef struct chunk {
    struct chunk *next;
    gw_flow_line lines[];
} chunk;

gw_status gw_flow_net_open(gw_flow_net **out, gw_events *events, const double *rates, int links, gw_error *error) {
    gw_flow_net *net = calloc(1, sizeof *net);
    if (net) {
        net->events = events;
        net->count = links;
        net->links = calloc((size_t)links + 1, sizeof *net->links);
        net->dirty = calloc((size_t)links + 1, sizeof *net->dirty);
        net->group = calloc((size_t)links + 1, sizeof *net->group);
    }
    if (!net || !net->links || !net->dirty || !net->group) {
        gw_flow_net_close(net);
        return gw_fail(error, GW_MEMORY, "out of memory for %d links", links);
    }
    for (int i = 0; i < links; i++) net->links[i].rate = rates[i];
    *out = net;
    return GW_OK;
}

void gw_flow_net_close(gw_flow_net *net) {
    if (!net) return;
    while (net->chunks) {
        chunk *next = net->chunks->next;
        free(net->chunks);
        net->chunks = next;
    }
    free(net->flows);
    free(net->group);
    free(net->dirty);
    free(net->links);
    free(net);
}

void gw_flow_net_burst(gw_flow_net *net, int number, double bytes) {
    net->links[number].burst = net->links[number].tokens = bytes;
    net->bursty |= bytes > 0;
}

static void load_over(gw_event *event, void *ctx);

gw_status gw_net_flow_init(gw_flow_net *net, gw_net_flow *flow, const int *route, int hops, gw_net_flow_fn *done,
                           gw_error *error) {
    chunk *memory = malloc(sizeof *memory + (size_t)hops * sizeof memory->lines[0]);
    if (!memory) return gw_fail(error, GW_MEMORY, "out of memory for the route of a flow");
    memory->next = net->chunks;
    net->chunks = memory;
    *flow = (gw_net_flow){.over = {.act = load_over}, .net = net, .done = done, .lines = memory->lines, .hops = hops};
    for (int i = 0; i < hops; i++) {
        flow->lines[i] = (gw_flow_line){.flow = flow, .link = route[i]};
        double rate = net->links[route[i]].rate;
        if (i == 0 || rate < flow->full_rate) flow->full_rate = rate;
    }
    return GW_OK;
}

static void mark(gw_flow_net *net, int number) {
    if (net->links[number].dirty) return;
    net->links[number].dirty = true;
    net->dirty[net->dirty_count++] = number;
}

static void schedule_end(gw_flow_net *net, gw_net_flow *flow) {
    gw_event_set(net->events, &flow->over, net->events->now + (flow->left > 0 ? flow->left / flow->rate : 0));
}

/* Token buckets. */

static double fill_bucket(const gw_flow_net *net, link *l) {
    double now = net->events->now, tokens = l->tokens + (l->rate - l->used) * (now - l->since);
    l->tokens = tokens < 0 ? 0 : tokens < l->burst ? tokens : l->burst;
    l->since = now;
    return l->tokens;
}

static void set_rate(gw_flow_net *net, gw_net_flow *flow, double rate) {
    for (int i = 0; net->bursty && i < flow->hops; i++) {
        link *l = &net->links[flow->lines[i].link];
        fill_bucket(net, l);
        l->used += rate - flow->rate;
    }
    flow->rate = rate;
}

/* The bytes of a load that pass at once. */
static double take_tokens(gw_flow_net *net, const gw_net_flow *flow, double bytes) {
    for (int i = 0; i < flow->hops; i++) {
        double tokens = fill_bucket(net, &net->links[flow->lines[i].link]);
        if (tokens < bytes) bytes = tokens;
    }
    for (int i = 0; i < flow->hops; i++) net->links[flow->lines[i].link].tokens -= bytes;
    return bytes;
}

static bool shares_a_link(const gw_net_flow *flow) {
    for (int i = 0; i < flow->hops; i++)
        if (flow->net->links[flow->lines[i].link].active > flow->active) return true;
    return false;
}

double gw_net_flow_queue_seconds(const gw_net_flow *flow, double most) {
    double longest = 0, now = flow->net->events->now;
    for (int i = 0; i < flow->hops; i++) {
        const link *l = &flow->net->links[flow->lines[i].link];
        double bytes = 0;
        for (const gw_flow_line *line = l->flows; line && bytes < most; line = line->next)
            if (line->flow != flow) bytes += line->flow->left - line->flow->rate * (now - line->flow->since);
        bytes = bytes < most ? bytes : most;
        if (bytes / l->rate > longest) longest = bytes / l->rate;
    }
    return longest;
}

static void add_to_links(gw_flow_net *net, gw_net_flow *flow) {
    for (int i = 0; i < flow->hops; i++) {
        gw_flow_line *line = &flow->lines[i];
        link *l = &net->links[line->link];
        line->previous = NULL;
        line->next = l->flows;
        if (l->flows) l->flows->previous = line;
        l->flows = line;
        l->active++;
    }
    flow->active = true;
    if (!shares_a_link(flow)) { /* no other flow's rate changes */
        set_rate(net, flow, flow->full_rate);
        return;
    }
    for (int i = 0; i < flow->hops; i++) mark(net, flow->lines[i].link);
}

static void remove_from_links(gw_flow_net *net, gw_net_flow *flow) {
    for (int i = 0; i < flow->hops; i++) {
        gw_flow_line *line = &flow->lines[i];
        link *l = &net->links[line->link];
        if (line->previous) line->previous->next = line->next;
        else l->flows = line->next;
        if (line->next) line->next->previous = line->previous;
        if (--l->active > 0) mark(net, line->link);
    }
    flow->active = false;
    set_rate(net, flow, 0);
}

void gw_net_flow_load(gw_net_flow *flow, double bytes) {
    gw_flow_net *net = flow->net;
    flow->left = bytes;
    flow->loaded = true;
    flow->since = net->events->now;
    for (int i = 0; i < flow->hops; i++) net->links[flow->lines[i].link].carried += bytes;
    if (net->bursty) flow->left -= take_tokens(net, flow, bytes);
    if (flow->hops == 0) flow->left = 0;
    else if (!flow->active) add_to_links(net, flow);
    if (flow->rate > 0 || flow->left <= 0) schedule_end(net, flow);
}

static void load_over(gw_event *event, void *ctx) {
    gw_net_flow *flow = (gw_net_flow *)event;
    flow->left = 0;
    flow->loaded = false;
    flow->done(flow, ctx);
    if (!flow->loaded && flow->active) remove_from_links(flow->net, flow);
}

/* Settling. */

static bool reserve(gw_flow_net *net, size_t flows) {
    if (flows <= net->flow_room) return true;
    gw_net_flow **grown = realloc(net->flows, 2 * flows * sizeof(gw_net_flow *));
    if (!grown) {
        net->events->failed = true;
        return false;
    }
    net->flows = grown;
    net->flow_room = 2 * flows;
    return true;
}

static void visit_link(gw_flow_net *net, int number, int *links) {
    link *l = &net->links[number];
    if (l->visited == net->round) return;
    l->visited = net->round;
    l->free = l->rate;
    l->open = l->active;
    net->group[(*links)++] = number;
}

/* Collects all flows and links that are connected with a link through shared links. */
static size_t collect(gw_flow_net *net, int from, int *links) {
    size_t flows = 0;
    *links = 0;
    visit_link(net, from, links);
    for (int i = 0; i < *links; i++) {
        for (gw_flow_line *line = net->links[net->group[i]].flows; line; line = line->next) {
            gw_net_flow *flow = line->flow;
            if (flow->visited == net->round) continue;
            flow->visited = net->round;
            flow->fixed = false;
            if (!reserve(net, flows + 1)) return 0;
            net->flows[flows++] = flow;
            for (int h = 0; h < flow->hops; h++) visit_link(net, flow->lines[h].link, links);
        }
    }
    return flows;
}

static void fix(gw_flow_net *net, gw_net_flow *flow, double rate) {
    flow->fixed = true;
    for (int h = 0; h < flow->hops; h++) {
        link *l = &net->links[flow->lines[h].link];
        l->free -= rate;
        l->open--;
    }
    if (rate == flow->rate) return;
    double now = net->events->now;
    flow->left -= flow->rate * (now - flow->since);
    if (flow->left < 0) flow->left = 0;
    flow->since = now;
    set_rate(net, flow, rate);
    schedule_end(net, flow);
}

/* The lowest level of any link that still has open flows; drops links without open flows from the group. */
static double lowest_level(gw_flow_net *net, int *links) {
    double lowest = 0;
    int kept = 0;
    for (int i = 0; i < *links; i++) {
        link *l = &net->links[net->group[i]];
        if (l->open == 0) continue;
        l->level = l->free / l->open;
        if (kept == 0 || l->level < lowest) lowest = l->level;
        net->group[kept++] = net->group[i];
    }
    *links = kept;
    return lowest;
}

static void fill(gw_flow_net *net, int links) {
    for (;;) {
        double level = lowest_level(net, &links);
        if (links == 0) return;
        for (int i = 0; i < links; i++) {
            link *l = &net->links[net->group[i]];
            /* Levels that differ only by rounding get equal rates, so that equal loads end at the same time. */
            if (l->level > level * (1 + 1e-12)) continue;
            for (gw_flow_line *line = l->flows; line; line = line->next)
                if (!line->flow->fixed) fix(net, line->flow, level);
        }
    }
}

void gw_flow_net_settle(gw_flow_net *net) {
    if (net->dirty_count == 0) return;
    net->round++;
    for (int i = 0; i < net->dirty_count; i++) {
        link *l = &net->links[net->dirty[i]];
        l->dirty = false;
        int links;
        if (l->visited != net->round && l->active > 0 && collect(net, net->dirty[i], &links) > 0) fill(net, links);
    }
    net->dirty_count = 0;
}

double gw_flow_net_carried(const gw_flow_net *net, int number) { return net->links[number].carried; }
