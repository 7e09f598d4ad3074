/* train_report.c - the output of gradwire train: a live line on a terminal, else one line per epoch, or JSON; and a
 * table at the end. Only rank 0 prints. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/units.h"
#include "cli/common/advice_print.h"
#include "cli/common/json.h"
#include "cli/common/table.h"
#include "cli/train/train_request.h"

enum { BAR = 20, CELL_BYTES = 640 };

#define FRAME (GW_SECOND / 10) /* least time between two updates of the live line */

static double seconds_since(gw_time then) { return (double)(gw_clock_now() - then) / (double)GW_SECOND; }
static double percent(uint64_t part, double seconds) {
    return seconds > 0 ? 100 * (double)part / (seconds * (double)GW_SECOND) : 0;
}

static void add_work(gw_train_work *to, const gw_train_work *work) {
    to->loss_sum += work->loss_sum;
    to->correct += work->correct;
    to->counted += work->counted;
    to->compute += work->compute;
    to->waiting += work->waiting;
    to->bytes += work->bytes;
    to->dense += work->dense;
}

/* The epoch that the last update belongs to, from 1. */
static uint64_t epoch_now(const gw_train_report *r) { return r->trainer->epoch + (r->trainer->window > 0); }

static double mean_loss(const gw_train_work *work) {
    return work->counted ? work->loss_sum / (double)work->counted : 0;
}

/* ---- sentences ---- */

static void wipe(gw_train_report *r) {
    if (r->drawn) fputs("\r\033[K", stdout);
    r->drawn = false;
}

void gw_train_report_print(gw_train_report *r, const char *format, ...) {
    va_list args;
    if (r->request->quiet) return;
    FILE *out = r->request->json ? stderr : stdout;
    wipe(r);
    va_start(args, format);
    vfprintf(out, format, args);
    va_end(args);
    fputc('\n', out);
    fflush(out);
}

/* The layers of each stage, and its part of the measured time. */
static void say_stages(gw_train_report *r) {
    const gw_pipeline *p = r->trainer->pipeline;
    gw_train_report_print(r, "pipeline of %d stage%s, %d micro-batch%s, %d replica%s", p->stages,
                          p->stages > 1 ? "s" : "", p->micro, p->micro > 1 ? "es" : "", p->replicas,
                          p->replicas > 1 ? "s" : "");
    for (int s = 0; s < p->stages; s++) {
        const gw_graph_node *first = &r->trainer->spec->nodes[p->first[s]];
        const gw_graph_node *last = &r->trainer->spec->nodes[p->first[s + 1] - 1];
        gw_train_report_print(r, "  stage %d: %s%d to %s%d, %.0f %% of the measured time", s, first->kind->name,
                              first->ordinal, last->kind->name, last->ordinal, 100 * p->part[s]);
    }
}

void gw_train_report_open(gw_train_report *r, const gw_train_request *request, const gw_trainer *t) {
    const gw_train_settings *s = &request->settings;
    bool terminal = isatty(STDOUT_FILENO) || getenv(GW_TRAIN_LIVE_VARIABLE);
    gw_time now = gw_clock_now();
    *r = (gw_train_report){.request = request, .trainer = t, .started = now, .epoch_started = now, .accuracy = -1,
                           .reached = -1, .live = terminal && !request->json && !request->quiet};
    gw_train_report_print(r,
                          "%s (%zu parameters) on %s: %" PRId64 " examples, %" PRId64 " epoch%s, batch %" PRId64
                          " over %d worker%s, %s at rate %g",
                          s->model, gw_spec_parameters(t->spec), s->data, t->sampler.examples, s->epochs,
                          s->epochs > 1 ? "s" : "", s->batch * s->accumulate, t->world, t->world > 1 ? "s" : "",
                          s->optimiser->name, s->rate);
    if (t->pipeline) say_stages(r);
}

/* ---- the live line ---- */

