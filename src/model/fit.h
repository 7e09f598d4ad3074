/* fit.h - the figures of a machine file from measurements: links from the doctor's, and what measured steps say.
 *
 * Steps are given as comma-separated text, one measurement a line:
 *
 *     profile,ranks,per_host,step_ms,strategy
 *     resnet50,32,4,416.2,arch=ring schedule=fifo:fuse=1G
 *     ./mine.csv,4,1,212.0,schedule=wfbp
 *
 * profile is a built-in one or a file. The figures that are asked for are moved until the predicted steps are as near
 * the measured ones as they get (Nelder and Mead 1965, on logarithms), starting from what the machine holds. */
#ifndef GW_MODEL_FIT_H
#define GW_MODEL_FIT_H

#include "doctor/file.h"
#include "model/machine.h"
#include "model/predict.h"

/* Latency and rate: medians over all links of the tables, and each link of a single table, up to GW_MACHINE_LINKS_MAX;
 * memory: the median of hosts; error: the median of how far a message of 64 KiB over each link is from what the medians
 * say. GW_INVALID where no link was measured. */
gw_status gw_fit_links(const gw_doctor_table *tables, int count, gw_machine *machine, gw_error *error);

typedef struct gw_fit_step {
    gw_profile profile;
    gw_strategy strategy;
    int ranks, per_host;
    double measured, predicted; /* seconds */
} gw_fit_step;

typedef struct gw_fit_steps {
    gw_fit_step *steps; /* owned */
    int count;
} gw_fit_steps;

gw_status gw_fit_steps_parse(const char *bytes, size_t size, const char *name, gw_fit_steps *steps, gw_error *error);
gw_status gw_fit_steps_read(const char *path, gw_fit_steps *steps, gw_error *error);
void gw_fit_steps_free(gw_fit_steps *steps);

typedef struct gw_fit_free {
    bool latency, rate, queue, compute, reduce; /* what may be moved */
} gw_fit_free;

/* Called after each prediction of all steps with the root of the mean squared error; NULL: nobody. */
typedef void gw_fit_progress(void *ctx, int tried, double error);

/* Moves the figures; predicted is filled, and machine->error the median of |predicted/measured - 1|. */
gw_status gw_fit_to_steps(gw_fit_steps *steps, gw_fit_free moves, const gw_fabric_spec *fabric, gw_machine *machine,
                          gw_fit_progress *progress, void *ctx, gw_error *error);

#endif
