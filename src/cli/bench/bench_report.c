/* bench_report.c - results as a table, or as JSON. See bench.h. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/dtype.h"
#include "base/units.h"
#include "cli/bench/bench.h"
#include "cli/common/json.h"
#include "cli/common/table.h"

#define PROGRESS_AFTER (2 * GW_SECOND)

enum { COLUMNS = 16, CELL = 40 };

struct gw_report {
    const gw_bench_settings *settings;
    int world;
    bool several; /* jobs: show their names and the ratio */
    bool progress_shown;
    gw_time opened;
    int wrong_results;
    gw_column columns[COLUMNS];
    gw_table table;
};

/* ---- the machine ---- */

/* Finds the first line of the file that begins with key. text: the rest of this line; "unknown" if there is none. */
static void read_word(const char *path, const char *key, char *text, size_t size) {
    char line[256];
    snprintf(text, size, "unknown");
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file)) {
        if (strncmp(line, key, strlen(key)) != 0) continue;
        const char *value = line + strlen(key);
        value += strspn(value, " \t:");
        snprintf(text, size, "%.*s", (int)strcspn(value, "\n"), value);
        break;
    }
    if (file) fclose(file);
}

static void print_machine(const gw_report *report) {
    const gw_bench_settings *s = report->settings;
    char cpu[128], congestion[64], date[64];
    struct utsname system;
    time_t now = time(NULL);
    struct tm calendar;
    uname(&system);
    read_word("/proc/cpuinfo", "model name", cpu, sizeof cpu);
    read_word("/proc/sys/net/ipv4/tcp_congestion_control", "", congestion, sizeof congestion);
    strftime(date, sizeof date, "%Y-%m-%d %H:%M %Z", localtime_r(&now, &calendar));
    printf("# gradwire %s bench %s: %d ranks, buffers of %s\n", gw_version(), gw_collective_name(s->first.collective),
           report->world, s->memory);
    printf("# %s, %s, %ld cores, %s %s, congestion control %s, %s\n", system.nodename, cpu,
           sysconf(_SC_NPROCESSORS_ONLN), system.sysname, system.release, congestion, date);
    bool bad = gw_impairment_any(&s->lab.network);
    if (s->lab.hosts)
        printf("# lab: %d hosts, links of %.4g Mbit/s%s%s\n", s->lab.hosts, s->lab.rate / 1e6, bad ? ": " : "",
               bad ? s->lab_text : "");
    if (report->several) puts("# in turns, medians; ratio: time relative to the first row of the same size");
}

/* ---- numbers ---- */

static int by_time(const void *left, const void *right) {
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return a < b ? -1 : a > b;
}

typedef struct numbers {
    double time_us, p10_us, p90_us, algbw, busbw; /* GB/s, of 1e9 bytes */
    double cpu_us;                                /* of a core, by all ranks, in a call */
    uint64_t bytes;
} numbers;

static double quantile_us(const gw_bench_result *r, double part) {
    return (double)r->times[(int)((r->calls - 1) * part + 0.5)] / 1e3;
}

static numbers numbers_of(const gw_report *report, const gw_bench_case *c, const gw_bench_result *r) {
    numbers n = {.bytes = gw_bench_total(c, report->world) * gw_dtype_bytes(c->dtype),
                 .time_us = quantile_us(r, 0.5), .p10_us = quantile_us(r, 0.1), .p90_us = quantile_us(r, 0.9),
                 .cpu_us = (double)r->tally.cpu_ns / 1e3 / r->calls};
    n.algbw = n.time_us > 0 ? (double)n.bytes / n.time_us / 1e3 : 0;
    n.busbw = n.algbw * gw_bench_bus_factor(c->collective, report->world);
    return n;
}

/* ---- table ---- */

static void time_cell(char cell[CELL], double us) { snprintf(cell, CELL, us < 100 ? "%.2f" : "%.1f", us); }

static void print_row(gw_report *report, const gw_bench_case *c, const gw_bench_result *r, double base_us) {
    char cells[COLUMNS][CELL] = {""};
    const char *row[COLUMNS];
    numbers n = numbers_of(report, c, r);
    int at = 0;
    snprintf(cells[at++], CELL, "%" PRIu64, n.bytes);
    snprintf(cells[at++], CELL, "%zu", c->count);
    snprintf(cells[at++], CELL, "%s", gw_dtype_name(c->dtype));
    snprintf(cells[at++], CELL, "%s", gw_bench_reduces(c->collective) ? gw_redop_name(c->op) : "none");
    snprintf(cells[at++], CELL, "%d", gw_bench_has_root(c->collective) ? c->root : -1);
    if (report->several) {
        snprintf(cells[at++], CELL, "%s", r->who->library);
        snprintf(cells[at++], CELL, "%s", r->who->arch);
        snprintf(cells[at++], CELL, "%s", r->who->transport);
    }
    time_cell(cells[at++], n.time_us);
    snprintf(cells[at++], CELL, "%.2f", n.algbw);
    snprintf(cells[at++], CELL, "%.2f", n.busbw);
    snprintf(cells[at++], CELL, "%" PRIu64, r->tally.wrong);
    time_cell(cells[at++], n.p10_us);
    time_cell(cells[at++], n.p90_us);
    time_cell(cells[at++], n.cpu_us);
    if (report->several) snprintf(cells[at++], CELL, "%.2f", n.time_us / base_us);
    for (int i = 0; i < COLUMNS; i++) row[i] = cells[i];
    bool loud = report->table.colour && r->tally.wrong;
    if (loud) fputs("\033[31m", stdout);
    gw_table_row(&report->table, row);
    if (loud) fputs("\033[0m", stdout);
}

