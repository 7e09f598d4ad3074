/* bench_step.c - gradwire bench step: parses the command line and starts the job (its ranks: bench_step_rank.c). */
#include "cli/bench/bench_step.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/text_file.h"
#include "cli/bench/bench.h"
#include "cli/common/args.h"
#include "cli/common/host_options.h"
#include "profile/profile_load.h"
#include "schedule/schedule.h"
#include "strategy/combine.h"
#include "sync/sync.h"

enum { PORT = 29700, RANKS_MAX = 1024, STEPS_MAX = 1000 };

static const gw_command command = {
    .name = "bench step",
    .about = "compares schedules on the replay of a recorded model",
    .usage = "--model NAME|FILE [OPTIONS]",
    .example = "gradwire bench step --model bench/profiles/vgg16.csv -n 4 --lab rate=1gbit --shrink 16 --ratio 1",
    .run = gw_cmd_bench_step,
};

/* ---- the entries of --schedule ---- */

static void append(char *list, size_t room, const char *name) {
    size_t used = strlen(list);
    snprintf(list + used, room - used, "%s%s", used ? "," : "", name);
}

/* Lists every schedule, the baselines first. Then follow the synchronizations that exchange gradients in each step and
 * need no servers, except the default one. */
static void list_schedules(char *list, size_t room) {
    list[0] = '\0';
    for (int baseline = 1; baseline >= 0; baseline--)
        for (const gw_technique *const *t = gw_schedule_techniques; *t; t++)
            if (gw_policy_of(*t)->after_backward == baseline) append(list, room, (*t)->name);
    for (const gw_technique *const *t = gw_sync_techniques + 1; *t; t++)
        if (!gw_sync_of(*t)->rule && !gw_sync_of(*t)->exchanges) append(list, room, (*t)->name);
}

/* The synchronization that a label names instead of a schedule; NULL: none. */
static const gw_technique *sync_of_label(const char *label) {
    size_t length = strcspn(label, ":");
    for (const gw_technique *const *t = gw_sync_techniques; *t; t++)
        if (strlen((*t)->name) == length && strncmp((*t)->name, label, length) == 0) return *t;
    return NULL;
}

/* The length of a name with its parameters. Commas separate both names and parameters; a word with '=' and without ':'
 * is a parameter. */
static size_t entry_length(const char *text) {
    size_t length = strcspn(text, ",");
    while (text[length] == ',') {
        const char *next = text + length + 1;
        size_t word = strcspn(next, ","), equals = strcspn(next, "=,:");
        if (next[equals] != '=') break;
        length += 1 + word;
    }
    return length;
}

static gw_status overlay(gw_strategy *strategy, const char *axis, const char *value, gw_error *error) {
    char text[200];
    if (!value) return GW_OK;
    snprintf(text, sizeof text, "%s=%s", axis, value);
    return gw_strategy_overlay(strategy, text, NULL, error);
}

/* Whether the schedule has sizes, and the label sets none of them. */
static bool can_be_tuned(const char *label, const gw_strategy *strategy) {
    const gw_param *params = strategy->axes[GW_AXIS_SCHEDULE].technique->params;
    for (int i = 0; params && params[i].name; i++)
        if (params[i].kind == GW_PARAM_BYTES && !strchr(label, ':')) return true;
    return false;
}

/* The axes that were named: strategy=auto chooses the others. */
static void print_named(const gw_strategy *strategy, char *text, size_t size) {
    size_t used =
        (size_t)snprintf(text, size, "strategy=auto%s", strategy->accuracy == GW_ACCURACY_SAFE ? " accuracy=safe" : "");
    for (int axis = 0; axis < GW_AXES; axis++) {
        if (!(strategy->named & 1u << axis) || used + 1 >= size) continue;
        text[used++] = ' ';
        used += (size_t)gw_strategy_print_axis(strategy, (gw_axis)axis, text + used, size - used);
    }
}

