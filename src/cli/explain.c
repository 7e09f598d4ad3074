/* explain.c - gradwire explain: what a strategy line will do in training steps of a model, what it moves and what it
 * takes, or why it is refused. The step is committed for real, on a rank that has no peers, so that what is said here
 * is what a job will do. */
#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "cli/args.h"
#include "cli/json.h"
#include "cli/links.h"
#include "engine/stepper.h"
#include "strategy/combine.h"
#include "train/catalogue.h"
#include "train/spec.h"

#define RANKS_MAX 4096

typedef struct answers {
    const char *model, *links; /* links: file of the doctor, NULL: none */
    int64_t ranks;
    bool all, json;
    gw_topology topology; /* where the ranks are, in these two */
    int order[RANKS_MAX], host_of[RANKS_MAX];
} answers;

/* What a commit came to, for the rank that sends most. */
typedef struct outcome {
    size_t parameters, sent, memory, codec;
    int tensors, pieces;
    gw_exchange_form form; /* of the largest piece that is coded; AUTO: none is */
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

static void no_update(void *ctx, const gw_step_update *update) {
    (void)ctx;
    (void)update;
}

static gw_step_tensor *name_tensors(const gw_spec *spec, float *memory) {
    gw_step_tensor *tensors = calloc((size_t)spec->parameter_count + 1, sizeof *tensors);
    for (int i = 0; tensors && i < spec->parameter_count; i++) {
        const gw_parameter *p = &spec->parameters[i];
        tensors[i] = (gw_step_tensor){.name = p->name, .count = p->count, .dtype = GW_F32, .gradient = memory,
                                      .weights = memory, .rows = p->ndims > 1 ? (size_t)p->dims[0] : 0,
                                      .exact = p->ndims < 2};
        memory += p->count;
    }
    return tensors;
}

static void note(const gw_stepper *stepper, outcome *o) {
    const gw_schedule *schedule = gw_stepper_schedule(stepper);
    o->sent = gw_stepper_sent_bytes(stepper);
    o->memory = gw_stepper_memory_bytes(stepper);
    o->codec = gw_stepper_codec_bytes(stepper);
    o->pieces = gw_schedule_pieces(schedule);
    size_t largest = 0;
    for (int p = 0; p < o->pieces; p++) {
        size_t bytes = gw_schedule_piece(schedule, p)->bytes;
        if (bytes < largest || gw_stepper_form(stepper, p) == GW_FORM_AUTO) continue;
        largest = bytes;
        o->form = gw_stepper_form(stepper, p);
    }
}

/* One rank of a job, none of whose others is there. */
static gw_status commit(const gw_strategy *strategy, gw_core *core, const gw_topology *topology,
                        const gw_step_tensor *tensors, int count, outcome *o, gw_error *error) {
    int ranks = topology->world;
    gw_team *team = NULL;
    gw_stepper *stepper = NULL;
    int *members = calloc((size_t)ranks, sizeof *members);
    if (!members) return gw_fail(error, GW_MEMORY, "out of memory for %d ranks", ranks);
    for (int r = 0; r < ranks; r++) members[r] = r;
    gw_step_options options = GW_STEP_OPTIONS_DEFAULT;
    options.update = no_update;
    gw_status status = gw_team_open(&team, gw_core_engine(core), 0, 0, members, topology, NULL, error);
    gw_stepper_config config = {.core = core, .team = team, .first_id = 1, .tensors = tensors, .count = count,
                                .options = options};
    gw_step_facts facts = {.world = ranks, .updates = true};
    if (!status) status = gw_strategy_check_step(strategy, &facts, error);
    if (!status) status = gw_stepper_follow(&config, strategy, error);
    size_t flat = status ? 0 : gw_stepper_flat_bytes(&config);
    if (flat) config.flat = malloc(flat);
    if (flat && !config.flat) status = gw_fail(error, GW_MEMORY, "out of memory for %zu bytes", flat);
    if (!status) status = gw_stepper_open(&stepper, &config, error);
    if (!status) note(stepper, o);
    gw_stepper_close(stepper);
    free(config.flat);
    gw_team_close(team);
    free(members);
    return status;
}

static gw_status try_out(const gw_strategy *strategy, const answers *a, outcome *o, gw_error *error) {
    gw_spec *spec = NULL;
    gw_core *core = NULL;
    gw_model_size size = {0};
    gw_status status = gw_model_spec(a->model, &size, &spec, error);
    if (status) return status;
    o->parameters = gw_spec_parameters(spec);
    o->tensors = spec->parameter_count;
    float *memory = calloc(o->parameters + 1, sizeof *memory);
    gw_step_tensor *tensors = memory ? name_tensors(spec, memory) : NULL;
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

/* Telling. */

static void say_meaning(const gw_strategy *strategy) {
    for (gw_axis axis = 0; axis < GW_AXES; axis++)
        printf("  %-10s %-14s %s\n", gw_axis_name(axis), gw_strategy_name(strategy, axis),
               strategy->axes[axis].technique->about);
}

static void say_choice(const gw_strategy *strategy, const gw_topology *topology) {
    if (gw_strategy_is(strategy, GW_AXIS_ARCH, "auto") && topology->world > 1) {
        printf("auto carries an all-reduce between hosts by ");
        gw_links_say_choice(GW_COLL_ALLREDUCE, topology);
        puts("");
    }
    gw_links_say_order("rings go around ranks ", topology, "\n");
}

static void say(const gw_strategy *strategy, const answers *a, const outcome *o) {
    char line[GW_STRATEGY_PRINT_BYTES], model[GW_UNIT_TEXT], sent[GW_UNIT_TEXT],
        memory[GW_UNIT_TEXT], codec[GW_UNIT_TEXT];
    gw_strategy_print(strategy, line, sizeof line);
    gw_bytes_format(o->parameters * sizeof(float), model);
    gw_bytes_format(o->sent, sent);
    gw_bytes_format(o->memory, memory);
    gw_bytes_format(o->codec, codec);
    printf("%s\n", line);
    say_meaning(strategy);
    printf("\n%s on %d ranks: %d tensors of %s, in %d piece%s", a->model, (int)a->ranks, o->tensors, model, o->pieces,
           o->pieces == 1 ? "" : "s");
    if (o->form != GW_FORM_AUTO) printf(", payloads %s", gw_exchange_form_name(o->form));
    printf("\na step sends at most %s from rank 0 (%.3g of the model), and takes %s of memory there", sent,
           (double)o->sent / ((double)o->parameters * sizeof(float)), memory);
    if (o->codec) printf(", %s of it kept by the codec", codec);
    puts("");
    say_choice(strategy, &a->topology);
}

static void say_json(const gw_strategy *strategy, const answers *a, const outcome *o, const gw_error *error) {
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
        printf(", \"pieces\": %d, \"parameters\": %zu, \"sent_bytes\": %zu, \"memory_bytes\": %zu", o->pieces,
               o->parameters, o->sent, o->memory);
        printf(", \"codec_bytes\": %zu, \"order\": [", o->codec);
        for (int i = 0; i < a->topology.world; i++) printf("%s%d", i ? ", " : "", gw_topology_at(&a->topology, i));
        putchar(']');
    }
    puts("}");
}

/* Every pair of techniques: docs/combinations.md. */

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
    if (gw_strategy_pair(a, first, b, second, PAIR_RANKS, &line, &error))
        printf(" no (%d) |", reason_number(why, error.text));
    else if (a != GW_AXIS_ARCH && b != GW_AXIS_ARCH && gw_strategy_is(&line, GW_AXIS_ARCH, "ps"))
        printf(" with arch=ps |");
    else
        printf(" yes |");
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

static void print_all(void) {
    reasons why = {.count = 0};
    puts("# Can I combine A with B?\n\n"
         "Written by `gradwire explain --all` from the checks that a commit makes; `gradwire explain LINE` answers\n"
         "for one line. A pair is \"yes\" where it works with the other axes at their defaults. Transports go with\n"
         "everything; transport=shm needs all ranks on one host, transport=sim is the simulator's, and arch=mpi\n"
         "needs transport=mpi.");
    for (gw_axis a = 0; a < GW_AXIS_TRANSPORT; a++)
        for (gw_axis b = a + 1; b < GW_AXIS_TRANSPORT; b++) print_pairs(a, b, &why);
    puts("\n## Why not\n");
    for (int i = 0; i < why.count; i++) {
        printf("%d. %s\n", i + 1, why.list[i]);
        free(why.list[i]);
    }
}

/* Exit code, -1 to go on. */
static int ask(answers *a, int *argc, char **argv) {
    const gw_option options[] = {
        {.name = "model", .letter = 'm', .kind = GW_OPTION_STRING, .value = "NAME", .string = &a->model,
         .about = "as in gradwire model (resnet20)"},
        {.name = "ranks", .letter = 'n', .kind = GW_OPTION_INTEGER, .integer = &a->ranks, .lowest = 1,
         .highest = RANKS_MAX,
         .about = "each on a host of its own, or spread over those of --links (4)"},
        {.name = "links", .kind = GW_OPTION_STRING, .value = "FILE", .string = &a->links,
         .about = "what gradwire doctor -o wrote of the hosts (GRADWIRE_LINKS)"},
        {.name = "all", .kind = GW_OPTION_FLAG, .flag = &a->all,
         .about = "which pairs of techniques go together, as docs/combinations.md"},
        {.name = "json", .kind = GW_OPTION_FLAG, .flag = &a->json, .about = "as JSON, for programs"},
        {.name = NULL},
    };
    return gw_args_parse(&gw_command_explain, options, argc, argv);
}

static int run(int argc, char **argv) {
    answers a = {.model = "resnet20", .ranks = 4};
    gw_error error = {.rank = -1};
    gw_strategy strategy;
    outcome o = {.form = GW_FORM_AUTO};
    int code = ask(&a, &argc, argv);
    if (code >= 0) return code;
    if (a.all) {
        print_all();
        return 0;
    }
    if (gw_strategy_resolve(argc > 1 ? argv[1] : NULL, &strategy, &error))
        return gw_usage_error(&gw_command_explain, "%s", error.text);
    const char *links = a.links ? a.links : getenv("GRADWIRE_LINKS");
    int hosts = links ? 0 : (int)a.ranks;
    if (gw_links_spread((int)a.ranks, hosts, links, a.order, a.host_of, &a.topology, &error))
        return gw_usage_error(&gw_command_explain, "%s", error.text);
    gw_status status = try_out(&strategy, &a, &o, &error);
    if (status && status != GW_UNSUPPORTED) return gw_usage_error(&gw_command_explain, "%s", error.text);
    if (a.json) say_json(&strategy, &a, &o, &error);
    else if (!status) say(&strategy, &a, &o);
    else printf("refused: %s\n", error.text);
    return status ? GW_EXIT_FAILED : 0;
}

const gw_command gw_command_explain = {
    .name = "explain",
    .about = "says what a strategy line will do, move and take, or why it is refused",
    .usage = "[LINE] [--model NAME] [-n RANKS] [--links FILE] [--all]",
    .example = "gradwire explain 'arch=ps:servers=2 sync=ssp:lead=3' --model cnn -n 8\n"
               "gradwire explain --all > docs/combinations.md",
    .operands_max = 1,
    .run = run,
};