/* -1: not known yet. */
static double seconds_left(const gw_train_report *r) {
    uint64_t total = (uint64_t)(r->request->settings.epochs * gw_trainer_windows(r->trainer));
    uint64_t end = r->request->steps && (uint64_t)r->request->steps < total ? (uint64_t)r->request->steps : total;
    uint64_t done = r->trainer->updates - r->updates_from;
    if (!done || r->trainer->updates > end) return -1;
    return seconds_since(r->started) / (double)done * (double)(end - r->trainer->updates);
}

static void draw(gw_train_report *r, const char *doing, double part) {
    char bar[BAR + 1], sent[GW_UNIT_TEXT], left[GW_UNIT_TEXT] = "?", accuracy[24] = "", slow[64];
    gw_time now = gw_clock_now();
    if (!r->live || (r->shown && now - r->shown < FRAME)) return;
    r->shown = now;
    for (int i = 0; i < BAR; i++) bar[i] = i < (int)(part * BAR) ? '#' : '.';
    bar[BAR] = 0;
    double seconds = seconds_since(r->epoch_started);
    uint64_t compute = r->epoch.compute + r->trainer->work.compute;
    uint64_t waiting = r->epoch.waiting + r->trainer->work.waiting;
    if (r->accuracy >= 0) snprintf(accuracy, sizeof accuracy, "acc %.2f%%  ", 100 * r->accuracy);
    if (seconds_left(r) >= 0) gw_duration_format(seconds_left(r), left);
    gw_train_workers_live(r->trainer, slow, sizeof slow);
    printf("\r\033[K%s %" PRIu64 "/%" PRId64
           " [%s] loss %.4f  %s%.0f ex/s  compute %.0f%% waiting %.0f%%  %ssent %s  left %s",
           doing, epoch_now(r), r->request->settings.epochs, bar, r->loss, accuracy,
           seconds > 0 ? (double)r->examples / seconds : 0, percent(compute, seconds), percent(waiting, seconds), slow,
           gw_bytes_format(r->total.bytes + r->trainer->work.bytes, sent), left);
    fflush(stdout);
    r->drawn = true;
}

void gw_train_report_update(gw_train_report *r, int64_t examples) {
    const gw_train_work *own = &r->trainer->work;
    r->examples += examples;
    if (own->counted) r->loss = mean_loss(own); /* this rank's, until the next report of all ranks */
    draw(r, "epoch", (double)r->trainer->window / (double)gw_trainer_windows(r->trainer));
}

void gw_train_report_testing(void *report, int64_t done, int64_t of) {
    draw(report, "testing", (double)done / (double)of);
}

/* ---- reports of all ranks, epochs ---- */

static void json_line(const gw_train_report *r, const char *event, const gw_train_work *work, double rate) {
    printf("{\"event\": \"%s\", \"epoch\": %" PRIu64 ", \"step\": %" PRIu64 ", \"loss\": %s", event, epoch_now(r),
           r->trainer->updates, GW_JSON_DIGITS(mean_loss(work), 9));
    if (r->accuracy >= 0) printf(", \"test_accuracy\": %s", GW_JSON_FIXED(r->accuracy, 6));
    else printf(", \"test_accuracy\": null");
    printf(", \"examples_per_s\": %s, \"bytes_sent\": %" PRIu64 ", \"bytes_dense\": %" PRIu64
           ", \"compute_ms\": %s, \"waiting_ms\": %s",
           GW_JSON_FIXED(rate, 1), work->bytes, work->dense, GW_JSON_FIXED((double)work->compute / 1e6, 3),
           GW_JSON_FIXED((double)work->waiting / 1e6, 3));
}

void gw_train_report_log(gw_train_report *r, const gw_train_work *work) {
    double seconds = seconds_since(r->epoch_started);
    add_work(&r->epoch, work);
    add_work(&r->total, work);
    r->loss = mean_loss(work);
    if (!r->request->json) return;
    json_line(r, "step", work, seconds > 0 ? (double)r->examples / seconds : 0);
    puts("}");
    fflush(stdout);
}