static void lay_out(gw_report *report) {
    static const gw_column size[] = {
        {"size", true, 11}, {"count", true, 10}, {"type", true, 4}, {"redop", true, 5}, {"root", true, 4}};
    static const gw_column who[] = {{"library", false, 13}, {"arch", false, 12}, {"over", false, 4}};
    static const gw_column what[] = {{"time", true, 10}, {"algbw", true, 6}, {"busbw", true, 6}, {"#wrong", true, 6},
                                     {"p10", true, 10},  {"p90", true, 10},  {"cpu", true, 10}};
    int count = 5;
    memcpy(report->columns, size, sizeof size);
    if (report->several) {
        memcpy(report->columns + count, who, sizeof who);
        count += 3;
    }
    memcpy(report->columns + count, what, sizeof what);
    count += 7;
    if (report->several) report->columns[count++] = (gw_column){"ratio", true, 6};
    gw_table_start(&report->table, stdout, report->columns, count);
}

static void print_header(gw_report *report) {
    const char *const units[2][COLUMNS] = {
        {"(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(us)", "(us)", "", "", "", ""},
        {"(B)", "(elements)", "", "", "", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(us)", "(us)", ""}};
    print_machine(report);
    gw_table_header(&report->table);
    gw_table_row(&report->table, units[report->several]);
}

/* ---- JSON ---- */

static void string_pair(const char *key, const char *value) {
    printf(", \"%s\": ", key);
    gw_json_string(stdout, value);
}

static void print_json(const gw_report *report, const gw_bench_case *c, const gw_bench_result *r, double base_us) {
    numbers n = numbers_of(report, c, r);
    fputs("{\"library\": ", stdout);
    gw_json_string(stdout, r->who->library);
    string_pair("collective", gw_collective_name(c->collective));
    string_pair("arch", r->who->arch);
    string_pair("transport", r->who->transport);
    printf(", \"ranks\": %d, \"bytes\": %" PRIu64 ", \"count\": %zu", report->world, n.bytes, c->count);
    string_pair("type", gw_dtype_name(c->dtype));
    string_pair("redop", gw_bench_reduces(c->collective) ? gw_redop_name(c->op) : "none");
    printf(", \"root\": %d", gw_bench_has_root(c->collective) ? c->root : -1);
    string_pair("memory", strcmp(r->who->library, "gradwire") == 0 ? report->settings->memory : "malloc");
    printf(", \"calls\": %d, \"time_us\": %s, \"p10_us\": %s, \"p90_us\": %s, \"cpu_us\": %s", r->calls,
           GW_JSON_FIXED(n.time_us, 3), GW_JSON_FIXED(n.p10_us, 3), GW_JSON_FIXED(n.p90_us, 3),
           GW_JSON_FIXED(n.cpu_us, 3));
    printf(", \"algbw_gbs\": %s, \"busbw_gbs\": %s, \"wrong\": %" PRIu64 ", \"ratio\": %s}\n",
           GW_JSON_FIXED(n.algbw, 4), GW_JSON_FIXED(n.busbw, 4), r->tally.wrong, GW_JSON_FIXED(n.time_us / base_us, 3));
}

/* ---- report ---- */

gw_report *gw_report_open(const gw_bench_settings *settings, int world, bool several) {
    gw_report *report = calloc(1, sizeof *report);
    if (!report) return NULL;
    *report = (gw_report){.settings = settings, .world = world, .several = several, .opened = gw_clock_now()};
    lay_out(report);
    if (!settings->json) print_header(report);
    fflush(stdout);
    return report;
}

static void clear_progress(gw_report *report) {
    if (report->progress_shown) fputs("\r\033[K", stderr);
    report->progress_shown = false;
}

void gw_report_progress(gw_report *report, const gw_bench_case *c, const gw_bench_job *who, int round, int rounds) {
    char size[GW_UNIT_TEXT], turn[32] = "first calls";
    if (!isatty(2) || gw_clock_now() - report->opened < PROGRESS_AFTER) return;
    gw_bytes_format(gw_bench_total(c, report->world) * gw_dtype_bytes(c->dtype), size);
    if (round >= 0) snprintf(turn, sizeof turn, "round %d of %d", round + 1, rounds);
    fprintf(stderr, "\r\033[K%s: %s, %s %s", size, turn, who->library, who->arch);
    fflush(stderr);
    report->progress_shown = true;
}

void gw_report_size(gw_report *report, const gw_bench_case *c, gw_bench_result *results, int count) {
    clear_progress(report);
    for (int i = 0; i < count; i++) {
        gw_bench_result *r = &results[i];
        qsort(r->times, (size_t)r->calls, sizeof *r->times, by_time);
        double base_us = quantile_us(&results[0], 0.5);
        if (report->settings->json) print_json(report, c, r, base_us);
        else print_row(report, c, r, base_us);
        report->wrong_results += r->tally.wrong != 0;
    }
    fflush(stdout);
}

int gw_report_close(gw_report *report) {
    if (!report) return 0;
    int wrong = report->wrong_results;
    clear_progress(report);
    if (wrong) fprintf(stderr, "gradwire bench: %d results were wrong\n", wrong);
    free(report);
    return wrong;
}
