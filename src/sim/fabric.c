/* fabric.c - see fabric.h. Links 0 .. 3*hosts-1 are each host's memory, uplink and downlink. The links of the topology
 * follow, then slow pairs. */
#include "sim/fabric.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/suggest.h"
#include "base/units.h"

enum { MEMORY, UP, DOWN, HOST_LINKS };

static int host_link(int host, int which) { return HOST_LINKS * host + which; }
static int first_inner(const gw_fabric *f) { return HOST_LINKS * f->hosts; }
int gw_fabric_memory(const gw_fabric *f, int host) { return host_link(f->folded ? 0 : host, MEMORY); }

/* Reading. */

static const char *const kinds[] = {"switch", "fattree", "ring", "torus", "sites", NULL};

static gw_status wrong(gw_error *error, const char *text, const char *wanted) {
    char quoted[GW_QUOTE_BYTES];
    return gw_fail(error, GW_INVALID, "topology %s: %s", gw_suggest_quote(text, quoted), wanted);
}

/* The value of "name=" in "a=1,b=2"; false: missing, or too long. */
static bool value_of(const char *params, const char *name, char value[GW_UNIT_TEXT]) {
    size_t length = strlen(name);
    for (const char *at = params; at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        if (strncmp(at, name, length) != 0 || at[length] != '=') continue;
        size_t bytes = strcspn(at + length + 1, ",");
        if (bytes == 0 || bytes >= GW_UNIT_TEXT) return false;
        memcpy(value, at + length + 1, bytes);
        value[bytes] = 0;
        return true;
    }
    return false;
}

static bool integer_of(const char *params, const char *name, int *value) {
    char text[GW_UNIT_TEXT];
    int64_t number;
    if (!value_of(params, name, text) || !gw_integer_parse(text, 1, 1 << 20, &number)) return false;
    *value = (int)number;
    return true;
}

static bool parse_sides(const char *params, int sides[GW_TORUS_DIMENSIONS]) {
    char *end;
    int count = 0;
    for (const char *at = params;; at = end + 1) {
        long side = strtol(at, &end, 10);
        if (end == at || side < 1 || side > 1024 || count == GW_TORUS_DIMENSIONS) return false;
        sides[count++] = (int)side;
        if (*end == 0) return count >= 2;
        if (*end != 'x') return false;
    }
}

static bool parse_sites(const char *params, gw_fabric_spec *spec) {
    char rate[GW_UNIT_TEXT], latency[GW_UNIT_TEXT];
    double bits;
    if (!value_of(params, "rate", rate) || !value_of(params, "latency", latency)) return false;
    if (!gw_rate_parse(rate, &bits) || !gw_duration_parse(latency, &spec->thin_latency)) return false;
    spec->thin_rate = bits / 8;
    return spec->thin_latency >= 0;
}

gw_status gw_fabric_parse(const char *text, gw_fabric_spec *spec, gw_error *error) {
    const char *colon = strchr(text, ':'), *params = colon ? colon + 1 : "";
    size_t length = colon ? (size_t)(colon - text) : strlen(text);
    char hint[GW_HINT_BYTES];
    int kind = 0;
    while (kinds[kind] && (strlen(kinds[kind]) != length || strncmp(kinds[kind], text, length) != 0)) kind++;
    if (!kinds[kind]) return wrong(error, text, gw_suggest_hint(text, kinds, hint));
    gw_fabric_spec made = {.kind = (gw_fabric_kind)kind, .sides = {1, 1, 1}};
    if ((made.kind == GW_FABRIC_SWITCH || made.kind == GW_FABRIC_RING) && colon)
        return wrong(error, text, "it has no parameters");
    if (made.kind == GW_FABRIC_FATTREE &&
        (!integer_of(params, "hosts", &made.leaf_hosts) || !integer_of(params, "up", &made.leaf_up)))
        return wrong(error, text, "write fattree:hosts=16,up=4 for leaves of 16 hosts with 4 links up");
    if (made.kind == GW_FABRIC_TORUS && !parse_sides(params, made.sides))
        return wrong(error, text, "write torus:8x8 or torus:4x4x4, sides from 1 to 1024");
    if (made.kind == GW_FABRIC_SITES && !parse_sites(params, &made))
        return wrong(error, text, "write sites:rate=1gbit,latency=5ms for the link between them");
    *spec = made;
    return GW_OK;
}

/* Links. */

static int leaves_of(const gw_fabric *f) { return (f->hosts + f->spec.leaf_hosts - 1) / f->spec.leaf_hosts; }

static int inner_links(const gw_fabric *f) {
    switch (f->spec.kind) {
    case GW_FABRIC_SWITCH: return 0;
    case GW_FABRIC_FATTREE: return 2 * leaves_of(f) * f->spec.leaf_up;
    case GW_FABRIC_RING: return 2 * f->hosts;
    case GW_FABRIC_TORUS: return 2 * GW_TORUS_DIMENSIONS * f->hosts;
    case GW_FABRIC_SITES: return 2;
    }
    return 0;
}

