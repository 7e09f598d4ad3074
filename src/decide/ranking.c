/* ranking.c - see ranking.h. */
#include "decide/ranking.h"

#include <stdlib.h>

#include <math.h>

#include "base/clock.h"
#include "strategy/accuracy_risk.h"

#define HOPELESS 1.1 /* not worth trying: predicted to take more than this share of the present one's time */

#define POINT_WORTH 0.5

static int faster(const void *a, const void *b) {
    const gw_ranked *x = a, *y = b;
    double first = x->seconds * x->weight, second = y->seconds * y->weight;
    return (first > second) - (first < second);
}

double gw_ranking_weight(const gw_strategy *strategy, const char *optimizer) {
    gw_accuracy_risk risk = gw_accuracy_risk_of(strategy, optimizer);
    return 1 + POINT_WORTH * fmax(risk.points, 0);
}

bool gw_ranking_worth_trying(double seconds, double present, double measured, bool distrusted) {
    double most = distrusted && measured > present ? measured : present;
    return present <= 0 || seconds <= HOPELESS * most;
}

void gw_ranking_make(gw_ranking *ranking, const gw_strategy *list, int count, const gw_predict_config *config,
                     const char *optimizer, gw_time budget) {
    gw_time begun = gw_clock_now();
    *ranking = (gw_ranking){.count = 0};
    for (int i = 0; i < count; i++) {
        gw_predict_config one = *config;
        gw_prediction prediction;
        gw_error error = {.rank = -1};
        if (gw_clock_now() - begun > budget) {
            ranking->left = count - i;
            break;
        }
        one.strategy = &list[i];
        if (gw_predict(&one, &prediction, &error)) continue; /* a combination that this model or job cannot have */
        if (i == 0) ranking->asked = prediction.step_seconds;
        ranking->compute = prediction.compute_seconds;
        ranking->entries[ranking->count++] =
            (gw_ranked){list[i], prediction.step_seconds, gw_ranking_weight(&list[i], optimizer)};
    }
    qsort(ranking->entries, (size_t)ranking->count, sizeof ranking->entries[0], faster);
}
