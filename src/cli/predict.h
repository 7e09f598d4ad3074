/* predict.h - what the files of gradwire predict share. */
#ifndef GW_CLI_PREDICT_H
#define GW_CLI_PREDICT_H

#include "cli/cli.h"
#include "model/predict.h"

#define GW_PREDICT_STRATEGIES_MAX 8 /* named in one command */

typedef struct gw_predict_ask {
    gw_profile profile;
    gw_machine machine;
    gw_fabric_spec fabric;
    int ranks, per_host;
    gw_strategy strategies[GW_PREDICT_STRATEGIES_MAX];
    int strategy_count;
    bool json, unfolded;
} gw_predict_ask;

/* One strategy; says on standard error what went wrong. Shows progress after two seconds. */
bool gw_predict_one(const gw_predict_ask *ask, const gw_strategy *strategy, int ranks, gw_prediction *prediction);
/* As a JSON object, without a newline. */
void gw_predict_json(const gw_predict_ask *ask, const gw_strategy *strategy, int ranks,
                     const gw_prediction *prediction);
/* The schedule, and the other axes where they differ from the default. Returns text. */
const char *gw_predict_brief(const gw_strategy *strategy, char text[GW_STRATEGY_PRINT_BYTES]);
/* "10 Gbit/s, 50 us". Returns text. */
const char *gw_predict_link_text(const gw_machine *machine, char text[64]);

/* predict_compare.c: every sensible strategy, best first. Gives the exit code. */
int gw_predict_compare(const gw_predict_ask *ask);
/* predict_sweep.c: "ranks=2..1024", "rate=1gbit..100gbit"; svg NULL: no file. */
int gw_predict_sweep(const gw_predict_ask *ask, const char *range, const char *svg);

#endif
