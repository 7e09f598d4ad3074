/* tictac.c - TicTac (Hashemi et al. 2019): transfers in the order of the compute that they unlock (forward_graph.h).
 * TIC knows only the graph; TAC knows measured times, and goes by TIC until they are there. For layers in a chain both
 * are forward order; where the caller gives a graph with branches, they differ.
 *
 * Tensors are sent whole, one at a time. */
#include "schedule/schedule_internal.h"

enum { TIC, TAC };

static gw_schedule_settings settings(const double *values) {
    return (gw_schedule_settings){.measured = values[0] == TAC};
}

static void cut(gw_schedule *s) { gw_cut_by_bytes(s, 0, 0); }

static void time_transfers(gw_schedule *s) {
    for (int t = 0; t < s->tensor_count; t++)
        s->transfers[t] = s->facts.alpha_us + s->facts.us_per_byte * (double)gw_tensor_bytes(s, t);
}

/* TAC looks one transfer ahead only, and may end later than forward order: that is predicted, and the earlier taken. */
static int *measured_order(gw_schedule *s) {
    int *places = s->places, *forward = s->places + s->tensor_count;
    time_transfers(s);
    gw_forward_graph_tac(s->graph, s->transfers, s->facts.forward_us, places);
    for (int t = 0; t < s->tensor_count; t++) forward[t] = t;
    double spans[] = {gw_forward_graph_span(s->graph, places, s->transfers, s->facts.forward_us),
                      gw_forward_graph_span(s->graph, forward, s->transfers, s->facts.forward_us)};
    return spans[0] > spans[1] ? forward : places;
}

/* Slices of a tensor have the same priority, and go in their order. */
static void rank(gw_schedule *s) {
    int *places = s->places;
    if (s->facts.forward_us) places = measured_order(s);
    else gw_forward_graph_tic(s->graph, places);
    for (int p = 0; p < s->bucket_count; p++)
        s->buckets[p].priority = places[s->ranges[s->buckets[p].first_range].tensor];
}

static int next(const gw_schedule *s) { return gw_next_by_priority(s, 0); }

const gw_policy gw_policy_tictac = {
    .technique = {.name = "tictac",
                  .about = "whole tensors, ordered by the compute that they unlock",
                  .params = GW_PARAMS({.name = "mode",
                                       .kind = GW_PARAM_CHOICE,
                                       .choices = (const char *const[]){"tic", "tac", NULL},
                                       .about = "by the graph alone, or by measured times"}),
                  .examples = GW_CHOICES("mode=tic", "mode=tac")},
    .reorders = true,
    .needs_graph = true,
    .settings = settings,
    .cut = cut,
    .rank = rank,
    .next = next,
};
