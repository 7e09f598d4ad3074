/* forecast.h - which other strategy would make the steps of a measured job faster.
 *
 * A job that ran gives its layers, its strategy, and the time of a step that communication took and nothing hid. Of
 * its network little is known exactly, so first one figure of the machine is moved until the prediction of this job is
 * what was measured: the rate of the links, or their latency where messages are bound by it. With that machine the
 * candidates are predicted: schedules and architectures, which give the same result, then codecs that hardly cost
 * accuracy. Of a large job a few hosts are predicted. All this ends within `seconds`; what has not been predicted by
 * then is left out. */
#ifndef GW_PREDICT_FORECAST_H
#define GW_PREDICT_FORECAST_H

#include "predict/predict.h"

typedef struct gw_forecast_job {
    const gw_profile *profile; /* layers as measured */
    gw_strategy strategy;
    gw_machine machine;
    int ranks, per_host;
    double exposed;        /* seconds of a step: communication that nothing hid */
    double seconds;        /* that all predictions together may take */
    const char *optimizer; /* as in accuracy_risk.h; NULL: not known */
} gw_forecast_job;

typedef struct gw_forecast_choice {
    double saves;                        /* seconds of a step; 0: no candidate is faster */
    char words[GW_STRATEGY_PRINT_BYTES]; /* what to change in the strategy line */
} gw_forecast_choice;

typedef struct gw_forecast {
    gw_prediction now;        /* the job as it ran */
    double latency_share;     /* of the communication on its critical path: latency of messages, 0 to 1 */
    gw_forecast_choice exact; /* the same result */
    gw_forecast_choice safe;  /* with a codec */
    double slow_links_cost;   /* seconds of a step that would be saved if no link was slower than the median */
    gw_machine machine;       /* that explains what was measured */
} gw_forecast;

/* GW_UNSUPPORTED or GW_TIMEOUT, with the reason, if the job itself cannot be predicted, or not as it was measured. */
gw_status gw_forecast_make(const gw_forecast_job *job, gw_forecast *forecast, gw_error *error);

#endif
