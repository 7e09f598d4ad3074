/* bench.h - the parts of gradwire bench: the jobs to measure, the driver that lets them take turns, and the
 * report. */
#ifndef GW_CLI_BENCH_BENCH_H
#define GW_CLI_BENCH_BENCH_H

#include <sys/types.h>

#include "base/status.h"
#include "bench/bench_case.h"
#include "bench/side_channel.h"
#include "lab/namespace_hosts.h"
#include "strategy/strategy.h"

#define GW_BENCH_VARIABLE "GRADWIRE_BENCH"    /* set for the ranks of a benchmark: the directory of its side channel */
#define GW_BENCH_BOUND "GRADWIRE_BENCH_BOUND" /* set if they only measure the memory bound */
#define GW_BENCH_COMPRESS "GRADWIRE_BENCH_COMPRESS" /* set if they compress: the codec */
#define GW_BENCH_JOBS_MAX 16

/* The command line. */
typedef struct gw_bench_settings {
    gw_bench_case first;                /* the driver sets count and the numbers of calls for each size */
    int64_t ranks;                      /* 0: not given */
    uint64_t from, to;                  /* bytes */
    int64_t factor, iterations, warmup; /* iterations 0: as many as fit into the time budget */
    int64_t root;
    const char *arch, *transport, *strategy, *memory, *dtype, *op, *against, *lab_text, *compress; /* NULL: not given */
    const char *timeline, *capture; /* files to record to; NULL: not given */
    bool check, json;
    gw_lab_options lab; /* hosts 0: none */
} gw_bench_settings;

/* One library in one configuration (gradwire itself included): a separate job that runs during the whole benchmark. */
typedef struct gw_bench_job {
    const char *library; /* "gradwire", "openmpi", ... */
    char arch[24];       /* "-" for other libraries; with a codec, its name */
    char codec[64];      /* "": none */
    char transport[32];
    char line[GW_STRATEGY_PRINT_BYTES]; /* gradwire's strategy */
    char directory[128];                /* of its side channel */
    pid_t pid;                          /* of its launcher; 0: none, or reaped */
    pid_t group;                        /* process group of the launcher; 0: none */
    int listener;                       /* -1: closed */
    gw_lines *ranks;                    /* one for each rank */
} gw_bench_job;

/* The result of one job at one size. */
typedef struct gw_bench_result {
    const gw_bench_job *who;
    uint64_t *times; /* ns, of the slowest rank in each call; owned */
    int calls;
    gw_bench_tally tally; /* of all ranks and calls */
} gw_bench_result;

typedef struct gw_comparison {
    const gw_bench_settings *settings;
    int world;
    char directory[96]; /* "": not created */
    gw_bench_job jobs[GW_BENCH_JOBS_MAX];
    int count;
    gw_lab *lab; /* NULL: none */
} gw_comparison;

/* ---- bench_job.c ---- */

/* Starts a job and waits for its ranks. */
gw_status gw_bench_job_start(gw_comparison *comparison, gw_bench_job *job, gw_error *error);
void gw_bench_job_end(gw_bench_job *job, int world);
/* Measures one case: times (c->calls entries) of the slowest rank; adds what all ranks say to *tally. */
gw_status gw_bench_job_measure(gw_bench_job *job, int world, const gw_bench_case *c, uint64_t *times,
                               gw_bench_tally *tally, gw_error *error);
/* True after a signal to stop. */
bool gw_bench_interrupted(void);

/* ---- bench_command_lines.c ---- */

/* Fills in the list of jobs. */
gw_status gw_comparison_fill(gw_comparison *comparison, gw_error *error);

/* The command line of a job. argv points into text. */
#define GW_SPAWN_WORDS 64
typedef struct gw_spawn {
    char *argv[GW_SPAWN_WORDS];
    char text[8192];
    size_t used;
    int count;
} gw_spawn;
/* Appends a word. If it does not fit, count becomes GW_SPAWN_WORDS. */
void gw_spawn_add(gw_spawn *spawn, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* "gradwire run" for `world` ranks, on the hosts of the lab if there is one; the caller adds "--" and a program. */
gw_status gw_spawn_run(gw_spawn *spawn, int world, const gw_lab *lab, int lab_hosts, int port, gw_error *error);
gw_status gw_bench_job_command(const gw_comparison *comparison, const gw_bench_job *job, gw_spawn *spawn,
                               gw_error *error);
/* Whether the name is that of a library to compare with. */
bool gw_baseline_known(const char *name);
extern const char *const gw_baseline_names[];

/* ---- bench_driver.c ---- */

/* The whole benchmark; the exit code. */
int gw_bench_drive(const gw_bench_settings *settings);

/* ---- bench_rank.c ---- */

/* gw_bench_serve: a rank that the driver controls over the side channel. gw_bench_alone: a rank of a job without a
 * driver. Exit codes. */
int gw_bench_serve(const char *directory);
int gw_bench_alone(const gw_bench_settings *settings);

/* ---- bench_report.c ---- */

typedef struct gw_report gw_report;
gw_report *gw_report_open(const gw_bench_settings *settings, int world, bool several);
/* The results of one size. The ratios are relative to the first result. */
void gw_report_size(gw_report *report, const gw_bench_case *c, gw_bench_result *results, int count);
/* Shows the progress on a terminal, from two seconds after the start. */
void gw_report_progress(gw_report *report, const gw_bench_case *c, const gw_bench_job *who, int round, int rounds);
/* Prints the summary; returns the number of results with wrong elements. */
int gw_report_close(gw_report *report);

/* A launcher started this process as a rank of a job. */
bool gw_bench_is_rank(void);
/* The strategy of the settings, with this architecture; arch NULL: the architecture of the settings. */
gw_status gw_bench_strategy(const gw_bench_settings *settings, const char *arch, gw_strategy *strategy,
                            gw_error *error);
bool gw_bench_next_size(const gw_bench_settings *settings, int world, gw_bench_case *c, uint64_t *bytes);
/* The number of timed calls that take about half a second, if one call takes call_ns. */
int gw_bench_calls(const gw_bench_settings *settings, uint64_t call_ns);

#endif