void gw_train_report_epoch(gw_train_report *r, const gw_loss *test) {
    char sent[GW_UNIT_TEXT], took[GW_UNIT_TEXT];
    double seconds = seconds_since(r->epoch_started), rate = seconds > 0 ? (double)r->examples / seconds : 0;
    double target = r->request->target;
    r->accuracy = (double)test->correct / (double)test->counted;
    if (r->accuracy > r->best) r->best = r->accuracy;
    if (r->reported_test && r->reported_test == r->trainer->updates) return;
    r->reported_test = r->trainer->updates;
    if (target > 0 && r->reached < 0 && r->accuracy >= target) {
        r->reached = seconds_since(r->started);
        r->reached_epoch = epoch_now(r);
    }
    if (r->request->json) {
        json_line(r, "epoch", &r->epoch, rate);
        printf(", \"test_loss\": %s}\n", GW_JSON_DIGITS(test->sum / (double)test->counted, 9));
        fflush(stdout);
    } else {
        gw_train_report_print(r,
                              "epoch %" PRIu64 "/%" PRId64 "  step %" PRIu64 "  loss %.4f  test accuracy %.2f %%  %.0f "
                              "examples/s  compute %.0f %%  waiting %.0f %%  sent %s  %s",
                              epoch_now(r), r->request->settings.epochs, r->trainer->updates, mean_loss(&r->epoch),
                              100 * r->accuracy, rate, percent(r->epoch.compute, seconds),
                              percent(r->epoch.waiting, seconds), gw_bytes_format(r->total.bytes, sent),
                              gw_duration_format(seconds, took));
    }
    r->epoch = (gw_train_work){0};
    r->examples = 0;
    r->epoch_started = gw_clock_now();
}

/* ---- the end ---- */

