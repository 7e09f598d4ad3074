/* cmd_predict.c - gradwire predict: predicts the time of a training step, on machines that need not exist. */
#include "cli/predict/predict_options.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/suggest.h"
#include "base/units.h"
#include "cli/common/args.h"
#include "cli/common/json.h"
#include "strategy/accuracy_risk.h"
#include "zoo/zoo.h"

enum { RANKS = 64 };
#define QUIET (2 * GW_SECOND) /* shorter predictions show no progress */

typedef struct progress {
    gw_time begun;
    bool shown;
} progress;

static void show_progress(void *ctx, int step, int steps) {
    progress *s = ctx;
    if (!isatty(STDERR_FILENO) || gw_clock_now() - s->begun < QUIET) return;
    fprintf(stderr, "\rstep %d of %d ", step, steps);
    s->shown = true;
}

bool gw_predict_one(const gw_predict_request *ask, const gw_strategy *strategy, int ranks, gw_prediction *prediction) {
    gw_error error = {.rank = -1};
    progress s = {.begun = gw_clock_now()};
    gw_predict_config config = {.profile = &ask->profile,
                                .strategy = strategy,
                                .machine = &ask->machine,
                                .fabric = ask->fabric,
                                .ranks = ranks,
                                .per_host = ask->per_host,
                                .unfolded = ask->unfolded,
                                .progress = show_progress,
                                .ctx = &s};
    gw_status status = gw_predict(&config, prediction, &error);
    if (s.shown) fprintf(stderr, "\r%30s\r", "");
    if (status) fprintf(stderr, "gradwire predict: %s\n", error.text);
    return status == GW_OK;
}

const char *gw_predict_brief(const gw_strategy *strategy, char text[GW_STRATEGY_PRINT_BYTES]) {
    gw_strategy usual;
    char line[GW_STRATEGY_PRINT_BYTES], plain[GW_STRATEGY_PRINT_BYTES], *rest = line, *other = plain, *word;
    gw_strategy_default(&usual);
    gw_strategy_print(strategy, line, sizeof line);
    gw_strategy_print(&usual, plain, sizeof plain);
    size_t used = 0;
    text[0] = 0;
    while ((word = strsep(&rest, " "))) {
        char *same = strsep(&other, " ");
        bool always = strncmp(word, "schedule=", strlen("schedule=")) == 0;
        if (!always && same && strcmp(word, same) == 0) continue;
        used += (size_t)snprintf(text + used, GW_STRATEGY_PRINT_BYTES - used, "%s%s", used ? " " : "", word);
    }
    return text;
}

const char *gw_predict_link_text(const gw_machine *machine, char text[64]) {
    double bits = machine->rate * 8;
    char latency[GW_UNIT_TEXT];
    bool giga = bits >= 1e9;
    snprintf(text, 64, "%.4g %cbit/s, %s", giga ? bits / 1e9 : bits / 1e6, giga ? 'G' : 'M',
             gw_duration_format(machine->latency, latency));
    return text;
}

static void print_risk(const gw_strategy *strategy, const char *optimizer) {
    gw_accuracy_risk risk = gw_accuracy_risk_of(strategy, optimizer);
    char text[GW_ACCURACY_RISK_TEXT];
    gw_accuracy_risk_print(&risk, text);
    printf(", \"risk\": \"%s\", \"safe\": %s, \"points_lost\": %s, \"runs\": %d", text, risk.safe ? "true" : "false",
           risk.exact || risk.runs ? GW_JSON_FIXED(risk.points, 3) : "null", risk.runs);
}

void gw_predict_json(const gw_predict_request *ask, const gw_strategy *strategy, int ranks, const gw_prediction *p) {
    char line[GW_STRATEGY_PRINT_BYTES];
    gw_strategy_print(strategy, line, sizeof line);
    printf("{\"profile\": ");
    gw_json_string(stdout, ask->profile.name);
    printf(", \"ranks\": %d, \"rate_bits\": %s, \"strategy\": ", ranks, GW_JSON_DIGITS(ask->machine.rate * 8, 9));
    gw_json_string(stdout, line);
    printf(", \"step_ms\": %s, \"samples_per_s\": %s, \"efficiency\": %s, \"exposed_ms\": %s, \"bytes\": %s, "
           "\"messages\": %s, \"buckets\": %d, \"critical_path_ms\": {",
           GW_JSON_FIXED(p->step_seconds * 1e3, 6), GW_JSON_FIXED(p->samples_per_second, 3),
           GW_JSON_FIXED(p->efficiency, 6), GW_JSON_FIXED(p->exposed_seconds * 1e3, 6), GW_JSON_FIXED(p->bytes, 0),
           GW_JSON_FIXED(p->messages, 1), p->buckets);
    for (int i = 0; i < GW_TIME_PARTS; i++)
        printf("%s\"%s\": %s", i ? ", " : "", gw_time_part_name((gw_time_part)i),
               GW_JSON_FIXED(p->path.seconds[i] * 1e3, 6));
    putchar('}');
    print_risk(strategy, ask->optimizer);
    putchar('}');
}

