/* bytescheduler.c - ByteScheduler (Peng et al. 2019): slices by priority as in P3, and a credit of bytes that may be in
 * flight together, returned on completion. So small slices do not wait for each start-up, and the queue on the wire
 * stays short enough for urgent slices to overtake. A tuner searches for the sizes of slices and credit. */
#include "schedule/schedule_internal.h"

/* Automatic sizes. */
#define SLICE_BYTES_MIN ((size_t)64 << 10)
#define SLICE_BYTES_MAX ((size_t)8 << 20)
#define CREDIT_SLICES 4

static gw_schedule_settings settings(const double *values) {
    return (gw_schedule_settings){.slice_bytes = (size_t)values[0], .credit_bytes = (size_t)values[1]};
}

static void cut(gw_schedule *s) {
    gw_schedule_settings *sizes = &s->settings;
    if (!sizes->slice_bytes) sizes->slice_bytes = gw_share_of_all(s, 256, SLICE_BYTES_MIN, SLICE_BYTES_MAX);
    if (!sizes->credit_bytes) sizes->credit_bytes = CREDIT_SLICES * sizes->slice_bytes;
    gw_cut_by_bytes(s, sizes->slice_bytes, sizes->slice_bytes);
}

static int next(const gw_schedule *s) { return gw_next_by_priority(s, s->settings.credit_bytes); }

const gw_policy gw_policy_bytescheduler = {
    .technique = {.name = "bytescheduler",
                  .about = "slices by priority, several in flight up to a credit",
                  .params = GW_PARAMS(GW_PARAM_SLICE("1/256 of the model, 64 KiB to 8 MiB"),
                                      {.name = "credit",
                                       .kind = GW_PARAM_BYTES,
                                       .automatic = true,
                                       .lowest = 1,
                                       .highest = 1024.0 * 1024 * 1024,
                                       .about = "bytes in flight; auto: four slices"}),
                  .examples = GW_CHOICES("slice=16K,credit=64K")},
    .reorders = true,
    .slices = true,
    .settings = settings,
    .cut = cut,
    .next = next,
};
