/* trace_tables.c - gradwire trace summary, matrix, messages. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "cli/common/advice_print.h"
#include "cli/common/json.h"
#include "cli/common/table.h"
#include "cli/trace/trace_commands.h"

enum { CELL = 80, SPARK = 24 };

static double seconds(gw_time ns) { return (double)ns / (double)GW_SECOND; }

static double percent(gw_time part, gw_time whole) { return whole ? 100 * (double)part / (double)whole : 0; }

/* ---- tables with columns as wide as their cells ---- */

typedef struct sheet {
    gw_table table;
    int columns;
    char (*cells)[CELL];
    size_t rows, capacity;
} sheet;

static void sheet_start(sheet *s, gw_column *columns, int count) {
    *s = (sheet){.columns = count};
    gw_table_start(&s->table, stdout, columns, count);
}

/* A new row with empty cells. NULL: no memory; the row is omitted. */
static char (*sheet_row(sheet *s))[CELL] {
    if (s->rows == s->capacity) {
        size_t capacity = s->capacity ? 2 * s->capacity : 32;
        char(*cells)[CELL] = realloc(s->cells, capacity * (size_t)s->columns * CELL);
        if (!cells) return NULL;
        s->cells = cells;
        s->capacity = capacity;
    }
    char(*row)[CELL] = s->cells + s->rows++ * (size_t)s->columns;
    memset(row, 0, (size_t)s->columns * CELL);
    return row;
}

static void sheet_end(sheet *s) {
    const char *cells[32];
    for (int pass = 0; pass < 2; pass++) {
        if (pass) gw_table_header(&s->table);
        for (size_t r = 0; r < s->rows; r++) {
            for (int c = 0; c < s->columns; c++) cells[c] = s->cells[r * (size_t)s->columns + (size_t)c];
            if (pass) gw_table_row(&s->table, cells);
            else gw_table_fit(&s->table, cells);
        }
    }
    free(s->cells);
}

static void put_time(char cell[CELL], gw_time ns) {
    char text[GW_UNIT_TEXT];
    snprintf(cell, CELL, "%s", gw_trace_time(ns, text));
}

static void put_bytes(char cell[CELL], uint64_t bytes) {
    char text[GW_UNIT_TEXT];
    if (bytes) snprintf(cell, CELL, "%s", gw_bytes_format(bytes, text));
}

static void put_rate(char cell[CELL], double bytes, gw_time ns) {
    char text[GW_UNIT_TEXT];
    if (ns) snprintf(cell, CELL, "%s", gw_bandwidth_format(bytes / seconds(ns), text));
}

/* ---- summary ---- */

static void print_head(const gw_view *view) {
    const gw_insight *in = view->insight;
    char took[GW_UNIT_TEXT], unsure[GW_UNIT_TEXT];
    int hosts = gw_insight_hosts(in), ranks = gw_insight_ranks(in), world = gw_insight_world(in);
    if (world < in->rank_count) world = in->rank_count;
    uint64_t uncertainty = 0;
    size_t changes;
    const char *strategy = gw_view_strategy(view, &changes);
    for (int r = 0; r < in->rank_count; r++)
        if (in->ranks[r].about.uncertainty > uncertainty) uncertainty = in->ranks[r].about.uncertainty;
    if (ranks < world) printf("%d of ", ranks);
    printf("%d rank%s on %d host%s, %s, %zu steps, %zu operations, %zu messages\n", world, world == 1 ? "" : "s", hosts,
           hosts == 1 ? "" : "s", gw_trace_time(in->end, took), view->steps.count, view->operations.count,
           view->messages.count);
    if (*strategy) printf("%s\n", strategy);
    if (changes) printf("(the strategy of the last step; it changed %zu time%s)\n", changes, changes == 1 ? "" : "s");
    if (uncertainty) printf("clocks aligned to %s\n", gw_trace_time(uncertainty, unsure));
}

/* One step of the recording: its figures add up. */
static void print_median(const gw_view *view) {
    const gw_step_times *median = gw_steps_median(&view->steps);
    if (!median) return;
    const gw_time parts[] = {median->length,         median->mean.compute, median->mean.waiting,
                             median->mean.for_ranks, median->mean.exposed, median->mean.other};
    char text[6][GW_UNIT_TEXT];
    for (int k = 0; k < 6; k++) gw_trace_time(parts[k], text[k]);
    printf("\nMedian step: %" PRIu64 ", %s = compute %s + waiting %s (for ranks %s, exposed %s) + other %s\n",
           median->number, text[0], text[1], text[2], text[3], text[4], text[5]);
}

