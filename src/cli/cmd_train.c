/* cmd_train.c - gradwire train: trains a model on a data set with several workers. This file parses and checks the
 * command line. */
#include "cli/train/train_request.h"

#include <errno.h>
#include <float.h>
#include <libgen.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/suggest.h"
#include "cli/common/args.h"
#include "reducer/tuning.h"
#include "schedule/schedule.h"
#include "strategy/combine.h"
#include "sync/sync.h"

enum { RANKS_MAX = 1024, CONTEXT = 64 };

/* Options that need further parsing, as typed; NULL: not given. */
typedef struct typed {
    const char *rate, *rate_batch, *momentum, *decay, *clip, *target;
    const char *optimiser, *schedule, *parallel;
    int64_t warmup, seed;
    int64_t layers, heads, embedding, context;
    bool nesterov;
} typed;

/* Learning rates that suit a batch of 128. */
static double default_rate(const gw_optimiser_kind *kind) {
    if (kind == &gw_sgd || kind == &gw_lars) return 0.05;
    return kind == &gw_lamb ? 0.005 : 0.001;
}

/* Exit code, -1 to continue. */
static int number(const char *option, const char *text, double low, double high, double *value) {
    char quoted[GW_QUOTE_BYTES], *end;
    if (!text) return -1;
    errno = 0;
    double read = strtod(text, &end);
    if (end != text && !*end && errno == 0 && read >= low && read <= high) {
        *value = read;
        return -1;
    }
    return gw_usage_error(&gw_command_train,
                          high < DBL_MAX ? "--%s %s is not a number from %g to %g"
                                         : "--%s %s is not a number of at least %g",
                          option, gw_suggest_quote(text, quoted), low, high);
}

static int check_optimiser(gw_train_request *r, const typed *y) {
    gw_error error = {0};
    gw_train_settings *s = &r->settings;
    double given_for = (double)(s->batch * s->accumulate);
    s->optimiser = gw_optimiser_find(y->optimiser, &error);
    if (!s->optimiser || gw_learning_rate_find(y->schedule, &s->schedule, &error) != GW_OK)
        return gw_usage_error(&gw_command_train, "%s", error.text);
    s->tuning = s->optimiser->defaults;
    s->tuning.nesterov = y->nesterov;
    s->rate = default_rate(s->optimiser);
    if (!y->rate) given_for = 128;
    int code = number("lr", y->rate, 0, DBL_MAX, &s->rate);
    if (code < 0) code = number("lr-batch", y->rate_batch, 1, 1e9, &given_for);
    if (code < 0) code = number("momentum", y->momentum, 0, 1, &s->tuning.momentum);
    if (code < 0) code = number("weight-decay", y->decay, 0, 1, &s->tuning.decay);
    if (code < 0) code = number("clip", y->clip, 0, DBL_MAX, &s->clip);
    if (code < 0) code = number("target-accuracy", y->target, 0, 1, &r->target);
    s->rate = gw_learning_rate_scaled(s->rate, given_for, (double)(s->batch * s->accumulate));
    return code;
}