static gw_status make_entry(const gw_replay_settings *s, const char *label, gw_replay_entry *entry, gw_error *error) {
    gw_strategy strategy;
    const gw_technique *labelled = sync_of_label(label);
    char schedule[sizeof entry->label + 32], sync_text[GW_TECHNIQUE_TEXT_BYTES];
    if (labelled) { /* the label means: the synchronization's first example, with the default schedule */
        snprintf(schedule, sizeof schedule, "%s%s", gw_schedule_techniques[0]->name, label + strlen(labelled->name));
        gw_technique_example(labelled, 0, sync_text);
    }
    gw_status status = gw_strategy_resolve(s->strategy, &strategy, error);
    if (!status) status = overlay(&strategy, "arch", s->arch, error);
    if (!status) status = overlay(&strategy, "compress", s->compress, error);
    if (!status) status = overlay(&strategy, "transport", s->transport, error);
    if (!status) status = overlay(&strategy, "sync", labelled ? sync_text : s->sync, error);
    entry->chosen = strcmp(label, "auto") == 0;
    if (!status && !entry->chosen) status = overlay(&strategy, "schedule", labelled ? schedule : label, error);
    if (status) return status;
    snprintf(entry->label, sizeof entry->label, "%s", label);
    if (entry->chosen) print_named(&strategy, entry->line, sizeof entry->line);
    else gw_strategy_print(&strategy, entry->line, sizeof entry->line);
    const gw_sync *sync = gw_sync_of(strategy.axes[GW_AXIS_SYNC].technique);
    entry->updates = sync->needs_update;
    entry->delayed = sync->runs_ahead != NULL;
    entry->checked = !gw_strategy_compresses(&strategy) && !sync->rule && !sync->exchanges &&
                     !(entry->chosen && strategy.accuracy == GW_ACCURACY_SAFE);
    const gw_setting *order = &strategy.axes[GW_AXIS_SCHEDULE];
    entry->measures = gw_policy_of(order->technique)->settings(order->values).measured;
    entry->tuned = strcmp(s->tune, "on") == 0 && !entry->chosen && can_be_tuned(label, &strategy);
    return GW_OK;
}

/* If the last entry can be tuned: adds it a second time. The first stays untuned, the second is tuned. */
static gw_status add_tuned(gw_replay_settings *s, gw_error *error) {
    gw_replay_entry *given = &s->entries[s->count - 1], *tuned = &s->entries[s->count];
    if (!given->tuned) return GW_OK;
    if (s->count++ == GW_REPLAYS_MAX)
        return gw_fail(error, GW_INVALID, "at most %d schedules can be compared at once", GW_REPLAYS_MAX);
    *tuned = *given;
    given->tuned = false;
    strcat(tuned->label, ", tuned"); /* a name without parameters is short */
    return GW_OK;
}

static gw_status make_entries(gw_replay_settings *s, gw_error *error) {
    gw_status status = GW_OK;
    for (const char *at = s->schedules; *at && !status;) {
        size_t length = entry_length(at);
        char label[100];
        if (s->count == GW_REPLAYS_MAX)
            return gw_fail(error, GW_INVALID, "at most %d schedules can be compared at once", GW_REPLAYS_MAX);
        snprintf(label, sizeof label, "%.*s", (int)(length < sizeof label ? length : sizeof label - 1), at);
        status = make_entry(s, label, &s->entries[s->count++], error);
        if (!status) status = add_tuned(s, error);
        at += length + (at[length] == ',');
    }
    return status;
}

/* ---- checks ---- */

static int number(const char *name, const char *text, double *value) {
    if (!text || (gw_text_decimal(text, 1e6, value) && *value > 0)) return -1;
    return gw_usage_error(&command, "--%s %s is not a number above 0", name, text);
}

static int64_t ranks_of(const gw_replay_settings *s) { return s->ranks ? s->ranks : s->lab.hosts ? s->lab.hosts : 4; }

/* Checks all combinations before the job starts. */
static gw_status check_entries(const gw_replay_settings *s, gw_error *error) {
    gw_status status = s->count ? GW_OK : gw_fail(error, GW_INVALID, "--schedule names nothing to compare");
    for (int i = 0; i < s->count && !status; i++) {
        gw_strategy strategy;
        gw_reducer_facts facts = {.world = (int)ranks_of(s), .updates = s->entries[i].updates};
        status = gw_strategy_resolve(s->entries[i].line, &strategy, error);
        if (!status) status = gw_strategy_check_step(&strategy, &facts, error);
    }
    return status;
}

