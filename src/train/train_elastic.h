/* train_elastic.h - elastic training: the job continues when ranks die (gradwire run --elastic, --restarts).
 *
 * With parameter servers a step continues after a loss: failed calls are repeated (train_reducer.c). Without servers
 * the interrupted step is dropped: its passes unwind, and all ranks continue from the same update (gw_trainer_recover).
 *
 * Collective calls between steps (reports, tests, checkpoints) happen at sync points: updates after which all ranks
 * make them. If a rank dies during one, some ranks have completed it and some have not. After a loss the ranks exchange
 * their last sync point and its test result, so that no sync point runs twice. */
#ifndef GW_TRAIN_TRAIN_ELASTIC_H
#define GW_TRAIN_TRAIN_ELASTIC_H

#include "base/status.h"

typedef struct gw_trainer gw_trainer;

/* Whether the job is elastic. */
bool gw_trainer_elastic(void);

/* After a loss before this rank has joined the training (trainer->joined): regroups with the other ranks, to start
 * again. Returns GW_OK, or why, with its sentence in *error. */
gw_status gw_trainer_regroup(gw_trainer *trainer, gw_status why, gw_error *error);
/* Whether any rank is already training. Collective: the first call in every generation of the job except the first. */
gw_status gw_trainer_under_way(gw_trainer *trainer, bool *under_way, gw_error *error);
/* Instead of gw_trainer_commit if training is under way: joins the others at their current update. */
gw_status gw_trainer_rejoin(gw_trainer *trainer, gw_error *error);

/* After a failed call during training: regroups with the ranks that are left. GW_OK: training continues from the
 * trainer's position, and the sync point trainer->sync_point is complete. Otherwise returns the failure of the call,
 * also in *error. */
gw_status gw_trainer_recover(gw_trainer *trainer, gw_status why, gw_error *error);
/* Waits until all ranks have made their last step: others may need this rank, as a server or to recover from a loss. */
gw_status gw_trainer_leave(gw_trainer *trainer, gw_error *error);

#endif