/* Checks --servers, and whether the strategy allows an elastic job. */
static int check_elastic(const gw_train_request *r) {
    gw_error error = {0};
    gw_strategy strategy;
    const char *given = getenv("GRADWIRE_SERVERS"); /* set by gradwire run */
    int servers = r->servers ? (int)r->servers : given ? atoi(given) : 0;
    bool elastic = r->elastic || r->restarts || gw_trainer_elastic();
    if (!elastic && !r->servers) return -1;
    if (gw_strategy_resolve(r->strategy, &strategy, &error) != GW_OK ||
        gw_strategy_apply_servers(&strategy, servers, &error) != GW_OK)
        return gw_usage_error(&gw_command_train, "%s", error.text);
    if (r->servers && r->settings.pipeline.stages)
        return gw_usage_error(&gw_command_train, "--servers: the steps of a pipeline's stages are of few workers each, "
                                                 "and server processes serve all");
    if (!elastic) return -1;
    const gw_sync *sync = gw_sync_of(strategy.axes[GW_AXIS_SYNC].technique);
    const gw_setting *schedule = &strategy.axes[GW_AXIS_SCHEDULE];
    bool measured = gw_policy_of(schedule->technique)->settings(schedule->values).measured;
    if (r->settings.pipeline.stages)
        return gw_usage_error(&gw_command_train, "--elastic and --restarts: the layers of a lost stage are lost, so a "
                                                 "pipeline cannot go on");
    if (!gw_strategy_servers(&strategy)) return -1; /* collective steps can always continue with fewer ranks */
    if (!gw_strategy_is(&strategy, GW_AXIS_ARCH, "ps"))
        return gw_usage_error(&gw_command_train,
                              "--elastic and --restarts: steps with arch=%s over servers cannot go "
                              "on over other ranks; use arch=ps, or no servers",
                              gw_strategy_name(&strategy, GW_AXIS_ARCH));
    if (r->restarts && !gw_sync_takes_back(sync, strategy.axes[GW_AXIS_SYNC].values))
        return gw_usage_error(&gw_command_train,
                              "--restarts with sync=%s: %s, and one that was started again cannot come back; use "
                              "--elastic, sync=asp or ssp (with a staleness above 0), or no servers",
                              sync->technique.name,
                              sync->rule ? "every step waits for all workers" : "workers have the weights");
    if (gw_strategy_keeps_codec_state(&strategy))
        return gw_usage_error(&gw_command_train,
                              "--elastic and --restarts with compress=%s: a push cannot be encoded "
                              "twice, since what it leaves for later has changed; use a codec that leaves nothing, "
                              "such as fp16, or int8, qsgd and terngrad without feedback",
                              gw_strategy_name(&strategy, GW_AXIS_COMPRESS));
    if (sync->travels_apart || measured)
        return gw_usage_error(&gw_command_train,
                              "--elastic and --restarts: steps with sync=%s and schedule=%s cannot "
                              "go on over other ranks",
                              sync->technique.name, schedule->technique->name);
    return -1;
}

static int check(gw_train_request *r, const typed *y) {
    gw_error error = {0};
    gw_strategy strategy;
    gw_train_settings *s = &r->settings;
    int code = check_optimiser(r, y);
    if (code >= 0) return code;
    if (gw_zoo_check_trains(s->model, &error) != GW_OK ||
        gw_strategy_resolve(r->strategy, &strategy, &error) != GW_OK ||
        gw_train_parallel(y->parallel, &s->pipeline, &error) != GW_OK)
        return gw_usage_error(&gw_command_train, "%s", error.text);
    if (r->resume && !r->checkpoint)
        return gw_usage_error(&gw_command_train, "--resume needs --checkpoint FILE: the file to resume from");
    if (r->checkpoint_every && !r->checkpoint)
        return gw_usage_error(&gw_command_train, "--checkpoint-every needs --checkpoint FILE: the file to write");
    code = check_elastic(r);
    if (code >= 0) return code;
    s->seed = (uint64_t)y->seed;
    s->warmup = (uint64_t)y->warmup;
    s->size = (gw_model_size){.layers = (int)y->layers, .heads = (int)y->heads, .embedding = (int)y->embedding,
                              .context = (int)y->context};
    return -1;
}

