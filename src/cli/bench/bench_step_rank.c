/* bench_step_rank.c - one rank of gradwire bench step. All strategies use the same buffers and take turns, a few steps
 * each, so that noise affects all of them equally. The results of the first step of each turn are checked. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/units.h"
#include "bench/replay.h"
#include "cli/bench/bench_step.h"
#include "cli/cli.h"
#include "cli/common/json.h"
#include "cli/common/table.h"
#include "profile/profile_load.h"
#include "schedule/tune.h"

enum { STEPS_OF_TURN = 4, WARM_UP = 2, WARM_UP_MEASURING = 7 /* the schedule measures in five */ };
#define SHOW_AFTER (2 * GW_SECOND)

typedef struct variant {
    gw_replay_strategy replayed;
    double *times; /* us of each timed step, mean over ranks */
    int timed;
    uint64_t wrong; /* elements, over all ranks */
    double sent;    /* bytes a step */
} variant;

typedef struct bench {
    const gw_replay_settings *settings;
    gw_comm *comm;
    gw_profile profile;
    gw_replay *replay;
    variant variants[GW_REPLAYS_MAX];
    double communication_us;
    gw_time began;
} bench;

static gw_status checked(bench *b, gw_status status, gw_error *error) {
    return status ? gw_fail(error, status, "%s", gw_last_error(b->comm)) : GW_OK;
}

/* ---- setup and teardown ---- */

static gw_status open_bench(bench *b, gw_error *error) {
    const gw_replay_settings *s = b->settings;
    gw_options options = GW_OPTIONS_DEFAULT;
    options.strategy = s->entries[0].line;
    gw_status status = gw_profile_load(s->model, &b->profile, error);
    if (!status && gw_init(&b->comm, &options)) status = gw_fail(error, GW_SYSTEM, "%s", gw_last_error(NULL));
    if (!status) status = gw_replay_open(&b->replay, b->comm, &b->profile, s->shrink, error);
    if (!status) status = gw_replay_communication_us(b->replay, &b->communication_us, error);
    if (status) return status;
    double recorded = gw_replay_compute_us(b->replay);
    gw_replay_scale(b->replay, s->ratio > 0 ? b->communication_us / s->ratio / recorded : s->scale);
    for (int i = 0; i < s->count && !status; i++) {
        variant *t = &b->variants[i];
        t->times = calloc((size_t)s->steps, sizeof *t->times);
        if (!t->times) return gw_fail(error, GW_MEMORY, "out of memory for the times of steps");
        t->replayed = (gw_replay_strategy){.updates = s->entries[i].updates, .tuned = s->entries[i].tuned};
        status = gw_replay_commit(b->replay, s->entries[i].line, &t->replayed, error);
    }
    return status;
}

static void close_bench(bench *b) {
    for (int i = 0; i < b->settings->count; i++) {
        gw_reducer_close(b->variants[i].replayed.reducer);
        free(b->variants[i].times);
    }
    gw_replay_close(b->replay);
    if (b->comm) gw_finalize(b->comm);
    gw_profile_free(&b->profile);
}

/* ---- turns ---- */

/* One step runs before the timed ones, so that these overlap with communication in flight as in a real training. */
static gw_status take_turn(bench *b, int entry, int steps, gw_error *error) {
    variant *t = &b->variants[entry];
    gw_time ended[STEPS_OF_TURN + 1];
    double times[STEPS_OF_TURN];
    uint64_t wrong = 0;
    gw_status status = gw_replay_check(b->replay, &t->replayed, &wrong, error);
    if (b->settings->entries[entry].checked) t->wrong += wrong;
    gw_reducer_counters before = gw_reducer_read_counters(t->replayed.reducer);
    if (!status) status = gw_replay_run(b->replay, &t->replayed, steps + 1, ended, error);
    if (!status) status = checked(b, gw_reducer_flush(t->replayed.reducer), error);
    if (status) return status;
    t->sent = (double)(gw_reducer_read_counters(t->replayed.reducer).bytes_sent - before.bytes_sent) / (steps + 1);
    for (int i = 0; i < steps; i++) times[i] = (double)(ended[i + 1] - ended[i]) / 1e3;
    status = checked(b, gw_allreduce(b->comm, times, times, (size_t)steps, GW_F64, GW_AVG), error);
    memcpy(t->times + t->timed, times, (size_t)steps * sizeof *times);
    t->timed += steps;
    return status;
}

static void show(const bench *b, const char *label, int turn, int turns) {
    if (gw_rank(b->comm) != 0 || !isatty(STDERR_FILENO) || gw_clock_now() < b->began + SHOW_AFTER) return;
    fprintf(stderr, "\r\033[K%s: turn %d of %d", label, turn + 1, turns);
}

