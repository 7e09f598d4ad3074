/* bench.h - the parts of gradwire bench: who is measured (contestants), in what order (conduct), and how it is told
 * (report). */
#ifndef GW_CLI_BENCH_H
#define GW_CLI_BENCH_H

#include <sys/types.h>

#include "base/status.h"
#include "bench/case.h"
#include "bench/side.h"
#include "lab/lab.h"
#include "strategy/strategy.h"

#define GW_BENCH_VARIABLE "GRADWIRE_BENCH" /* set for the ranks of a benchmark: the directory of its side channel */
#define GW_BENCH_BOUND "GRADWIRE_BENCH_BOUND" /* and where it only shows what memory allows */
#define GW_BENCH_COMPRESS "GRADWIRE_BENCH_COMPRESS" /* and where it is one with a codec: which */
#define GW_CONTESTANTS_MAX 16

/* What was asked for. */
typedef struct gw_bench_settings {
    gw_bench_case first; /* count and the numbers of calls are filled in for each size */
    int64_t ranks;       /* 0: not given */
    uint64_t from, to;   /* bytes */
    int64_t factor, iterations, warmup; /* iterations 0: by the time they take */
    int64_t root;
    const char *arch, *transport, *strategy, *memory, *dtype, *op, *against, *lab_text, *compress; /* NULL: not given */
    const char *timeline, *capture; /* files to record to; NULL: not given */
    bool check, json;
    gw_lab_options lab; /* hosts 0: none */
} gw_bench_settings;

/* One library in one setting: a job of its own that lives as long as the benchmark. */
typedef struct gw_contestant {
    const char *library;              /* "gradwire", "openmpi", ... */
    char arch[24];                    /* "-" for others; the codec, where there is one */
    char codec[64];                   /* "": none */
    char transport[32];
    char line[GW_STRATEGY_PRINT_BYTES]; /* gradwire's strategy */
    char directory[128];              /* of its side channel */
    pid_t pid;                        /* of its launcher; 0: none, or reaped */
    pid_t group;                      /* of processes that the launcher began; 0: none */
    int listener;                     /* -1: closed */
    gw_lines *ranks;                  /* one a rank */
} gw_contestant;

/* What came of one contestant at one size. */
typedef struct gw_bench_result {
    const gw_contestant *who;
    uint64_t *times; /* ns, of the slowest rank in each call; owned */
    int calls;
    uint64_t wrong;
} gw_bench_result;

typedef struct gw_contest {
    const gw_bench_settings *settings;
    int world;
    char directory[96]; /* "": not made */
    gw_contestant contestants[GW_CONTESTANTS_MAX];
    int count;
    gw_lab *lab; /* NULL: none */
} gw_contest;

/* ---- bench_contestant.c ---- */

/* Fills in who takes part. */
gw_status gw_contest_enter(gw_contest *contest, gw_error *error);
/* Starts a contestant's job and waits for its ranks. */
gw_status gw_contestant_start(gw_contest *contest, gw_contestant *contestant, gw_error *error);
void gw_contestant_end(gw_contestant *contestant, int world);
/* One case: times (c->calls entries) of the slowest rank, and all wrong elements added to *wrong. */
gw_status gw_contestant_measure(gw_contestant *contestant, int world, const gw_bench_case *c, uint64_t *times,
                                uint64_t *wrong, gw_error *error);
/* True once a signal asked for the end. */
bool gw_bench_interrupted(void);

/* ---- bench_spawn.c ---- */

/* The command line of a contestant's job: fills argv (pointing into text and constants). */
#define GW_SPAWN_WORDS 64
typedef struct gw_spawn {
    char *argv[GW_SPAWN_WORDS];
    char text[8192];
    size_t used;
    int count;
} gw_spawn;
/* One more word. Those that do not fit make count GW_SPAWN_WORDS. */
void gw_spawn_add(gw_spawn *spawn, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* "gradwire run" for so many ranks, on the hosts of a lab where there is one; "--" and a program are to follow. */
gw_status gw_spawn_run(gw_spawn *spawn, int world, const gw_lab *lab, int lab_hosts, int port, gw_error *error);
gw_status gw_contestant_command(const gw_contest *contest, const gw_contestant *contestant, gw_spawn *spawn,
                                gw_error *error);
/* Whether there is such a library to compare with. */
bool gw_peer_known(const char *name);
extern const char *const gw_peer_names[];

/* ---- bench_conduct.c ---- */

/* The whole benchmark; the exit code. */
int gw_bench_conduct(const gw_bench_settings *settings);

/* ---- bench_rank.c ---- */

/* As a rank of a benchmark that conducts it from outside, or as a rank of a job on its own. Exit codes. */
int gw_bench_serve(const char *directory);
int gw_bench_alone(const gw_bench_settings *settings);

/* ---- bench_report.c ---- */

typedef struct gw_report gw_report;
gw_report *gw_report_open(const gw_bench_settings *settings, int world, bool several);
/* The results of one size, the first of which the others are compared with. */
void gw_report_size(gw_report *report, const gw_bench_case *c, gw_bench_result *results, int count);
/* What is going on, on a terminal, once the benchmark has run for two seconds. */
void gw_report_progress(gw_report *report, const gw_bench_case *c, const gw_contestant *who, int round, int rounds);
/* The sum at the end; returns how many results had wrong elements. */
int gw_report_close(gw_report *report);

/* A job around us started this process as one of its ranks. */
bool gw_bench_is_rank(void);
/* The strategy of the settings for an architecture (NULL: the one given). */
gw_status gw_bench_strategy(const gw_bench_settings *settings, const char *arch, gw_strategy *strategy,
                            gw_error *error);
bool gw_bench_next_size(const gw_bench_settings *settings, int world, gw_bench_case *c, uint64_t *bytes);
/* Timed calls that take about half a second, from what one takes. */
int gw_bench_calls(const gw_bench_settings *settings, uint64_t call_ns);

#endif
