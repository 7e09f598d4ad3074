/* cmd_trace.c - gradwire trace: prints the analysis of a capture. insight/ does the analysis. */
#include "cli/trace/trace_commands.h"

#include <stdlib.h>
#include <string.h>

#include "base/suggest.h"
#include "base/units.h"
#include "cli/common/args.h"

typedef struct question {
    const char *word;
    int (*answer)(const gw_view *view, const gw_trace_request *request);
} question;

static const question questions[] = {
    {"summary", gw_trace_summary},    {"messages", gw_trace_messages}, {"matrix", gw_trace_matrix},
    {"critical-path", gw_trace_path}, {"report", gw_trace_report},     {"export", gw_trace_export},
};

enum { QUESTIONS = sizeof questions / sizeof questions[0] };

int gw_trace_complain(const gw_error *error) {
    fprintf(stderr, "gradwire trace: %s\n", error->text);
    return error->status == GW_INVALID ? GW_EXIT_USAGE : GW_EXIT_FAILED;
}

const char *gw_trace_time(gw_time ns, char text[GW_UNIT_TEXT]) {
    return gw_duration_format((double)ns / (double)GW_SECOND, text);
}

static const question *find(const char *word) {
    for (int i = 0; i < QUESTIONS; i++)
        if (strcmp(questions[i].word, word) == 0) return &questions[i];
    return NULL;
}

static int unknown(const char *word) {
    char quoted[GW_QUOTE_BYTES], hint[GW_HINT_BYTES];
    const char *words[QUESTIONS + 1] = {NULL};
    for (int i = 0; i < QUESTIONS; i++) words[i] = questions[i].word;
    return gw_usage_error(&gw_command_trace, "unknown word %s (%s)", gw_suggest_quote(word, quoted),
                          gw_suggest_hint(word, words, hint));
}

static int run(int argc, char **argv) {
    static const char *const formats[] = {"csv", "chrome", NULL};
    gw_trace_request r = {.step = -1, .limit = 40};
    gw_error error = {.rank = -1};
    gw_view view;
    const gw_option options[] = {
        {.name = "output", .letter = 'o', .kind = GW_OPTION_STRING, .value = "FILE", .string = &r.output,
         .about = "report, export: file to write (default: the capture's name with .html, .csv or .json)"},
        {.name = "format", .kind = GW_OPTION_CHOICE, .string = &r.format, .choices = formats,
         .about = "export: format (default: from the name of the output, else csv)"},
        {.name = "step", .kind = GW_OPTION_INTEGER, .integer = &r.step, .lowest = 0, .highest = INT64_MAX,
         .about = "critical-path: training step (default: the one of median length)"},
        {.name = "limit", .kind = GW_OPTION_INTEGER, .integer = &r.limit, .lowest = 0, .highest = INT64_MAX,
         .about = "lines of a list; 0: all (default: 40)"},
        {.name = "json", .kind = GW_OPTION_FLAG, .flag = &r.json, .about = "print JSON"},
        {.name = NULL},
    };
    int code = gw_args_parse(&gw_command_trace, options, &argc, argv);
    if (code >= 0) return code;
    if (argc < 2)
        return gw_usage_error(&gw_command_trace, "which analysis? (usage: gradwire trace %s)", gw_command_trace.usage);
    const question *asked = find(argv[1]);
    if (!asked) return unknown(argv[1]);
    if (argc < 3) return gw_usage_error(&gw_command_trace, "%s of which file?", argv[1]);
    char derived[4096], warning[GW_ERROR_TEXT_BYTES];
    if (!r.output) {
        const char *ending = strcmp(argv[1], "report") == 0                ? "html"
                             : r.format && strcmp(r.format, "chrome") == 0 ? "json"
                                                                           : "csv";
        snprintf(derived, sizeof derived, "%s.%s", argv[2], ending);
        r.output = derived;
    }
    r.title = argv[2];
    if (gw_view_load(argv[2], &view, &error) != GW_OK) return gw_trace_complain(&error);
    if (gw_insight_warning(view.insight, warning)) fprintf(stderr, "gradwire trace: %s: %s\n", argv[2], warning);
    code = asked->answer(&view, &r);
    gw_view_free(&view);
    return code;
}

const gw_command gw_command_trace = {
    .name = "trace",
    .about = "analyses a capture: where time went, which rank waited for which",
    .usage = "summary|messages|matrix|critical-path|report|export FILE [OPTIONS]",
    .example = "gradwire train -n 4 --capture run.gwt\n"
               "gradwire trace summary run.gwt\n"
               "gradwire trace report run.gwt -o run.html",
    .operands_max = 2,
    .run = run,
};
