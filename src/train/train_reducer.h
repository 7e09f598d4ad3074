/* train_reducer.h - connects a trainer to a gw_reducer: the model's parameters are the reducer's tensors, and the
 * reducer's updates run the trainer's optimiser. The strategy decides how gradients are exchanged. */
#ifndef GW_TRAIN_TRAIN_REDUCER_H
#define GW_TRAIN_TRAIN_REDUCER_H

#include "gradwire/reducer.h"
#include "nn/pass.h"

typedef struct gw_trainer gw_trainer;

/* Opens the reducer. Collective over the replicas. Call it before the first step, and after loading a checkpoint. */
gw_status gw_trainer_commit(gw_trainer *trainer, gw_error *error);

/* Starts a step: no gradient is submitted yet. Forgets a step that was interrupted. */
void gw_trainer_begin_step(gw_trainer *trainer);
/* Hooks for the passes of a step (gw_pass_hooks): forward waits for parameters, backward submits gradients. ctx is the
 * trainer. */
gw_status gw_trainer_wait_parameters(void *trainer, int first_parameter, int parameters, gw_error *error);
int gw_trainer_choose(void *trainer, const int *parameters, int count);
void gw_trainer_gradient_ready(void *trainer, int parameter);
bool gw_trainer_wants_factors(void *trainer, int parameter);
void gw_trainer_factors_ready(void *trainer, int parameter, gw_layer_factors factors);
/* Submits the gradients that no backward pass has submitted (a rank without examples), and ends the step. */
gw_status gw_trainer_submit_rest(gw_trainer *trainer, gw_error *error);
/* Call it after gw_trainer_submit_rest: where the trainer, not the reducer, updates the weights, it does so here. */
gw_status gw_trainer_finish_step(gw_trainer *trainer, gw_error *error);
/* Waits until all updates are applied. */
gw_status gw_trainer_flush(gw_trainer *trainer, gw_error *error);
/* Duration in ns of an exchange of all gradients without overlap: the fastest of a few; 0: it cannot be measured.
 * Collective. It destroys the state of codecs, so call it at the end only. */
gw_status gw_trainer_time_exchange(gw_trainer *trainer, uint64_t *fastest, gw_error *error);

#endif
