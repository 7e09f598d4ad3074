/* page.c - see page.h. The page's markup, style and script are in page/ and embedded by the build; this file writes the
 * data that the script draws. Names are clean (trace/capture.h): none can end a string or a script.
 *
 * Pages stay small enough for a browser: the timeline has whole steps around the median one, as many as fit into
 * EVENTS_MAX; curves and columns of more than POINTS_MAX steps are sampled. */
#include "insight/page.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "insight/page_files.h"

enum { EVENTS_MAX = 40000, POINTS_MAX = 2000, PATH_MAX_PARTS = 4000, TOTALS_MAX = 200 };

static double us(gw_time ns) { return (double)ns / 1e3; }

/* For texts that are not clean, such as the title. */
static void quoted(FILE *out, const char *text) {
    fputc('"', out);
    for (; *text; text++) fputc((unsigned char)*text < 0x20 || strchr("\"\\<>&", *text) ? '?' : *text, out);
    fputc('"', out);
}

/* ---- ranks and names ---- */

static void write_ranks(const gw_view *v, FILE *out) {
    const gw_insight *in = v->insight;
    fputs("\"ranks\":[", out);
    for (int r = 0; r < in->rank_count; r++) {
        const gw_insight_rank *rank = &in->ranks[r];
        gw_time caused, suffered;
        gw_view_blame(v, r, &caused, &suffered);
        fprintf(out,
                "%s{\"host\":\"%s\",\"offset\":%.3f,\"unsure\":%.3f,\"ended\":%d,\"caused\":%.3f,\"suffered\":%.3f}",
                r ? "," : "", rank->about.host, (double)rank->about.offset / 1e3, us(rank->about.uncertainty),
                rank->ended, us(caused), us(suffered));
    }
    fputs("],\n", out);
}

static void write_names(const gw_insight *in, FILE *out) {
    fputs("\"names\":[", out);
    for (uint32_t i = 0; i < in->name_count; i++) fprintf(out, "%s\"%s\"", i ? "," : "", in->names[i]);
    fputs("],\n\"kinds\":[", out);
    for (int k = 0; k < GW_TRACE_KINDS; k++)
        fprintf(out, "%s\"%s\"", k ? "," : "", gw_trace_kind_name((gw_trace_kind)k));
    fputs("],\n\"pathKinds\":[", out);
    for (int k = 0; k < GW_PATH_KINDS; k++)
        fprintf(out, "%s\"%s\"", k ? "," : "", gw_critical_path_name((gw_critical_path_kind)k));
    fputs("],\n", out);
}

/* ---- steps ---- */

static void write_part(const gw_step_part *p, FILE *out) {
    fprintf(out, "%.3f,%.3f,%.3f,%.3f,%.3f", us(p->compute), us(p->exposed), us(p->for_ranks), us(p->other),
            us(p->hidden));
}

static void write_step(const gw_step_times *s, FILE *out) {
    fprintf(out, "[%" PRIu64 ",%.3f,%.3f,", s->number, us(s->begin), us(s->end));
    write_part(&s->mean, out);
    fputc(']', out);
}

static void write_steps(const gw_steps *steps, FILE *out) {
    size_t every = steps->count / POINTS_MAX + 1;
    const gw_step_times *median = gw_steps_median(steps);
    fputs("\"steps\":[", out);
    for (size_t i = 0; i < steps->count; i += every) {
        if (i) fputc(',', out);
        write_step(&steps->list[i], out);
    }
    fprintf(out, "],\n\"stepCount\":%zu,\"counted\":%zu,\"median\":", steps->count,
            steps->whole ? steps->whole : steps->count);
    if (median) write_step(median, out);
    else fputs("null", out);
    fputs(",\n", out);
}

/* Means over the steps that count, a row for each rank. */
static void write_rank_parts(const gw_view *v, FILE *out) {
    fputs("\"parts\":[", out);
    for (int r = 0; r < v->insight->rank_count; r++) {
        gw_step_part sum;
        uint64_t counted = gw_steps_sum(&v->steps, r, &sum), n = counted ? counted : 1;
        gw_step_part mean = {.compute = sum.compute / n, .exposed = sum.exposed / n, .for_ranks = sum.for_ranks / n,
                             .other = sum.other / n, .hidden = sum.hidden / n};
        fprintf(out, "%s[", r ? "," : "");
        write_part(&mean, out);
        fputc(']', out);
    }
    fputs("],\n", out);
}

/* ---- the timeline ---- */

static bool is_drawn(const gw_trace_event *e) { return e->kind != GW_TRACE_VALUE && e->kind != GW_TRACE_ARRIVED; }

static size_t events_between(const gw_insight *in, gw_time begin, gw_time end) {
    size_t count = 0;
    for (size_t i = 0; i < in->event_count; i++)
        count += is_drawn(&in->events[i].is) && in->events[i].is.begin < end && in->events[i].is.end > begin;
    return count;
}

