/* ranking.c - see ranking.h. */
#include "decide/ranking.h"

#include <stdlib.h>

#include "base/clock.h"

static int faster(const void *a, const void *b) {
    double x = ((const gw_ranked *)a)->seconds, y = ((const gw_ranked *)b)->seconds;
    return (x > y) - (x < y);
}

void gw_ranking_make(gw_ranking *ranking, const gw_strategy *list, int count, const gw_predict_config *config,
                     gw_time budget) {
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
        ranking->entries[ranking->count++] = (gw_ranked){list[i], prediction.step_seconds};
    }
    qsort(ranking->entries, (size_t)ranking->count, sizeof ranking->entries[0], faster);
}
