/* trainer.h - training, one rank's part: batches, passes, exchange, optimiser, evaluation. Data-parallel; with a
 * pipeline (pipeline.h) a replica of the model is spread over several ranks.
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
#include "train/catalogue.h"
#include "train/elastic.h"
#include "train/exchange.h"
#include "train/loss.h"
#include "train/optimiser.h"
#include "train/passes.h"
#include "train/pipeline.h"
#include "train/rate.h"
#include "train/tracing.h"
#include "train/workers.h"

#define GW_TRAIN_TEST_BATCH 100

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
    gw_pipeline_settings pipeline;
} gw_train_settings;

/* What has happened since the last gw_trainer_meet, on this rank. */
typedef struct gw_train_work {
    double loss_sum; /* nats */
    int64_t correct, counted; /* rows: examples, or tokens of a text */
    uint64_t compute, exposed; /* ns: passes and optimiser; communication that was waited for */
    uint64_t bytes;            /* sent, as counted; what is reduced in place in shared memory is not sent */
    uint64_t dense;            /* what plain all-reduces would have made this rank send, and what other stages got */
} gw_train_work;

struct gw_trainer {
    gw_train_settings settings;
    gw_comm *comm; /* the caller's; in an elastic job it may be another later, which takes its place */
    int rank, world;
    gw_pipeline *pipeline;  /* NULL: every rank has the whole model */
    gw_comm *peers;         /* ranks that have the same weights: `replicas` of them, this one is `replica` */
    int replica, replicas;
    gw_spec *spec;
    gw_model *model;        /* the whole, or this stage */
    float *gradients; /* from gw_alloc; in an elastic job, where communicators come and go, from malloc */
    bool elastic;           /* ranks that die are gone on without, or come back */
    bool began;             /* it has taken its place among the others, and holds their weights */
    bool served;            /* over servers: after a loss the interrupted step goes on; otherwise it is over */
    bool shares_change;     /* ranks have changed: so do shares, from the next step on */
    bool lacks_statistics;  /* it came back, and its running statistics are those of the beginning */
    uint64_t point;         /* the last update at which all ranks met */
    gw_loss tested;         /* the last test; counted 0: none yet */
    gw_step *step;          /* NULL before gw_trainer_commit */
    gw_step_counters counted; /* of it, so far in `work` */
    bool *handed_over;      /* parameters whose gradients are on their way in this step */
    gw_error step_error;    /* of the first hand-over in this step that failed */
    bool timing;            /* exchanges are timed: nothing is updated */
    gw_optimiser *optimiser;
    gw_rate rate;
    gw_dataset *train, *test;
    gw_sampler sampler;
    gw_passes passes;
    int32_t *labels;
    int64_t rows;         /* of one example: 1, or the tokens of a window */
    uint64_t epoch;       /* position: the next window to be taken */
    int64_t window;
    uint64_t updates;     /* done so far */
    gw_train_work work;
    gw_train_tracing tracing;
    char *gathered;       /* reports of all ranks, for gw_trainer_meet */
    uint64_t *hashes;     /* of all ranks' weights, likewise */
    gw_train_worker *workers;  /* of all ranks, since the beginning, as of the last meeting */
    gw_step_worker *at_servers; /* what servers know of each, likewise */
};

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
/* Which ranks differ from most others of their stage (rank modulo stages); GW_OK: none. */
gw_status gw_train_compare(const uint64_t *hashes, int world, int stages, uint64_t updates, gw_error *error);
/* Of this rank's weights. Those of the stages add up to that of the whole. */
uint64_t gw_trainer_hash(const gw_trainer *trainer);
/* Of the whole. Collective. */
gw_status gw_trainer_hash_whole(gw_trainer *trainer, uint64_t *hash, gw_error *error);

/* The running statistics become the mean of all ranks', of which `have` have any (lacks_statistics). Collective. On
 * failure they stay as they are. */
gw_status gw_trainer_average(gw_trainer *trainer, int have, gw_error *error);

/* Every rank takes its share of the test split. tick is called now and then with the share's progress; may be NULL. */
typedef void gw_train_tick(void *ctx, int64_t done, int64_t of);
gw_status gw_trainer_evaluate(gw_trainer *trainer, gw_train_tick *tick, void *ctx, gw_loss *total, gw_error *error);

/* For the files of the trainer: a pass for that many examples. */
gw_status gw_trainer_pass(gw_trainer *trainer, int64_t batch, bool trains, gw_pass **pass, gw_error *error);
/* Fills its input (in the first stage) and the trainer's labels. */
void gw_trainer_load(gw_trainer *trainer, gw_pass *pass, bool trains, int64_t first);
gw_status gw_trainer_told(const gw_trainer *trainer, gw_status status, gw_error *error);

#endif