/* Whole steps around the median one, as many as fit; without steps, the beginning. */
static void choose_window(const gw_view *v, gw_time *begin, gw_time *end) {
    const gw_insight *in = v->insight;
    const gw_steps *steps = &v->steps;
    const gw_step_times *median = gw_steps_median(steps);
    *begin = 0;
    *end = in->end + 1;
    while (!median && *end > 1000 && events_between(in, *begin, *end) > EVENTS_MAX) *end /= 2;
    if (!median || events_between(in, *begin, *end) <= EVENTS_MAX) return;
    size_t low = (size_t)(median - steps->list), high = low;
    for (size_t more = steps->count; more; more /= 2) {
        size_t l = low > more ? low - more : 0, h = high + more < steps->count ? high + more : steps->count - 1;
        if (events_between(in, steps->list[l].begin, steps->list[h].end) > EVENTS_MAX) continue;
        low = l;
        high = h;
    }
    *begin = steps->list[low].begin;
    *end = steps->list[high].end;
}

static void write_spans(const gw_insight *in, gw_time begin, gw_time end, FILE *out) {
    fprintf(out, "\"window\":[%.3f,%.3f],\n\"spans\":[", us(begin), us(end));
    size_t i = 0, written = 0;
    for (int r = 0; r < in->rank_count; r++) {
        fprintf(out, "%s[", r ? ",\n" : "");
        bool first = true;
        for (; i < in->event_count && in->events[i].rank == r; i++) {
            const gw_trace_event *e = &in->events[i].is;
            if (!is_drawn(e) || e->begin >= end || e->end <= begin || written >= 2 * EVENTS_MAX) continue;
            gw_time from = e->begin > begin ? e->begin : begin;
            fprintf(out, "%s%u,%u,%.3f,%.3f,%" PRIu64 ",%" PRIu64 ",%d", first ? "" : ",", e->kind,
                    e->kind == GW_TRACE_OPERATION && e->index ? e->index : e->name, us(from - begin), us(e->end - from),
                    e->number, e->bytes, e->peer);
            first = false;
            written++;
        }
        fputc(']', out);
    }
    fputs("],\n", out);
}

/* ---- traffic, waits, the critical path ---- */

static void write_links(const gw_view *v, FILE *out) {
    const gw_traffic *l = &v->links;
    fprintf(out, "\"bin\":%.3f,\"links\":[", us(l->bin));
    for (size_t i = 0; i < l->count; i++) {
        const gw_pair_traffic *link = &l->list[i];
        fprintf(out,
                "%s{\"src\":%d,\"dst\":%d,\"bytes\":%" PRIu64 ",\"messages\":%" PRIu64
                ",\"busy\":%.3f,\"queued\":%.3f,\"retries\":%" PRIu64 ",\"peak\":%.0f,\"bins\":[",
                i ? ",\n" : "", link->src, link->dst, link->bytes, link->messages, us(link->busy), us(link->queued),
                link->retries, gw_traffic_peak(l, i));
        for (size_t b = 0; b < l->bin_count; b++) fprintf(out, "%s%.0f", b ? "," : "", l->bins[i * l->bin_count + b]);
        fputs("]}", out);
    }
    fputs("],\n\"waits\":[", out);
    size_t ranks = (size_t)v->insight->rank_count;
    for (size_t i = 0; i < ranks * ranks; i++) fprintf(out, "%s%.3f", i ? "," : "", us(v->waiting.matrix[i]));
    fputs("],\n", out);
}

static void write_path(const gw_view *v, gw_time window, FILE *out) {
    gw_critical_path path;
    gw_error error = {.rank = -1};
    const gw_step_times *median = gw_steps_median(&v->steps);
    fputs("\"path\":", out);
    if (gw_view_path(v, median, &path, &error) != GW_OK) {
        fputs("null,\n", out);
        return;
    }
    fprintf(out, "{\"begin\":%.3f,\"end\":%.3f,\"step\":", us(path.begin), us(path.end));
    if (median) fprintf(out, "%" PRIu64, median->number);
    else fputs("null", out);
    fputs(",\"totals\":[", out);
    for (int k = 0; k < GW_PATH_KINDS; k++) fprintf(out, "%s%.3f", k ? "," : "", us(path.total[k]));
    fputs("],\"parts\":[", out);
    for (size_t i = 0; i < path.count && i < PATH_MAX_PARTS; i++) {
        const gw_critical_path_part *p = &path.list[i];
        fprintf(out, "%s[%d,%d,%d,%u,%.3f,%.3f]", i ? "," : "", p->kind, p->rank, p->from, p->name,
                ((double)p->begin - (double)window) / 1e3, us(p->end - p->begin));
    }
    fputs("]},\n", out);
    gw_critical_path_free(&path);
}

/* ---- curves and totals ---- */

/* One value per step: the mean over the ranks that recorded one. */
typedef struct point {
    uint64_t step;
    double sum;
    size_t count;
} point;

static int by_step(const void *a, const void *b) {
    const point *x = a, *y = b;
    return x->step < y->step ? -1 : x->step > y->step;
}

