/* cmd_explain.c - gradwire explain: what a strategy line does in training steps of a model, its traffic and memory, or
 * why it is refused. It opens a real step engine on a rank without peers, so that the answer is what a job will do. */
#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "cli/common/args.h"
#include "cli/common/job_layout.h"
#include "cli/common/json.h"
#include "cli/explain/explain_why.h"
#include "nn/model_spec.h"
#include "nn/model_text.h"
#include "reducer/route_summary.h"
#include "strategy/combine.h"
#include "transport/transport_registry.h"

#define RANKS_MAX 4096

typedef struct arguments {
    const char *model, *links;          /* links: file of gradwire doctor, NULL: none */
    const char *why;                    /* file of decisions; NULL: none */
    int64_t ranks, hosts, racks, batch; /* hosts, racks 0: not given */
    bool all, json;
    gw_topology topology; /* points to order, host_of and rack_of */
    int order[RANKS_MAX], host_of[RANKS_MAX], rack_of[RANKS_MAX];
} arguments;

/* A fully connected layer whose gradient may be sent as factors. */
typedef struct layer_form {
    char name[GW_PARAMETER_NAME_BYTES];
    size_t rows, cols, batch;
    bool factors;
} layer_form;

#define FORMS_MAX 256

/* The result of a commit, for the rank that sends most. */
typedef struct outcome {
    size_t parameters, sent, memory, codec;
    gw_step_engine_payloads payloads;
    int tensors, buckets, exact;            /* exact: tensors that a codec leaves so, and ... */
    size_t exact_bytes;                     /* ... their bytes */
    gw_coded_form form;                     /* of coded buckets; AUTO: none is coded */
    bool served;                            /* they go through servers */
    double variance;                        /* the factor of that form; 0: the codec is biased */
    const char *loses;                      /* for good in that form; NULL: nothing */
    gw_route_use routes[GW_ROUTE_USES_MAX]; /* one for each route that buckets take */
    int route_count;
    layer_form layers[FORMS_MAX];
    int layer_count;
} outcome;

static const char *no_host(void *ctx, int rank) {
    (void)ctx;
    (void)rank;
    return "nowhere";
}

static void no_send(void *ctx, int neighbour, const gw_control_message *message) {
    (void)ctx;
    (void)neighbour;
    (void)message;
}

static void no_failure(void *ctx, const gw_error *error) {
    (void)ctx;
    (void)error;
}

static void no_slow(void *ctx, const char *sentence) {
    (void)ctx;
    (void)sentence;
}

static void no_update(void *ctx, const gw_reducer_update *update) {
    (void)ctx;
    (void)update;
}

static gw_reducer_tensor *name_tensors(const gw_spec *spec, size_t batch, float *memory) {
    gw_reducer_tensor *tensors = calloc((size_t)spec->parameter_count + 1, sizeof *tensors);
    for (int i = 0; tensors && i < spec->parameter_count; i++) {
        const gw_parameter *p = &spec->parameters[i];
        tensors[i] = (gw_reducer_tensor){.name = p->name, .count = p->count, .dtype = GW_F32, .gradient = memory,
                                      .weights = memory, .rows = p->ndims > 1 ? (size_t)p->dims[0] : 0,
                                      .exact = p->ndims < 2};
        memory += p->count;
    }
    for (int i = 0; tensors && i < spec->node_count; i++) {
        const gw_graph_node *node = &spec->nodes[i];
        if (node->kind->factors) tensors[node->first_parameter].batch = batch * (size_t)node->in.height;
    }
    return tensors;
}

static void note_layers(const gw_step_engine *step_engine, const gw_reducer_tensor *tensors, int count, outcome *o) {
    for (int i = 0; i < count && o->layer_count < FORMS_MAX; i++) {
        const gw_reducer_tensor *t = &tensors[i];
        if (!t->batch) continue;
        layer_form *form = &o->layers[o->layer_count++];
        *form = (layer_form){.rows = t->rows, .cols = t->count / t->rows, .batch = t->batch,
                             .factors = gw_step_engine_wants_factors(step_engine, i)};
        snprintf(form->name, sizeof form->name, "%s", t->name);
    }
}

