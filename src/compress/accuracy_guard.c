/* accuracy_guard.c - the accuracy guard: a tensor whose running relative error passes the limit is sent exact until the
 * error has fallen to half of it. Exact steps lose nothing, so the running error falls by a tenth each step
 * meanwhile.
 *
 * The watch does the same with the range in which a codec is trusted, of the error and of the direction, by a sample in
 * every so many exchanges. */
#include "compress/compress.h"

#include <math.h>

#define MEMORY 0.9        /* weight of the past in the running mean: about ten steps */
#define WATCH_MEMORY 0.75 /* the same of the watch: about four samples */
#define GREATEST 1e6      /* a running mean must be able to fall again */

void gw_codec_report_add(gw_codec_report *sum, const gw_codec_report *more) {
    sum->input += more->input;
    sum->error += more->error;
    sum->sampled += more->sampled;
    sum->waiting += more->waiting;
    sum->coded += more->coded;
    sum->common += more->common;
}

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

/* Of the sample. A gradient of zeros says nothing. What is not finite counts as if nothing had arrived. */
static double relative_wait(const gw_codec_report *report) {
    if (report->waiting == 0 || report->sampled == 0) return 0;
    double relative = sqrt(report->waiting / report->sampled);
    return isfinite(relative) ? relative : GREATEST;
}

/* 1 - cosine of the gradient and what is decoded, by the sample; 1 where it is not finite. */
static double aside(const gw_codec_report *report) {
    if (report->sampled == 0) return 0;
    double cosine = report->common / sqrt(report->sampled * report->coded);
    return isfinite(cosine) ? 1 - cosine : 1;
}

bool gw_codec_watch_update(gw_codec_watch *watch, const gw_codec *codec, const gw_codec_report *reports, int passes) {
    double error_most = codec->trusted.error, aside_most = 1 - codec->trusted.aligned;
    double back = watch->exact ? 0.5 : 1, error = 0, off = 0;
    for (int i = 0; i < passes; i++) {
        error = fmax(error, relative_wait(&reports[i]));
        off = fmax(off, aside(&reports[i]));
    }
    watch->error = WATCH_MEMORY * watch->error + (1 - WATCH_MEMORY) * error;
    watch->aside = WATCH_MEMORY * watch->aside + (1 - WATCH_MEMORY) * off;
    bool leaves = watch->error > back * error_most || watch->aside > back * aside_most;
    bool exact = error_most > 0 && leaves, changed = exact != watch->exact;
    watch->exact = exact;
    return changed;
}