/* Which steps the figures of a step are not from. */
static void say_counted(const gw_steps *steps) {
    if (steps->whole && steps->whole < steps->count)
        printf("%zu step%s left out: no step came before, from whose end %s length would count\n",
               steps->count - steps->whole, steps->count - steps->whole == 1 ? " is" : "s are",
               steps->count - steps->whole == 1 ? "its" : "their");
    else if (!steps->whole) puts("(no step came before: counted from the first call of each)");
}

static void print_steps(const gw_view *view) {
    const gw_insight *in = view->insight;
    if (!view->steps.count) return;
    gw_column columns[] = {{.title = "RANK"}, {.title = "STEP", .right = true}, {.title = "COMPUTE", .right = true},
                           {.title = "WAITING", .right = true}, {.title = "OTHER", .right = true},
                           {.title = "FOR RANKS", .right = true}, {.title = "EXPOSED", .right = true},
                           {.title = "HIDDEN", .right = true}, {.title = "OTHERS WAITED FOR IT", .right = true}};
    sheet s;
    sheet_start(&s, columns, 9);
    for (int r = 0; r < in->rank_count; r++) {
        gw_step_part sum;
        uint64_t n = gw_steps_sum(&view->steps, r, &sum);
        char(*row)[CELL] = n ? sheet_row(&s) : NULL;
        if (!row) continue;
        const gw_time parts[] = {sum.compute, sum.waiting, sum.other, sum.for_ranks, sum.exposed, sum.hidden};
        gw_time caused, suffered;
        gw_view_blame(view, r, &caused, &suffered);
        snprintf(row[0], CELL, "%d", r);
        put_time(row[1], sum.end / n);
        for (int k = 0; k < 6; k++) snprintf(row[2 + k], CELL, "%.1f %%", percent(parts[k], sum.end));
        put_time(row[8], caused);
    }
    printf("\nTime of a step, means over %zu steps: compute + waiting + other. Waiting is for ranks that hold others "
           "up, or\nfor exposed communication; hidden: communication that compute overlaps\n",
           view->steps.whole ? view->steps.whole : view->steps.count);
    sheet_end(&s);
    say_counted(&view->steps);
}

static void say_rest(size_t shown, size_t all) {
    if (shown < all) printf("%zu of %zu lines; --limit 0 shows all\n", shown, all);
}

static void print_totals(const gw_view *view, bool by_name, int64_t limit) {
    gw_error error = {.rank = -1};
    gw_totals totals;
    if (gw_totals_make(view->insight, by_name, &totals, &error) != GW_OK) return;
    gw_column columns[] = {{.title = by_name ? "WHAT" : "PHASE"}, {.title = by_name ? "NAME" : ""},
                           {.title = "COUNT", .right = true}, {.title = "TIME", .right = true},
                           {.title = "MEAN", .right = true}, {.title = "LONGEST", .right = true},
                           {.title = "BYTES", .right = true}};
    sheet s;
    size_t shown = 0, all = 0;
    sheet_start(&s, columns, 7);
    for (size_t i = 0; i < totals.count; i++) {
        const gw_total *t = &totals.list[i];
        bool skip = t->kind == GW_TRACE_VALUE || (by_name && (!t->name || t->kind == GW_TRACE_STEP));
        all += !skip;
        if (skip || (limit && shown >= (size_t)limit)) continue;
        char(*row)[CELL] = sheet_row(&s);
        if (!row) break;
        shown++;
        snprintf(row[0], CELL, "%s", gw_trace_kind_name(t->kind));
        if (by_name) snprintf(row[1], CELL, "%.60s", gw_insight_name(view->insight, t->name));
        snprintf(row[2], CELL, "%" PRIu64, t->count);
        put_bytes(row[6], t->bytes);
        if (!t->longest) continue; /* instant events */
        put_time(row[3], t->time);
        put_time(row[4], t->time / t->count);
        put_time(row[5], t->longest);
    }
    sheet_end(&s);
    say_rest(shown, all);
    gw_totals_free(&totals);
}