static gw_status note_form(const gw_codec_setup *setup, gw_coded_form form, outcome *o, gw_error *error) {
    o->form = form;
    if (form == GW_FORM_AUTO) return GW_OK;
    o->loses = gw_coded_form_loses(setup, form);
    return gw_coded_form_variance(setup, form, &o->variance, error);
}

static void note(const gw_step_engine *step_engine, outcome *o) {
    const gw_schedule *schedule = gw_step_engine_schedule(step_engine);
    o->sent = gw_step_engine_sent_bytes(step_engine);
    o->memory = gw_step_engine_memory_bytes(step_engine);
    o->codec = gw_step_engine_codec_bytes(step_engine);
    o->payloads = gw_step_engine_payload_memory(step_engine);
    o->buckets = gw_schedule_buckets(schedule);
    o->exact = gw_step_engine_exact_tensors(step_engine, &o->exact_bytes);
    o->route_count = gw_route_summary(step_engine, o->routes);
}

/* The same for all coded buckets. */
static gw_coded_form form_of(const gw_step_engine *step_engine, const gw_step_engine_config *config) {
    gw_coded_form form = GW_FORM_AUTO;
    if (config->servers && !config->codec.codec->identity)
        return gw_coded_form_served(&config->codec, config->sync->rule != NULL);
    for (int p = 0; !form && p < gw_step_engine_buckets(step_engine); p++) form = gw_step_engine_form(step_engine, p);
    return form;
}

/* The optimiser is not known here: one whose momentum is 1 shows where its momentum would be used. */
static gw_reducer_facts facts_of(int ranks) {
    return (gw_reducer_facts){.world = ranks, .updates = true, .momentum = 1};
}

/* Opens the step engine of one rank; its peers do not exist. */
static gw_status commit(const gw_strategy *given, gw_core *core, const gw_topology *topology,
                        const gw_reducer_tensor *tensors, int count, outcome *o, gw_error *error) {
    int ranks = topology->world;
    gw_team *team = NULL;
    gw_step_engine *step_engine = NULL;
    int *members = calloc((size_t)ranks, sizeof *members);
    if (!members) return gw_fail(error, GW_MEMORY, "out of memory for %d ranks", ranks);
    for (int r = 0; r < ranks; r++) members[r] = r;
    gw_reducer_options options = GW_REDUCER_OPTIONS_DEFAULT;
    options.update = no_update;
    gw_status status = gw_team_open(&team, gw_core_engine(core), 0, 0, members, topology, NULL, error);
    gw_step_engine_config config = {.core = core, .team = team, .first_id = 1, .tensors = tensors, .count = count,
                                .options = options};
    gw_reducer_facts facts = facts_of(ranks);
    gw_strategy strategy = *given;
    gw_strategy_choose_codec(&strategy, &facts);
    if (!status) status = gw_strategy_check_step(&strategy, &facts, error);
    if (!status) status = gw_step_engine_config_from_strategy(&config, &strategy, error);
    size_t flat = status ? 0 : gw_step_engine_flat_bytes(&config);
    if (flat) config.flat = malloc(flat);
    if (flat && !config.flat) status = gw_fail(error, GW_MEMORY, "out of memory for %zu bytes", flat);
    if (!status) status = gw_step_engine_open(&step_engine, &config, error);
    if (!status) note(step_engine, o);
    if (!status) status = note_form(&config.codec, form_of(step_engine, &config), o, error);
    o->served = config.servers > 0;
    if (!status && config.factors) note_layers(step_engine, tensors, count, o);
    gw_step_engine_close(step_engine);
    free(config.flat);
    gw_team_close(team);
    free(members);
    return status;
}

static gw_status try_out(const gw_strategy *strategy, const arguments *a, outcome *o, gw_error *error) {
    gw_spec *spec = NULL;
    gw_core *core = NULL;
    gw_model_size size = {0};
    gw_status status = gw_model_spec(a->model, &size, &spec, error);
    if (status) return status;
    o->parameters = gw_spec_parameters(spec);
    o->tensors = spec->parameter_count;
    float *memory = calloc(o->parameters + 1, sizeof *memory);
    gw_reducer_tensor *tensors = memory ? name_tensors(spec, (size_t)a->batch, memory) : NULL;
    if (!tensors) status = gw_fail(error, GW_MEMORY, "out of memory for a model of %zu parameters", o->parameters);
    gw_core_config config = {.rank = 0, .world = (int)a->ranks, .deadline = GW_SECOND, .host_name = no_host,
                             .send = no_send, .failed = no_failure, .slow = no_slow};
    if (!status) status = gw_core_open(&core, &config, 0, error);
    if (!status) status = commit(strategy, core, &a->topology, tensors, o->tensors, o, error);
    gw_core_close(core);
    free(tensors);
    free(memory);
    gw_spec_destroy(spec);
    return status;
}

