/* fifo.c - everything after the backward pass, in the order produced: the baseline without overlap. */
#include "schedule/schedule_internal.h"

static gw_schedule_settings settings(const double *values) {
    return (gw_schedule_settings){.fuse_bytes = values[0] > 0 ? (size_t)values[0] : GW_FUSE_BYTES};
}

static void cut(gw_schedule *s) { gw_cut_by_bytes(s, s->settings.fuse_bytes, 0); }

static int next(const gw_schedule *s) {
    int p = gw_next_by_produced(s);
    return p >= 0 && s->buckets[p].readied <= s->steps_over ? p : -1;
}

const gw_policy gw_policy_fifo = {
    .technique = {.name = "fifo",
                  .about = "all gradients after the backward pass, in the order produced",
                  .params = GW_PARAMS(GW_PARAM_FUSE("25 MB"))},
    .after_backward = true,
    .settings = settings,
    .cut = cut,
    .next = next,
};