static size_t gather_points(const gw_insight *in, uint32_t name, point *points) {
    size_t count = 0, kept = 0, n;
    for (int r = 0; r < in->rank_count; r++) {
        const gw_insight_event *events = gw_insight_of(in, r, GW_TRACE_VALUE, &n);
        for (size_t i = 0; i < n; i++) {
            double value;
            memcpy(&value, &events[i].is.bytes, sizeof value);
            if (events[i].is.name == name && value > -1e300 && value < 1e300)
                points[count++] = (point){.step = events[i].is.number, .sum = value, .count = 1};
        }
    }
    if (count) qsort(points, count, sizeof *points, by_step);
    for (size_t i = 0; i < count; i++) {
        if (kept && points[kept - 1].step == points[i].step) {
            points[kept - 1].sum += points[i].sum;
            points[kept - 1].count++;
        } else {
            points[kept++] = points[i];
        }
    }
    return kept;
}

static bool write_curves(const gw_insight *in, FILE *out) {
    size_t total = 0, n, curves = 0;
    for (int r = 0; r < in->rank_count; r++) {
        gw_insight_of(in, r, GW_TRACE_VALUE, &n);
        total += n;
    }
    point *points = calloc(total + 1, sizeof *points);
    if (!points) return false;
    fputs("\"curves\":[", out);
    for (uint32_t name = 1; total && name < in->name_count; name++) {
        size_t count = gather_points(in, name, points), every = count / POINTS_MAX + 1;
        if (!count) continue;
        fprintf(out, "%s{\"name\":%u,\"points\":[", curves++ ? "," : "", name);
        for (size_t i = 0; i < count; i += every)
            fprintf(out, "%s[%" PRIu64 ",%.6g]", i ? "," : "", points[i].step, points[i].sum / (double)points[i].count);
        fputs("]}", out);
    }
    fputs("],\n", out);
    free(points);
    return true;
}

static bool write_totals(const gw_insight *in, FILE *out) {
    gw_totals totals;
    size_t written = 0;
    if (gw_totals_make(in, true, &totals, NULL) != GW_OK) return false;
    fputs("\"totals\":[", out);
    for (size_t i = 0; i < totals.count && written < TOTALS_MAX; i++) {
        const gw_total *t = &totals.list[i];
        if (t->kind == GW_TRACE_VALUE || t->kind == GW_TRACE_STEP || !t->name) continue;
        fprintf(out, "%s[%d,%u,%" PRIu64 ",%.3f,%.3f,%" PRIu64 "]", written++ ? "," : "", t->kind, t->name, t->count,
                us(t->time), us(t->longest), t->bytes);
    }
    fputs("]\n", out);
    gw_totals_free(&totals);
    return true;
}

static void write_advice(const gw_page_texts *texts, FILE *out) {
    fputs("\"advice\":[", out);
    for (int i = 0; i < texts->advice_count; i++) {
        if (i) fputc(',', out);
        quoted(out, texts->advice[i]);
    }
    fputs("],\n", out);
}

static bool write_data(const gw_view *v, const gw_page_texts *texts, FILE *out) {
    const gw_insight *in = v->insight;
    char warning[GW_ERROR_TEXT_BYTES] = "";
    gw_time begin, end;
    int first = 0;
    size_t changes;
    gw_insight_warning(in, warning);
    while (first < in->rank_count - 1 && !in->ranks[first].introduced) first++;
    bool known = in->rank_count > 0;
    fputs("{\"title\":", out);
    quoted(out, texts->title);
    fprintf(out, ",\"us\":%.3f,\"wall\":%" PRIu64 ",\"world\":%d,\"recorded\":%d,\"hosts\":%d,\"strategy\":\"%s\"",
            us(in->end), known ? in->ranks[first].about.wall / 1000000 : 0, gw_insight_world(in), gw_insight_ranks(in),
            gw_insight_hosts(in), gw_view_strategy(v, &changes));
    fprintf(out, ",\"changes\":%zu,\"warning\":", changes);
    quoted(out, warning);
    fputs(",\n", out);
    write_advice(texts, out);
    write_ranks(v, out);
    write_names(in, out);
    write_steps(&v->steps, out);
    write_rank_parts(v, out);
    choose_window(v, &begin, &end);
    write_spans(in, begin, end, out);
    write_links(v, out);
    write_path(v, begin, out);
    bool fits = write_curves(in, out) && write_totals(in, out);
    fputs("}", out);
    return fits;
}

/* ---- the page ---- */

/* Writes up to the mark; returns the text after it. */
static const char *write_until(const char *from, const char *mark, FILE *out) {
    const char *at = strstr(from, mark);
    fwrite(from, 1, (size_t)(at - from), out);
    return at + strlen(mark);
}

bool gw_page_write(const gw_view *view, const gw_page_texts *texts, FILE *out) {
    const char *rest = write_until(gw_page_html, "@STYLE@", out);
    fputs(gw_page_css, out);
    rest = write_until(rest, "@DATA@", out);
    bool fits = write_data(view, texts, out);
    rest = write_until(rest, "@SCRIPT@", out);
    fputs(gw_page_js, out);
    fputs(rest, out);
    return fits && fflush(out) == 0 && !ferror(out);
}
