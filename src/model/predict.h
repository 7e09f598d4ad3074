/* predict.h - how long a training step takes under a strategy, on machines that need not be there. */
#ifndef GW_MODEL_PREDICT_H
#define GW_MODEL_PREDICT_H

#include "model/machine.h"
#include "model/profile.h"
#include "sim/fabric.h"
#include "sim/path.h"
#include "strategy/strategy.h"

#define GW_PREDICT_RANKS_MAX 65536

typedef struct gw_predict_config {
    const gw_profile *profile;
    const gw_strategy *strategy;
    const gw_machine *machine;
    gw_fabric_spec fabric;
    int ranks, per_host; /* per_host divides ranks */
    bool unfolded;       /* run every rank, also where one host could stand for all */
    void (*progress)(void *ctx, int step, int steps); /* NULL: nobody */
    void *ctx;
} gw_predict_config;

typedef struct gw_prediction {
    double step_seconds;
    double compute_seconds;
    double exposed_seconds; /* communication that compute does not hide */
    double efficiency;      /* compute / step */
    double samples_per_second; /* of all ranks; 0 where the profile has no batch */
    double bytes, messages; /* sent by a rank in a step */
    gw_path path;           /* what the step consists of */
    int pieces;
    bool folded;
    uint64_t simulated; /* messages */
} gw_prediction;

/* GW_UNSUPPORTED with the reason where the strategy cannot work there. */
gw_status gw_predict(const gw_predict_config *config, gw_prediction *prediction, gw_error *error);

#endif