static int check(gw_replay_settings *s) {
    gw_error error = {0};
    gw_profile profile;
    if (!s->model) return gw_usage_error(&command, "which model? --model resnet50, or a file of gradwire profile");
    int code = number("scale", s->scale_text, &s->scale);
    if (code < 0) code = number("shrink", s->shrink_text, &s->shrink);
    if (code < 0) code = number("ratio", s->ratio_text, &s->ratio);
    if (code < 0 && s->scale_text && s->ratio_text)
        code = gw_usage_error(&command, "--ratio sets the scale of compute: give it or --scale");
    if (code < 0 && make_entries(s, &error) != GW_OK) code = gw_usage_error(&command, "%s", error.text);
    if (code < 0 && s->lab_text && gw_lab_parse(s->lab_text, &s->lab, &error) != GW_OK)
        code = gw_usage_error(&command, "%s", error.text);
    if (code < 0 && !gw_bench_is_rank() && check_entries(s, &error) != GW_OK)
        code = gw_usage_error(&command, "%s", error.text);
    if (code < 0 && s->lab.hosts && s->ranks && s->ranks < s->lab.hosts)
        code = gw_usage_error(&command, "-n %d ranks are too few for a lab of %d hosts", (int)s->ranks, s->lab.hosts);
    if (code >= 0) return code;
    if (gw_profile_load(s->model, &profile, &error) != GW_OK) return gw_usage_error(&command, "%s", error.text);
    gw_profile_free(&profile);
    return -1;
}

/* ---- the job ---- */

static volatile sig_atomic_t job; /* pid that the handler forwards signals to */

static void pass_on(int signal_number) {
    if (job > 0) kill((pid_t)job, signal_number);
}

static void add_given(gw_spawn *spawn, const char *name, const char *value) {
    if (value) gw_spawn_add(spawn, "--%s=%s", name, value);
}

static gw_status make_command(const gw_replay_settings *s, const gw_lab *lab, gw_spawn *spawn, gw_error *error) {
    gw_status status = gw_spawn_run(spawn, (int)s->ranks, lab, s->lab.hosts, PORT, error);
    if (status) return status;
    gw_spawn_add(spawn, "--");
    gw_spawn_add(spawn, "%s", spawn->argv[0]);
    gw_spawn_add(spawn, "bench");
    gw_spawn_add(spawn, "step");
    add_given(spawn, "model", s->model);
    add_given(spawn, "schedule", s->schedules);
    add_given(spawn, "strategy", s->strategy);
    add_given(spawn, "arch", s->arch);
    add_given(spawn, "sync", s->sync);
    add_given(spawn, "compress", s->compress);
    add_given(spawn, "transport", s->transport);
    add_given(spawn, "scale", s->scale_text);
    add_given(spawn, "shrink", s->shrink_text);
    add_given(spawn, "ratio", s->ratio_text);
    add_given(spawn, "tune", s->tune);
    gw_spawn_add(spawn, "--steps=%d", (int)s->steps);
    if (s->json) gw_spawn_add(spawn, "--json");
    return spawn->count < GW_SPAWN_WORDS ? GW_OK : gw_fail(error, GW_INVALID, "the command line is too long");
}

static int run_job(const gw_spawn *spawn) {
    struct sigaction action = {.sa_handler = pass_on};
    int status = 0;
    pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        if (prctl(PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0) != 0 || getppid() != parent) _exit(1);
        execv(spawn->argv[0], spawn->argv);
        dprintf(2, "gradwire bench step: cannot run %s: %s\n", spawn->argv[0], strerror(errno));
        _exit(127);
    }
    if (pid < 0) {
        fprintf(stderr, "gradwire bench step: cannot start a process: %s\n", strerror(errno));
        return GW_EXIT_FAILED;
    }
    job = pid;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
    job = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int driver(gw_replay_settings *s) {
    gw_error error = {0};
    gw_lab *lab = NULL;
    gw_spawn spawn = {.count = 0};
    s->ranks = ranks_of(s);
    gw_status status = s->lab.hosts ? gw_lab_open(&lab, &s->lab, &error) : GW_OK;
    if (!status) status = make_command(s, lab, &spawn, &error);
    int code = status ? GW_EXIT_FAILED : run_job(&spawn);
    if (status) fprintf(stderr, "gradwire bench step: %s\n", error.text);
    gw_lab_close(lab);
    return code;
}

