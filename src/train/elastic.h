/* elastic.h - a trainer whose job goes on when ranks die (gradwire run --elastic, --restarts).
 *
 * Over parameter servers a step goes on after a loss: calls that failed are made again (exchange.c). Without servers
 * the interrupted step is over: its passes unwind, and all ranks go on with the same update (gw_trainer_recover).
 *
 * Collective calls of a training (reports, tests, checkpoints) are made at points: updates after which all ranks meet.
 * A rank that was lost in the middle of one leaves some with it behind them and some without. After a loss the ranks
 * tell each other which point was the last and what its test came to, and nobody makes it twice. */
#ifndef GW_TRAIN_ELASTIC_H
#define GW_TRAIN_ELASTIC_H

#include "base/status.h"

typedef struct gw_trainer gw_trainer;

/* The job is an elastic one. */
bool gw_trainer_elastic(void);

/* Before this rank's training has begun (trainer->began): comes together with the others after a loss, to begin again.
 * GW_OK, or why, which *error holds. */
gw_status gw_trainer_regroup(gw_trainer *trainer, gw_status why, gw_error *error);
/* Whether the training of any rank has begun. Collective: the first call in every generation of the job but the first.
 */
gw_status gw_trainer_under_way(gw_trainer *trainer, bool *under_way, gw_error *error);
/* Instead of gw_trainer_commit where training is under way: joins the others where they are. */
gw_status gw_trainer_come_back(gw_trainer *trainer, gw_error *error);

/* Once training has begun, after a failed call: comes together with whoever is there. GW_OK: training goes on from the
 * trainer's position, and the point is over that trainer->point says. Otherwise what the call failed with, in *error
 * too. */
gw_status gw_trainer_recover(gw_trainer *trainer, gw_status why, gw_error *error);
/* Waits until all have made their last step: others may need this rank, as a server or to go on after a loss. */
gw_status gw_trainer_leave(gw_trainer *trainer, gw_error *error);

#endif
