/* accuracy_risk.h - how much accuracy a strategy has cost in measured trainings: a pure function of the strategy, the
 * optimiser and bench/results/accuracies.csv. */
#ifndef GW_STRATEGY_ACCURACY_RISK_H
#define GW_STRATEGY_ACCURACY_RISK_H

#include "strategy/accuracy_rows.h"
#include "strategy/strategy.h"

/* What is called safe: measured on so many models with so many seeds each, and on no model does the mean lose more. */
#define GW_ACCURACY_SAFE_POINTS 0.5 /* of test accuracy: 90.5 % is one point more than 89.5 % */
#define GW_ACCURACY_SAFE_MODELS 2
#define GW_ACCURACY_SAFE_SEEDS 3

typedef struct gw_accuracy_risk {
    bool exact;    /* sums are exact, and every step waits for all gradients */
    bool safe;     /* exact, or measured to be safe */
    int runs;      /* measured beside an exact one of the same seed; 0: not measured */
    double points; /* lost at most, on the mean over the seeds of one model, data, length and optimiser */
} gw_accuracy_risk;

/* The synchronization, the codec and its parameters count; a limit of the codec's guard does not, because it only sends
 * more exact. optimizer: "sgd", "adamw", ...: only trainings with it count (adam and adamw are one). NULL, or one that
 * was never measured: all do, the worst of them decides, and only what was measured with each optimiser is safe. */
gw_accuracy_risk gw_accuracy_risk_of(const gw_strategy *strategy, const char *optimizer);
/* The same by other rows. */
gw_accuracy_risk gw_accuracy_risk_by(const gw_accuracy_row *rows, const gw_strategy *strategy, const char *optimizer);

#define GW_ACCURACY_RISK_TEXT 32
/* "exact", "safe, 0.2 points", "2.1 points", "not measured". */
void gw_accuracy_risk_print(const gw_accuracy_risk *risk, char text[GW_ACCURACY_RISK_TEXT]);

#endif
