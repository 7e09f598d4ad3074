/* cmd_data.c - gradwire data: lists the data sets, and fetches them with the package manager. */
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/suggest.h"
#include "base/units.h"
#include "cli/common/args.h"
#include "cli/common/fetch_data.h"
#include "cli/common/json.h"
#include "cli/common/table.h"
#include "data/dataset.h"
#include "data/fetch.h"
#include "data/sources.h"

#define NAMES_MAX 16

static const char *tool_name(const gw_source *source) { return source->tool == GW_PACKAGE_APT ? "apt" : "npm"; }

static const char *where_of(const gw_source *source, char path[PATH_MAX]) {
    return gw_source_locate(source, path) ? path : "-";
}

static void row_of(const gw_source *source, const char *cells[4], char package[64], char path[PATH_MAX]) {
    snprintf(package, 64, "%s:%s", tool_name(source), source->package);
    cells[0] = source->name;
    cells[1] = package;
    cells[2] = where_of(source, path);
    cells[3] = source->about;
}

static void list_text(void) {
    gw_column columns[] = {{.title = "NAME"}, {.title = "PACKAGE"}, {.title = "WHERE"}, {.title = "ABOUT"}};
    const char *cells[4];
    char package[64], path[PATH_MAX];
    gw_table table;
    gw_table_start(&table, stdout, columns, 4);
    for (const gw_source *source = gw_sources; source->name; source++) {
        row_of(source, cells, package, path);
        gw_table_fit(&table, cells);
    }
    gw_table_header(&table);
    for (const gw_source *source = gw_sources; source->name; source++) {
        row_of(source, cells, package, path);
        gw_table_row(&table, cells);
    }
    puts("\nTo fetch a data set that is not on this machine (-): gradwire data get NAME");
}

static void list_json(void) {
    char path[PATH_MAX];
    fputs("{\"sets\": [", stdout);
    for (const gw_source *source = gw_sources; source->name; source++) {
        fputs(source == gw_sources ? "\n  {\"name\": " : ",\n  {\"name\": ", stdout);
        gw_json_string(stdout, source->name);
        printf(", \"tool\": \"%s\", \"package\": ", tool_name(source));
        gw_json_string(stdout, source->package);
        fputs(", \"path\": ", stdout);
        if (gw_source_locate(source, path)) gw_json_string(stdout, path);
        else fputs("null", stdout);
        fputs(", \"about\": ", stdout);
        gw_json_string(stdout, source->about);
        putchar('}');
    }
    puts("\n]}");
}

/* The progress display of a fetch: a live line on a terminal, else one line for each phase. */
typedef struct progress_line {
    const gw_source *source;
    const char *doing; /* the phase shown last */
    gw_time started;
    bool live;
} progress_line;

static void show(void *ctx, const char *doing, uint64_t bytes) {
    progress_line *line = ctx;
    char size[GW_UNIT_TEXT];
    if (line->live) {
        double seconds = (double)(gw_clock_now() - line->started) / (double)GW_SECOND;
        fprintf(stderr, "\r\033[K%s: %s %s, %s of about %d MiB, %.0f s", line->source->name, doing,
                line->source->package, gw_bytes_format(bytes, size), line->source->download_mebibytes, seconds);
    } else if (line->doing != doing) {
        fprintf(stderr, "%s: %s %s\n", line->source->name, doing, line->source->package);
    }
    line->doing = doing;
}

/* Whether both splits can be opened. */
static bool is_complete(const gw_source *source) {
    for (gw_split split = GW_SPLIT_TRAIN; split <= GW_SPLIT_TEST; split++) {
        gw_dataset_request request = {.source = source->name, .split = split, .window = 1};
        gw_dataset *dataset;
        if (gw_dataset_open(&request, &dataset, NULL) != GW_OK) return false;
        gw_dataset_close(dataset);
    }
    return true;
}

static bool in_cache(const gw_source *source) {
    char path[PATH_MAX];
    return gw_cache_path(source->name, path, NULL) == GW_OK && access(path, F_OK) == 0;
}

bool gw_data_fetch(const char *command, const gw_source *source, double seconds) {
    progress_line line = {.source = source, .started = gw_clock_now(), .live = isatty(STDERR_FILENO)};
    gw_error error = {.status = GW_OK};
    gw_status status = gw_source_fetch(source, seconds, show, &line, &error);
    if (line.live && line.doing) fputs("\r\033[K", stderr);
    if (status != GW_OK) fprintf(stderr, "gradwire %s: %s\n", command, error.text);
    return status == GW_OK;
}

static int get(const gw_source *source, double seconds) {
    char path[PATH_MAX];
    if ((!in_cache(source) || !is_complete(source)) && !gw_data_fetch("data", source, seconds)) return GW_EXIT_FAILED;
    printf("%s: %s\n", source->name, where_of(source, path));
    return 0;
}

static int get_named(const gw_command *command, const char *name, double seconds) {
    char quoted[GW_QUOTE_BYTES], hint[GW_HINT_BYTES];
    const char *names[NAMES_MAX] = {NULL};
    const gw_source *source = gw_source_find(name);
    if (source) return get(source, seconds);
    for (int i = 0; i < NAMES_MAX - 1 && gw_sources[i].name; i++) names[i] = gw_sources[i].name;
    return gw_usage_error(command, "unknown data set %s (%s)", gw_suggest_quote(name, quoted),
                          gw_suggest_hint(name, names, hint));
}

static int run(int argc, char **argv) {
    static const char *const verbs[] = {"get", "list", NULL};
    char quoted[GW_QUOTE_BYTES], hint[GW_HINT_BYTES];
    bool json = false;
    double seconds = 900;
    const gw_option options[] = {
        {.name = "json", .kind = GW_OPTION_FLAG, .flag = &json, .about = "list: print JSON"},
        {.name = "timeout",
         .kind = GW_OPTION_DURATION,
         .seconds = &seconds,
         .about = "get: timeout of the package manager (default: 15m)"},
        {.name = NULL},
    };
    int code = gw_args_parse(&gw_command_data, options, &argc, argv);
    if (code >= 0) return code;
    const char *verb = argc > 1 ? argv[1] : "list";
    if (strcmp(verb, "get") == 0 && argc == 3) return get_named(&gw_command_data, argv[2], seconds);
    if (strcmp(verb, "get") == 0) return gw_usage_error(&gw_command_data, "get needs the name of a data set");
    if (strcmp(verb, "list") != 0)
        return gw_usage_error(&gw_command_data, "unknown word %s (%s)", gw_suggest_quote(verb, quoted),
                              gw_suggest_hint(verb, verbs, hint));
    if (argc > 2)
        return gw_usage_error(&gw_command_data, "list takes no name, but got %s", gw_suggest_quote(argv[2], quoted));
    if (json) list_json();
    else list_text();
    return 0;
}

const gw_command gw_command_data = {
    .name = "data",
    .about = "lists data sets to train on, and fetches them with the package manager",
    .usage = "[list [--json] | get NAME]",
    .example = "gradwire data list\ngradwire data get fashion-mnist",
    .operands_max = 2,
    .run = run,
};