static void print_path(const gw_prediction *p) {
    static const char *const about[GW_TIME_PARTS] = {
        [GW_TIME_FORWARD] = "forward pass",
        [GW_TIME_BACKWARD] = "backward pass",
        [GW_TIME_LATENCY] = "latency of messages",
        [GW_TIME_TRANSFER] = "transfer over links",
        [GW_TIME_SHARING] = "extra time because links are shared",
        [GW_TIME_QUEUE] = "queued behind other messages",
        [GW_TIME_REDUCE] = "reductions and copies",
        [GW_TIME_CODEC] = "encoding and decoding",
    };
    puts("critical path of a step");
    for (int i = 0; i < GW_TIME_PARTS; i++) {
        double seconds = p->path.seconds[i];
        if (seconds < p->step_seconds * 5e-4) continue;
        int bar = (int)lround(40 * seconds / p->step_seconds);
        printf("  %-9s %9.3f ms %5.1f %%  %.*s  %s\n", gw_time_part_name((gw_time_part)i), seconds * 1e3,
               100 * seconds / p->step_seconds, bar, "########################################", about[i]);
    }
}

static void print_one(const gw_predict_request *ask, const gw_strategy *strategy, const gw_prediction *p) {
    char line[GW_STRATEGY_PRINT_BYTES], bytes[GW_UNIT_TEXT];
    gw_strategy_print(strategy, line, sizeof line);
    printf("strategy    %s\n", line);
    printf("step        %.3f ms: %.3f ms of compute, %.3f ms of exposed communication\n", p->step_seconds * 1e3,
           p->compute_seconds * 1e3, p->exposed_seconds * 1e3);
    if (ask->profile.batch) printf("throughput  %.1f samples/s\n", p->samples_per_second);
    printf("efficiency  %.1f %%\n", 100 * p->efficiency);
    printf("sent        %s per rank and step, in %.0f messages; %d buckets\n",
           gw_bytes_format((uint64_t)p->bytes, bytes), p->messages, p->buckets);
    print_path(p);
}

static int run_named(const gw_predict_request *ask) {
    char link[64], bytes[GW_UNIT_TEXT];
    const gw_profile *profile = &ask->profile;
    if (!ask->json)
        printf("%s%s, %d tensors, %s of gradients; %d ranks on %d host%s; %s\n", profile->name,
               ask->timed ? ", timed on this machine" : "", gw_profile_tensors(profile),
               gw_bytes_format(gw_profile_parameter_bytes(profile), bytes), ask->ranks, ask->ranks / ask->per_host,
               ask->ranks == ask->per_host ? "" : "s", gw_predict_link_text(&ask->machine, link));
    for (int i = 0; i < ask->strategy_count; i++) {
        gw_prediction prediction;
        if (!gw_predict_one(ask, &ask->strategies[i], ask->ranks, &prediction)) return GW_EXIT_FAILED;
        if (ask->json) {
            gw_predict_json(ask, &ask->strategies[i], ask->ranks, &prediction);
            putchar('\n');
        } else {
            if (i) putchar('\n');
            print_one(ask, &ask->strategies[i], &prediction);
        }
    }
    return 0;
}

/* ---- the command line ---- */

static bool read_link(const char *text, gw_machine *machine, gw_error *error) {
    char rate[GW_UNIT_TEXT], quoted[GW_QUOTE_BYTES];
    const char *comma = strchr(text, ',');
    size_t length = comma ? (size_t)(comma - text) : strlen(text);
    double bits, latency = machine->latency;
    bool good = length < sizeof rate;
    if (good) {
        memcpy(rate, text, length);
        rate[length] = 0;
        good = gw_rate_parse(rate, &bits) && (!comma || gw_duration_parse(comma + 1, &latency)) && latency >= 0;
    }
    if (!good) {
        gw_fail(error, GW_INVALID, "--link %s: write a rate and a latency, such as 10gbit,50us",
                gw_suggest_quote(text, quoted));
        return false;
    }
    machine->rate = bits / 8;
    machine->latency = latency;
    machine->arch_count = machine->link_count = 0; /* --link replaces all measured links and architectures */
    return true;
}

static bool read_throughput(const char *text, double *samples, gw_error *error) {
    char *end;
    *samples = 0;
    if (!text || ((*samples = strtod(text, &end)) > 0 && !*end && isfinite(*samples))) return true;
    gw_fail(error, GW_INVALID, "--throughput is samples per second of one device, more than 0");
    return false;
}

