/* pipeline.h - pipeline parallelism: the layers of a model are split over ranks (stages), and a batch into
 * micro-batches. Each stage sends activations to the next and gradients back; only the first stage reads examples, only
 * the last their labels. Several such pipelines are data-parallel replicas: rank = replica * stages + stage.
 *
 * The order is 1F1B, one forward, one backward (PipeDream-flush, Narayanan et al. 2021): stage s of S holds the
 * activations of at most S - s micro-batches, for any number of micro-batches. With m micro-batches of time 1 per stage
 * a step takes m + S - 1; S - 1 is the bubble. Gradients accumulate over the micro-batches, so a step computes the same
 * as without stages, except that batch norms see one micro-batch at a time. */
#ifndef GW_TRAIN_PIPELINE_H
#define GW_TRAIN_PIPELINE_H

#include "base/clock.h"
#include "data/sampler.h"
#include "nn/loss.h"
#include "nn/pass_cache.h"

#define GW_STAGES_MAX 64
#define GW_MICRO_MAX 1024

typedef struct gw_trainer gw_trainer;

typedef struct gw_pipeline_settings {
    int stages; /* 0: no pipeline */
    int micro;  /* micro-batches of a replica's shard of a batch, fewer if it has fewer examples */
} gw_pipeline_settings;

/* The state of one micro-batch in flight in this stage. */
typedef struct gw_micro_batch {
    gw_passes passes;
    gw_pass *pass; /* of the last micro-batch */
    bool trained;  /* that micro-batch was for training, not for a test */
    gw_request *output_send, *gradient_send, *gradient_recv;
} gw_micro_batch;

typedef struct gw_pipeline {
    int stage, stages, micro;
    int replica, replicas;
    gw_comm *stage_comm;                 /* the stages of this replica, in order */
    gw_comm *peers;                      /* the replicas of this stage */
    int first[GW_STAGES_MAX + 1];        /* first node of each stage */
    double part[GW_STAGES_MAX];          /* of the measured compute time, 0 to 1 */
    gw_micro_batch slots[GW_STAGES_MAX]; /* one for each micro-batch in flight */
    float *incoming;                     /* receive buffer of the next activations, filled during compute */
    gw_request *activation_recv;         /* into incoming */
    gw_time waited;                      /* ns, for other stages; the trainer reads it and sets it to 0 */
    uint64_t bytes;                      /* sent to other stages; likewise */
} gw_pipeline;

/* Collective over the trainer's communicator; trainer->spec must be set. so_far: this rank's status. If any rank has
 * failed, no rank continues, and the others return GW_ABORTED with an empty sentence. Rank 0 measures the layers. On
 * failure *pipeline is untouched. */
gw_status gw_pipeline_open(gw_trainer *trainer, gw_status so_far, gw_pipeline **pipeline, gw_error *error);
void gw_pipeline_close(gw_pipeline *pipeline); /* NULL is fine */

/* The i-th pass of a stage, 0 <= i < 2 * micro: m >= 0 is the forward pass of micro-batch m; -1 - m its backward. */
int gw_pipeline_order(int stage, int stages, int micro, int i);

/* Forward and backward pass of this replica's shard of a batch. hooks: for each forward pass, and for the last backward
 * pass of the last batch of a window. */
typedef struct gw_pipeline_batch {
    gw_data_shard shard;
    float scale;      /* of the loss */
    bool accumulates; /* adds to the gradients of earlier batches of the window */
    bool last;        /* of the window */
    const gw_pass_hooks *hooks;
} gw_pipeline_batch;
gw_status gw_pipeline_train(gw_trainer *trainer, const gw_pipeline_batch *batch, gw_loss *loss, gw_error *error);
/* The loss of test examples; only the last stage gets it, the others 0. tick may be NULL. */
gw_status gw_pipeline_test(gw_trainer *trainer, gw_data_shard shard, void (*tick)(void *ctx, int64_t done, int64_t of),
                           void *ctx, gw_loss *loss, gw_error *error);

/* Sums a value over the stages of this replica. */
gw_status gw_pipeline_sum(gw_trainer *trainer, double *value, gw_error *error);

/* Gather and scatter of tensors that are split over the stages (weights, running statistics). collect: the stages of
 * replica 0 send their parts to rank 0; spread: rank 0 sends all ranks their parts. offset: of this rank's part in
 * whole; whole: used on rank 0 only. */
gw_status gw_pipeline_collect(gw_trainer *trainer, const float *part, size_t offset, size_t count, float *whole,
                              gw_error *error);
gw_status gw_pipeline_spread(gw_trainer *trainer, float *part, size_t offset, size_t count, const float *whole,
                             gw_error *error);

#endif
