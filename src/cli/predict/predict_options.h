/* predict_options.h - shared by the files of gradwire predict. */
#ifndef GW_CLI_PREDICT_PREDICT_OPTIONS_H
#define GW_CLI_PREDICT_PREDICT_OPTIONS_H

#include "cli/common/host_examination.h"
#include "predict/predict.h"

#define GW_PREDICT_STRATEGIES_MAX 8 /* per command line */

typedef struct gw_predict_request {
    const char *model; /* as given */
    gw_profile profile;
    gw_machine machine;
    gw_fabric_spec fabric;
    int ranks, per_host; /* 0: not given */
    gw_strategy strategies[GW_PREDICT_STRATEGIES_MAX];
    int strategy_count;
    const char *optimizer; /* as in accuracy_risk.h; NULL: not given */
    bool json, unfolded;
    bool timed;  /* the profile was measured on this machine */
    bool linked; /* --link is given */
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

/* predict_here.c: --here. */
typedef struct gw_here {
    bool named;          /* hosts or a lab were given; else the links are those between two processes */
    int hosts;           /* that were measured */
    int on_this_machine; /* of these */
    int cores;           /* of this machine */
    int codecs;          /* that were measured */
} gw_here;

/* Sets the speeds in ask->machine, and ranks and per_host where they are 0. Takes seconds. */
gw_status gw_predict_here(gw_predict_request *ask, const gw_host_request *hosts, bool all_codecs, gw_here *found,
                          gw_error *error);
/* Layers that were timed alone take longer where ranks share cores. After the profile is known. */
void gw_predict_here_compute(gw_predict_request *ask, const gw_here *found);
/* What was measured, and what was not. */
void gw_predict_here_print(const gw_predict_request *ask, const gw_here *found);

/* predict_compare.c: all sensible strategies, or those that strategy=auto chooses from; the best first. Returns the
 * exit code. */
int gw_predict_compare(const gw_predict_request *ask, bool all);
/* predict_sweep.c: "ranks=2..1024", "rate=1gbit..100gbit"; svg NULL: no file. */
int gw_predict_sweep(const gw_predict_request *ask, const char *range, const char *svg);

#endif
