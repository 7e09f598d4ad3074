/* ranking.h - predicts candidates for a model on machines, the fastest first. Of codecs that are about as fast, the one
 * that has cost less accuracy comes first. */
#ifndef GW_DECIDE_RANKING_H
#define GW_DECIDE_RANKING_H

#include "base/clock.h"
#include "decide/candidates.h"
#include "predict/predict.h"

typedef struct gw_ranked {
    gw_strategy strategy;
    double seconds; /* of a predicted step */
    double weight;  /* gw_ranking_weight of the strategy */
} gw_ranked;

typedef struct gw_ranking {
    int count;      /* predicted: the asked line among them, unless it cannot be predicted */
    int left;       /* not predicted, for lack of time */
    double asked;   /* seconds of the asked line; 0: it cannot be predicted */
    double compute; /* seconds of compute in a step */
    gw_ranked entries[GW_CANDIDATES_MAX];
} gw_ranking;

/* How many times longer a step may take with a strategy that has cost no accuracy: a point is worth half a
 * step. optimizer: as in accuracy_risk.h, here and below. */
double gw_ranking_weight(const gw_strategy *strategy, const char *optimizer);

/* Whether a candidate that is predicted to take `seconds` may replace a strategy that is predicted to take `present`,
 * and was measured to take `measured`. No prediction knows of tensors that are sent exact because their codec is
 * distrusted. */
bool gw_ranking_worth_trying(double seconds, double present, double measured, bool distrusted);

/* Ranks a list of strategies, the first of which is asked; config has everything but the strategy. Takes about `budget`
 * at most. */
void gw_ranking_make(gw_ranking *ranking, const gw_strategy *list, int count, const gw_predict_config *config,
                     const char *optimizer, gw_time budget);

#endif
