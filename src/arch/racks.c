/* racks.c - see racks.h. */
#include "arch/racks.h"

#include <stdlib.h>
#include <string.h>

#include "base/text_file.h"

enum { APART = 2 }; /* links between racks take at least this many times as long */

/* Files. */

/* The line's rack as a number: that of the first host whose line names the same one. */
static int number_of(char (*racks)[GW_TEXT_LINE_BYTES], int count, const char *rack) {
    int number = 0;
    while (number < count && strcmp(racks[number], rack) != 0) number++;
    return number;
}

static gw_status take_line(gw_text *lines, const gw_rack_host *hosts, int count, char (*racks)[GW_TEXT_LINE_BYTES],
                           int *known, int *rack_of) {
    if (lines->count != 2) return gw_text_wrong(lines, "a line is a host and its rack");
    for (int i = 0; i < count; i++) {
        if (strcmp(hosts[i].name, lines->fields[0]) != 0 && strcmp(hosts[i].address, lines->fields[0]) != 0) continue;
        int rack = number_of(racks, *known, lines->fields[1]);
        if (rack_of[i] >= 0 && rack_of[i] != rack)
            return gw_text_wrong(lines, "host %s is in another rack already", lines->fields[0]);
        if (rack == *known) strcpy(racks[(*known)++], lines->fields[1]);
        rack_of[i] = rack;
    }
    return GW_OK;
}

gw_status gw_racks_parse(const char *bytes, size_t size, const char *name, const gw_rack_host *hosts, int count,
                         int *rack_of, gw_error *error) {
    gw_text lines = {.at = bytes, .end = bytes + size, .name = name, .separator = ' ', .error = error};
    char(*racks)[GW_TEXT_LINE_BYTES] = calloc((size_t)count + 1, sizeof *racks);
    int known = 0;
    bool more = true;
    gw_status status = racks ? GW_OK : gw_fail(error, GW_MEMORY, "out of memory for %d racks", count);
    for (int i = 0; i < count; i++) rack_of[i] = -1;
    while (!status && !(status = gw_text_next(&lines, &more)) && more)
        status = take_line(&lines, hosts, count, racks, &known, rack_of);
    for (int i = 0; !status && i < count; i++)
        if (rack_of[i] < 0)
            status = gw_fail(error, GW_INVALID, "%s does not name the rack of host %s (%s): add a line \"%s RACK\"",
                             name, hosts[i].name, hosts[i].address, hosts[i].name);
    free(racks);
    return status;
}

/* Links. */

static double cost(const gw_link_costs *w, int a, int b) {
    double there = w->beta[a * w->count + b], back = w->beta[b * w->count + a];
    return there > back ? there : back;
}

static bool all_measured(const gw_link_costs *w) {
    for (int i = 0; i < w->count * w->count; i++)
        if (i % (w->count + 1) != 0 && !(w->beta[i] > 0)) return false;
    return true;
}

/* A spanning tree of least cost (Prim 1957): edge[i] leads from host i to one that was reached before it, in the order
 * reached. */
static void span(const gw_link_costs *w, int *order, int *from, double *edge) {
    for (int i = 0; i < w->count; i++) order[i] = i, from[i] = 0, edge[i] = i ? cost(w, i, 0) : 0;
    for (int done = 1; done < w->count; done++) {
        int best = done;
        for (int i = done + 1; i < w->count; i++)
            if (edge[order[i]] < edge[order[best]]) best = i;
        int host = order[best];
        order[best] = order[done];
        order[done] = host;
        for (int i = done + 1; i < w->count; i++) {
            double other = cost(w, order[i], host);
            if (other >= edge[order[i]]) continue;
            edge[order[i]] = other;
            from[order[i]] = host;
        }
    }
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The largest edge that stays inside racks: where the next larger one is the most times as long. */
static double widest_gap(double *edges, int count) {
    double inside = 0, most = APART;
    qsort(edges, (size_t)count, sizeof *edges, ascending);
    for (int i = 0; i + 1 < count; i++) {
        if (edges[i + 1] < most * edges[i]) continue;
        most = edges[i + 1] / edges[i];
        inside = edges[i];
    }
    return inside;
}

/* Hosts that a short edge joins are in one rack; a host comes after the one that it was reached from. */
static void join(const gw_link_costs *w, const int *order, const int *from, const double *edge, double inside,
                 int *rack_of) {
    int racks = 0;
    for (int i = 0; i < w->count; i++) {
        int host = order[i];
        rack_of[host] = i && edge[host] <= inside ? rack_of[from[host]] : racks++;
    }
}

static bool are_apart(const gw_link_costs *w, const int *rack_of) {
    double within = 0, across = 0;
    for (int a = 0; a < w->count; a++)
        for (int b = 0; b < a; b++) {
            double between = cost(w, a, b);
            if (rack_of[a] == rack_of[b]) within = between > within ? between : within;
            else across = across == 0 || between < across ? between : across;
        }
    return across >= APART * within;
}

gw_status gw_racks_of_links(const gw_link_costs *w, int *rack_of, gw_error *error) {
    size_t n = (size_t)w->count;
    memset(rack_of, 0, n * sizeof *rack_of);
    if (w->count < 3 || !all_measured(w)) return GW_OK;
    int *order = calloc(2 * n, sizeof *order), *from = order + n;
    double *edge = calloc(2 * n, sizeof *edge), *sorted = edge + n;
    if (order && edge) {
        span(w, order, from, edge);
        for (int i = 1; i < w->count; i++) sorted[i - 1] = edge[order[i]];
        double inside = widest_gap(sorted, w->count - 1);
        if (inside > 0) join(w, order, from, edge, inside, rack_of);
        if (!are_apart(w, rack_of)) memset(rack_of, 0, n * sizeof *rack_of);
    }
    gw_status status = order && edge ? GW_OK : gw_fail(error, GW_MEMORY, "out of memory for %d hosts", w->count);
    free(order);
    free(edge);
    return status;
}