/* Traffic of a link over time as block characters of eight heights. */
static void spark(const gw_traffic *links, size_t link, double top, char cell[CELL]) {
    static const char *const heights[] = {" ",      "\u2581", "\u2582", "\u2583", "\u2584",
                                          "\u2585", "\u2586", "\u2587", "\u2588"};
    cell[0] = 0;
    for (size_t i = 0; i < SPARK; i++) {
        double sum = 0;
        size_t each = links->bin_count / SPARK;
        for (size_t b = i * each; b < (i + 1) * each; b++) sum += links->bins[link * links->bin_count + b];
        int height = top > 0 ? (int)ceil(8 * sum / (double)each / top) : 0;
        strcat(cell, heights[height < 0 ? 0 : height > 8 ? 8 : height]);
    }
}

static void print_links(const gw_view *view, int64_t limit) {
    const gw_traffic *links = &view->links;
    if (!links->count) return;
    gw_column columns[] = {{.title = "LINK"}, {.title = "BYTES", .right = true}, {.title = "MESSAGES", .right = true},
                           {.title = "BUSY", .right = true}, {.title = "RATE WHILE BUSY", .right = true},
                           {.title = "PEAK", .right = true}, {.title = "QUEUED", .right = true},
                           {.title = "RETRIES", .right = true}, {.title = "OVER TIME"}};
    double top = 0;
    for (size_t i = 0; i < links->count * links->bin_count; i++) top = links->bins[i] > top ? links->bins[i] : top;
    sheet s;
    sheet_start(&s, columns, 9);
    for (size_t i = 0; i < links->count && (!limit || i < (size_t)limit); i++) {
        const gw_pair_traffic *l = &links->list[i];
        char(*row)[CELL] = sheet_row(&s);
        if (!row) break;
        snprintf(row[0], CELL, "%d > %d", l->src, l->dst);
        put_bytes(row[1], l->bytes);
        snprintf(row[2], CELL, "%" PRIu64, l->messages);
        snprintf(row[3], CELL, "%.1f %%", percent(l->busy, view->insight->end));
        put_rate(row[4], (double)l->bytes, l->busy);
        char text[GW_UNIT_TEXT];
        snprintf(row[5], CELL, "%s", gw_bandwidth_format(gw_traffic_peak(links, i), text));
        put_time(row[6], l->queued);
        snprintf(row[7], CELL, "%" PRIu64, l->retries);
        spark(links, i, top, row[8]);
    }
    puts("\nLinks (queued: waiting for the receiver's grant, sum of all messages)");
    sheet_end(&s);
    say_rest(limit && (size_t)limit < links->count ? (size_t)limit : links->count, links->count);
}

static void json_parts(const gw_step_part *p) {
    printf("{\"compute_ms\": %s, \"waiting_ms\": %s, \"other_ms\": %s, \"for_ranks_ms\": %s, \"exposed_ms\": %s, "
           "\"hidden_ms\": %s}",
           GW_JSON_FIXED(seconds(p->compute) * 1e3, 6), GW_JSON_FIXED(seconds(p->waiting) * 1e3, 6),
           GW_JSON_FIXED(seconds(p->other) * 1e3, 6), GW_JSON_FIXED(seconds(p->for_ranks) * 1e3, 6),
           GW_JSON_FIXED(seconds(p->exposed) * 1e3, 6), GW_JSON_FIXED(seconds(p->hidden) * 1e3, 6));
}

