/* bytescheduler.c - ByteScheduler (Peng et al. 2019): slices by priority as in P3, and a credit of bytes that may be in
 * flight together, returned on completion. So small slices do not wait for each start-up, and the queue on the wire
 * stays short enough for urgent slices to overtake. A tuner searches for the sizes of slices and credit. */
#include "schedule/schedule_internal.h"

static gw_schedule_settings settings(const double *values) {
    return (gw_schedule_settings){
        .fuse_bytes = (size_t)values[0], .slice_bytes = (size_t)values[0], .credit_bytes = (size_t)values[1]};
}

static void cut(gw_schedule *s) { gw_cut_by_bytes(s, s->settings.slice_bytes, s->settings.slice_bytes); }

static int next(const gw_schedule *s) { return gw_next_by_priority(s, s->settings.credit_bytes); }

const gw_policy gw_policy_bytescheduler = {
    .technique = {.name = "bytescheduler",
                  .about = "slices by priority, several in flight up to a credit",
                  .params = GW_PARAMS(GW_PARAM_SLICE(512.0 * 1024), {.name = "credit",
                                                                     .kind = GW_PARAM_BYTES,
                                                                     .preset = 1024.0 * 1024,
                                                                     .lowest = 1,
                                                                     .highest = 1024.0 * 1024 * 1024,
                                                                     .about = "bytes in flight"}),
                  .examples = GW_CHOICES("slice=16K,credit=64K")},
    .reorders = true,
    .settings = settings,
    .cut = cut,
    .next = next,
};
