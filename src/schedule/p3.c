/* p3.c - priority-based parameter propagation (Jayarajan et al. 2019): tensors are cut into slices of about 50,000
 * parameters. One slice is in flight at a time, and the one nearest the input goes first, so that the next forward pass
 * can begin. A more urgent gradient waits for one slice at most. */
#include "schedule/schedule_internal.h"

/* Automatic slices: one at a time is in flight, so each pays a start-up. */
#define SLICE_BYTES_MIN 200000u
#define SLICE_BYTES_MAX ((size_t)8 << 20)

static gw_schedule_settings settings(const double *values) {
    return (gw_schedule_settings){.slice_bytes = (size_t)values[0]};
}

static void cut(gw_schedule *s) {
    if (!s->settings.slice_bytes) s->settings.slice_bytes = gw_share_of_all(s, 12, SLICE_BYTES_MIN, SLICE_BYTES_MAX);
    gw_cut_by_bytes(s, s->settings.slice_bytes, s->settings.slice_bytes);
}

static int next(const gw_schedule *s) { return gw_next_by_priority(s, 0); }

const gw_policy gw_policy_p3 = {
    .technique = {.name = "p3",
                  .about = "slices, one at a time, those needed first by the next forward pass first",
                  .params = GW_PARAMS(GW_PARAM_SLICE("1/12 of the model, 200 kB to 8 MiB")),
                  .examples = GW_CHOICES("slice=16K")},
    .reorders = true,
    .slices = true,
    .settings = settings,
    .cut = cut,
    .next = next,
};
