/* cmd_model.c - gradwire model: lists the models of the zoo, and prints the layers of one, their parameters, operations
 * and memory. */
#include <inttypes.h>
#include <stdio.h>

#include "cli/common/count_text.h"
#include "cli/common/json.h"
#include "cli/common/model_options.h"
#include "cli/common/table.h"
#include "cli/common/trainer_parts.h"
#include "profile/builtin_profiles.h"

#define COLUMNS 6

typedef struct arguments {
    int64_t batch;
    gw_model_size_options size;
    bool json, text;
} arguments;

/* ---- the list ---- */

static void list_row(const gw_zoo_model *m, gw_table *table, bool prints) {
    char tensors[GW_COUNT_TEXT], parameters[GW_COUNT_TEXT];
    gw_count_format((uint64_t)m->tensors, tensors);
    gw_count_format(m->parameters, parameters);
    const char *trains = !m->trains ? "no" : gw_trainer_built ? "yes" : "not in this build";
    const char *cells[COLUMNS] = {m->name, tensors, parameters, trains, m->batch ? "built in" : "measured", m->about};
    if (prints) gw_table_row(table, cells);
    else gw_table_fit(table, cells);
}

static void list_text(void) {
    gw_column columns[COLUMNS] = {{.title = "MODEL"}, {.title = "TENSORS", .right = true},
                                  {.title = "PARAMETERS", .right = true}, {.title = "TRAINS"},
                                  {.title = "LAYER TIMES"}, {.title = "ABOUT"}};
    gw_table table;
    gw_table_start(&table, stdout, columns, COLUMNS);
    for (const gw_zoo_model *m = gw_zoo; m->name; m++) list_row(m, &table, false);
    gw_table_header(&table);
    for (const gw_zoo_model *m = gw_zoo; m->name; m++) list_row(m, &table, true);
    puts("");
    gw_layer_kinds_print();
}

static void list_json(void) {
    fputs("{\"models\": [", stdout);
    for (const gw_zoo_model *m = gw_zoo; m->name; m++) {
        printf("%s\n  {\"model\": \"%s\", \"about\": ", m == gw_zoo ? "" : ",", m->name);
        gw_json_string(stdout, m->about);
        printf(", \"tensors\": %d, \"parameters\": %" PRIu64 ", \"trains\": %s, \"layer_times\": %s}", m->tensors,
               m->parameters, m->trains && gw_trainer_built ? "true" : "false", m->batch ? "true" : "false");
    }
    puts("]}");
}

/* ---- models that only have layer times ---- */

static uint64_t parameters_of(const gw_profile_layer *layer) { return layer->parameter_bytes / sizeof(float); }

static void layer_row(const gw_profile_layer *layer, gw_table *table, bool prints) {
    char parameters[GW_COUNT_TEXT], flops[GW_COUNT_TEXT];
    gw_count_format(parameters_of(layer), parameters);
    gw_flops_format(layer->forward_us, flops);
    const char *cells[] = {layer->name, layer->kind, parameters, flops};
    if (prints) gw_table_row(table, cells);
    else gw_table_fit(table, cells);
}

static double forward_flops(const gw_profile *profile) {
    double sum = 0;
    for (int i = 0; i < profile->count; i++) sum += profile->layers[i].forward_us;
    return sum;
}

static void timed_text(const gw_zoo_model *m, const gw_profile *flops) {
    char parameters[GW_COUNT_TEXT], forward[GW_COUNT_TEXT];
    gw_column columns[] = {{.title = "LAYER"}, {.title = "KIND"}, {.title = "PARAMETERS", .right = true},
                           {.title = "FLOPS", .right = true}};
    gw_table table;
    gw_table_start(&table, stdout, columns, 4);
    for (int i = 0; i < flops->count; i++) layer_row(&flops->layers[i], &table, false);
    gw_table_header(&table);
    for (int i = 0; i < flops->count; i++) layer_row(&flops->layers[i], &table, true);
    printf("\n%s: %s parameters in %d tensors; %sflop forward for one example\n", m->name,
           gw_count_format(m->parameters, parameters), m->tensors, gw_flops_format(forward_flops(flops), forward));
    printf("layer times for gradwire predict and bench step: one device with %g samples/s; it cannot be trained here\n",
           m->throughput);
}

static void timed_json(const gw_zoo_model *m, const gw_profile *flops) {
    printf("{\"model\": \"%s\", \"batch\": %d, \"parameters\": %" PRIu64 ", \"flops\": %.0f, \"layers\": [", m->name,
           m->batch, m->parameters, forward_flops(flops));
    for (int i = 0; i < flops->count; i++) {
        const gw_profile_layer *layer = &flops->layers[i];
        printf("%s\n  {\"label\": \"%s\", \"kind\": \"%s\", \"parameters\": %" PRIu64 ", \"flops\": %.0f}",
               i ? "," : "", layer->name, layer->kind, parameters_of(layer), layer->forward_us);
    }
    puts("]}");
}

static gw_status describe(const char *name, const arguments *a, gw_error *error) {
    const gw_zoo_model *model = gw_zoo_find(name);
    gw_model_size size = gw_model_size_of(&a->size);
    if (a->text) return gw_model_print_text(name, &size, error);
    if (!model || model->trains) return gw_model_print_layers(name, &size, (int)a->batch, a->json, error);
    gw_profile flops;
    gw_status status = gw_builtin_profile_flops(model, &flops, error);
    if (status) return status;
    (a->json ? timed_json : timed_text)(model, &flops);
    gw_profile_free(&flops);
    return GW_OK;
}

/* ---- the command line ---- */

/* Exit code, -1 to continue. */
static int parse(arguments *a, int *argc, char **argv) {
    const gw_option options[] = {
        GW_SIZE_OPTION("batch", a->batch, 65536, "examples per step, for operations and memory (default: 32)"),
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
        (a.json ? list_json : list_text)();
        return 0;
    }
    gw_error error = {0};
    gw_status status = describe(argv[1], &a, &error);
    if (status == GW_OK) return 0;
    if (status == GW_INVALID) return gw_usage_error(&gw_command_model, "%s", error.text);
    fprintf(stderr, "gradwire model: %s\n", error.text);
    return GW_EXIT_FAILED;
}

const gw_command gw_command_model = {
    .name = "model",
    .about = "lists the models, and describes one: layers, parameters, operations, memory",
    .usage = "[NAME|FILE] [--batch N] [OPTIONS]",
    .example =
        "gradwire model\ngradwire model cnn --batch 64\ngradwire model gpt --layers 6 --embedding 192 --heads 6\n"
        "gradwire model resnet20 --text > mine.model\ngradwire model mine.model\n"
        "gradwire model resnet50",
    .operands_max = 1,
    .run = run,
};