/* One or several lines, separated by semicolons. */
static bool read_strategies(const char *text, gw_predict_request *ask, gw_error *error) {
    char copy[4096], *rest = copy, *line;
    if (!text) text = "";
    if (strlen(text) >= sizeof copy) {
        gw_fail(error, GW_INVALID, "--strategy is too long");
        return false;
    }
    strcpy(copy, text);
    while ((line = strsep(&rest, ";"))) {
        if (ask->strategy_count == GW_PREDICT_STRATEGIES_MAX) {
            gw_fail(error, GW_INVALID, "--strategy names more than %d strategies", GW_PREDICT_STRATEGIES_MAX);
            return false;
        }
        if (gw_strategy_resolve(line, &ask->strategies[ask->strategy_count++], error)) return false;
    }
    return true;
}

typedef struct words {
    const char *model, *link, *strategy, *topology, *machines, *throughput, *compare, *optimizer, *sweep, *svg;
    gw_host_request hosts;
    int64_t ranks, per_host, batch;
    bool here, json, unfolded;
} words;

/* Reads everything first: what is wrong is said before anything is measured. */
static bool read_ask(words *w, gw_predict_request *ask, double *samples, gw_error *error) {
    ask->optimizer = w->optimizer;
    ask->machine = gw_machine_default();
    ask->ranks = (int)w->ranks;
    ask->per_host = (int)w->per_host;
    ask->json = w->json;
    ask->unfolded = w->unfolded;
    if (!w->model) {
        gw_fail(error, GW_INVALID, "which model? --model resnet50, or a file");
        return false;
    }
    if (!gw_zoo_is_path(w->model) && !gw_zoo_find(w->model)) return gw_zoo_unknown(w->model, error) == GW_OK;
    ask->model = w->model;
    ask->linked = w->link != NULL;
    if (w->machines && gw_machine_read(w->machines, &ask->machine, error)) return false;
    if (w->link && !read_link(w->link, &ask->machine, error)) return false;
    if (gw_fabric_parse(w->topology, &ask->fabric, error)) return false;
    if (!read_strategies(w->strategy, ask, error) || !read_throughput(w->throughput, samples, error)) return false;
    if (w->here && gw_host_request_check(&w->hosts, error)) return false;
    if (gw_predict_times_model(w->model)) return true;
    return gw_predict_model(w->model, (int)w->batch, *samples, ask, error) == GW_OK;
}

static bool check_ranks(gw_predict_request *ask, gw_error *error) {
    if (!ask->per_host) ask->per_host = 1;
    if (!ask->ranks) ask->ranks = RANKS;
    if (ask->ranks % ask->per_host == 0) return true;
    gw_fail(error, GW_INVALID, "%d ranks do not fill hosts of %d", ask->ranks, ask->per_host);
    return false;
}

/* Measures what the command line asks to be measured. */
static bool measure(words *w, double samples, gw_predict_request *ask, gw_error *error) {
    gw_here found;
    if (w->link) w->hosts.processes = 1; /* no links between processes */
    if (w->here && gw_predict_here(ask, &w->hosts, w->compare, &found, error)) return false;
    if (w->link && !read_link(w->link, &ask->machine, error)) return false; /* again, over what was measured */
    if (!check_ranks(ask, error)) return false;
    if (!ask->profile.count && gw_predict_model(w->model, (int)w->batch, samples, ask, error)) return false;
    if (!w->here) return true;
    gw_predict_here_compute(ask, &found);
    if (!ask->json) gw_predict_here_print(ask, &found);
    return true;
}

static int refuse(const gw_error *error) {
    if (error->status == GW_INVALID) return gw_usage_error(&gw_command_predict, "%s", error->text);
    fprintf(stderr, "gradwire predict: %s\n", error->text);
    return GW_EXIT_FAILED;
}

