/* trainer.h - data-parallel training, one rank's part: batches, passes, exchange, optimiser, evaluation.
 *
 * A window is what one update of the weights is computed from: `accumulate` global batches one after the other, fewer
 * at the end of an epoch. Each rank takes its share of each batch and divides its loss by the examples of the whole
 * window, so the sum of all ranks' gradients is that of the joined window, however uneven the shares are.
 *
 * Batch norms see the statistics of their own rank's share only. The running ones are averaged over the ranks before
 * an evaluation and before a checkpoint (gw_trainer_average). */
#ifndef GW_TRAIN_TRAINER_H
#define GW_TRAIN_TRAINER_H

#include "base/clock.h"
#include "data/dataset.h"
#include "data/sampler.h"
#include "train/buckets.h"
#include "train/catalogue.h"
#include "train/loss.h"
#include "train/optimiser.h"
#include "train/pass.h"
#include "train/rate.h"
#include "train/tracing.h"

#define GW_TRAIN_TEST_BATCH 100
#define GW_TRAIN_PASSES 4 /* batch sizes in use: that of an epoch and its last, for training and for evaluation */

typedef struct gw_train_settings {
    const char *model, *data;
    gw_model_size size;
    int64_t batch;      /* examples of all ranks together */
    int64_t accumulate; /* batches of a window */
    int64_t epochs;
    const gw_optimiser_kind *optimiser;
    gw_optimiser_settings tuning;
    gw_rate_kind schedule;
    double rate;
    uint64_t warmup; /* updates */
    double clip;     /* largest norm of all gradients together; 0: any */
    uint64_t seed;
    bool augment; /* images are moved by up to 4 pixels and mirrored */
    size_t bucket_bytes;
} gw_train_settings;

/* What has happened since the last gw_trainer_meet, on this rank. */
typedef struct gw_train_work {
    double loss_sum; /* nats */
    int64_t correct, counted; /* rows: examples, or tokens of a text */
    uint64_t compute, exposed; /* ns: passes and optimiser; communication that was waited for */
    uint64_t bytes;            /* that an all-reduce of this size makes each rank send: 2 (n - 1) / n of it */
} gw_train_work;

typedef struct gw_trainer {
    gw_train_settings settings;
    gw_comm *comm; /* the caller's */
    int rank, world;
    gw_spec *spec;
    gw_model *model;
    float *gradients; /* from gw_alloc */
    gw_buckets buckets;
    gw_optimiser *optimiser;
    gw_rate rate;
    gw_dataset *train, *test;
    gw_sampler sampler;
    gw_pass *passes[GW_TRAIN_PASSES];
    bool pass_trains[GW_TRAIN_PASSES];
    int32_t *labels;
    int64_t rows;         /* of one example: 1, or the tokens of a window */
    uint64_t epoch;       /* position: the next window to be taken */
    int64_t window;
    uint64_t updates;     /* done so far */
    gw_train_work work;
    gw_train_tracing tracing;
    char *gathered;       /* reports of all ranks, for gw_trainer_meet */
    uint64_t *hashes;     /* of all ranks' weights, likewise */
} gw_trainer;

/* On failure *trainer is untouched. */
gw_status gw_trainer_create(gw_comm *comm, const gw_train_settings *settings, gw_trainer **trainer, gw_error *error);
void gw_trainer_destroy(gw_trainer *trainer); /* NULL is fine */

int64_t gw_trainer_windows(const gw_trainer *trainer); /* of an epoch */
/* Examples of all ranks in the window that comes next. */
int64_t gw_trainer_window_examples(const gw_trainer *trainer);
/* One update of the weights; moves the position on, over the end of an epoch too. */
gw_status gw_trainer_step(gw_trainer *trainer, gw_error *error);

/* The work of all ranks since the last time, summed, times averaged; bytes are one rank's. Collective. Fails where the
 * weights of the ranks are not the same bits, and names those that differ. */
gw_status gw_trainer_meet(gw_trainer *trainer, gw_train_work *total, gw_error *error);
/* Which ranks differ from most others; GW_OK: none. */
gw_status gw_train_compare(const uint64_t *hashes, int world, uint64_t updates, gw_error *error);
uint64_t gw_trainer_hash(const gw_trainer *trainer); /* of the weights */

/* The running statistics become those of all ranks. Collective. */
gw_status gw_trainer_average(gw_trainer *trainer, gw_error *error);

/* Every rank takes its share of the test split. tick is called now and then with the share's progress; may be NULL. */
typedef void gw_train_tick(void *ctx, int64_t done, int64_t of);
gw_status gw_trainer_evaluate(gw_trainer *trainer, gw_train_tick *tick, void *ctx, gw_loss *total, gw_error *error);

/* For trainer.c and evaluate.c: a pass for that many examples. */
gw_status gw_trainer_pass(gw_trainer *trainer, int64_t batch, bool trains, gw_pass **pass, gw_error *error);
/* Fills its input and the trainer's labels. */
void gw_trainer_load(gw_trainer *trainer, gw_pass *pass, bool trains, int64_t first);
gw_status gw_trainer_told(const gw_trainer *trainer, gw_status status, gw_error *error);

#endif