/* ---- output ---- */

static void print_axes(const gw_strategy *strategy) {
    for (gw_axis axis = 0; axis < GW_AXES; axis++)
        printf("  %-10s %-14s %s\n", gw_axis_name(axis), gw_strategy_name(strategy, axis),
               strategy->axes[axis].technique->about);
}

/* What automatic parameters of the codec stand for. */
static void print_automatic(const gw_strategy *strategy, int ranks) {
    const gw_setting *given = &strategy->axes[GW_AXIS_COMPRESS];
    gw_strategy chosen = *strategy;
    gw_reducer_facts facts = facts_of(ranks);
    gw_strategy_choose_codec(&chosen, &facts);
    for (int i = 0; given->technique->params && given->technique->params[i].name; i++) {
        const gw_param *param = &given->technique->params[i];
        double value = chosen.axes[GW_AXIS_COMPRESS].values[i];
        char text[GW_PARAM_TEXT_BYTES];
        if (value == given->values[i]) continue;
        bool optimiser = value == facts.momentum && strcmp(param->name, "momentum") == 0;
        printf("compress=%s: %s=auto is %s here: %s\n", given->technique->name, param->name,
               optimiser ? "the optimiser's" : gw_param_print(param, value, text), param->about);
    }
}

static void print_layers(const outcome *o) {
    char factors[GW_UNIT_TEXT], matrix[GW_UNIT_TEXT];
    for (int i = 0; i < o->layer_count; i++) {
        const layer_form *l = &o->layers[i];
        gw_bytes_format(l->batch * (l->rows + l->cols) * sizeof(float), factors);
        gw_bytes_format(l->rows * l->cols * sizeof(float), matrix);
        printf("  %-16s %6zu x %-6zu as %-8s (factors %s to each peer, the matrix is %s)\n", l->name, l->rows, l->cols,
               l->factors ? "factors" : "matrix", factors, matrix);
    }
}

static void print_choice(const gw_strategy *strategy, const gw_topology *topology) {
    if (gw_strategy_is(strategy, GW_AXIS_ARCH, "auto") && topology->world > 1) {
        printf("auto selects for an all-reduce between hosts: ");
        gw_print_arch_choice(GW_COLL_ALLREDUCE, topology);
        puts("");
    }
    gw_print_ring_order("ring order: ranks ", topology, "\n");
}

static void print_routes(const outcome *o) {
    char bytes[GW_UNIT_TEXT], text[80];
    for (int i = 0; i < o->route_count; i++) {
        const gw_route_use *r = &o->routes[i];
        if (r->route.count == 0) {
            puts("nothing travels: a rank without peers");
            continue;
        }
        gw_bytes_format(r->bytes, bytes);
        printf("route of %d bucket%s (%s), and what rank 0 sends at most, unless ranks of a host share memory:\n",
               r->buckets, r->buckets == 1 ? "" : "s", bytes);
        for (int h = 0; h < r->route.count; h++) {
            gw_bytes_format(r->sent[h], bytes);
            printf("  %-40s %10s\n", gw_hop_text(&r->route, h, text, sizeof text), bytes);
        }
    }
}

static const char *served_text(gw_coded_form form) {
    if (form == GW_FORM_IN_FLIGHT) return "servers merge payloads";
    return form == GW_FORM_ONE_PASS ? "servers answer with exact values" : "servers encode their answers";
}

static void print_form(const outcome *o) {
    if (o->form == GW_FORM_AUTO) return;
    printf("form of coded exchanges: %s", o->served ? served_text(o->form) : gw_coded_form_name(o->form));
    if (o->variance > 0) printf("; factor on the variance: %.3g (1: each member encodes once)", o->variance);
    if (o->loses) printf("; lost for good: %s", o->loses);
    puts("");
}

