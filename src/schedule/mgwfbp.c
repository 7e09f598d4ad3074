/* mgwfbp.c - MG-WFBP (Shi et al. 2019): wait-free backpropagation that merges a tensor with the one produced after it
 * whenever waiting for that one costs less than the start-up saved. Needs alpha, beta and the backward times; until
 * they are measured every tensor is sent alone.
 *
 * From the last tensor on: an exchange begins when its gradient is ready and the wire is free. If the next gradient
 * will be ready within alpha of that moment, merging the two saves a start-up and delays nothing by more than that. */
#include "schedule/schedule_internal.h"

static gw_schedule_settings settings(const double *values) {
    (void)values;
    return (gw_schedule_settings){.measured = true};
}

static bool merges(const gw_schedule *s, double begins, double next_ready) {
    return next_ready < begins + s->facts.alpha_us;
}

/* Walks through the backward pass. Closes a bucket if the next tensor comes too late; the tensor before that is the
 * lowest of the bucket. */
static void cut(gw_schedule *s) {
    bool known = s->facts.backward_us && s->facts.alpha_us > 0;
    double ready = 0, wire_free = 0;
    size_t bytes = 0;
    int end = s->tensor_count;
    for (int t = s->tensor_count - 1; t >= 0; t--) {
        if (known) ready += s->facts.backward_us[t];
        bytes += gw_tensor_bytes(s, t);
        double begins = ready > wire_free ? ready : wire_free;
        bool joins = t > 0 && known && s->tensors[t - 1].kind == s->tensors[t].kind &&
                     merges(s, begins, ready + s->facts.backward_us[t - 1]);
        if (joins) continue;
        gw_cut_run(s, t, end);
        end = t;
        wire_free = begins + s->facts.alpha_us + s->facts.us_per_byte * (double)bytes;
        bytes = 0;
    }
}

const gw_policy gw_policy_mgwfbp = {
    .technique = {.name = "mgwfbp", .about = "wfbp; tensors merge where waiting costs less than a start-up"},
    .settings = settings,
    .cut = cut,
    .next = gw_next_by_produced,
};