static int summary_json(const gw_view *view, const gw_advice *advice) {
    const gw_insight *in = view->insight;
    const gw_step_times *median = gw_steps_median(&view->steps);
    uint64_t bytes = 0;
    size_t changes;
    for (size_t i = 0; i < view->messages.count; i++) bytes += view->messages.list[i].bytes;
    printf("{\"ranks\": %d, \"hosts\": %d, \"strategy\": ", in->rank_count, gw_insight_hosts(in));
    gw_json_string(stdout, gw_view_strategy(view, &changes));
    printf(", \"seconds\": %s, \"steps\": %zu, \"counted_steps\": %zu, \"operations\": %zu, \"messages\": %zu, "
           "\"bytes\": %" PRIu64 ", \"events\": %zu, \"median_step\": ",
           GW_JSON_FIXED(seconds(in->end), 9), view->steps.count,
           view->steps.whole ? view->steps.whole : view->steps.count, view->operations.count, view->messages.count,
           bytes, in->event_count);
    if (median) {
        printf("{\"number\": %" PRIu64 ", \"step_ms\": %s, \"mean\": ", median->number,
               GW_JSON_FIXED(seconds(median->length) * 1e3, 6));
        json_parts(&median->mean);
        printf("}");
    } else {
        printf("null");
    }
    printf(", \"rank\": [");
    for (int r = 0; r < in->rank_count; r++) {
        gw_time caused, suffered;
        gw_step_part sum;
        uint64_t n = gw_steps_sum(&view->steps, r, &sum);
        gw_view_blame(view, r, &caused, &suffered);
        printf("%s{\"rank\": %d, \"step_ms\": %s, \"host\": ", r ? ", " : "", r,
               GW_JSON_FIXED(n ? seconds(sum.end) * 1e3 / (double)n : 0, 6));
        gw_json_string(stdout, in->ranks[r].about.host);
        printf(", \"offset_ns\": %" PRId64 ", \"uncertainty_ns\": %" PRIu64 ", \"dropped\": %" PRIu64
               ", \"ended\": %s, \"others_waited_ms\": %s, \"waited_for_others_ms\": %s}",
               in->ranks[r].about.offset, in->ranks[r].about.uncertainty, in->ranks[r].dropped,
               in->ranks[r].ended ? "true" : "false", GW_JSON_FIXED(seconds(caused) * 1e3, 6),
               GW_JSON_FIXED(seconds(suffered) * 1e3, 6));
    }
    fputs("], ", stdout);
    gw_advice_json(advice);
    puts("}");
    return 0;
}

int gw_trace_summary(const gw_view *view, const gw_trace_request *request) {
    gw_advice advice;
    gw_error error = {.rank = -1};
    if (gw_advice_of_capture(view, GW_ADVICE_SECONDS, &advice, &error)) return gw_trace_complain(&error);
    if (request->json) return summary_json(view, &advice);
    print_head(view);
    gw_advice_print(&advice);
    print_median(view);
    print_steps(view);
    puts("\nTime and bytes by phase, sum of all ranks");
    print_totals(view, false, 0);
    puts("\n... by tensor, layer and kind of operation");
    print_totals(view, true, request->limit);
    print_links(view, request->limit);
    return 0;
}

/* ---- matrix ---- */

static void matrix_json(const gw_view *view) {
    size_t ranks = (size_t)view->insight->rank_count;
    printf("{\"links\": [");
    for (size_t i = 0; i < view->links.count; i++) {
        const gw_pair_traffic *l = &view->links.list[i];
        printf("%s{\"from\": %d, \"to\": %d, \"bytes\": %" PRIu64 ", \"messages\": %" PRIu64 ", \"busy_ms\": %s, "
               "\"queued_ms\": %s, \"retries\": %" PRIu64 "}",
               i ? ", " : "", l->src, l->dst, l->bytes, l->messages, GW_JSON_FIXED(seconds(l->busy) * 1e3, 6),
               GW_JSON_FIXED(seconds(l->queued) * 1e3, 6), l->retries);
    }
    printf("], \"waits_ms\": [");
    for (size_t a = 0; a < ranks; a++) {
        printf("%s[", a ? ", " : "");
        for (size_t b = 0; b < ranks; b++)
            printf("%s%s", b ? ", " : "", GW_JSON_FIXED(seconds(view->waiting.matrix[a * ranks + b]) * 1e3, 6));
        printf("]");
    }
    puts("]}");
}

static uint64_t cell_value(const gw_view *view, bool waits, int row, int column) {
    if (waits) return view->waiting.matrix[(size_t)row * (size_t)view->insight->rank_count + (size_t)column];
    uint64_t bytes = 0;
    for (size_t i = 0; i < view->links.count; i++)
        if (view->links.list[i].src == row && view->links.list[i].dst == column) bytes = view->links.list[i].bytes;
    return bytes;
}

