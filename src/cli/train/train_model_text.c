/* train_model_text.c - prints what the trainer knows of a model: its layers, parameters, operations and memory, its
 * description, and the kinds of layers. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/units.h"
#include "cli/common/count_text.h"
#include "cli/common/json.h"
#include "cli/common/table.h"
#include "cli/common/trainer_parts.h"
#include "nn/model_text.h"
#include "nn/pass.h"

const bool gw_trainer_built = true;

#define COLUMNS 5

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

static void row(const gw_spec *spec, const gw_graph_node *node, gw_table *table, bool prints) {
    char cells[COLUMNS][GW_COUNT_TEXT];
    const char *pointers[COLUMNS];
    snprintf(cells[0], GW_COUNT_TEXT, "%d", node->line);
    snprintf(cells[1], GW_COUNT_TEXT, "%s%s%s%s", node->kind->name, node->settings.relu ? " relu" : "",
             node->label[0] ? " as " : "", node->label);
    if (node->out.width == 1 && node->out.height == 1) snprintf(cells[2], GW_COUNT_TEXT, "%d", node->out.channels);
    else if (node->out.width == 1) snprintf(cells[2], GW_COUNT_TEXT, "%dx%d", node->out.height, node->out.channels);
    else snprintf(cells[2], GW_COUNT_TEXT, "%dx%dx%d", node->out.height, node->out.width, node->out.channels);
    gw_count_format(node_parameters(spec, node), cells[3]);
    gw_flops_format((double)node->flops, cells[4]);
    for (int i = 0; i < COLUMNS; i++) pointers[i] = cells[i];
    if (prints) gw_table_row(table, pointers);
    else gw_table_fit(table, pointers);
}

static void print_text(const gw_spec *spec, const char *name, int batch, const totals *t) {
    char number[GW_COUNT_TEXT], forward[GW_COUNT_TEXT], step[GW_COUNT_TEXT], bytes[GW_UNIT_TEXT];
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
    gw_count_format(t->parameters, number);
    gw_flops_format((double)t->flops, forward);
    gw_flops_format(3.0 * (double)t->flops * batch, step);
    printf("\n%s: %s parameters in %d tensors; %sflop forward for one example, about %sflop for a step of %d\n", name,
           number, spec->parameter_count, forward, step, batch);
    printf("memory of one worker: %s for weights and gradients, ", gw_bytes_format(t->model_bytes, bytes));
    printf("%s for activations and operations with a batch of %d\n", gw_bytes_format(t->pass_bytes, bytes), batch);
}

static void print_json(const gw_spec *spec, const char *name, int batch, const totals *t) {
    printf("{\"model\": ");
    gw_json_string(stdout, name);
    printf(", \"batch\": %d, \"parameters\": %zu, \"flops\": %" PRIu64
           ", \"model_bytes\": %zu, \"pass_bytes\": %zu, \"layers\": [",
           batch, t->parameters, t->flops, t->model_bytes, t->pass_bytes);
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

gw_status gw_model_print_layers(const char *model, const gw_model_size *size, int batch, bool json, gw_error *error) {
    gw_spec *spec = NULL;
    totals t = {0};
    gw_status status = gw_model_spec(model, size, &spec, error);
    if (status == GW_OK) status = measure(spec, batch, &t, error);
    if (status == GW_OK) (json ? print_json : print_text)(spec, model, batch, &t);
    gw_spec_destroy(spec);
    return status;
}

gw_status gw_model_print_text(const char *model, const gw_model_size *size, gw_error *error) {
    char *text = malloc(GW_MODEL_TEXT_BYTES);
    if (!text) return gw_fail(error, GW_MEMORY, "no memory for a model");
    gw_status status = gw_model_text(model, size, text, error);
    if (status == GW_OK) fputs(text, stdout);
    free(text);
    return status;
}

void gw_layer_kinds_print(void) {
    gw_column layers[] = {{.title = "LAYER"}, {.title = "ABOUT"}};
    gw_table table;
    gw_table_start(&table, stdout, layers, 2);
    for (int i = 0; gw_layer_kinds[i]; i++)
        gw_table_fit(&table, (const char *[]){gw_layer_kinds[i]->usage, gw_layer_kinds[i]->about});
    gw_table_header(&table);
    for (int i = 0; gw_layer_kinds[i]; i++)
        gw_table_row(&table, (const char *[]){gw_layer_kinds[i]->usage, gw_layer_kinds[i]->about});
}
