/* dear.c - DeAR (Zhang et al. 2023): an all-reduce is a reduce-scatter and an all-gather, started apart. The first half
 * of each group overlaps with the backward pass, the second with the next forward pass.
 *
 * First halves alone leave the wire idle for a part of backward. So second halves are started behind them, and whoever
 * carries them lets the more urgent overtake (gw_schedule_urgency): first halves, then what forward needs first. In a
 * library with one queue nothing overtakes: there all first halves come first, as in the paper. */
#include "schedule/schedule_internal.h"

/* So many first halves come before a second half. A first half then waits until the one so many before it is over: no
 * loss while the wire is busy with those between. */
enum { LEAD = 4 };

static gw_schedule_settings settings(const double *values) {
    return (gw_schedule_settings){.fuse_bytes = (size_t)values[0]};
}

static void cut(gw_schedule *s) {
    if (s->settings.one_queue) gw_cut_by_bytes(s, s->settings.fuse_bytes, 0);
    else gw_cut_tapered(s, s->settings.fuse_bytes);
}

/* The order of starts is fixed, so that ranks need not agree on one: LEAD first halves, then a second and a first half
 * in turns, as produced; at the end the last second halves in forward order. */
static int next(const gw_schedule *s) {
    int n = s->piece_count, lead = n < LEAD || s->settings.one_queue ? n : LEAD, at = s->cursor - lead;
    int turns = 2 * (n - lead);
    if (n == 0) return -1;
    bool last = at >= turns, second = last || (at >= 0 && at % 2 == 0);
    int piece = last ? n - 1 - (at - turns) : at < 0 ? at + lead : second ? at / 2 : at / 2 + lead;
    return s->pieces[piece].state == (second ? GW_PIECE_HALFWAY : GW_PIECE_READY) ? piece : -1;
}

const gw_policy gw_policy_dear = {
    .technique = {.name = "dear",
                  .about = "reduce-scatter during backward, all-gather until the next forward pass needs it",
                  .params = GW_PARAMS(GW_PARAM_FUSE(8.0 * 1024 * 1024))},
    .splits = true,
    .settings = settings,
    .cut = cut,
    .next = next,
};