static int run(int argc, char **argv) {
    words w = {.topology = "switch"};
    const gw_option options[] = {
        {.name = "model",
         .kind = GW_OPTION_STRING,
         .string = &w.model,
         .value = "NAME|FILE",
         .about = "model, see gradwire model; layers without known times are timed here"},
        {.name = "ranks",
         .letter = 'n',
         .kind = GW_OPTION_INTEGER,
         .integer = &w.ranks,
         .lowest = 1,
         .highest = GW_PREDICT_RANKS_MAX,
         .about = "number of ranks (default: 64; with --here, the slots of the hosts, or cores of this machine)"},
        {.name = "per-host",
         .kind = GW_OPTION_INTEGER,
         .integer = &w.per_host,
         .lowest = 1,
         .highest = 1024,
         .about = "ranks on each host (default: 1; with --here, the slots of the hosts, or all ranks on this machine)"},
        {.name = "link",
         .kind = GW_OPTION_STRING,
         .string = &w.link,
         .value = "RATE,LATENCY",
         .about = "link of each host (default: that of --machines, else 10gbit,50us)"},
        {.name = "topology",
         .kind = GW_OPTION_STRING,
         .string = &w.topology,
         .value = "SHAPE",
         .about = "switch, fattree:hosts=16,up=4, ring, torus:8x8, sites:rate=1gbit,latency=5ms"},
        {.name = "strategy",
         .kind = GW_OPTION_STRING,
         .string = &w.strategy,
         .value = "LINE",
         .about = "strategy line; separate several by semicolons"},
        {.name = "machines",
         .kind = GW_OPTION_STRING,
         .string = &w.machines,
         .value = "FILE",
         .about = "machine speeds, a file of gradwire fit"},
        {.name = "here",
         .kind = GW_OPTION_FLAG,
         .flag = &w.here,
         .about = "measure this machine, or the hosts given: links, memory, sums, codecs, layers of the model"},
        GW_HOST_OPTIONS(w.hosts),
        {.name = "batch",
         .kind = GW_OPTION_INTEGER,
         .integer = &w.batch,
         .lowest = 1,
         .highest = 1 << 24,
         .about = "samples per step on one device"},
        {.name = "throughput",
         .kind = GW_OPTION_STRING,
         .string = &w.throughput,
         .value = "SAMPLES",
         .about = "samples per second of a single device, to scale the compute times"},
        {.name = "compare",
         .kind = GW_OPTION_CHOICE,
         .string = &w.compare,
         .choices = (const char *const[]){"all", "auto", NULL},
         .about = "compare all sensible strategies, or those that strategy=auto chooses from; the best first"},
        {.name = "optimizer",
         .kind = GW_OPTION_STRING,
         .string = &w.optimizer,
         .value = "NAME",
         .about = "RISK in trainings with this one: sgd, adam, adamw (default: the worst of all that were measured)"},
        {.name = "sweep",
         .kind = GW_OPTION_STRING,
         .string = &w.sweep,
         .value = "RANGE",
         .about = "ranks=2..1024 or rate=1gbit..100gbit: draw the efficiency over this range"},
        {.name = "svg",
         .kind = GW_OPTION_STRING,
         .string = &w.svg,
         .value = "FILE",
         .about = "with --sweep: also write the chart to this file"},
        {.name = "unfolded",
         .kind = GW_OPTION_FLAG,
         .flag = &w.unfolded,
         .about = "simulate every rank, even where one host can represent all"},
        {.name = "json", .kind = GW_OPTION_FLAG, .flag = &w.json, .about = "print one JSON object per line"},
        {.name = "profile", .kind = GW_OPTION_RENAMED, .value = "model"},
        {.name = NULL},
    };
    int code = gw_args_parse(&gw_command_predict, options, &argc, argv);
    if (code >= 0) return code;
    gw_predict_request ask = {.ranks = 0};
    gw_error error = {.rank = -1};
    if (w.compare && w.sweep) return gw_usage_error(&gw_command_predict, "give only one of --compare and --sweep");
    if (w.svg && !w.sweep) return gw_usage_error(&gw_command_predict, "--svg needs --sweep");
    if (w.here && w.machines)
        return gw_usage_error(&gw_command_predict, "--here measures what --machines has: give one");
    if (w.here && w.sweep && !w.link && !gw_host_request_named(&w.hosts))
        return gw_usage_error(&gw_command_predict,
                              "--here and --sweep need links: --hosts, --hostfile, --lab or --link");
    if (!w.here && gw_host_request_named(&w.hosts))
        return gw_usage_error(&gw_command_predict, "--hosts, --hostfile and --lab need --here, which measures them");
    double samples = 0;
    if (!read_ask(&w, &ask, &samples, &error)) code = gw_usage_error(&gw_command_predict, "%s", error.text);
    else if (!measure(&w, samples, &ask, &error)) code = refuse(&error);
    else
        code = w.compare ? gw_predict_compare(&ask, strcmp(w.compare, "all") == 0)
               : w.sweep ? gw_predict_sweep(&ask, w.sweep, w.svg)
                         : run_named(&ask);
    gw_profile_free(&ask.profile);
    return code;
}

const gw_command gw_command_predict = {
    .name = "predict",
    .about = "predicts the time of a training step on a cluster that need not exist",
    .usage = "--model NAME|FILE [--ranks N] [--link RATE,LATENCY] [--strategy LINE] [OPTIONS]",
    .example = "gradwire predict --model resnet50 --ranks 64 --link 10gbit,50us --strategy 'schedule=dear'\n"
               "gradwire predict --model bert-base --ranks 32 --compare all\n"
               "gradwire predict --model vgg16 --sweep rate=1gbit..100gbit --svg vgg16.svg\n"
               "gradwire predict --here -H node1:4,node2:4 --model resnet20 --compare all",
    .run = run,
};
