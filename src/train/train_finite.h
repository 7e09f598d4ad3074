/* train_finite.h - a loss or gradient that is not finite ends the training with a sentence, or, if the settings allow
 * it, is reported once on each rank. The reducer finds the gradients (gw_reducer_options.nonfinite). */
#ifndef GW_TRAIN_TRAIN_FINITE_H
#define GW_TRAIN_TRAIN_FINITE_H

#include "base/status.h"
#include "gradwire/reducer.h"
#include "nn/loss.h"

typedef struct gw_trainer gw_trainer;

/* GW_NOT_FINITE names the first tensor whose weights are not finite, if there is one. */
gw_status gw_trainer_check_loss(gw_trainer *trainer, const gw_loss *loss, gw_error *error);
/* After a step: a gradient of this rank was not finite, and the settings allow it. */
void gw_trainer_warn_gradient(gw_trainer *trainer, const gw_reducer_counters *counters);

#endif
