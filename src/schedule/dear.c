/* dear.c - DeAR (Zhang et al. 2023): an all-reduce is a reduce-scatter and an all-gather, started apart. The first half
 * of each group overlaps with the backward pass, the second with the next forward pass.
 *
 * Backward alone does not fill the wire with first halves: second halves are started behind them as soon as they can be,
 * and whoever carries them lets the more urgent overtake, first halves all others. */
#include "schedule/schedule_internal.h"

/* How many first halves come before the first second half: a first half waits until the one so many before it is over,
 * which on a wire that is busy costs nothing. */
enum { LEAD = 4 };

static gw_schedule_settings settings(const double *values) {
    return (gw_schedule_settings){.fuse_bytes = (size_t)values[0]};
}

static void cut(gw_schedule *s) { gw_cut_tapered(s, s->settings.fuse_bytes); }

/* The order is the same on all ranks, whatever is ready when: LEAD first halves, then a second half and a first one in
 * turns, as produced; the last second halves in forward order. */
static int next(const gw_schedule *s) {
    int n = s->piece_count, lead = n < LEAD ? n : LEAD, at = s->cursor, turns = 2 * (n - lead);
    if (n == 0) return -1;
    bool second = at >= lead && (at >= lead + turns || (at - lead) % 2 == 0);
    int piece = at < lead ? at : at >= lead + turns ? 2 * n - 1 - at + n - lead : (at - lead) / 2 + (second ? 0 : lead);
    return s->pieces[piece].state == (second ? GW_PIECE_HALFWAY : GW_PIECE_READY) ? piece : -1;
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
