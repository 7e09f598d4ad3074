/* wfbp.c - wait-free backpropagation (Poseidon, Zhang et al. 2017): the gradient of a layer is sent as soon as it is
 * complete. With tensor fusion as in DDP and Horovod: otherwise each of many small tensors pays a start-up. */
#include "schedule/schedule_internal.h"

static gw_schedule_settings settings(const double *values) {
    return (gw_schedule_settings){.fuse_bytes = (size_t)values[0]};
}

static void cut(gw_schedule *s) {
    if (s->settings.fuse_bytes) gw_cut_by_bytes(s, s->settings.fuse_bytes, 0);
    else gw_cut_growing(s, GW_FUSE_BYTES);
}

const gw_policy gw_policy_wfbp = {
    .technique = {.name = "wfbp",
                  .about = "each gradient as soon as backward has produced it",
                  .params = GW_PARAMS(GW_PARAM_FUSE("growing, at most 25 MB")),
                  .examples = GW_CHOICES("", "fuse=1K")},
    .settings = settings,
    .cut = cut,
    .next = gw_next_by_produced,
};