static void print_exact(const gw_strategy *strategy, const outcome *o) {
    char bytes[GW_UNIT_TEXT];
    if (!o->exact) return;
    gw_bytes_format(o->exact_bytes, bytes);
    printf("%d of %d tensors (%s) stay exact: vectors, small ones, and what compress=%s cannot take\n", o->exact,
           o->tensors, bytes, gw_strategy_name(strategy, GW_AXIS_COMPRESS));
}

static void print_payloads(const outcome *o) {
    char memory[GW_UNIT_TEXT], in_flight[GW_UNIT_TEXT];
    if (!o->payloads.memory) return;
    gw_bytes_format(o->payloads.memory, memory);
    gw_bytes_format(o->payloads.in_flight, in_flight);
    printf("of the memory, %s is for payloads: the busiest rank has at most %s in flight, both ways\n", memory,
           in_flight);
}

static void print_protection(const gw_strategy *strategy) {
    const gw_transport_type *type = gw_strategy_transport(strategy);
    if (gw_technique_param(&type->technique, "security") < 0) return;
    gw_security_choice asked = gw_transport_security(type, strategy->axes[GW_AXIS_TRANSPORT].values);
    gw_security inside = gw_security_of_data(asked, true), between = gw_security_of_data(asked, false);
    if (type->unprotected) inside = between = GW_SECURITY_CLEAR;
    printf("protection: data is %s inside a host and %s between hosts, control is %s (docs/explanation/security.md)\n",
           gw_security_names[inside], gw_security_names[between], gw_security_names[gw_security_of_control(asked)]);
}

static void print_text(const gw_strategy *strategy, const arguments *a, const outcome *o) {
    char line[GW_STRATEGY_PRINT_BYTES], model[GW_UNIT_TEXT], sent[GW_UNIT_TEXT], memory[GW_UNIT_TEXT],
        codec[GW_UNIT_TEXT];
    gw_strategy_print(strategy, line, sizeof line);
    gw_bytes_format(o->parameters * sizeof(float), model);
    gw_bytes_format(o->sent, sent);
    gw_bytes_format(o->memory, memory);
    gw_bytes_format(o->codec, codec);
    printf("%s\n", line);
    print_axes(strategy);
    printf("\n%s on %d ranks: %d tensors of %s, in %d bucket%s", a->model, (int)a->ranks, o->tensors, model, o->buckets,
           o->buckets == 1 ? "" : "s");
    printf("\na step sends at most %s from rank 0 (%.3g of the model), and uses %s of memory there", sent,
           (double)o->sent / ((double)o->parameters * sizeof(float)), memory);
    if (o->codec) printf(", of which %s is codec state", codec);
    puts("");
    print_automatic(strategy, (int)a->ranks);
    print_form(o);
    print_exact(strategy, o);
    print_payloads(o);
    print_routes(o);
    print_choice(strategy, &a->topology);
    print_protection(strategy);
    print_layers(o);
}

static void print_route_json(const gw_route_use *r, bool follows) {
    char text[80];
    printf("%s{\"buckets\": %d, \"bytes\": %zu, \"hops\": [", follows ? ", " : "", r->buckets, r->bytes);
    for (int h = 0; h < r->route.count; h++)
        printf("%s{\"hop\": \"%s\", \"sends\": %zu}", h ? ", " : "", gw_hop_text(&r->route, h, text, sizeof text),
               r->sent[h]);
    fputs("]}", stdout);
}

static void print_form_json(const outcome *o) {
    printf("\"form\": \"%s\", ", gw_coded_form_name(o->form));
    if (o->variance > 0) printf("\"variance_factor\": %.3g, ", o->variance);
    if (o->loses) printf("\"lost_for_good\": \"%s\", ", o->loses);
}

