/* bench_conduct.c - a whole benchmark: builds the lab, starts the contestants, has them take turns round by round so
 * that noise hits all alike, and takes everything down again. See bench.h. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/args.h"
#include "cli/bench.h"

enum { ROUNDS = 10, TRIALS = 2 };

#define LARGE_BYTES (4 << 20) /* buffers that no cache holds: one call before is as good as many */

static volatile sig_atomic_t caught; /* a handler has no other place to leave its word */

static void on_signal(int number) { caught = number; }

bool gw_bench_interrupted(void) { return caught != 0; }

static void catch_signals(void) {
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
}

/* ---- up and down ---- */

static gw_status open_contest(gw_contest *contest, gw_error *error) {
    const char *top = getenv("TMPDIR");
    snprintf(contest->directory, sizeof contest->directory, "%.60s/gradwire-bench-XXXXXX", top && *top ? top : "/tmp");
    if (!mkdtemp(contest->directory)) {
        gw_fail(error, GW_SYSTEM, "cannot make %s: %s", contest->directory, strerror(errno));
        contest->directory[0] = 0;
        return error->status;
    }
    gw_status status = GW_OK;
    if (contest->settings->lab.hosts) status = gw_lab_open(&contest->lab, &contest->settings->lab, error);
    if (!status) status = gw_contest_enter(contest, error);
    for (int i = 0; i < contest->count && !status; i++)
        status = gw_contestant_start(contest, &contest->contestants[i], error);
    return status;
}

static void close_contest(gw_contest *contest) {
    for (int i = 0; i < contest->count; i++) gw_contestant_end(&contest->contestants[i], contest->world);
    if (contest->directory[0]) rmdir(contest->directory);
    gw_lab_close(contest->lab);
}

/* ---- one size ---- */

static bool is_large(const gw_contest *contest, const gw_bench_case *c) {
    return gw_bench_total(c, contest->world) * gw_dtype_bytes(c->dtype) > LARGE_BYTES;
}

/* The first calls: checked, and from the last of them it is known how many the time allows. */
static gw_status warm_up(gw_contest *contest, const gw_bench_case *c, gw_bench_result *result, gw_error *error) {
    gw_bench_case first = *c;
    uint64_t times[TRIALS];
    first.warmup = contest->settings->warmup ? (int)contest->settings->warmup : is_large(contest, c) ? 1 : 5;
    first.calls = TRIALS;
    first.check = true;
    gw_contestant *who = &contest->contestants[result->who - contest->contestants];
    gw_status status = gw_contestant_measure(who, contest->world, &first, times, &result->wrong, error);
    if (status) return status;
    int calls = gw_bench_calls(contest->settings, times[0] < times[1] ? times[0] : times[1]);
    result->times = malloc((size_t)calls * sizeof *result->times);
    if (!result->times) return gw_fail(error, GW_MEMORY, "no memory for %d times", calls);
    result->calls = calls;
    return GW_OK;
}

/* The calls of one round; the rounds together are all of result->calls. */
static int calls_of(const gw_bench_result *result, int round, int rounds) {
    return result->calls * (round + 1) / rounds - result->calls * round / rounds;
}

static gw_status take_turns(gw_contest *contest, const gw_bench_case *c, gw_bench_result *results, gw_report *report,
                            gw_error *error) {
    int rounds = contest->count > 1 ? ROUNDS : 1;
    for (int i = 0; i < contest->count; i++)
        if (results[i].calls < rounds) rounds = results[i].calls;
    gw_status status = GW_OK;
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < contest->count && !status; i++) {
            gw_bench_result *result = &results[i];
            gw_bench_case turn = *c;
            turn.warmup = is_large(contest, c) ? 0 : 1; /* caches and schedulers just served somebody else */
            turn.calls = calls_of(result, round, rounds);
            gw_report_progress(report, c, result->who, round, rounds);
            status = gw_contestant_measure(&contest->contestants[i], contest->world, &turn,
                                           result->times + result->calls * round / rounds, &result->wrong, error);
        }
    }
    return status;
}

static gw_status one_size(gw_contest *contest, const gw_bench_case *c, gw_report *report, gw_error *error) {
    gw_bench_result results[GW_CONTESTANTS_MAX] = {{0}};
    gw_status status = GW_OK;
    for (int i = 0; i < contest->count && !status; i++) {
        results[i].who = &contest->contestants[i];
        gw_report_progress(report, c, results[i].who, -1, 0);
        status = warm_up(contest, c, &results[i], error);
    }
    if (!status) status = take_turns(contest, c, results, report, error);
    if (!status) gw_report_size(report, c, results, contest->count);
    for (int i = 0; i < contest->count; i++) free(results[i].times);
    return status;
}

int gw_bench_conduct(const gw_bench_settings *settings) {
    gw_contest *contest = calloc(1, sizeof *contest);
    gw_error error = {0};
    gw_report *report = NULL;
    gw_status status = contest ? GW_OK : gw_fail(&error, GW_MEMORY, "no memory for a benchmark");
    int wrong = 0;
    if (!status) {
        *contest = (gw_contest){.settings = settings, .world = (int)settings->ranks};
        catch_signals();
        status = open_contest(contest, &error);
    }
    if (!status) {
        gw_bench_case c = settings->first;
        uint64_t bytes = UINT64_MAX;
        report = gw_report_open(settings, contest->world, contest->count > 1);
        if (!report) status = gw_fail(&error, GW_MEMORY, "no memory for a report");
        while (!status && gw_bench_next_size(settings, contest->world, &c, &bytes))
            status = one_size(contest, &c, report, &error);
        wrong = gw_report_close(report);
    }
    if (contest) close_contest(contest);
    free(contest);
    if (gw_bench_interrupted()) return 128 + caught;
    if (status) fprintf(stderr, "gradwire bench: %s\n", error.text);
    return status || wrong ? GW_EXIT_FAILED : 0;
}
