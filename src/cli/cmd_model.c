/* cmd_model.c - gradwire model: prints the layers of a model, their parameters, operations and memory. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/units.h"
#include "cli/common/json.h"
#include "cli/common/model_options.h"
#include "cli/common/table.h"
#include "nn/pass.h"

#define COLUMNS 5
#define CELL_BYTES 64

typedef struct arguments {
    int64_t batch;
    gw_model_size_options size;
    bool json, text;
} arguments;

typedef struct totals {
    size_t parameters;
    uint64_t flops; /* forward, one example */
    size_t model_bytes, pass_bytes;
} totals;

static size_t node_parameters(const gw_spec *spec, const gw_graph_node *node) {
    size_t count = 0;
    for (int k = 0; k < node->parameters; k++) count += spec->parameters[node->first_parameter + k].count;
    return count;
}

/* 1234567 as 1,234,567 */
static void grouped(uint64_t number, char text[CELL_BYTES]) {
    char digits[32], *to = text;
    int length = snprintf(digits, sizeof digits, "%" PRIu64, number);
    for (int i = 0; i < length; i++) {
        if (i && (length - i) % 3 == 0) *to++ = ',';
        *to++ = digits[i];
    }
    *to = 0;
}

static void flops_text(double flops, char text[CELL_BYTES]) {
    static const char *const units[] = {"", " k", " M", " G", " T"};
    int unit = 0;
    for (; flops >= 1000 && unit < 4; unit++) flops /= 1000;
    snprintf(text, CELL_BYTES, unit ? "%.1f%s" : "%.0f%s", flops, units[unit]);
}

static void row(const gw_spec *spec, const gw_graph_node *node, gw_table *table, bool prints) {
    char cells[COLUMNS][CELL_BYTES];
    const char *pointers[COLUMNS];
    snprintf(cells[0], CELL_BYTES, "%d", node->line);
    snprintf(cells[1], CELL_BYTES, "%s%s%s%s", node->kind->name, node->settings.relu ? " relu" : "",
             node->label[0] ? " as " : "", node->label);
    if (node->out.width == 1 && node->out.height == 1) snprintf(cells[2], CELL_BYTES, "%d", node->out.channels);
    else if (node->out.width == 1) snprintf(cells[2], CELL_BYTES, "%dx%d", node->out.height, node->out.channels);
    else snprintf(cells[2], CELL_BYTES, "%dx%dx%d", node->out.height, node->out.width, node->out.channels);
    grouped(node_parameters(spec, node), cells[3]);
    flops_text((double)node->flops, cells[4]);
    for (int i = 0; i < COLUMNS; i++) pointers[i] = cells[i];
    if (prints) gw_table_row(table, pointers);
    else gw_table_fit(table, pointers);
}

static void print_text(const gw_spec *spec, const char *name, const arguments *a, const totals *t) {
    char number[CELL_BYTES], forward[CELL_BYTES], step[CELL_BYTES], bytes[GW_UNIT_TEXT];
    gw_column columns[COLUMNS] = {{.title = "LINE", .right = true},
                                  {.title = "LAYER"},
                                  {.title = "OUTPUT"},
                                  {.title = "PARAMETERS", .right = true},
                                  {.title = "FLOPS", .right = true}};
    gw_table table;
    gw_table_start(&table, stdout, columns, COLUMNS);
    for (int i = 0; i < spec->node_count; i++) row(spec, &spec->nodes[i], &table, false);
    gw_table_header(&table);
    for (int i = 0; i < spec->node_count; i++) row(spec, &spec->nodes[i], &table, true);
    grouped(t->parameters, number);
    flops_text((double)t->flops, forward);
    flops_text(3.0 * (double)t->flops * (double)a->batch, step);
    printf("\n%s: %s parameters in %d tensors; %sflop forward for one example, about %sflop for a step of %" PRId64
           "\n",
           name, number, spec->parameter_count, forward, step, a->batch);
    printf("memory of one worker: %s for weights and gradients, ", gw_bytes_format(t->model_bytes, bytes));
    printf("%s for activations and operations with a batch of %" PRId64 "\n", gw_bytes_format(t->pass_bytes, bytes),
           a->batch);
}

static void print_json(const gw_spec *spec, const char *name, const arguments *a, const totals *t) {
    printf("{\"model\": ");
    gw_json_string(stdout, name);
    printf(", \"batch\": %" PRId64 ", \"parameters\": %zu, \"flops\": %" PRIu64
           ", \"model_bytes\": %zu, \"pass_bytes\": %zu, \"layers\": [",
           a->batch, t->parameters, t->flops, t->model_bytes, t->pass_bytes);
    for (int i = 0; i < spec->node_count; i++) {
        const gw_graph_node *n = &spec->nodes[i];
        printf("%s\n  {\"line\": %d, \"kind\": \"%s\", \"label\": ", i ? "," : "", n->line, n->kind->name);
        gw_json_string(stdout, n->label);
        printf(", \"output\": [%d, %d, %d], \"parameters\": %zu, \"flops\": %" PRIu64 "}", n->out.height, n->out.width,
               n->out.channels, node_parameters(spec, n), n->flops);
    }
    puts("]}");
}

