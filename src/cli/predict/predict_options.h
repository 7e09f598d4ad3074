/* predict_options.h - shared by the files of gradwire predict. */
#ifndef GW_CLI_PREDICT_PREDICT_OPTIONS_H
#define GW_CLI_PREDICT_PREDICT_OPTIONS_H

#include "cli/cli.h"
#include "predict/predict.h"

#define GW_PREDICT_STRATEGIES_MAX 8 /* per command line */

typedef struct gw_predict_request {
    gw_profile profile;
    gw_machine machine;
    gw_fabric_spec fabric;
    int ranks, per_host;
    gw_strategy strategies[GW_PREDICT_STRATEGIES_MAX];
    int strategy_count;
    bool json, unfolded;
    bool timed; /* the profile was measured on this machine */
} gw_predict_request;

/* Predicts one strategy; prints errors on standard error. Shows progress after two seconds. */
bool gw_predict_one(const gw_predict_request *ask, const gw_strategy *strategy, int ranks, gw_prediction *prediction);
/* Prints a JSON object, without a newline. */
void gw_predict_json(const gw_predict_request *ask, const gw_strategy *strategy, int ranks,
                     const gw_prediction *prediction);
/* The schedule, and the other axes that differ from their defaults. Returns text. */
const char *gw_predict_brief(const gw_strategy *strategy, char text[GW_STRATEGY_PRINT_BYTES]);
/* "10 Gbit/s, 50 us". Returns text. */
const char *gw_predict_link_text(const gw_machine *machine, char text[64]);

/* predict_model.c: whether the model has no layer times, and the trainer can run it to measure them. */
bool gw_predict_times_model(const char *name);
/* Fills ask->profile. batch, throughput 0: the model's. Takes seconds if layers are timed. */
gw_status gw_predict_model(const char *name, int batch, double throughput, gw_predict_request *ask, gw_error *error);

/* predict_compare.c: all sensible strategies, the best first. Returns the exit code. */
int gw_predict_compare(const gw_predict_request *ask);
/* predict_sweep.c: "ranks=2..1024", "rate=1gbit..100gbit"; svg NULL: no file. */
int gw_predict_sweep(const gw_predict_request *ask, const char *range, const char *svg);

#endif
