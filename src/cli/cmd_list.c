/* cmd_list.c - gradwire list: all techniques of the registries with their parameters. */
#include <string.h>

#include "base/suggest.h"
#include "cli/common/args.h"
#include "cli/common/json.h"
#include "cli/common/table.h"
#include "strategy/strategy.h"

typedef void row_function(void *ctx, const char *const *cells);

static void fit(void *table, const char *const *cells) { gw_table_fit(table, cells); }

static void print(void *table, const char *const *cells) { gw_table_row(table, cells); }

static void technique_rows(gw_axis axis, const gw_technique *technique, row_function *row, void *ctx) {
    char name[64], allowed[GW_PARAM_ALLOWED_BYTES], preset[GW_PARAM_TEXT_BYTES];
    bool is_default = technique == gw_techniques(axis)[0];
    snprintf(name, sizeof name, "%s=%s", gw_axis_name(axis), technique->name);
    row(ctx, (const char *const[]){name, "", is_default ? "yes" : "", technique->about});
    for (const gw_param *param = technique->params; param && param->name; param++) {
        snprintf(name, sizeof name, "    %s", param->name);
        gw_param_allowed(param, allowed);
        gw_param_print(param, param->preset, preset);
        row(ctx, (const char *const[]){name, allowed, preset, param->about});
    }
}

static void axis_rows(gw_axis axis, row_function *row, void *ctx) {
    for (const gw_technique *const *at = gw_techniques(axis); *at; at++) technique_rows(axis, *at, row, ctx);
}

static void list_text(gw_axis first, gw_axis last) {
    gw_column columns[] = {{.title = "TECHNIQUE"}, {.title = "VALUES"}, {.title = "DEFAULT"}, {.title = "ABOUT"}};
    gw_table table;
    gw_table_start(&table, stdout, columns, 4);
    for (gw_axis axis = first; axis <= last; axis++) axis_rows(axis, fit, &table);
    gw_table_header(&table);
    for (gw_axis axis = first; axis <= last; axis++) {
        if (axis > first) putchar('\n');
        axis_rows(axis, print, &table);
    }
}

static void json_pair(const char *before, const char *key, const char *value) {
    printf("%s\"%s\": ", before, key);
    gw_json_string(stdout, value);
}

static void choices_json(const char *const *choices) {
    fputs(", \"choices\": [", stdout);
    for (int i = 0; choices[i]; i++) {
        if (i) fputs(", ", stdout);
        gw_json_string(stdout, choices[i]);
    }
    putchar(']');
}

static void param_json(const gw_param *param, bool first) {
    char preset[GW_PARAM_TEXT_BYTES];
    json_pair(first ? "\n          {" : ",\n          {", "name", param->name);
    json_pair(", ", "about", param->about);
    json_pair(", ", "kind", gw_param_kind_name(param->kind));
    json_pair(", ", "default", gw_param_print(param, param->preset, preset));
    if (param->kind == GW_PARAM_CHOICE) choices_json(param->choices);
    else if (param->kind != GW_PARAM_FLAG)
        printf(", \"lowest\": %s, \"highest\": %s, \"auto\": %s", GW_JSON_DIGITS(param->lowest, 15),
               GW_JSON_DIGITS(param->highest, 15), param->automatic ? "true" : "false");
    putchar('}');
}

static void technique_json(gw_axis axis, const gw_technique *technique) {
    bool first = technique == gw_techniques(axis)[0];
    json_pair(first ? "\n      {" : ",\n      {", "name", technique->name);
    json_pair(", ", "about", technique->about);
    printf(", \"default\": %s, \"parameters\": [", first ? "true" : "false");
    for (const gw_param *param = technique->params; param && param->name; param++)
        param_json(param, param == technique->params);
    fputs("]}", stdout);
}

static void list_json(gw_axis first, gw_axis last) {
    fputs("{\"axes\": [", stdout);
    for (gw_axis axis = first; axis <= last; axis++) {
        json_pair(axis > first ? ",\n  {" : "\n  {", "name", gw_axis_name(axis));
        json_pair(", ", "about", gw_axis_about(axis));
        fputs(",\n    \"techniques\": [", stdout);
        for (const gw_technique *const *at = gw_techniques(axis); *at; at++) technique_json(axis, *at);
        fputs("]}", stdout);
    }
    puts("\n]}");
}

static int run(int argc, char **argv) {
    char quoted[GW_QUOTE_BYTES], hint[GW_HINT_BYTES];
    bool json = false;
    gw_axis first = 0, last = GW_AXES - 1;
    const gw_option options[] = {
        {.name = "json", .kind = GW_OPTION_FLAG, .flag = &json, .about = "print JSON"},
        {.name = NULL},
    };
    int code = gw_args_parse(&gw_command_list, options, &argc, argv);
    if (code >= 0) return code;
    if (argc > 1) {
        if (!gw_axis_parse(argv[1], &first))
            return gw_usage_error(&gw_command_list, "unknown axis %s (%s)", gw_suggest_quote(argv[1], quoted),
                                  gw_suggest_hint(argv[1], gw_axis_names, hint));
        last = first;
    }
    if (json) list_json(first, last);
    else list_text(first, last);
    return 0;
}

const gw_command gw_command_list = {
    .name = "list",
    .about = "lists the techniques of a strategy line with their parameters",
    .usage = "[AXIS] [--json]",
    .example = "gradwire list transport\ngradwire list --json",
    .operands_max = 1,
    .run = run,
};
