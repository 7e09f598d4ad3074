/* trace_export.c - gradwire trace export (all events as CSV, or as a timeline in Chrome's format) and report. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/trace/trace_commands.h"
#include "insight/page.h"
#include "predict/advice.h"
#include "trace/chrome.h"

static void write_csv(const gw_insight *in, FILE *out) {
    fputs("rank,kind,name,begin_ns,end_ns,number,bytes,peer,communicator,index,queued_ns,channel,retries,value\n", out);
    for (size_t i = 0; i < in->event_count; i++) {
        const gw_trace_event *e = &in->events[i].is;
        bool value = e->kind == GW_TRACE_VALUE;
        double number = 0;
        if (value) memcpy(&number, &e->bytes, sizeof number);
        fprintf(out, "%d,%s,\"%s\",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",", in->events[i].rank,
                gw_trace_kind_name((gw_trace_kind)e->kind), gw_insight_name(in, e->name), e->begin, e->end, e->number,
                value ? 0 : e->bytes);
        if (e->peer >= 0) fprintf(out, "%d", e->peer);
        fprintf(out, ",%u,", e->comm & ~GW_TRACE_PAIR);
        if (e->kind == GW_TRACE_OPERATION) fprintf(out, "\"%s\"", gw_insight_name(in, e->index));
        else fprintf(out, "%u", e->index);
        fprintf(out, ",%u,%u,%u,", e->queued, e->channel, e->retries);
        if (value) fprintf(out, "%.9g", number);
        fputc('\n', out);
    }
}

static gw_status write_chrome(const gw_insight *in, FILE *out, gw_error *error) {
    char lines[GW_CHROME_LINE];
    gw_chrome chrome = {0};
    int rank = -1;
    fputs(gw_chrome_head, out);
    for (size_t i = 0; i < in->event_count; i++) {
        const gw_insight_event *e = &in->events[i];
        if (e->rank != rank) {
            gw_chrome_close(&chrome);
            rank = e->rank;
            if (!gw_chrome_open(&chrome, rank, in->rank_count, 0))
                return gw_fail(error, GW_MEMORY, "no memory for a timeline");
            fwrite(lines, 1, (size_t)(gw_chrome_rank(&chrome, in->ranks[rank].about.host, lines) - lines), out);
        }
        const char *label = e->is.kind == GW_TRACE_OPERATION ? gw_insight_name(in, e->is.index) : "";
        char *end = gw_chrome_event(&chrome, &e->is, gw_insight_name(in, e->is.name), label, lines);
        fwrite(lines, 1, (size_t)(end - lines), out);
    }
    gw_chrome_close(&chrome);
    fputs(gw_chrome_tail, out);
    return GW_OK;
}

static bool is_chrome(const gw_trace_request *request) {
    if (request->format) return strcmp(request->format, "chrome") == 0;
    size_t length = strlen(request->output);
    return length > 5 && strcmp(request->output + length - 5, ".json") == 0;
}

int gw_trace_export(const gw_view *view, const gw_trace_request *request) {
    gw_error error = {.rank = -1};
    FILE *out = fopen(request->output, "we");
    if (!out) {
        gw_fail(&error, GW_SYSTEM, "%s cannot be written: %s", request->output, strerror(errno));
        return gw_trace_complain(&error);
    }
    bool chrome = is_chrome(request);
    if (chrome) write_chrome(view->insight, out, &error);
    else write_csv(view->insight, out);
    bool failed = ferror(out) != 0;
    if (fclose(out) != 0 || failed)
        gw_fail(&error, GW_SYSTEM, "%s cannot be written: %s", request->output, strerror(errno));
    if (error.status) return gw_trace_complain(&error);
    printf("%s: %zu events as %s\n", request->output, view->insight->event_count,
           chrome ? "a timeline (open it in ui.perfetto.dev or chrome://tracing)" : "CSV");
    return 0;
}

int gw_trace_report(const gw_view *view, const gw_trace_request *request) {
    gw_error error = {.rank = -1};
    gw_advice advice;
    const char *lines[GW_ADVICE_LINES];
    if (gw_advice_of_capture(view, GW_ADVICE_SECONDS, &advice, &error)) return gw_trace_complain(&error);
    for (int i = 0; i < advice.count; i++) lines[i] = advice.list[i].text;
    const gw_page_texts texts = {.title = request->title, .advice = lines, .advice_count = advice.count};
    FILE *out = fopen(request->output, "we");
    bool written = out && gw_page_write(view, &texts, out);
    int why = errno;
    if (out && fclose(out) != 0) written = false;
    if (!written) {
        gw_fail(&error, GW_SYSTEM, "%s cannot be written: %s", request->output, strerror(why));
        return gw_trace_complain(&error);
    }
    char path[PATH_MAX];
    printf("report: file://%s\n", realpath(request->output, path) ? path : request->output);
    return 0;
}
