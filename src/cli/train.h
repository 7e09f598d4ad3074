/* train.h - the parts of gradwire train: what was asked for (train.c, train_parallel.c), starting ranks
 * (train_start.c), one rank's course (train_rank.c), and what a person sees (train_report.c). */
#ifndef GW_CLI_TRAIN_H
#define GW_CLI_TRAIN_H

#include "train/trainer.h"

#define GW_TRAIN_LIVE_VARIABLE "GRADWIRE_LIVE" /* set for ranks whose output ends on a terminal */

typedef struct gw_train_request {
    gw_train_settings settings;
    const char *strategy;      /* NULL: as in the environment */
    const char *checkpoint;    /* NULL: none */
    int64_t checkpoint_every;  /* updates, beside the end of each epoch; 0: only there */
    bool resume;
    double target;             /* test accuracy to stop at, 0 to 1; 0: none */
    int64_t steps;             /* updates to stop after; 0: none */
    int64_t log_every;         /* updates between two reports, which also compare the ranks */
    int64_t ranks;             /* 0: not given */
    bool json, quiet;
    bool elastic;              /* the launcher is told: a rank that dies is gone on without */
    int64_t servers;           /* parameter servers in processes of their own; 0: none */
    int64_t restarts;          /* likewise: so many times one is started again */
    const char *snapshots;     /* likewise: the directory of servers' snapshots; NULL: none */
    const char *timeline, *capture; /* files to record to; NULL: as in the environment */
    const char *tune;          /* off, on or a file; NULL: as in the environment */
} gw_train_request;

/* ---- train_parallel.c ---- */

/* Reads `data` or `pipeline:stages=2,micro=8`. On failure *settings is untouched. */
gw_status gw_train_parallel(const char *text, gw_pipeline_settings *settings, gw_error *error);

/* ---- train_start.c ---- */

/* The data set is here, or has been fetched. Prints what is wrong; exit code, -1 to go on. */
int gw_train_data(const gw_train_request *request);
/* Becomes the launcher of that many ranks of this command line (without its -n). Returns only on failure. */
int gw_train_launch(const gw_train_request *request, int argc, char **argv);

/* ---- train_rank.c ---- */

int gw_train_rank(const gw_train_request *request);

/* ---- train_report.c: rank 0 only ---- */

typedef struct gw_train_report {
    const gw_train_request *request;
    const gw_trainer *trainer;
    gw_time started, epoch_started, shown;
    bool live;
    bool drawn;            /* a line that changes is on the screen */
    uint64_t updates_from; /* where this run began */
    uint64_t told_test;    /* the update whose test was reported last; after a loss it may be made again */
    int64_t examples;      /* of the epoch, all ranks */
    gw_train_work epoch, total;
    double loss;           /* of the last meeting */
    double accuracy;       /* of the last test; negative: none yet */
    double best, reached;  /* best accuracy; seconds until the target, negative: not yet */
    uint64_t reached_epoch;
} gw_train_report;

void gw_train_report_open(gw_train_report *report, const gw_train_request *request, const gw_trainer *trainer);
/* A sentence for a person. */
void gw_train_report_say(gw_train_report *report, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* After every update: examples are those of all ranks in it. */
void gw_train_report_update(gw_train_report *report, int64_t examples);
void gw_train_report_meeting(gw_train_report *report, const gw_train_work *work);
/* ctx is the report: a gw_train_tick. */
void gw_train_report_testing(void *report, int64_t done, int64_t of);
void gw_train_report_epoch(gw_train_report *report, const gw_loss *test);
typedef struct gw_train_end {
    gw_loss test;
    gw_time exchange; /* what one exchange of all gradients takes with nothing to hide it, in ns */
    uint64_t weights; /* checksum */
} gw_train_end;
void gw_train_report_close(gw_train_report *report, const gw_train_end *end);

/* ---- train_workers.c: rank 0 only ---- */

/* Who is slow, for the line that moves; "" where nobody is. */
void gw_train_workers_live(const gw_trainer *trainer, char *text, size_t size);
void gw_train_workers_print(const gw_trainer *trainer); /* a table */
void gw_train_workers_json(const gw_trainer *trainer);  /* a member of an object under way */

#endif
