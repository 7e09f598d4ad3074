/* coded_watch.c - the watch over an exchange: parts of tensors that leave the range in which the codec is trusted are
 * sent exact, in a plain all-reduce of their own, until they are back (compress/accuracy_guard.c).
 *
 * All members must decide alike, because payloads that are reduced in flight cannot be coded on one and exact on
 * another. So they sum up their reports: eight numbers for each part, in one of GW_CODEC_WATCH_EVERY exchanges. The sum
 * has the same bits on all of them. A decision belongs to a part and not to its tensor, because other parts may have
 * other members (lanes, arch/owners.h). */
#include "reducer/coded_exchange_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"

gw_status gw_coded_watch_open(gw_coded_exchange *x, gw_coded_watched *watched, gw_error *error) {
    if (!watched || x->coding.setup.codec->trusted.error == 0) return GW_OK;
    x->watched = watched;
    x->watches = calloc((size_t)x->count + 1, sizeof *x->watches);
    x->reports = calloc((size_t)x->count + 1, GW_CODED_REPORT_FLOATS * sizeof *x->reports);
    if (!x->watches || !x->reports) return gw_fail(error, GW_MEMORY, "out of memory for the watch over an exchange");
    for (int i = 0; i < x->count; i++) watched->elements += x->parts[i].count;
    return GW_OK;
}

static void count_exact(gw_coded_exchange *x, int i, bool exact) {
    uint64_t elements = x->parts[i].count;
    x->watched->exact += exact ? 1 : -1;
    x->watched->exact_elements += exact ? elements : -elements;
    x->watched->times += exact;
}

void gw_coded_watch_close(gw_coded_exchange *x) {
    for (int i = 0; x->watches && x->reports && i < x->count; i++) {
        x->watched->elements -= x->parts[i].count;
        if (x->watches[i].watch.exact) count_exact(x, i, false);
    }
    free(x->watches);
    free(x->reports);
}

bool gw_coded_watch_exact(const gw_coded_exchange *x, int i) { return x->watches && x->watches[i].watch.exact; }

void gw_coded_watch_prepare(gw_coded_exchange *x, int i) {
    gw_coded_tensor *t = x->parts[i].tensor;
    gw_coding_prepare(&x->coding, t, gw_coded_exchange_gradient(x, i));
    t->report.samples = t->owner_report.samples = x->samples;
}

/* Parts that are sent exact. */

/* What this member keeps as an owner belongs to the sum. */
static void flush_owned(gw_coded_exchange *x, int i) {
    gw_coded_tensor *t = x->parts[i].tensor;
    gw_coded_runs runs = gw_coded_runs_of(x, &x->parts[i], x->rank);
    while (t->second.tensor.count && gw_coded_runs_next(&runs))
        gw_codec_flush(&x->coding.second, &x->coding.call, runs.range, &t->second, x->result[i] + runs.offset,
                       x->result[i] + runs.offset);
}

/* The values of a part that the lane has, where the result will be; returns how many. */
static size_t flush(gw_coded_exchange *x, int i) {
    gw_coded_tensor *t = x->parts[i].tensor;
    gw_coded_runs runs = gw_coded_runs_of(x, &x->parts[i], -1);
    size_t count = 0;
    gw_coded_watch_prepare(x, i);
    x->coding.call.clip = t->clip;
    for (; gw_coded_runs_next(&runs); count += runs.range.count)
        gw_codec_flush(&x->coding.setup, &x->coding.call, runs.range, &t->state, x->gradient[i] + runs.offset,
                       x->result[i] + runs.offset);
    if (x->form == GW_FORM_TWO_PASS) flush_owned(x, i);
    return count;
}

static void scale_result(gw_coded_exchange *x, int i) {
    gw_coded_runs runs = gw_coded_runs_of(x, &x->parts[i], -1);
    while (gw_coded_runs_next(&runs))
        for (uint64_t e = 0; e < runs.range.count; e++) x->result[i][runs.offset + e] *= x->scale;
}

bool gw_coded_watch_send_exact(gw_coded_exchange *x, gw_time now, gw_status *status, gw_error *error) {
    if (x->next && gw_coded_watch_exact(x, x->next - 1)) scale_result(x, x->next - 1);
    while (x->next < x->count && !gw_coded_watch_exact(x, x->next)) x->next++;
    if (x->next == x->count) return false;
    int i = x->next++;
    *status = gw_coded_exchange_sum(x, &x->op, x->result[i], flush(x, i), now, error);
    return true;
}

/* Reports. */

gw_codec_report gw_coded_watch_before(const gw_coded_exchange *x, int i) {
    const gw_coded_tensor *t = x->parts[i].tensor;
    return x->coding.call.pass ? t->owner_report : t->report;
}

void gw_coded_watch_after(gw_coded_exchange *x, int i, const gw_codec_report *before) {
    gw_codec_report now = gw_coded_watch_before(x, i), *all = &now;
    if (!x->watches || !all->samples) return;
    gw_codec_report own = {.sampled = all->sampled - before->sampled, .waiting = all->waiting - before->waiting,
                           .coded = all->coded - before->coded, .common = all->common - before->common};
    gw_codec_report_add(&x->watches[i].reports[x->coding.call.pass], &own);
}

gw_status gw_coded_watch_start(gw_coded_exchange *x, gw_time now, gw_error *error) {
    float *at = x->reports;
    for (int i = 0; i < 2 * x->count; i++) {
        gw_codec_report *r = &x->watches[i / 2].reports[i % 2];
        *at++ = (float)r->sampled;
        *at++ = (float)r->waiting;
        *at++ = (float)r->coded;
        *at++ = (float)r->common;
        *r = (gw_codec_report){0};
    }
    return gw_coded_exchange_sum(x, &x->op, x->reports, (size_t)(at - x->reports), now, error);
}

/* The first tensor that leaves the range is a warning, the others are for those who ask. */
static void tell(gw_coded_exchange *x, int i) {
    const gw_codec_watch *watch = &x->watches[i].watch;
    bool first = watch->exact && x->watched->times == 1;
    if (x->rank != 0) return;
    gw_log(first ? GW_LOG_WARN : GW_LOG_INFO, (int)x->coding.call.rank,
           "compress=%s %s its trusted range on %s (%.2g gradients wait, cosine %.2g): sent %s",
           x->coding.setup.codec->technique.name, watch->exact ? "leaves" : "is back in", x->parts[i].tensor->what.name,
           watch->error, 1 - watch->aside, watch->exact ? "exact until it is back" : "compressed again");
}

static gw_codec_report summed(const float *at) {
    return (gw_codec_report){.sampled = (double)at[0], .waiting = (double)at[1], .coded = (double)at[2],
                             .common = (double)at[3]};
}

void gw_coded_watch_judge(gw_coded_exchange *x) {
    const float *at = x->reports;
    for (int i = 0; i < x->count; i++, at += GW_CODED_REPORT_FLOATS) {
        gw_codec_watch *watch = &x->watches[i].watch;
        gw_codec_report all[2] = {summed(at), summed(at + 4)};
        if (x->parts[i].tensor->exact || !gw_codec_watch_update(watch, x->coding.setup.codec, all, 2)) continue;
        count_exact(x, i, watch->exact);
        tell(x, i);
    }
}
