/* pipeline.h - model parallelism: the layers of a model are split over ranks (stages), and the batch into micro-batches
 * that follow each other through them. Activations travel to the next stage, their gradients back; only the first stage
 * reads examples, only the last their labels. Several such lines of stages are replicas in the sense of data
 * parallelism: rank = replica * stages + stage.
 *
 * The order is one forward, one backward (PipeDream-flush, Narayanan et al. 2021): stage s of S holds the activations
 * of at most S - s micro-batches, however many there are. Of m micro-batches that take a time of 1 in each stage, a
 * step takes m + S - 1: the rest is the bubble. Gradients are added up over the micro-batches, so a step computes what
 * it would without stages, batch norms excepted, which see one micro-batch at a time. */
#ifndef GW_TRAIN_PIPELINE_H
#define GW_TRAIN_PIPELINE_H

#include "base/clock.h"
#include "data/sampler.h"
#include "train/loss.h"
#include "train/passes.h"

#define GW_STAGES_MAX 64
#define GW_MICRO_MAX 1024

typedef struct gw_trainer gw_trainer;

typedef struct gw_pipeline_settings {
    int stages; /* 0: no pipeline */
    int micro;  /* micro-batches of a replica's share of a batch, fewer where it has fewer examples */
} gw_pipeline_settings;

/* One micro-batch on its way through this stage. */
typedef struct gw_transit {
    gw_passes passes;
    gw_pass *pass; /* of the last micro-batch */
    bool trained;  /* it was one of training */
    gw_request *output_leaves, *gradient_leaves, *gradient_arrives;
} gw_transit;

typedef struct gw_pipeline {
    int stage, stages, micro;
    int replica, replicas;
    gw_comm *line;                     /* the stages of this replica, in order */
    gw_comm *peers;                    /* the replicas of this stage */
    int first[GW_STAGES_MAX + 1];      /* node of each stage */
    double part[GW_STAGES_MAX];        /* of the measured work */
    gw_transit transit[GW_STAGES_MAX]; /* as many as are in flight */
    float *landing;                    /* the next activations, on their way while others are computed */
    gw_request *activation_arrives;
    gw_time waited;                    /* ns, for other stages; since the trainer last set it to 0 */
    uint64_t bytes;                    /* sent to other stages, likewise */
} gw_pipeline;

/* Collective over the trainer's communicator; its spec is known. so_far: where this rank has failed already no rank
 * goes on, and those without a failure of their own return GW_ABORTED with an empty sentence. Rank 0 measures the
 * layers. On failure *pipeline is untouched. */
gw_status gw_pipeline_open(gw_trainer *trainer, gw_status so_far, gw_pipeline **pipeline, gw_error *error);
void gw_pipeline_close(gw_pipeline *pipeline); /* NULL is fine */

/* Which micro-batch the i-th piece of work of a stage is about, 0 <= i < 2 * micro; negative: -1 - m is the backward of
 * micro-batch m. */
int gw_pipeline_order(int stage, int stages, int micro, int i);

/* This replica's share of a batch: forward and backward. hooks: for every forward, and for the last backward where the
 * batch is the last of its window. */
typedef struct gw_pipeline_batch {
    gw_share share;
    float scale;      /* of the loss */
    bool accumulates; /* gradients are added to those that are there */
    bool last;
    const gw_pass_hooks *hooks;
} gw_pipeline_batch;
gw_status gw_pipeline_train(gw_trainer *trainer, const gw_pipeline_batch *batch, gw_loss *loss, gw_error *error);
/* The loss of test examples, in the last stage; 0 elsewhere. tick may be NULL. */
gw_status gw_pipeline_test(gw_trainer *trainer, gw_share share, void (*tick)(void *ctx, int64_t done, int64_t of),
                           void *ctx, gw_loss *loss, gw_error *error);

/* The sum over the stages of this replica. */
gw_status gw_pipeline_sum(gw_trainer *trainer, double *value, gw_error *error);

/* What each stage has a part of (weights, running statistics) between the first rank, which has the whole of it, and
 * the others. offset: of this rank's part; whole is read or written on rank 0 only. */
gw_status gw_pipeline_collect(gw_trainer *trainer, const float *part, size_t offset, size_t count, float *whole,
                              gw_error *error);
gw_status gw_pipeline_spread(gw_trainer *trainer, float *part, size_t offset, size_t count, const float *whole,
                             gw_error *error);

#endif