/* Runs until measuring schedules have made their buckets, and the tuner has found its sizes. */
static gw_status warm_up(bench *b, int entry, gw_error *error) {
    gw_replay_strategy *replayed = &b->variants[entry].replayed;
    int steps = b->settings->entries[entry].measures ? WARM_UP_MEASURING : WARM_UP;
    gw_status status = gw_replay_run(b->replay, replayed, steps, NULL, error);
    for (int step = 0; !status && gw_reducer_read_counters(replayed->reducer).tuning; step++) {
        show(b, b->settings->entries[entry].label, gw_reducer_read_counters(replayed->reducer).trials, GW_TUNE_TRIALS);
        status = gw_replay_run(b->replay, replayed, 1, NULL, error);
    }
    if (!status) status = checked(b, gw_reducer_flush(replayed->reducer), error); /* the next uses the same buffers */
    return status;
}

static gw_status take_turns(bench *b, gw_error *error) {
    const gw_replay_settings *s = b->settings;
    int turns = ((int)s->steps + STEPS_OF_TURN - 1) / STEPS_OF_TURN;
    gw_status status = GW_OK;
    for (int i = 0; i < s->count && !status; i++) {
        show(b, s->entries[i].label, -1, turns);
        status = warm_up(b, i, error);
    }
    for (int turn = 0; turn < turns && !status; turn++)
        for (int i = 0; i < s->count && !status; i++) {
            int left = (int)s->steps - turn * STEPS_OF_TURN;
            show(b, s->entries[i].label, turn, turns);
            status = take_turn(b, i, left < STEPS_OF_TURN ? left : STEPS_OF_TURN, error);
        }
    for (int i = 0; i < s->count && !status; i++) {
        uint64_t *wrong = &b->variants[i].wrong;
        status = checked(b, gw_allreduce(b->comm, wrong, wrong, 1, GW_I64, GW_SUM), error);
    }
    return status;
}

/* ---- the report, by rank 0 ---- */

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

typedef struct numbers {
    double step, mean, compute, exposed, bound, p10, p90; /* ms; step is the median */
} numbers;

static numbers numbers_of(const bench *b, int entry) {
    const variant *t = &b->variants[entry];
    double compute = gw_replay_compute_us(b->replay) / 1e3, communication = b->communication_us / 1e3;
    double bound = gw_replay_bound_us(b->replay, b->communication_us) / 1e3;
    qsort(t->times, (size_t)t->timed, sizeof *t->times, ascending);
    double step = t->times[t->timed / 2] / 1e3;
    double sum = 0;
    for (int i = 0; i < t->timed; i++) sum += t->times[i] / 1e3;
    if (b->settings->entries[entry].delayed) bound = compute > communication ? compute : communication;
    return (numbers){.step = step, .mean = sum / t->timed, .compute = compute, .exposed = step - compute,
                     .bound = bound, .p10 = t->times[t->timed / 10] / 1e3, .p90 = t->times[t->timed * 9 / 10] / 1e3};
}

static void print_json(const bench *b, int entry) {
    const variant *t = &b->variants[entry];
    char line[GW_STRATEGY_PRINT_BYTES];
    numbers n = numbers_of(b, entry);
    fputs("{\"schedule\": ", stdout);
    gw_json_string(stdout, b->settings->entries[entry].label);
    fputs(", \"strategy\": ", stdout);
    gw_reducer_strategy(t->replayed.reducer, line, sizeof line);
    gw_json_string(stdout, line);
    fputs(", \"profile\": ", stdout);
    gw_json_string(stdout, b->profile.name);
    printf(", \"ranks\": %d, \"step_ms\": %s, \"mean_ms\": %s, \"compute_ms\": %s, "
           "\"exposed_ms\": %s, \"bound_ms\": %s, "
           "\"communication_ms\": %s, \"p10_ms\": %s, \"p90_ms\": %s, \"buckets\": %d, \"sent_bytes\": %s, "
           "\"trials\": %d, \"wrong\": %llu}\n",
           gw_size(b->comm), GW_JSON_FIXED(n.step, 3), GW_JSON_FIXED(n.mean, 3), GW_JSON_FIXED(n.compute, 3),
           GW_JSON_FIXED(n.exposed, 3), GW_JSON_FIXED(n.bound, 3), GW_JSON_FIXED(b->communication_us / 1e3, 3),
           GW_JSON_FIXED(n.p10, 3), GW_JSON_FIXED(n.p90, 3), gw_reducer_read_counters(t->replayed.reducer).buckets,
           GW_JSON_FIXED(t->sent, 0), gw_reducer_read_counters(t->replayed.reducer).trials,
           (unsigned long long)t->wrong);
}

