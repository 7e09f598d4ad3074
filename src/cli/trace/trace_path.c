/* trace_path.c - gradwire trace critical-path. */
#include <inttypes.h>

#include "base/units.h"
#include "cli/common/json.h"
#include "cli/common/table.h"
#include "cli/trace/trace_commands.h"

enum { COLUMNS = 5, CELL = 80 };

static double ms(gw_time ns) { return (double)ns / 1e6; }

static void part_cells(const gw_view *view, const gw_critical_path *path, const gw_critical_path_part *p,
                       char cells[COLUMNS][CELL]) {
    char text[GW_UNIT_TEXT];
    snprintf(cells[0], CELL, "%.3f ms", ms(p->begin - path->begin));
    snprintf(cells[1], CELL, "%s", gw_trace_time(p->end - p->begin, text));
    if (p->from >= 0) snprintf(cells[2], CELL, "%d > %d", p->from, p->rank);
    else snprintf(cells[2], CELL, "%d", p->rank);
    snprintf(cells[3], CELL, "%s", gw_critical_path_name(p->kind));
    snprintf(cells[4], CELL, "%.70s", gw_insight_name(view->insight, p->name));
}

static void print_parts(const gw_view *view, const gw_critical_path *path, int64_t limit) {
    gw_column columns[] = {{.title = "AT", .right = true}, {.title = "TOOK", .right = true}, {.title = "RANK"},
                           {.title = "SPENT"}, {.title = "ON"}};
    gw_table table;
    size_t shown = limit && (size_t)limit < path->count ? (size_t)limit : path->count;
    char text[COLUMNS][CELL];
    const char *cells[COLUMNS] = {text[0], text[1], text[2], text[3], text[4]};
    gw_table_start(&table, stdout, columns, COLUMNS);
    for (int pass = 0; pass < 2; pass++) {
        if (pass) gw_table_header(&table);
        for (size_t i = 0; i < shown; i++) {
            part_cells(view, path, &path->list[i], text);
            if (pass) gw_table_row(&table, cells);
            else gw_table_fit(&table, cells);
        }
    }
    if (shown < path->count) printf("%zu of %zu parts; --limit 0 shows all\n", shown, path->count);
}

static void print_path(const gw_view *view, const gw_step_times *step, const gw_critical_path *path, int64_t limit) {
    char text[GW_UNIT_TEXT];
    gw_time whole = path->end - path->begin;
    if (step) printf("step %" PRIu64 ": ", step->number);
    printf("%s from the start of the first rank to the end of the last\n", gw_trace_time(whole, text));
    for (int k = 0; k < GW_PATH_KINDS; k++)
        if (path->total[k])
            printf("  %-14s %5.1f %%  %s\n", gw_critical_path_name((gw_critical_path_kind)k),
                   100 * (double)path->total[k] / (double)whole, gw_trace_time(path->total[k], text));
    putchar('\n');
    print_parts(view, path, limit);
}

static void json_path(const gw_view *view, const gw_step_times *step, const gw_critical_path *path) {
    printf("{\"step\": ");
    if (step) printf("%" PRIu64, step->number);
    else printf("null");
    printf(", \"total_ms\": %s, \"parts\": [", GW_JSON_FIXED(ms(path->end - path->begin), 6));
    for (size_t i = 0; i < path->count; i++) {
        const gw_critical_path_part *p = &path->list[i];
        printf("%s{\"kind\": ", i ? ", " : "");
        gw_json_string(stdout, gw_critical_path_name(p->kind));
        printf(", \"rank\": %d, \"from\": %d, \"begin_ms\": %s, \"ms\": %s, \"what\": ", p->rank, p->from,
               GW_JSON_FIXED(ms(p->begin - path->begin), 6), GW_JSON_FIXED(ms(p->end - p->begin), 6));
        gw_json_string(stdout, gw_insight_name(view->insight, p->name));
        printf("}");
    }
    puts("]}");
}

static const gw_step_times *find_step(const gw_steps *steps, int64_t number) {
    for (size_t i = 0; i < steps->count; i++)
        if (steps->list[i].number == (uint64_t)number) return &steps->list[i];
    return NULL;
}

int gw_trace_path(const gw_view *view, const gw_trace_request *request) {
    const gw_steps *steps = &view->steps;
    gw_error error = {.rank = -1};
    gw_critical_path path;
    const gw_step_times *step = request->step < 0 ? gw_steps_median(steps) : find_step(steps, request->step);
    if (request->step >= 0 && !step && steps->count)
        gw_fail(&error, GW_INVALID, "step %" PRId64 " was not recorded (%" PRIu64 " to %" PRIu64 " were)",
                request->step, steps->list[0].number, steps->list[steps->count - 1].number);
    else if (request->step >= 0 && !step)
        gw_fail(&error, GW_INVALID, "no training steps were recorded; leave --step out for the whole recording");
    if (error.status || gw_view_path(view, step, &path, &error) != GW_OK) return gw_trace_complain(&error);
    if (request->json) json_path(view, step, &path);
    else print_path(view, step, &path, request->limit);
    gw_critical_path_free(&path);
    return 0;
}
