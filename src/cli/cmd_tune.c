/* cmd_tune.c - gradwire tune: a trial run of a job. It ends the job once strategy=auto has chosen, and leaves the file
 * of decisions with which later runs begin (gradwire run --decisions FILE). */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/common/args.h"
#include "cli/explain/explain_why.h"

#define WORDS_BEFORE 16

typedef struct arguments {
    const char *file, *hosts, *lab, *strategy; /* NULL: not given */
    int64_t ranks;                             /* 0: not given */
    double seconds;
} arguments;

static void give(char **words, int *used, const char *option, const char *value) {
    if (!value) return;
    words[(*used)++] = (char *)(uintptr_t)option;
    words[(*used)++] = (char *)(uintptr_t)value;
}

/* Becomes gradwire run. */
static void become_job(const arguments *a, int argc, char **argv) {
    char self[PATH_MAX] = "", ranks[32];
    char **words = calloc((size_t)argc + WORDS_BEFORE, sizeof *words);
    int used = 0;
    if (!words || readlink("/proc/self/exe", self, sizeof self - 1) < 0) _exit(GW_EXIT_FAILED);
    snprintf(ranks, sizeof ranks, "%lld", (long long)a->ranks);
    words[used++] = self;
    words[used++] = (char *)(uintptr_t) "run";
    give(words, &used, "--decisions", a->file);
    give(words, &used, "-n", a->ranks ? ranks : NULL);
    give(words, &used, "-H", a->hosts);
    give(words, &used, "--lab", a->lab);
    give(words, &used, "--strategy", a->strategy);
    words[used++] = (char *)(uintptr_t) "--";
    for (int i = 1; i < argc; i++) words[used++] = argv[i];
    execv(self, words);
    fprintf(stderr, "gradwire tune: cannot start %s: %s\n", self, strerror(errno));
    _exit(GW_EXIT_FAILED);
}

static void nap(void) {
    struct timespec time = {.tv_nsec = 50 * GW_MILLISECOND};
    nanosleep(&time, NULL);
}

/* Until there is a decision, the job has ended (*ended) or the time is over. */
static bool wait_for_decision(const arguments *a, pid_t job, bool *ended, int *result) {
    gw_time until = gw_clock_now() + (gw_time)(a->seconds * (double)GW_SECOND);
    while (access(a->file, F_OK) != 0 && !*ended && gw_clock_now() < until) {
        nap();
        *ended = waitpid(job, result, WNOHANG) == job;
    }
    return access(a->file, F_OK) == 0;
}

static int report(const arguments *a) {
    gw_error error = {.rank = -1};
    if (gw_explain_why(a->file, &error)) {
        fprintf(stderr, "gradwire tune: %s\n", error.text);
        return GW_EXIT_FAILED;
    }
    printf("\nwritten to %s: run the job with --decisions %s\n", a->file, a->file);
    return 0;
}

static int try_job(const arguments *a, int argc, char **argv) {
    bool ended = false;
    int result = 0;
    pid_t job = fork();
    if (job == 0) become_job(a, argc, argv);
    if (job < 0) {
        fprintf(stderr, "gradwire tune: cannot start a process: %s\n", strerror(errno));
        return GW_EXIT_FAILED;
    }
    bool decided = wait_for_decision(a, job, &ended, &result);
    if (!ended) {
        kill(job, SIGTERM);
        waitpid(job, &result, 0);
    }
    if (decided) return report(a);
    if (ended && WIFEXITED(result) && WEXITSTATUS(result)) return WEXITSTATUS(result); /* the job has said why */
    fprintf(stderr,
            "gradwire tune: %s before a strategy was chosen, which takes some 20 steps of a job of several ranks whose "
            "line leaves something open; where rank 0 ran on another host, %s is there\n",
            ended ? "the job ended" : "the time was over (--time)", a->file);
    return GW_EXIT_FAILED;
}

static int run(int argc, char **argv) {
    arguments a = {.file = "gradwire.decisions", .seconds = 600};
    const gw_option options[] = {
        {.name = "ranks", .letter = 'n', .kind = GW_OPTION_INTEGER, .integer = &a.ranks, .lowest = 1, .highest = 65536,
         .about = "number of ranks, as in gradwire run"},
        {.name = "hosts", .letter = 'H', .kind = GW_OPTION_STRING, .value = "LIST", .string = &a.hosts,
         .about = "hosts, as in gradwire run"},
        {.name = "lab", .kind = GW_OPTION_STRING, .value = "SPEC", .string = &a.lab,
         .about = "hosts made of network namespaces, as in gradwire run"},
        {.name = "strategy", .kind = GW_OPTION_STRING, .value = "LINE", .string = &a.strategy,
         .about = "axes that are not to be chosen, and accuracy=safe"},
        {.name = "output", .letter = 'o', .kind = GW_OPTION_STRING, .value = "FILE", .string = &a.file,
         .about = "file of decisions, replaced (default: gradwire.decisions)"},
        {.name = "time", .kind = GW_OPTION_DURATION, .seconds = &a.seconds,
         .about = "how long the trial may take (default: 600 s)"},
        {.name = NULL},
    };
    int code = gw_args_parse(&gw_command_tune, options, &argc, argv);
    if (code >= 0) return code;
    if (argc < 2) return gw_usage_error(&gw_command_tune, "give the command of the job after --");
    if (unlink(a.file) != 0 && errno != ENOENT)
        return gw_usage_error(&gw_command_tune, "-o %s cannot be replaced: %s", a.file, strerror(errno));
    return try_job(&a, argc, argv);
}

const gw_command gw_command_tune = {
    .name = "tune",
    .about = "runs a job until strategy=auto has chosen, and writes its decisions to a file for later runs",
    .usage = "[OPTIONS] -- COMMAND...",
    .example = "gradwire tune -n 4 -- python3 train.py\n"
               "gradwire tune -H node1:4,node2:4 --strategy accuracy=safe -o cluster.decisions -- python3 train.py",
    .wraps_program = true,
    .run = run,
};
