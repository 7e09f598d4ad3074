/* bench_driver.c - runs a whole benchmark: creates the lab, starts the jobs, lets them take turns in rounds so
 * that noise affects all of them equally, and stops everything. See bench.h. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/bench/bench.h"
#include "cli/common/args.h"

enum { ROUNDS = 10, TRIALS = 2 };

#define LARGE_BYTES (4 << 20) /* larger than the caches: one warm-up call is enough */

static volatile sig_atomic_t caught; /* the signal; set by the handler */

static void on_signal(int number) { caught = number; }

bool gw_bench_interrupted(void) { return caught != 0; }

static void catch_signals(void) {
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
}

/* ---- setup and teardown ---- */

static gw_status open_contest(gw_comparison *comparison, gw_error *error) {
    const char *top = getenv("TMPDIR");
    snprintf(comparison->directory, sizeof comparison->directory, "%.60s/gradwire-bench-XXXXXX",
             top && *top ? top : "/tmp");
    if (!mkdtemp(comparison->directory)) {
        gw_fail(error, GW_SYSTEM, "cannot make %s: %s", comparison->directory, strerror(errno));
        comparison->directory[0] = 0;
        return error->status;
    }
    gw_status status = GW_OK;
    if (comparison->settings->lab.hosts) status = gw_lab_open(&comparison->lab, &comparison->settings->lab, error);
    if (!status) status = gw_comparison_fill(comparison, error);
    for (int i = 0; i < comparison->count && !status; i++)
        status = gw_bench_job_start(comparison, &comparison->jobs[i], error);
    return status;
}

static void close_contest(gw_comparison *comparison) {
    for (int i = 0; i < comparison->count; i++) gw_bench_job_end(&comparison->jobs[i], comparison->world);
    if (comparison->directory[0]) rmdir(comparison->directory);
    gw_lab_close(comparison->lab);
}

/* ---- one size ---- */

static bool is_large(const gw_comparison *comparison, const gw_bench_case *c) {
    return gw_bench_total(c, comparison->world) * gw_dtype_bytes(c->dtype) > LARGE_BYTES;
}

/* The first calls: their results are checked, and the time of the last one gives the number of timed calls. */
static gw_status warm_up(gw_comparison *comparison, const gw_bench_case *c, gw_bench_result *result, gw_error *error) {
    gw_bench_case first = *c;
    uint64_t times[TRIALS];
    first.warmup = comparison->settings->warmup ? (int)comparison->settings->warmup : is_large(comparison, c) ? 1 : 5;
    first.calls = TRIALS;
    first.check = true;
    gw_bench_job *who = &comparison->jobs[result->who - comparison->jobs];
    gw_status status = gw_bench_job_measure(who, comparison->world, &first, times, &result->tally, error);
    if (status) return status;
    result->tally.cpu_ns = 0;
    int calls = gw_bench_calls(comparison->settings, times[0] < times[1] ? times[0] : times[1]);
    result->times = malloc((size_t)calls * sizeof *result->times);
    if (!result->times) return gw_fail(error, GW_MEMORY, "no memory for %d times", calls);
    result->calls = calls;
    return GW_OK;
}

/* The number of calls in one round; all rounds add up to result->calls. */
static int calls_of(const gw_bench_result *result, int round, int rounds) {
    return result->calls * (round + 1) / rounds - result->calls * round / rounds;
}

static gw_status take_turns(gw_comparison *comparison, const gw_bench_case *c, gw_bench_result *results,
                            gw_report *report, gw_error *error) {
    int rounds = comparison->count > 1 ? ROUNDS : 1;
    for (int i = 0; i < comparison->count; i++)
        if (results[i].calls < rounds) rounds = results[i].calls;
    gw_status status = GW_OK;
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < comparison->count && !status; i++) {
            gw_bench_result *result = &results[i];
            gw_bench_case turn = *c;
            turn.warmup = is_large(comparison, c) ? 0 : 1; /* another job has just used caches and cores */
            turn.calls = calls_of(result, round, rounds);
            gw_report_progress(report, c, result->who, round, rounds);
            status = gw_bench_job_measure(&comparison->jobs[i], comparison->world, &turn,
                                          result->times + result->calls * round / rounds, &result->tally, error);
        }
    }
    return status;
}

static gw_status one_size(gw_comparison *comparison, const gw_bench_case *c, gw_report *report, gw_error *error) {
    gw_bench_result results[GW_BENCH_JOBS_MAX] = {{0}};
    gw_status status = GW_OK;
    for (int i = 0; i < comparison->count && !status; i++) {
        results[i].who = &comparison->jobs[i];
        gw_report_progress(report, c, results[i].who, -1, 0);
        status = warm_up(comparison, c, &results[i], error);
    }
    if (!status) status = take_turns(comparison, c, results, report, error);
    if (!status) gw_report_size(report, c, results, comparison->count);
    for (int i = 0; i < comparison->count; i++) free(results[i].times);
    return status;
}

int gw_bench_drive(const gw_bench_settings *settings) {
    gw_comparison *comparison = calloc(1, sizeof *comparison);
    gw_error error = {0};
    gw_report *report = NULL;
    gw_status status = comparison ? GW_OK : gw_fail(&error, GW_MEMORY, "no memory for a benchmark");
    int wrong = 0;
    if (!status) {
        *comparison = (gw_comparison){.settings = settings, .world = (int)settings->ranks};
        catch_signals();
        status = open_contest(comparison, &error);
    }
    if (!status) {
        gw_bench_case c = settings->first;
        uint64_t bytes = UINT64_MAX;
        report = gw_report_open(settings, comparison->world, comparison->count > 1);
        if (!report) status = gw_fail(&error, GW_MEMORY, "no memory for a report");
        while (!status && gw_bench_next_size(settings, comparison->world, &c, &bytes))
            status = one_size(comparison, &c, report, &error);
        wrong = gw_report_close(report);
    }
    if (comparison) close_contest(comparison);
    free(comparison);
    if (gw_bench_interrupted()) return 128 + caught;
    if (status) fprintf(stderr, "gradwire bench: %s\n", error.text);
    return status || wrong ? GW_EXIT_FAILED : 0;
}
