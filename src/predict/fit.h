/* fit.h - fits the figures of a machine file to measurements: links to the doctor's tables, all others to measured
 * steps.
 *
 * Steps are given as comma-separated text, one measurement per line:
 *
 *     profile,ranks,per_host,step_ms,strategy
 *     resnet50,32,4,416.2,arch=ring schedule=fifo:fuse=1G
 *     ./mine.csv,4,1,212.0,schedule=wfbp
 *
 * profile is a built-in profile or a file; a built-in one may be followed by batch=N and throughput=X, the samples per
 * second of one device: "bert-large batch=8 throughput=49". The chosen figures are varied until the predicted steps are
 * as close to the measured ones as possible (least squares of logarithms after Levenberg 1944 and Marquardt 1963),
 * starting from the machine's values. */
#ifndef GW_PREDICT_FIT_H
#define GW_PREDICT_FIT_H

#include "arch/link_file.h"
#include "predict/machine.h"
#include "predict/predict.h"

/* Sets latency and rate to the medians over all links of the tables, and memory to the median over hosts. A single
 * table also sets each link's own figures, up to GW_MACHINE_LINKS_MAX. machine->error becomes the median, over all
 * links, of the relative error that these medians make for a message of 64 KiB. GW_INVALID: no link was measured. */
gw_status gw_fit_links(const gw_doctor_table *tables, int count, gw_machine *machine, gw_error *error);

typedef struct gw_fit_step {
    gw_profile profile;
    gw_strategy strategy;
    int ranks, per_host;
    double measured, predicted; /* seconds */
} gw_fit_step;

#define GW_FIT_STEPS_MAX 1024

typedef struct gw_fit_steps {
    gw_fit_step *steps; /* owned */
    int count;
} gw_fit_steps;

gw_status gw_fit_steps_parse(const char *bytes, size_t size, const char *name, gw_fit_steps *steps, gw_error *error);
gw_status gw_fit_steps_read(const char *path, gw_fit_steps *steps, gw_error *error);
void gw_fit_steps_free(gw_fit_steps *steps);

/* The figures of a machine that a fit may move, a list with commas or "none". */
#define GW_FIT_MOVES_MAX 11
#define GW_FIT_MOVES_ALLOWED                                                                                           \
    "latency, rate, queue, message, memory, memory_latency, reduce, compute, interference, update, decide, none"
typedef struct gw_fit_moves {
    const char *names[GW_FIT_MOVES_MAX];
    int count;
} gw_fit_moves;

gw_status gw_fit_moves_parse(const char *text, gw_fit_moves *moves, gw_error *error);

/* Called after each prediction of all steps, with the root mean squared error; may be NULL. */
typedef void gw_fit_progress(void *ctx, int tried, double error);

/* Varies the figures; fills `predicted`, and sets machine->error to the median of |predicted/measured - 1|. GW_INVALID:
 * no step depends on a figure that may move, so it cannot be learned. */
gw_status gw_fit_to_steps(gw_fit_steps *steps, const gw_fit_moves *moves, const gw_fabric_spec *fabric,
                          gw_machine *machine, gw_fit_progress *progress, void *ctx, gw_error *error);

#endif