int gw_cmd_bench_step(int argc, char **argv) {
    gw_replay_settings *s = calloc(1, sizeof *s);
    if (!s) return GW_EXIT_FAILED;
    char all[512];
    list_schedules(all, sizeof all);
    *s = (gw_replay_settings){.schedules = all, .tune = "off", .scale = 1, .shrink = 1, .steps = 16};
    static const char *const off_or_on[] = {"off", "on", NULL};
    const gw_option options[] = {
        /* clang-format off */
        {.name = "model", .kind = GW_OPTION_STRING, .value = "NAME|FILE", .string = &s->model,
         .about = "model with layer times: a name (gradwire model), or a file of gradwire profile"},
        {.name = "ranks", .letter = 'n', .kind = GW_OPTION_INTEGER, .integer = &s->ranks, .lowest = 1,
         .highest = RANKS_MAX, .about = "number of ranks (default: 4, or one for each host of the lab)"},
        GW_OPTION_LAB(&s->lab_text),
        {.name = "schedule", .kind = GW_OPTION_STRING, .value = "A,B", .string = &s->schedules,
         .about = "what is compared, as in gradwire list schedule; delayed: wfbp under sync=delayed (default: all)"},
        {.name = "scale", .kind = GW_OPTION_STRING, .value = "X", .string = &s->scale_text,
         .about = "multiply the recorded compute times by X (default: 1)"},
        {.name = "shrink", .kind = GW_OPTION_STRING, .value = "Y", .string = &s->shrink_text,
         .about = "divide tensor sizes by Y, so that the lab's rate stands for one Y times as fast (default: 1)"},
        {.name = "ratio", .kind = GW_OPTION_STRING, .value = "R", .string = &s->ratio_text,
         .about = "set --scale so that communication takes R times as long as compute, measured at the start"},
        {.name = "tune", .kind = GW_OPTION_CHOICE, .string = &s->tune, .choices = off_or_on,
         .about = "compare schedules without given sizes a second time, tuned (default: off)"},
        {.name = "steps", .kind = GW_OPTION_INTEGER, .integer = &s->steps, .lowest = 4, .highest = STEPS_MAX,
         .about = "timed steps of each schedule, in turns (default: 16)"},
        {.name = "arch", .kind = GW_OPTION_STRING, .value = "NAME", .string = &s->arch,
         .about = "architecture, see gradwire list arch"},
        {.name = "sync", .kind = GW_OPTION_STRING, .value = "NAME", .string = &s->sync,
         .about = "synchronization, see gradwire list sync"},
        {.name = "compress", .kind = GW_OPTION_STRING, .value = "NAME", .string = &s->compress,
         .about = "codec, see gradwire list compress"},
        {.name = "transport", .kind = GW_OPTION_STRING, .value = "NAME", .string = &s->transport,
         .about = "transport, see gradwire list transport"},
        {.name = "strategy", .kind = GW_OPTION_STRING, .value = "LINE", .string = &s->strategy,
         .about = "strategy line; the options above override it"},
        {.name = "json", .kind = GW_OPTION_FLAG, .flag = &s->json, .about = "print one JSON object per line"},
        {.name = "profile", .kind = GW_OPTION_RENAMED, .value = "model"},
        /* clang-format on */
        {.name = NULL},
    };
    int code = gw_args_parse(&command, options, &argc, argv);
    if (code < 0) code = check(s);
    bool rank = gw_bench_is_rank();
    if (code < 0 && rank && (s->lab.hosts || s->ranks))
        code = gw_usage_error(&command, "this process is a rank of a job already: -n and --lab cannot be given");
    if (code < 0) code = rank ? gw_bench_step_rank(s) : driver(s);
    free(s);
    return code;
}