static void row(gw_table *table, const char *name, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void row(gw_table *table, const char *name, const char *format, ...) {
    char value[CELL_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(value, sizeof value, format, args);
    va_end(args);
    gw_table_row(table, (const char *[]){name, value});
}

/* Waiting per update, in ns. */
static double waiting_each(const gw_train_report *r) {
    uint64_t updates = r->trainer->updates - r->updates_from;
    return updates ? (double)r->total.waiting / (double)updates : 0;
}

/* The part of an exchange that compute hid, 0 to 1; negative: unknown, because workers waited longer than an exchange
 * for each other or for other stages. */
static double overlap(const gw_train_report *r, gw_time exchange) {
    return exchange && !r->trainer->pipeline ? 1 - waiting_each(r) / (double)exchange : -1;
}

static void overlap_row(gw_table *table, const gw_train_report *r, gw_time exchange) {
    char alone[GW_UNIT_TEXT];
    if (r->trainer->world == 1 || overlap(r, exchange) < 0) return;
    gw_duration_format((double)exchange / (double)GW_SECOND, alone);
    row(table, "overlap", "%.0f %% of an exchange, which takes %s alone", 100 * overlap(r, exchange), alone);
}

static void advice_rows(gw_table *table, const gw_advice *advice) {
    for (int i = 0; i < advice->count; i++) row(table, i ? "" : "what to do", "%s", advice->list[i].text);
}

/* The bytes sent. They may be 0: in-place reduction in shared memory sends nothing. */
static void sent_rows(gw_table *table, const gw_train_report *r, uint64_t updates) {
    char a[GW_UNIT_TEXT], b[GW_UNIT_TEXT], c[GW_UNIT_TEXT];
    uint64_t n = updates ? updates : 1, sent = r->total.bytes, dense = r->total.dense;
    gw_reducer_counters counted = gw_reducer_read_counters(r->trainer->reducer);
    gw_bytes_format(sent / n, a);
    gw_bytes_format(sent, b);
    gw_bytes_format(dense / n, c);
    if (r->trainer->world == 1) return;
    if (sent < dense / 100 && !counted.codec_bytes)
        row(table, "sent per worker",
            "%s in total: gradients are reduced in shared memory; over a network %s per "
            "update",
            b, c);
    else if (sent < dense)
        row(table, "sent per worker", "%s per update, %s in total; uncompressed %s per update, %.1f times as much", a,
            b, c, sent ? (double)dense / (double)sent : 0);
    else row(table, "sent per worker", "%s per update, %s in total", a, b);
    if (counted.codec_bytes)
        row(table, "state of codecs", "%s on each worker", gw_bytes_format(counted.codec_bytes, a));
}

static void tuned_row(gw_table *table, const gw_train_report *r) {
    char line[512];
    gw_reducer_counters counted = gw_reducer_read_counters(r->trainer->reducer);
    if (!counted.trials) return;
    gw_reducer_strategy(r->trainer->reducer, line, sizeof line);
    row(table, "strategy", "%s (%d trials%s)", line, counted.trials, counted.tuning ? ", not finished" : "");
}

static void print_table(gw_train_report *r, const gw_train_end *end, const gw_advice *advice) {
    const gw_loss *test = &end->test;
    char a[GW_UNIT_TEXT];
    uint64_t updates = r->trainer->updates - r->updates_from;
    double seconds = seconds_since(r->started);
    gw_column columns[] = {{.title = "RESULT", .width = 16}, {.title = ""}};
    gw_table table;
    gw_table_start(&table, stdout, columns, 2);
    puts("");
    gw_table_header(&table);
    row(&table, "test accuracy", "%.2f %% (%" PRId64 " of %" PRId64 "), loss %.4f", 100 * r->accuracy, test->correct,
        test->counted, test->sum / (double)test->counted);
    row(&table, "time", "%s for %" PRIu64 " updates", gw_duration_format(seconds, a), updates);
    if (r->reached >= 0)
        row(&table, "time to target", "%s: %.2f %% in epoch %" PRIu64, gw_duration_format(r->reached, a),
            100 * r->request->target, r->reached_epoch);
    else if (r->request->target > 0) row(&table, "time to target", "%.2f %% was not reached", 100 * r->request->target);
    sent_rows(&table, r, updates);
    row(&table, "share of time", "compute %.1f %%, waiting %.1f %%", percent(r->total.compute, seconds),
        percent(r->total.waiting, seconds));
    overlap_row(&table, r, end->exchange);
    advice_rows(&table, advice);
    tuned_row(&table, r);
    if (gw_reducer_read_counters(r->trainer->reducer).weights_agree)
        row(&table, "weights", "%016" PRIx64 ", the same bits on %d worker%s", end->weights, r->trainer->replicas,
            r->trainer->replicas > 1 ? "s" : "");
    else row(&table, "weights", "differ between workers, which average them only now and then; the test uses the mean");
    gw_train_workers_print(r->trainer);
}

void gw_train_report_close(gw_train_report *r, const gw_train_end *end) {
    gw_advice advice = {.count = 0};
    wipe(r);
    if (!r->request->quiet) gw_train_advice(r, end->exchange, &advice);
    if (r->request->json) {
        double took = seconds_since(r->started);
        uint64_t updates = r->trainer->updates - r->updates_from;
        json_line(r, "end", &r->total, took > 0 ? (double)updates / took * (double)r->request->settings.batch : 0);
        printf(", \"seconds\": %s, \"target_s\": ", GW_JSON_FIXED(seconds_since(r->started), 3));
        if (r->reached >= 0) printf("%s", GW_JSON_FIXED(r->reached, 3));
        else fputs("null", stdout);
        printf(", \"exchange_ms\": %s, \"overlap\": ", GW_JSON_FIXED((double)end->exchange / 1e6, 3));
        if (overlap(r, end->exchange) >= 0) printf("%s", GW_JSON_FIXED(overlap(r, end->exchange), 4));
        else fputs("null", stdout);
        gw_train_workers_json(r->trainer);
        fputs(", ", stdout);
        gw_advice_json(&advice);
        printf(", \"weights\": \"%016" PRIx64 "\"}\n", end->weights);
    } else if (!r->request->quiet) {
        print_table(r, end, &advice);
    } else {
        printf("test accuracy %.2f %%\n", 100 * r->accuracy);
    }
    fflush(stdout);
}
