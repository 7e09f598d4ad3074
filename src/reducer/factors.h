/* factors.h - a tensor that is sent as sufficient factors (arch/sfb.h): every rank gathers the factors of all ranks,
 * and computes the sum of their outer products, in rank order. A rank whose gradient is not such a sum in some step
 * says so in the all-gather; then all ranks compute their own matrices, and an all-reduce follows.
 *
 * Cost, p ranks, batch k, matrix m x n: (p-1) k (m+n) numbers out and in for each rank, and 2 k p m n operations.
 * Memory: (p+1) k (m+n) numbers. */
#ifndef GW_REDUCER_FACTORS_H
#define GW_REDUCER_FACTORS_H

#include "reducer/step_engine.h"

typedef struct gw_factors gw_factors;

/* Whether a tensor travels so: the strategy asks for it, its gradient is what travels, and factors are cheaper. */
bool gw_factors_chosen(const gw_step_engine_config *config, const gw_reducer_tensor *tensor);

gw_status gw_factors_open(gw_factors **factors, const gw_step_engine_config *config, int tensor, uint32_t team,
                          gw_error *error);
void gw_factors_close(gw_factors *factors); /* NULL is fine */

/* (C) Copies this rank's; batch is at most what the tensor was committed with. */
void gw_factors_take(gw_factors *factors, const float *left, const float *right, size_t batch);
/* (C) Instead, in a step in which this rank has the gradient and no factors. */
void gw_factors_take_whole(gw_factors *factors);

/* The driver's. */
gw_status gw_factors_start(gw_factors *factors, uint32_t label, gw_time now, gw_error *error);
/* True when the sum, or the mean, stands in gradient. */
bool gw_factors_over(gw_factors *factors, float *gradient, gw_time now, gw_error *error);

size_t gw_factors_sent_bytes(const gw_factors *factors); /* by this rank in a step of factors, at most */
size_t gw_factors_memory_bytes(const gw_factors *factors);

#endif
