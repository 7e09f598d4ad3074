/* tictac.c - TicTac (Hashemi et al. 2019): transfers in the order of the compute that they unlock. TIC knows only the
 * graph, which for layers one after the other is forward order. TAC knows measured times: of two transfers a goes
 * before b if min(P_b, M_a) < min(P_a, M_b), where M is the time of a transfer and P the compute that can run once it
 * is there and nothing else outstanding stands before it; recomputed after each pick.
 *
 * Tensors travel whole, one at a time. */
#include "schedule/schedule_internal.h"

enum { TIC, TAC };

static gw_schedule_settings settings(const double *values) {
    return (gw_schedule_settings){.measured = values[0] == TAC};
}

static void cut(gw_schedule *s) { gw_cut_by_bytes(s, 0, 0); }

static double transfer(const gw_schedule *s, int p) {
    return s->facts.alpha_us + s->facts.us_per_byte * (double)s->pieces[p].bytes;
}

/* Compute that runs once piece p is there too: layers follow one another, so all before it must have been picked. */
static double unlocked(const gw_schedule *s, int p, const bool *picked) {
    int tensor = s->spans[s->pieces[p].first_span].tensor;
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
    return s->pieces[a].priority < s->pieces[b].priority;
}

static void rank(gw_schedule *s) {
    if (!s->facts.forward_us) return; /* forward order, as priorities are anyway */
    for (int t = 0; t < s->tensor_count; t++) s->picked[t] = s->tensors[t].count == 0;
    for (int place = 0; place < s->piece_count; place++) {
        int best = -1;
        for (int p = s->piece_count - 1; p >= 0; p--)
            if (!s->picked[s->spans[s->pieces[p].first_span].tensor] && (best < 0 || before(s, p, best, s->picked)))
                best = p;
        s->picked[s->spans[s->pieces[best].first_span].tensor] = true;
        s->pieces[best].priority = place;
    }
}

static int next(const gw_schedule *s) { return gw_order_priority(s, 0); }

const gw_policy gw_policy_tictac = {
    .technique = {.name = "tictac",
                  .about = "whole tensors, ordered by the compute that they unlock",
                  .params = GW_PARAMS({.name = "mode",
                                       .kind = GW_PARAM_CHOICE,
                                       .choices = (const char *const[]){"tic", "tac", NULL},
                                       .about = "by the graph alone, or by measured times"})},
    .reorders = true,
    .settings = settings,
    .cut = cut,
    .rank = rank,
    .next = next,
};
