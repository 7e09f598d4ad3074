/* elastic.h - a trainer whose job goes on when ranks die (gradwire run --elastic, --restarts), over parameter servers.
 *
 * Collective calls of a training (reports, tests, checkpoints) are made at points: updates after which all ranks meet.
 * A rank that was lost in the middle of one leaves some with it behind them and some without; after coming together
 * they tell each other which was the last, and nobody makes it twice. */
#ifndef GW_TRAIN_ELASTIC_H
#define GW_TRAIN_ELASTIC_H

#include "base/status.h"

typedef struct gw_trainer gw_trainer;

/* The job is an elastic one. */
bool gw_trainer_elastic(void);
/* After a failed call: comes together with whoever is there. GW_OK: the call can be made again, unless it was of a
 * point that is over now (trainer->point). Otherwise what the call failed with, in *error too. */
gw_status gw_trainer_recover(gw_trainer *trainer, gw_status why, gw_error *error);
/* A process that was started again, or has lost others before its first step, joins the others where they are, instead
 * of gw_trainer_commit. */
gw_status gw_trainer_come_back(gw_trainer *trainer, gw_error *error);
/* Waits until all have made their last step: servers beside it may be needed. */
gw_status gw_trainer_leave(gw_trainer *trainer, gw_error *error);

#endif