/* Creates the model and a pass to measure their memory. */
static gw_status measure(const gw_spec *spec, int batch, totals *t, gw_error *error) {
    gw_model *model = NULL;
    gw_pass *pass = NULL;
    gw_status status = gw_model_create(spec, &(gw_model_options){.seed = 1}, &model, error);
    if (status == GW_OK)
        status = gw_pass_create(model, &(gw_pass_options){.batch = batch, .trains = true}, &pass, error);
    if (status == GW_OK) {
        t->model_bytes = gw_model_bytes(model);
        t->pass_bytes = gw_pass_bytes(pass);
    }
    gw_pass_destroy(pass);
    gw_model_destroy(model);
    t->parameters = gw_spec_parameters(spec);
    for (int i = 0; i < spec->node_count; i++) t->flops += spec->nodes[i].flops;
    return status;
}

static gw_status describe(const char *name, const arguments *a, const gw_model_size *size, gw_error *error) {
    gw_spec *spec = NULL;
    totals t = {0};
    gw_status status = gw_model_spec(name, size, &spec, error);
    if (status == GW_OK) status = measure(spec, (int)a->batch, &t, error);
    if (status == GW_OK) (a->json ? print_json : print_text)(spec, name, a, &t);
    gw_spec_destroy(spec);
    return status;
}

static gw_status print_description(const char *name, const gw_model_size *size, gw_error *error) {
    char *text = malloc(GW_MODEL_TEXT_BYTES);
    if (!text) return gw_fail(error, GW_MEMORY, "no memory for a model");
    gw_status status = gw_model_text(name, size, text, error);
    if (status == GW_OK) fputs(text, stdout);
    free(text);
    return status;
}

static void print_list(void) {
    gw_column columns[] = {{.title = "MODEL"}, {.title = "ABOUT"}};
    gw_table table;
    gw_table_start(&table, stdout, columns, 2);
    for (int i = 0; gw_models[i]; i++) gw_table_fit(&table, (const char *[]){gw_models[i]->name, gw_models[i]->about});
    gw_table_header(&table);
    for (int i = 0; gw_models[i]; i++) gw_table_row(&table, (const char *[]){gw_models[i]->name, gw_models[i]->about});
    puts("");
    gw_column layers[] = {{.title = "LAYER"}, {.title = "ABOUT"}};
    gw_table_start(&table, stdout, layers, 2);
    for (int i = 0; gw_layer_kinds[i]; i++)
        gw_table_fit(&table, (const char *[]){gw_layer_kinds[i]->usage, gw_layer_kinds[i]->about});
    gw_table_header(&table);
    for (int i = 0; gw_layer_kinds[i]; i++)
        gw_table_row(&table, (const char *[]){gw_layer_kinds[i]->usage, gw_layer_kinds[i]->about});
}

/* Exit code, -1 to continue. */
static int parse(arguments *a, int *argc, char **argv) {
    const gw_option options[] = {
        GW_SIZE_OPTION("batch", a->batch, 65536, "examples per step, for the memory (default: 32)"),
        GW_SIZE_OPTIONS(a->size),
        {.name = "text",
         .kind = GW_OPTION_FLAG,
         .flag = &a->text,
         .about = "print the description, as a start for your own model"},
        {.name = "json", .kind = GW_OPTION_FLAG, .flag = &a->json, .about = "print JSON"},
        {.name = NULL},
    };
    return gw_args_parse(&gw_command_model, options, argc, argv);
}

static int run(int argc, char **argv) {
    arguments a = {.batch = 32};
    int code = parse(&a, &argc, argv);
    if (code >= 0) return code;
    if (argc < 2) {
        print_list();
        return 0;
    }
    gw_model_size size = gw_model_size_of(&a.size);
    gw_error error = {0};
    gw_status status = a.text ? print_description(argv[1], &size, &error) : describe(argv[1], &a, &size, &error);
    if (status == GW_OK) return 0;
    if (status == GW_INVALID) return gw_usage_error(&gw_command_model, "%s", error.text);
    fprintf(stderr, "gradwire model: %s\n", error.text);
    return GW_EXIT_FAILED;
}

const gw_command gw_command_model = {
    .name = "model",
    .about = "describes a model: layers, shapes, parameters, operations, memory",
    .usage = "[NAME|FILE] [--batch N] [OPTIONS]",
    .example = "gradwire model cnn --batch 64\ngradwire model gpt --layers 6 --embedding 192 --heads 6\n"
               "gradwire model resnet20 --text > mine.model\ngradwire model mine.model",
    .operands_max = 1,
    .run = run,
};