gw_status gw_fabric_make(gw_fabric *f, const gw_fabric_spec *spec, int hosts, gw_error *error) {
    int cells = spec->sides[0] * spec->sides[1] * spec->sides[2];
    if (spec->kind == GW_FABRIC_TORUS && cells != hosts)
        return gw_fail(error, GW_INVALID, "a torus of %dx%dx%d has %d hosts, not %d", spec->sides[0], spec->sides[1],
                       spec->sides[2], cells, hosts);
    int turns = spec->kind == GW_FABRIC_RING ? hosts / 2 : (spec->sides[0] + spec->sides[1] + spec->sides[2]) / 2;
    if (turns > GW_ROUTE_LINKS_MAX)
        return gw_fail(error, GW_INVALID, "a %s of %d hosts has routes of more than %d links; use a smaller one",
                       kinds[spec->kind], hosts, GW_ROUTE_LINKS_MAX);
    f->spec = *spec;
    f->hosts = hosts;
    f->links = first_inner(f) + inner_links(f);
    return GW_OK;
}

void gw_fabric_set_pairs(gw_fabric *f, const gw_fabric_pair *pairs, int count) {
    f->pairs = pairs;
    f->pair_count = count;
    f->links = first_inner(f) + inner_links(f) + count;
}

double gw_fabric_link_rate(const gw_fabric *f, int link) {
    if (link < first_inner(f)) return link % HOST_LINKS == MEMORY ? f->memory_rate : f->rate;
    if (link >= f->links - f->pair_count) return f->pairs[link - (f->links - f->pair_count)].rate;
    return f->spec.kind == GW_FABRIC_SITES ? f->spec.thin_rate : f->rate;
}

double gw_fabric_link_burst(const gw_fabric *f, int link) {
    return link < first_inner(f) && link % HOST_LINKS != MEMORY ? f->burst : 0;
}

/* Routes. */

static int over_spine(const gw_fabric *f, int from, int to, int route[GW_ROUTE_LINKS_MAX], double *latency) {
    int leaf = from / f->spec.leaf_hosts, other = to / f->spec.leaf_hosts, up = f->spec.leaf_up, spine = to % up;
    route[0] = host_link(from, UP);
    *latency = f->latency;
    if (leaf == other) {
        route[1] = host_link(to, DOWN);
        return 2;
    }
    route[1] = first_inner(f) + 2 * (leaf * up + spine);
    route[2] = first_inner(f) + 2 * (other * up + spine) + 1;
    route[3] = host_link(to, DOWN);
    *latency = 2 * f->latency;
    return 4;
}

/* The shorter direction from a to b around a circle of `size`: returns the steps. */
static int around(int a, int b, int size, bool *forwards) {
    int ahead = (b - a + size) % size;
    *forwards = ahead <= size - ahead;
    return *forwards ? ahead : size - ahead;
}

/* The link of a host in a dimension, forwards or backwards. */
static int grid_link(const gw_fabric *f, int host, int dimension, bool forwards) {
    int dimensions = f->spec.kind == GW_FABRIC_RING ? 1 : GW_TORUS_DIMENSIONS;
    return first_inner(f) + 2 * (dimensions * host + dimension) + !forwards;
}

static int over_grid(const gw_fabric *f, int from, int to, int route[GW_ROUTE_LINKS_MAX], double *latency) {
    bool ring = f->spec.kind == GW_FABRIC_RING;
    int sides[GW_TORUS_DIMENSIONS] = {ring ? f->hosts : f->spec.sides[0], ring ? 1 : f->spec.sides[1],
                                      ring ? 1 : f->spec.sides[2]};
    int hops = 0, at = from, stride = 1;
    for (int d = 0; d < GW_TORUS_DIMENSIONS; stride *= sides[d++]) {
        bool forwards;
        int a = at / stride % sides[d], b = to / stride % sides[d];
        for (int left = around(a, b, sides[d], &forwards); left > 0; left--) {
            route[hops++] = grid_link(f, at, d, forwards);
            int next = (a + (forwards ? 1 : sides[d] - 1)) % sides[d];
            at += (next - a) * stride;
            a = next;
        }
    }
    *latency = hops * f->latency / 2;
    return hops;
}

static int over_switch(const gw_fabric *f, int from, int to, int route[GW_ROUTE_LINKS_MAX], double *latency) {
    int half = (f->hosts + 1) / 2, hops = 0;
    bool thin = f->spec.kind == GW_FABRIC_SITES && (from < half) != (to < half);
    *latency = f->latency + (thin ? f->spec.thin_latency : 0);
    route[hops++] = host_link(f->folded ? 0 : from, UP);
    if (thin) route[hops++] = first_inner(f) + (from < half);
    for (int i = 0; i < f->pair_count; i++) {
        if (f->pairs[i].from != from || f->pairs[i].to != to) continue;
        *latency = f->pairs[i].latency;
        route[hops++] = f->links - f->pair_count + i;
    }
    route[hops++] = host_link(f->folded ? 0 : to, DOWN);
    return hops;
}

int gw_fabric_route(const gw_fabric *f, int from, int to, int route[GW_ROUTE_LINKS_MAX], double *latency) {
    if (from == to) {
        route[0] = gw_fabric_memory(f, from);
        *latency = f->memory_latency;
        return 1;
    }
    switch (f->spec.kind) {
    case GW_FABRIC_FATTREE: return over_spine(f, from, to, route, latency);
    case GW_FABRIC_RING:
    case GW_FABRIC_TORUS: return over_grid(f, from, to, route, latency);
    default: return over_switch(f, from, to, route, latency);
    }
}
