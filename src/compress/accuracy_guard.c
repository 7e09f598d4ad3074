/* accuracy_guard.c - the accuracy guard: a tensor whose running relative error passes the limit is sent exact until the
 * error has fallen to half of it. Exact steps lose nothing, so the running error falls by a tenth each step
 * meanwhile. */
#include "compress/compress.h"

#include <math.h>

#define MEMORY 0.9 /* weight of the past in the running mean: about ten steps */

/* 1 (all lost) where the data was not finite: the codec did not succeed in that step. */
static double relative_error(const gw_codec_report *report) {
    if (report->input == 0 && report->error == 0) return 0;
    double relative = sqrt(report->error / report->input);
    return isfinite(relative) ? relative : 1;
}

bool gw_codec_guard_update(gw_codec_guard *guard, const gw_codec_report *report) {
    guard->error = MEMORY * guard->error + (1 - MEMORY) * relative_error(report);
    guard->residual_norm = sqrt(report->error);
    bool exact = guard->limit > 0 && guard->error > (guard->exact ? guard->limit / 2 : guard->limit);
    bool changed = exact != guard->exact;
    guard->exact = exact;
    return changed;
}
