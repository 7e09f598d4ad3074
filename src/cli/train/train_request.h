/* train_request.h - the parts of gradwire train: the command line (cmd_train.c, train_parallel.c), starting ranks
 * (train_start.c), one rank (train_rank.c), and the output (train_report.c, train_advice.c, train_workers.c). */
#ifndef GW_CLI_TRAIN_TRAIN_REQUEST_H
#define GW_CLI_TRAIN_TRAIN_REQUEST_H

#include "predict/advice.h"
#include "train/trainer.h"

#define GW_TRAIN_LIVE_VARIABLE "GRADWIRE_LIVE" /* set for ranks whose output goes to a terminal */

typedef struct gw_train_request {
    gw_train_settings settings;
    const char *strategy;     /* NULL: from the environment */
    const char *checkpoint;   /* NULL: none */
    int64_t checkpoint_every; /* updates, in addition to the end of each epoch; 0: none in addition */
    bool resume;
    double target;     /* test accuracy to stop at, 0 to 1; 0: none */
    int64_t steps;     /* updates to stop after; 0: none */
    int64_t log_every; /* updates between two reports, which also compare the ranks' weights */
    int64_t ranks;     /* 0: not given */
    bool json, quiet;
    bool elastic;                   /* for the launcher: continue without a rank that dies */
    int64_t servers;                /* for the launcher: parameter server processes; 0: none */
    int64_t restarts;               /* for the launcher: how often to restart dead ranks */
    const char *snapshots;          /* for the launcher: directory of servers' snapshots; NULL: none */
    const char *timeline, *capture; /* files to record to; NULL: from the environment */
    const char *tune;               /* off, on or a file; NULL: from the environment */
    const char *decisions;          /* file of strategy=auto; NULL: from the environment */
} gw_train_request;

/* ---- train_parallel.c ---- */

/* Parses `data` or `pipeline:stages=2,micro=8`. On failure *settings is untouched. */
gw_status gw_train_parallel(const char *text, gw_pipeline_settings *settings, gw_error *error);

/* ---- train_start.c ---- */

/* Fetches the data set unless it is on this machine. Prints errors; returns an exit code, or -1 to continue. */
int gw_train_data(const gw_train_request *request);
/* Becomes `gradwire run` with request->ranks ranks of this command line (without its -n). Returns only on failure. */
int gw_train_launch(const gw_train_request *request, int argc, char **argv);

/* ---- train_rank.c ---- */

int gw_train_rank(const gw_train_request *request);

/* ---- train_report.c: rank 0 only ---- */

typedef struct gw_train_report {
    const gw_train_request *request;
    const gw_trainer *trainer;
    gw_time started, epoch_started, shown;
    bool live;
    bool drawn;             /* the live line is on the screen */
    uint64_t updates_from;  /* the first update of this run */
    uint64_t reported_test; /* the update whose test was reported last; after a loss a test may be repeated */
    int64_t examples;       /* of the epoch, all ranks */
    gw_train_work epoch, total;
    double loss;          /* of the last report of all ranks */
    double accuracy;      /* of the last test; negative: none yet */
    double best, reached; /* best accuracy; seconds until the target, negative: not yet */
    uint64_t reached_epoch;
} gw_train_report;

void gw_train_report_open(gw_train_report *report, const gw_train_request *request, const gw_trainer *trainer);
/* Prints a sentence, unless quiet. */
void gw_train_report_print(gw_train_report *report, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* After every update; examples: of all ranks. */
void gw_train_report_update(gw_train_report *report, int64_t examples);
void gw_train_report_log(gw_train_report *report, const gw_train_work *work);
/* A gw_train_tick whose ctx is the report. */
void gw_train_report_testing(void *report, int64_t done, int64_t of);
void gw_train_report_epoch(gw_train_report *report, const gw_loss *test);
typedef struct gw_train_end {
    gw_loss test;
    gw_time exchange; /* ns of one exchange of all gradients without overlap */
    uint64_t weights; /* checksum */
} gw_train_end;
void gw_train_report_close(gw_train_report *report, const gw_train_end *end);

/* ---- train_advice.c: rank 0 only ---- */

/* What to do next, from what this run measured. exchange: ns of an exchange without overlap; 0: not known. */
void gw_train_advice(const gw_train_report *report, gw_time exchange, gw_advice *advice);

/* ---- train_workers.c: rank 0 only ---- */

/* The slow worker, for the live line; "": none. */
void gw_train_workers_live(const gw_trainer *trainer, char *text, size_t size);
void gw_train_workers_print(const gw_trainer *trainer); /* a table */
void gw_train_workers_json(const gw_trainer *trainer);  /* `, "workers": [...]` */

#endif
