/* predict.h - predicts the time of a training step under a strategy, on machines that need not exist. */
#ifndef GW_PREDICT_PREDICT_H
#define GW_PREDICT_PREDICT_H

#include "base/clock.h"
#include "predict/machine.h"
#include "profile/profile.h"
#include "sim/fabric.h"
#include "sim/time_breakdown.h"
#include "strategy/strategy.h"

#define GW_PREDICT_RANKS_MAX 65536

typedef struct gw_predict_config {
    const gw_profile *profile;
    const gw_strategy *strategy;
    const gw_machine *machine;
    gw_fabric_spec fabric;
    int ranks, per_host;                              /* per_host divides ranks */
    bool unfolded;                                    /* simulate every rank, even if one host could represent all */
    gw_time until;                                    /* give up then; 0: never */
    void (*progress)(void *ctx, int step, int steps); /* may be NULL */
    void *ctx;
} gw_predict_config;

typedef struct gw_prediction {
    double step_seconds;
    double compute_seconds;
    double exposed_seconds;    /* communication that compute does not hide */
    double efficiency;         /* compute / step */
    double samples_per_second; /* of all ranks; 0 if the profile has no batch */
    double bytes, messages;    /* sent by a rank in a step */
    gw_time_breakdown path;    /* critical path of a step, divided by kind of work */
    int buckets;
    bool folded;        /* one host represented all */
    uint64_t simulated; /* messages */
} gw_prediction;

/* GW_UNSUPPORTED, with the reason, if the strategy cannot work there; GW_TIMEOUT at `until`. */
gw_status gw_predict(const gw_predict_config *config, gw_prediction *prediction, gw_error *error);

#endif
