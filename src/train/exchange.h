/* exchange.h - a trainer's gradients on their way: the model's parameters are the tensors of a gw_step, whose updates
 * run the trainer's optimiser. How they travel is the strategy's business. */
#ifndef GW_TRAIN_EXCHANGE_H
#define GW_TRAIN_EXCHANGE_H

#include "train/pass.h"

typedef struct gw_trainer gw_trainer;

/* Collective, over the ranks that hold the same weights. Before the first step, and after a snapshot was loaded. */
gw_status gw_trainer_commit(gw_trainer *trainer, gw_error *error);

/* Nothing is handed over yet; of a step that was broken off nothing counts. */
void gw_trainer_begin_step(gw_trainer *trainer);
/* For the passes of a step: forward waits for what it needs, backward hands gradients over. ctx is the trainer. */
gw_status gw_trainer_needed(void *trainer, int first_parameter, int parameters, gw_error *error);
void gw_trainer_gradient_ready(void *trainer, int parameter);
bool gw_trainer_wants_factors(void *trainer, int parameter);
void gw_trainer_factors_ready(void *trainer, int parameter, gw_layer_factors factors);
/* Gradients that no backward pass has handed over (a rank without examples) go as they are; the step is over. */
gw_status gw_trainer_hand_over_rest(gw_trainer *trainer, gw_error *error);
/* After it: where the trainer updates by itself, it does so here. */
gw_status gw_trainer_finish_step(gw_trainer *trainer, gw_error *error);
/* Everything is applied. */
gw_status gw_trainer_flush(gw_trainer *trainer, gw_error *error);
/* Time that an exchange of all gradients takes with nothing to hide it, ns: the fastest of a few; 0 where it cannot be
 * told. Collective; what codecs keep is lost, so only at the end. */
gw_status gw_trainer_time_exchange(gw_trainer *trainer, uint64_t *fastest, gw_error *error);

#endif