enum { COLUMNS = 10, CELL = 100 };

static void print_row(const bench *b, int entry, double first_ms, gw_table *table) {
    const gw_replay_entry *e = &b->settings->entries[entry];
    const variant *t = &b->variants[entry];
    char cells[COLUMNS][CELL];
    const char *row[COLUMNS];
    numbers n = numbers_of(b, entry);
    snprintf(cells[0], CELL, "%s", e->label);
    snprintf(cells[1], CELL, "%.1f", n.step);
    snprintf(cells[2], CELL, "%.1f", n.compute);
    snprintf(cells[3], CELL, "%.1f", n.exposed);
    snprintf(cells[4], CELL, "%.1f", n.bound);
    snprintf(cells[5], CELL, "%.2f", n.step / n.bound);
    snprintf(cells[6], CELL, "%.2f", first_ms / n.step);
    snprintf(cells[7], CELL, "%.1f-%.1f", n.p10, n.p90);
    snprintf(cells[8], CELL, "%d", gw_reducer_read_counters(t->replayed.reducer).buckets);
    if (e->checked) snprintf(cells[9], CELL, "%llu", (unsigned long long)t->wrong);
    else strcpy(cells[9], "-");
    for (int i = 0; i < COLUMNS; i++) row[i] = cells[i];
    gw_table_row(table, row);
}

static void print_tuned(const bench *b, int entry) {
    const gw_reducer *reducer = b->variants[entry].replayed.reducer;
    char line[GW_STRATEGY_PRINT_BYTES];
    if (!b->settings->entries[entry].tuned && !b->settings->entries[entry].chosen) return;
    gw_reducer_strategy(reducer, line, sizeof line);
    printf("# %s: %s, after %d trials\n", b->settings->entries[entry].label, line,
           gw_reducer_read_counters(reducer).trials);
}

static void print_table(const bench *b) {
    const gw_replay_settings *s = b->settings;
    char bytes[GW_UNIT_TEXT];
    gw_column columns[COLUMNS] = {{.title = "SCHEDULE", .width = 14},
                                  {.title = "STEP ms", .right = true},
                                  {.title = "COMPUTE", .right = true},
                                  {.title = "EXPOSED", .right = true},
                                  {.title = "BOUND", .right = true},
                                  {.title = "OF BOUND", .right = true},
                                  {.title = "SPEED-UP", .right = true},
                                  {.title = "P10-P90", .right = true, .width = 13},
                                  {.title = "BUCKETS", .right = true},
                                  {.title = "#WRONG", .right = true}};
    gw_table table;
    for (int i = 0; i < s->count; i++)
        if ((int)strlen(s->entries[i].label) > columns[0].width) columns[0].width = (int)strlen(s->entries[i].label);
    double communication = b->communication_us / 1e3, compute = gw_replay_compute_us(b->replay) / 1e3;
    printf("# %s: %s of gradients in %d tensors, %d ranks\n", b->profile.name,
           gw_bytes_format(gw_replay_bytes(b->replay), bytes), gw_profile_tensors(&b->profile), gw_size(b->comm));
    printf("# compute %.1f ms; all gradients in one all-reduce %.1f ms, %.2f of it; %d steps each, in turns, medians\n",
           compute, communication, communication / compute, (int)s->steps);
    gw_table_start(&table, stdout, columns, COLUMNS);
    gw_table_header(&table);
    double first = numbers_of(b, 0).step;
    for (int i = 0; i < s->count; i++) print_row(b, i, first, &table);
    for (int i = 0; i < s->count; i++) print_tuned(b, i);
}

static int report(const bench *b) {
    int wrong = 0;
    for (int i = 0; i < b->settings->count; i++) wrong += b->variants[i].wrong != 0;
    if (gw_rank(b->comm) != 0) return wrong;
    if (isatty(STDERR_FILENO)) fputs("\r\033[K", stderr);
    if (!b->settings->json) print_table(b);
    for (int i = 0; i < b->settings->count && b->settings->json; i++) print_json(b, i);
    fflush(stdout);
    return wrong;
}

int gw_bench_step_rank(const gw_replay_settings *settings) {
    bench *b = calloc(1, sizeof *b);
    gw_error error = {.rank = -1};
    if (!b) return GW_EXIT_FAILED;
    b->settings = settings;
    b->began = gw_clock_now();
    gw_status status = open_bench(b, &error);
    if (!status) status = take_turns(b, &error);
    int wrong = status ? 0 : report(b);
    if (status) fprintf(stderr, "gradwire bench step: %s\n", error.text);
    close_bench(b);
    free(b);
    return status || wrong ? GW_EXIT_FAILED : 0;
}
