/* dear.c - DeAR (Zhang et al. 2023): an all-reduce is a reduce-scatter and an all-gather, started separately. The first
 * half of each bucket overlaps with the backward pass, the second with the next forward pass.
 *
 * First halves alone leave the wire idle during a part of backward. So second halves are started behind them, and the
 * engine lets the more urgent messages overtake (gw_schedule_urgency): first halves, then what forward needs first. If
 * buckets are exchanged one at a time (settings.one_queue), nothing overtakes: then all first halves come first, as in
 * the paper. */
#include "schedule/schedule_internal.h"

/* This many first halves come before a second half. So a first half waits until the first half LEAD places before it is
 * over. This costs nothing while the halves in between keep the wire busy. */
enum { LEAD = 4 };

#define FUSE_BYTES ((size_t)8 << 20) /* halves of smaller buckets find more to hide behind than whole exchanges */

static gw_schedule_settings settings(const double *values) {
    return (gw_schedule_settings){.fuse_bytes = (size_t)values[0]};
}

static void cut(gw_schedule *s) {
    size_t fuse = s->settings.fuse_bytes;
    if (s->settings.one_queue) gw_cut_by_bytes(s, fuse ? fuse : FUSE_BYTES, 0);
    else if (fuse) gw_cut_tapered(s, fuse);
    else gw_cut_growing(s, FUSE_BYTES);
}

/* The order of starts is fixed, so ranks need not agree on one: LEAD first halves, then a second and a first half in
 * turns, as produced; at the end the last second halves in forward order. */
static int next(const gw_schedule *s) {
    int n = s->bucket_count, lead = n < LEAD || s->settings.one_queue ? n : LEAD, at = s->cursor - lead;
    int turns = 2 * (n - lead);
    if (n == 0) return -1;
    bool last = at >= turns, second = last || (at >= 0 && at % 2 == 0);
    int bucket = last ? n - 1 - (at - turns) : at < 0 ? at + lead : second ? at / 2 : at / 2 + lead;
    return s->buckets[bucket].state == (second ? GW_BUCKET_HALFWAY : GW_BUCKET_READY) ? bucket : -1;
}

const gw_policy gw_policy_dear = {
    .technique = {.name = "dear",
                  .about = "reduce-scatter during backward, all-gather until the next forward pass needs it",
                  .params = GW_PARAMS(GW_PARAM_FUSE("growing, at most 8 MiB")),
                  .examples = GW_CHOICES("", "fuse=1K")},
    .splits = true,
    .settings = settings,
    .cut = cut,
    .next = next,
};