/* A launcher started this process as a rank of a job. */
static bool is_rank(void) {
    static const char *const names[] = {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (getenv(names[i])) return true;
    return false;
}

static char **copy_words(int argc, char **argv) {
    char **copy = calloc((size_t)argc + 1, sizeof *copy);
    if (copy) memcpy(copy, argv, (size_t)argc * sizeof *copy);
    return copy;
}

/* A file that is written while training runs: checks now that this is possible. -1, or an exit code. */
static int check_written(const char *option, const char *file) {
    char folder[PATH_MAX];
    if (!file || strcmp(file, "on") == 0 || strcmp(file, "off") == 0) return -1;
    snprintf(folder, sizeof folder, "%s", file);
    if (access(dirname(folder), W_OK) == 0) return -1;
    return gw_usage_error(&gw_command_train, "--%s: %s cannot be written: %s", option, file, strerror(errno));
}

static int start(const gw_train_request *r, int argc, char **argv) {
    bool rank = is_rank();
    int wrong = check_written("tune", r->tune);
    if (wrong < 0) wrong = check_written("decisions", r->decisions);
    if (wrong >= 0) return wrong;
    gw_set_recording(r->timeline, r->capture);
    if (r->tune) setenv(GW_TUNE_VARIABLE, r->tune, 1);
    if (r->decisions) setenv("GRADWIRE_DECISIONS", r->decisions, 1);
    if (r->quiet) setenv("GRADWIRE_LOG", "warn", 0); /* not what is only good to know */
    if (rank && r->ranks)
        return gw_usage_error(&gw_command_train, "this process is a rank of a job already, so -n cannot be given");
    int code = rank ? -1 : gw_train_data(r); /* a rank only opens the data set, and reports if it is missing */
    if (code >= 0) return code;
    bool launches = !rank && (r->ranks > 1 || r->servers);
    return launches ? gw_train_launch(r, argc, argv) : gw_train_rank(r);
}

#define INTEGER(option, field, low, high, text)                                                                        \
    {.name = option, .kind = GW_OPTION_INTEGER, .integer = &(field), .lowest = low, .highest = high, .about = text}
#define NUMBER(option, field, text)                                                                                    \
    {.name = option, .kind = GW_OPTION_STRING, .value = "X", .string = &(field), .about = text}
#define WORD(option, word, field, text)                                                                                \
    {.name = option, .kind = GW_OPTION_STRING, .value = word, .string = &(field), .about = text}
#define FLAG(option, field, text) {.name = option, .kind = GW_OPTION_FLAG, .flag = &(field), .about = text}

/* Exit code, -1 to continue. */
static int parse(gw_train_request *r, typed *y, int *argc, char **argv) {
    static const char *optimisers[8];
    for (int i = 0; i < 7 && gw_optimiser_kinds[i]; i++) optimisers[i] = gw_optimiser_kinds[i]->name;
    gw_train_settings *s = &r->settings;
    const gw_option options[] = {
        {.name = "ranks", .letter = 'n', .kind = GW_OPTION_INTEGER, .integer = &r->ranks, .lowest = 1,
         .highest = RANKS_MAX, .about = "number of workers on this machine (default: 1)"},
        WORD("model", "NAME|FILE", s->model, "built-in model or description file, see gradwire model (default: cnn)"),
        WORD("data", "NAME|PATH", s->data, "data set, see gradwire data (default: fashion-mnist)"),
        INTEGER("epochs", s->epochs, 1, 1000000, "passes over the data (default: 3)"),
        INTEGER("batch", s->batch, 1, 1 << 24, "global batch: examples of all workers together (default: 128)"),
        INTEGER("accumulate", s->accumulate, 1, 1 << 16, "batches per weight update (default: 1)"),
        NUMBER("lr", y->rate, "learning rate (default: one for the optimizer at batch 128, scaled to the batch)"),
        NUMBER("lr-batch", y->rate_batch, "batch that --lr was tuned for; --lr is scaled linearly to the real batch"),
        {.name = "optimizer", .kind = GW_OPTION_CHOICE, .string = &y->optimiser, .choices = optimisers,
         .about = "optimizer (default: sgd)"},
        NUMBER("momentum", y->momentum, "momentum of sgd and lars (default: 0.9)"),
        FLAG("nesterov", y->nesterov, "Nesterov momentum for sgd and lars"),
        NUMBER("weight-decay", y->decay, "weight decay (default: the optimizer's, 0 for sgd and adam)"),
        {.name = "schedule", .kind = GW_OPTION_CHOICE, .string = &y->schedule, .choices = gw_learning_rate_names,
         .about = "learning-rate schedule; step: times 0.1 after each third (default: cosine)"},
        INTEGER("warmup", y->warmup, 0, 1 << 30, "updates in which the rate grows to --lr (default: 100)"),
        NUMBER("clip", y->clip, "clip the norm of all gradients together to this (default: no clipping)"),
        FLAG("allow-nonfinite", s->allow_nonfinite, "go on after a loss or gradient that is NaN or infinite"),
        FLAG("augment", s->augment, "shift images by up to 4 pixels and mirror them at random"),
        INTEGER("seed", y->seed, 0, INT64_MAX, "seed of the weights and of the order of examples (default: 1)"),
        WORD("parallel", "HOW", y->parallel,
             "data, or pipeline:stages=2,micro=8: layers split over ranks, a batch into micro-batches (default: data)"),
        WORD("strategy", "LINE", r->strategy, "strategy line: how gradients are exchanged (gradwire list)"),
        WORD("decisions", "FILE", r->decisions,
             "strategy=auto writes its decisions to FILE; a file that exists is replayed"),
        WORD("tune", "off|on|FILE", r->tune,
             "tune the schedule's sizes in the first steps; FILE keeps them for the next run (default: off)"),
        NUMBER("target-accuracy", y->target, "stop after the epoch that reaches this test accuracy, 0 to 1"),
        INTEGER("steps", r->steps, 0, INT64_MAX, "stop after this many updates"),
        WORD("checkpoint", "FILE", r->checkpoint, "write a checkpoint at the end of each epoch"),
        INTEGER("checkpoint-every", r->checkpoint_every, 1, INT64_MAX, "also write it every N updates"),
        INTEGER("servers", r->servers, 1, 1024, "parameter server processes in addition to the workers"),
        FLAG("elastic", r->elastic, "continue without a worker that dies (docs/reference/training.md)"),
        INTEGER("restarts", r->restarts, 0, 1000000, "restart dead workers, at most N times in total"),
        WORD("snapshots", "DIRECTORY", r->snapshots, "directory of the servers' snapshots (arch=ps:snapshot=N)"),
        FLAG("resume", r->resume, "resume from --checkpoint if the file exists"),
        INTEGER("log-every", r->log_every, 1, INT64_MAX,
                "updates between two reports; each also compares the workers' weights (default: 50)"),
        INTEGER("layers", y->layers, 1, 256, "gpt: transformer blocks (default: 4)"),
        INTEGER("heads", y->heads, 1, 1024, "gpt: attention heads (default: 4)"),
        INTEGER("embedding", y->embedding, 1, 16384, "gpt: width of the model (default: 128)"),
        INTEGER("context", y->context, 1, 65536, "gpt: positions (default: 64)"),
        WORD("timeline", "FILE", r->timeline, "record a timeline that Perfetto opens (docs/reference/recording.md)"),
        WORD("capture", "FILE", r->capture, "record every message and layer, for gradwire trace"),
        FLAG("json", r->json, "print one JSON object per line"),
        FLAG("quiet", r->quiet, "print only the final test accuracy"),
        {.name = NULL},
    };
    return gw_args_parse(&gw_command_train, options, argc, argv);
}

static int run(int argc, char **argv) {
    gw_train_request r = {.log_every = 50,
                          .settings = {.model = "cnn", .data = "fashion-mnist", .epochs = 3, .batch = 128,
                                       .accumulate = 1}};
    typed y = {.optimiser = "sgd", .schedule = "cosine", .parallel = "data", .warmup = 100, .seed = 1,
               .context = CONTEXT};
    int words = argc;
    char **line = copy_words(argc, argv); /* gw_args_parse reorders argv */
    if (!line) return GW_EXIT_FAILED;
    int code = parse(&r, &y, &argc, argv);
    if (code < 0) code = check(&r, &y);
    if (code < 0 && r.ranks == 0 && !is_rank()) r.ranks = r.settings.pipeline.stages;
    if (code < 0) code = start(&r, words, line);
    free(line);
    return code;
}

const gw_command gw_command_train = {
    .name = "train",
    .about = "trains a model on a data set with several workers",
    .usage = "[-n WORKERS] [OPTIONS]",
    .example = "gradwire train -n 4\n"
               "gradwire train -n 2 --model resnet20 --data cifar10 --augment --epochs 10 --checkpoint r20.gw\n"
               "gradwire train -n 4 --model resnet20 --data cifar10 --parallel pipeline:stages=2,micro=8\n"
               "gradwire train -n 4 --restarts 10\n"
               "gradwire train -n 4 --strategy 'arch=ps:servers=2,replicas=1 sync=ssp' --restarts 10\n"
               "gradwire run -H node1:4,node2:4 -- gradwire train --strategy 'arch=ring'",
    .run = run,
};
