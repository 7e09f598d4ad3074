/* dear.c - DeAR (Zhang et al. 2023): an all-reduce is a reduce-scatter and an all-gather, started apart. The first half
 * of each group overlaps with the backward pass, in the order produced; the second with the next forward pass, in the
 * order in which that needs it. */
#include "schedule/schedule_internal.h"

/* All-gathers that share the wire all come home late; one alone leaves it idle between its messages. */
enum { SPREADING_AT_ONCE = 2 };

static gw_schedule_settings settings(const double *values) {
    return (gw_schedule_settings){.fuse_bytes = (size_t)values[0]};
}

static void cut(gw_schedule *s) { gw_cut_by_bytes(s, s->settings.fuse_bytes, 0); }

/* Positions 0 to n-1 of a step are first halves as produced, n to 2n-1 second halves in forward order. */
static int next(const gw_schedule *s) {
    int n = s->piece_count, at = s->cursor;
    if (n == 0) return -1;
    if (at < n) return s->pieces[at].state == GW_PIECE_READY ? at : -1;
    if (s->in_flight >= SPREADING_AT_ONCE) return -1;
    at = 2 * n - 1 - at;
    return s->pieces[at].state == GW_PIECE_HALFWAY ? at : -1;
}

const gw_policy gw_policy_dear = {
    .technique = {.name = "dear",
                  .about = "reduce-scatter during backward, all-gather during the next forward pass",
                  .params = GW_PARAMS(GW_PARAM_FUSE(25e6))},
    .splits = true,
    .settings = settings,
    .cut = cut,
    .next = next,
};
