/* tictac.c - TicTac (Hashemi et al. 2019): transfers in the order of the compute that they unlock. TIC knows only the
 * graph, which for layers in sequence is forward order. TAC knows measured times: of two transfers a goes before b if
 * min(P_b, M_a) < min(P_a, M_b), where M is the time of a transfer and P the compute that can run once it has arrived
 * and no earlier transfer is outstanding; recomputed after each pick.
 *
 * Tensors are sent whole, one at a time. */
#include "schedule/schedule_internal.h"

enum { TIC, TAC };

static gw_schedule_settings settings(const double *values) {
    return (gw_schedule_settings){.measured = values[0] == TAC};
}

static void cut(gw_schedule *s) { gw_cut_by_bytes(s, 0, 0); }

static double transfer(const gw_schedule *s, int p) {
    return s->facts.alpha_us + s->facts.us_per_byte * (double)s->buckets[p].bytes;
}

/* Compute that can run once bucket p has arrived too: layers run in sequence, so all before it must have been picked.
 */
static double unlocked(const gw_schedule *s, int p, const bool *picked) {
    int tensor = s->ranges[s->buckets[p].first_range].tensor;
    for (int t = 0; t < tensor; t++)
        if (!picked[t]) return 0;
    double compute = s->facts.forward_us[tensor];
    for (int t = tensor + 1; t < s->tensor_count && picked[t]; t++) compute += s->facts.forward_us[t];
    return compute;
}

static bool before(const gw_schedule *s, int a, int b, const bool *picked) {
    double pa = unlocked(s, a, picked), pb = unlocked(s, b, picked), ma = transfer(s, a), mb = transfer(s, b);
    double left = pb < ma ? pb : ma, right = pa < mb ? pa : mb;
    if (left != right) return left < right;
    return s->buckets[a].priority < s->buckets[b].priority;
}

static void rank(gw_schedule *s) {
    if (!s->facts.forward_us) return; /* priorities are in forward order already */
    for (int t = 0; t < s->tensor_count; t++) s->picked[t] = s->tensors[t].count == 0;
    for (int place = 0; place < s->bucket_count; place++) {
        int best = -1;
        for (int p = s->bucket_count - 1; p >= 0; p--)
            if (!s->picked[s->ranges[s->buckets[p].first_range].tensor] && (best < 0 || before(s, p, best, s->picked)))
                best = p;
        s->picked[s->ranges[s->buckets[best].first_range].tensor] = true;
        s->buckets[best].priority = place;
    }
}

static int next(const gw_schedule *s) { return gw_next_by_priority(s, 0); }

const gw_policy gw_policy_tictac = {
    .technique = {.name = "tictac",
                  .about = "whole tensors, ordered by the compute that they unlock",
                  .params = GW_PARAMS({.name = "mode",
                                       .kind = GW_PARAM_CHOICE,
                                       .choices = (const char *const[]){"tic", "tac", NULL},
                                       .about = "by the graph alone, or by measured times"}),
                  .examples = GW_CHOICES("mode=tic", "mode=tac")},
    .reorders = true,
    .settings = settings,
    .cut = cut,
    .rank = rank,
    .next = next,
};