static void print_json(const gw_strategy *strategy, const arguments *a, const outcome *o, const gw_error *error) {
    char line[GW_STRATEGY_PRINT_BYTES];
    gw_strategy_print(strategy, line, sizeof line);
    fputs("{\"strategy\": ", stdout);
    gw_json_string(stdout, line);
    fputs(", \"model\": ", stdout);
    gw_json_string(stdout, a->model);
    printf(", \"ranks\": %d, \"possible\": %s", (int)a->ranks, error->status ? "false" : "true");
    if (error->status) {
        fputs(", \"reason\": ", stdout);
        gw_json_string(stdout, error->text);
    } else {
        printf(", \"buckets\": %d, \"parameters\": %zu, \"sent_bytes\": %zu, \"memory_bytes\": %zu", o->buckets,
               o->parameters, o->sent, o->memory);
        printf(", \"codec_bytes\": %zu, \"payload_bytes\": %zu, \"in_flight_bytes\": %zu, ", o->codec,
               o->payloads.memory, o->payloads.in_flight);
        if (o->form != GW_FORM_AUTO) print_form_json(o);
        if (o->exact) printf("\"exact_tensors\": %d, \"exact_bytes\": %zu, ", o->exact, o->exact_bytes);
        fputs("\"routes\": [", stdout);
        for (int i = 0; i < o->route_count; i++) print_route_json(&o->routes[i], i > 0);
        fputs("], \"order\": [", stdout);
        for (int i = 0; i < a->topology.world; i++) printf("%s%d", i ? ", " : "", gw_topology_at(&a->topology, i));
        putchar(']');
    }
    puts("}");
}

/* ---- all pairs of techniques: docs/reference/combinations.md ---- */

#define REASONS_MAX 256
#define PAIR_RANKS 4

typedef struct reasons {
    char *list[REASONS_MAX];
    int count;
} reasons;

static int reason_number(reasons *r, const char *text) {
    for (int i = 0; i < r->count; i++)
        if (strcmp(r->list[i], text) == 0) return i + 1;
    if (r->count == REASONS_MAX) abort();
    r->list[r->count] = strdup(text);
    return ++r->count;
}

static void print_cell(gw_axis a, const gw_technique *first, gw_axis b, const gw_technique *second, reasons *why) {
    gw_error error = {.rank = -1};
    gw_strategy line;
    if (gw_strategy_combine(a, first, b, second, PAIR_RANKS, &line, &error))
        printf(" no (%d) |", reason_number(why, error.text));
    else if (a != GW_AXIS_ARCH && b != GW_AXIS_ARCH && gw_strategy_is(&line, GW_AXIS_ARCH, "ps"))
        printf(" with arch=ps |");
    else printf(" yes |");
}

static void print_pairs(gw_axis a, gw_axis b, reasons *why) {
    printf("\n## %s and %s\n\n| |", gw_axis_name(b), gw_axis_name(a));
    for (const gw_technique *const *t = gw_techniques(a); *t; t++) printf(" %s |", (*t)->name);
    fputs("\n|---|", stdout);
    for (const gw_technique *const *t = gw_techniques(a); *t; t++) fputs("---|", stdout);
    puts("");
    for (const gw_technique *const *row = gw_techniques(b); *row; row++) {
        printf("| %s |", (*row)->name);
        for (const gw_technique *const *t = gw_techniques(a); *t; t++) print_cell(a, *t, b, *row, why);
        puts("");
    }
}

static void print_transports(void) {
    for (const gw_technique *const *at = gw_transport_techniques; *at; at++) {
        const gw_transport_type *type = gw_transport_type_of(*at);
        if (type->single_host) printf("- transport=%s needs all ranks on one host\n", (*at)->name);
        if (type->launcher) printf("- transport=%s needs ranks that %s has started\n", (*at)->name, type->launcher);
        if (type->native_allreduce) printf("- arch=mpi needs transport=%s\n", (*at)->name);
        if (type->simulated) printf("- transport=%s is the simulator's\n", (*at)->name);
    }
}

static void print_all(void) {
    reasons why = {.count = 0};
    puts("# Can I combine A with B?\n\n"
         "Written by `gradwire explain --all` from the checks that a commit makes; `gradwire explain LINE` answers\n"
         "for one line. \"yes\" means that the pair works with the other axes at their defaults. Transports combine\n"
         "with everything, except:\n");
    print_transports();
    for (gw_axis a = 0; a < GW_AXIS_TRANSPORT; a++)
        for (gw_axis b = a + 1; b < GW_AXIS_TRANSPORT; b++) print_pairs(a, b, &why);
    puts("\n## Why not\n");
    for (int i = 0; i < why.count; i++) {
        printf("%d. %s\n", i + 1, why.list[i]);
        free(why.list[i]);
    }
}