static void print_matrix(const gw_view *view, bool waits) {
    int ranks = view->insight->rank_count < 24 ? view->insight->rank_count : 24;
    gw_column columns[32];
    char titles[24][16];
    columns[0] = (gw_column){.title = waits ? "WAITER" : "FROM"};
    for (int c = 0; c < ranks; c++) {
        snprintf(titles[c], sizeof titles[c], "%s%d", waits ? "for " : "to ", c);
        columns[c + 1] = (gw_column){.title = titles[c], .right = true};
    }
    sheet s;
    sheet_start(&s, columns, ranks + 1);
    for (int r = 0; r < ranks; r++) {
        char(*row)[CELL] = sheet_row(&s);
        if (!row) break;
        snprintf(row[0], CELL, "%d", r);
        for (int c = 0; c < ranks; c++) {
            uint64_t value = cell_value(view, waits, r, c);
            snprintf(row[c + 1], CELL, "-");
            if (value && waits) put_time(row[c + 1], value);
            else if (value) put_bytes(row[c + 1], value);
        }
    }
    sheet_end(&s);
    if (ranks < view->insight->rank_count) printf("(the first %d of %d ranks)\n", ranks, view->insight->rank_count);
}

int gw_trace_matrix(const gw_view *view, const gw_trace_request *request) {
    if (request->json) {
        matrix_json(view);
        return 0;
    }
    puts("Bytes sent by messages");
    if (view->messages.count) print_matrix(view, false);
    else puts("none: all data went through shared memory");
    puts("\nWaiting of a rank for each other one, which had not begun the operation and did not wait itself");
    print_matrix(view, true);
    return 0;
}

/* ---- messages ---- */

static void message_json(const gw_view *view, const gw_message *m) {
    printf("{\"from\": %d, \"to\": %d, \"what\": ", m->src, m->dst);
    gw_json_string(stdout, gw_insight_name(view->insight, m->name));
    printf(", \"communicator\": %u, \"operation\": %" PRIu64 ", \"message\": %u, \"bytes\": %" PRIu64
           ", \"begin_us\": %s, \"end_us\": %s, \"queued_us\": %s, \"aside_us\": %s, \"retries\": %u}\n",
           m->comm & ~GW_TRACE_PAIR, m->number, m->index, m->bytes, GW_JSON_FIXED((double)m->handed / 1e3, 3),
           GW_JSON_FIXED((double)m->arrived / 1e3, 3), GW_JSON_FIXED((double)m->queued / 1e3, 3),
           GW_JSON_FIXED((double)m->aside / 1e3, 3), m->retries);
}

int gw_trace_messages(const gw_view *view, const gw_trace_request *request) {
    const gw_messages *all = &view->messages;
    size_t shown = request->limit && (size_t)request->limit < all->count ? (size_t)request->limit : all->count;
    gw_column columns[] = {{.title = "BEGIN", .right = true}, {.title = "FROM", .right = true},
                           {.title = "TO", .right = true}, {.title = "BYTES", .right = true},
                           {.title = "TOOK", .right = true}, {.title = "QUEUED", .right = true},
                           {.title = "UNEXPECTED", .right = true}, {.title = "RETRIES", .right = true},
                           {.title = "OPERATION", .right = true}, {.title = "WHAT"}};
    sheet s;
    sheet_start(&s, columns, 10);
    for (size_t i = 0; i < (request->json ? all->count : shown); i++) {
        const gw_message *m = &all->list[i];
        if (request->json) {
            message_json(view, m);
            continue;
        }
        char(*row)[CELL] = sheet_row(&s);
        if (!row) break;
        snprintf(row[0], CELL, "%.6f", seconds(m->handed));
        snprintf(row[1], CELL, "%d", m->src);
        snprintf(row[2], CELL, "%d", m->dst);
        put_bytes(row[3], m->bytes);
        if (m->seen_sent && m->seen_arrived) put_time(row[4], m->arrived - m->handed);
        else snprintf(row[4], CELL, "%s", m->seen_sent ? "not arrived" : "not seen sent");
        put_time(row[5], m->queued);
        put_time(row[6], m->aside);
        snprintf(row[7], CELL, "%u", m->retries);
        snprintf(row[8], CELL, "%" PRIu64, m->number);
        snprintf(row[9], CELL, "%.60s", gw_insight_name(view->insight, m->name));
    }
    if (request->json) return 0;
    sheet_end(&s);
    if (shown < all->count)
        printf("%zu of %zu messages; --limit 0 shows all, gradwire trace export writes them to a file\n", shown,
               all->count);
    else if (!all->count) puts("no messages: all data went through shared memory");
    return 0;
}