/* Exit code, -1 to continue. */
static int parse(arguments *a, int *argc, char **argv) {
    const gw_option options[] = {
        {.name = "model", .letter = 'm', .kind = GW_OPTION_STRING, .value = "NAME", .string = &a->model,
         .about = "model, see gradwire model (default: resnet20)"},
        {.name = "ranks", .letter = 'n', .kind = GW_OPTION_INTEGER, .integer = &a->ranks, .lowest = 1,
         .highest = RANKS_MAX,
         .about = "number of ranks (default: 4)"},
        {.name = "hosts", .kind = GW_OPTION_INTEGER, .integer = &a->hosts, .lowest = 1, .highest = RANKS_MAX,
         .about = "number of hosts; ranks are placed in blocks (default: one rank per host, or all of --links)"},
        {.name = "racks", .kind = GW_OPTION_INTEGER, .integer = &a->racks, .lowest = 1, .highest = RANKS_MAX,
         .about = "number of racks; hosts are placed in blocks (default: what --links says)"},
        {.name = "links", .kind = GW_OPTION_STRING, .value = "FILE", .string = &a->links,
         .about = "link costs of the hosts, a file of gradwire doctor -o (default: $GRADWIRE_LINKS)"},
        {.name = "batch", .letter = 'b', .kind = GW_OPTION_INTEGER, .integer = &a->batch, .lowest = 1,
         .highest = 1 << 20, .about = "examples per rank, for arch=sfb (default: 32)"},
        {.name = "all", .kind = GW_OPTION_FLAG, .flag = &a->all,
         .about = "print which pairs of techniques can be combined (docs/reference/combinations.md)"},
        {.name = "why", .kind = GW_OPTION_STRING, .value = "FILE", .string = &a->why,
         .about = "what strategy=auto decided in a run (--decisions FILE), its ranking and what it measured"},
        {.name = "json", .kind = GW_OPTION_FLAG, .flag = &a->json, .about = "print JSON"},
        {.name = NULL},
    };
    return gw_args_parse(&gw_command_explain, options, argc, argv);
}

static int run(int argc, char **argv) {
    arguments a = {.model = "resnet20", .ranks = 4, .batch = 32};
    gw_error error = {.rank = -1};
    gw_strategy strategy;
    outcome o = {.form = GW_FORM_AUTO};
    int code = parse(&a, &argc, argv);
    if (code >= 0) return code;
    if (a.all) {
        print_all();
        return 0;
    }
    if (a.why) return gw_explain_why(a.why, &error) ? gw_usage_error(&gw_command_explain, "%s", error.text) : 0;
    if (gw_strategy_resolve(argc > 1 ? argv[1] : NULL, &strategy, &error))
        return gw_usage_error(&gw_command_explain, "%s", error.text);
    const char *links = a.links ? a.links : getenv("GRADWIRE_LINKS");
    int hosts = a.hosts ? (int)a.hosts : links ? 0 : (int)a.ranks;
    if (gw_job_layout((int)a.ranks, hosts, (int)a.racks, links, a.order, a.host_of, a.rack_of, &a.topology, &error))
        return gw_usage_error(&gw_command_explain, "%s", error.text);
    gw_status status = try_out(&strategy, &a, &o, &error);
    if (status && status != GW_UNSUPPORTED) return gw_usage_error(&gw_command_explain, "%s", error.text);
    if (a.json) print_json(&strategy, &a, &o, &error);
    else if (!status) print_text(&strategy, &a, &o);
    else printf("refused: %s\n", error.text);
    return status ? GW_EXIT_FAILED : 0;
}

const gw_command gw_command_explain = {
    .name = "explain",
    .about = "explains a strategy line: what it does, its traffic and memory, or why it is refused",
    .usage = "[LINE] [--model NAME] [-n RANKS] [--hosts N] [--racks N] [--links FILE] [--batch B] [--why FILE] [--all]",
    .example = "gradwire explain 'arch=ps:servers=2 sync=ssp:staleness=3' --model cnn -n 8\n"
               "gradwire explain 'compress=int8 schedule=dear' -n 8 --hosts 2\n"
               "gradwire explain --why decisions.txt\n"
               "gradwire explain --all > docs/reference/combinations.md",
    .operands_max = 1,
    .run = run,
};
