/* trainer.h - the training loop of one rank: batches, passes, gradient exchange, optimiser, evaluation. It is
 * data-parallel; with a pipeline (pipeline.h) each replica of the model is spread over several ranks.
 *
 * A window is the input of one weight update: `accumulate` global batches, fewer at the end of an epoch. Each rank
 * takes its shard of each batch and divides its loss by the examples of the whole window, so the sum of all ranks'
 * gradients is the gradient of the whole window, even if the shards differ in size.
 *
 * Batch norms use the statistics of their own rank's shard only. The running statistics are averaged over the ranks
 * before each evaluation and checkpoint (gw_trainer_average). */
#ifndef GW_TRAIN_TRAINER_H
#define GW_TRAIN_TRAINER_H

#include "base/clock.h"
#include "data/dataset.h"
#include "data/sampler.h"
#include "gradwire/reducer.h"
#include "nn/loss.h"
#include "nn/model_text.h"
#include "nn/pass_cache.h"
#include "optim/learning_rate.h"
#include "optim/optimiser.h"
#include "train/layer_times.h"
#include "train/pipeline.h"
#include "train/stragglers.h"
#include "train/train_elastic.h"
#include "train/train_finite.h"
#include "train/train_reducer.h"
#include "train/train_trace.h"

#define GW_TRAIN_TEST_BATCH 100

typedef struct gw_train_settings {
    const char *model, *data;
    gw_model_size size;
    int64_t batch;      /* examples of all ranks together */
    int64_t accumulate; /* batches of a window */
    int64_t epochs;
    const gw_optimiser_kind *optimiser;
    gw_optimiser_settings tuning;
    gw_learning_rate_kind schedule;
    double rate;
    uint64_t warmup; /* updates */
    double clip;     /* limit of the norm of all gradients together; 0: no clipping */
    uint64_t seed;
    bool augment;         /* shift images by up to 4 pixels and mirror them */
    bool allow_nonfinite; /* a loss or gradient that is not finite does not end the training */
    gw_pipeline_settings pipeline;
} gw_train_settings;

/* The work of this rank since the last gw_trainer_gather_work. */
typedef struct gw_train_work {
    double loss_sum;           /* nats */
    int64_t correct, counted;  /* rows: examples, or tokens of a text */
    uint64_t compute, waiting; /* ns: passes and optimiser; in calls that waited (docs/reference/glossary.md) */
    uint64_t bytes;            /* sent; in-place reduction in shared memory counts as 0 */
    uint64_t dense;            /* bytes that plain all-reduces would have sent, plus those sent to other stages */
} gw_train_work;

struct gw_trainer {
    gw_train_settings settings;
    gw_comm *comm; /* the caller's; in an elastic job each regroup replaces it */
    int rank, world;
    gw_pipeline *pipeline; /* NULL: every rank has the whole model */
    gw_comm *peers;        /* ranks that have the same weights: `replicas` of them, this one is `replica` */
    int replica, replicas;
    gw_spec *spec;
    gw_model *model;             /* the whole, or this stage */
    float *gradients;            /* from gw_alloc; in an elastic job, which replaces communicators, from malloc */
    bool elastic;                /* the job continues after lost ranks, and ranks may rejoin */
    bool joined;                 /* this rank takes part in the training and holds the current weights */
    bool over_servers;           /* with servers an interrupted step continues after a loss; without, it is dropped */
    bool reshard;                /* the number of ranks changed: the next step makes a new sampler */
    bool lacks_statistics;       /* the rank rejoined; its running statistics are still the initial ones */
    uint64_t sync_point;         /* the last update after which all ranks made collective calls (train_elastic.h) */
    gw_loss last_test;           /* counted 0: no test yet */
    gw_reducer *reducer;         /* NULL before gw_trainer_commit */
    gw_reducer_counters counted; /* those of the reducer that `work` already includes */
    bool *submitted;             /* parameters whose gradients this step has given to the reducer */
    gw_error step_error;         /* of the first gradient in this step that the reducer refused */
    bool warned_nonfinite;       /* this rank has reported its first loss or gradient that is not finite */
    bool timing;                 /* measuring exchanges: the optimiser does nothing */
    gw_optimiser *optimiser;
    gw_learning_rate rate;
    gw_dataset *train, *test;
    gw_sampler sampler;
    gw_passes passes;
    int32_t *labels;
    int64_t rows;   /* of one example: 1, or the tokens of a text example */
    uint64_t epoch; /* position: epoch and number of the next window */
    int64_t window;
    uint64_t updates; /* done so far */
    gw_train_work work;
    gw_train_tracing tracing;
    gw_layer_times layers;    /* of this rank; none in a pipeline */
    char *reports;            /* of all ranks, for gw_trainer_gather_work */
    uint64_t *hashes;         /* of all ranks' weights, for gw_trainer_gather_work */
    gw_train_worker *workers; /* of all ranks, since the start; updated by gw_trainer_gather_work */
    gw_reducer_worker_stats
        *server_counts; /* the servers' counters of each worker; updated by gw_trainer_gather_work */
};

/* On failure *trainer is untouched. */
gw_status gw_trainer_create(gw_comm *comm, const gw_train_settings *settings, gw_trainer **trainer, gw_error *error);
void gw_trainer_destroy(gw_trainer *trainer); /* NULL is fine */

int64_t gw_trainer_windows(const gw_trainer *trainer); /* of an epoch */
/* Examples of all ranks in the next window. */
int64_t gw_trainer_window_examples(const gw_trainer *trainer);
/* One update of the weights. Advances the position, also into the next epoch. */
gw_status gw_trainer_step(gw_trainer *trainer, gw_error *error);

/* The work of all ranks since the last call: losses and counts are summed, times averaged, bytes are this rank's.
 * Collective. Fails if the ranks' weights are not bit-identical, and names the ranks that differ. */
gw_status gw_trainer_gather_work(gw_trainer *trainer, gw_train_work *total, gw_error *error);
/* Finds ranks whose hash differs from the majority of their stage (rank modulo stages); GW_OK: none. */
gw_status gw_train_compare(const uint64_t *hashes, int world, int stages, uint64_t updates, gw_error *error);
/* Hash of this rank's weights. The hashes of all stages add up to that of the whole model. */
uint64_t gw_trainer_hash(const gw_trainer *trainer);
/* Hash of the whole model. Collective. */
gw_status gw_trainer_hash_whole(gw_trainer *trainer, uint64_t *hash, gw_error *error);

/* Replaces the running statistics by their mean over the `have` ranks that have any (see lacks_statistics). Collective.
 * On failure they are unchanged. */
gw_status gw_trainer_average(gw_trainer *trainer, int have, gw_error *error);

/* Each rank evaluates its shard of the test split. tick reports the progress in this shard; may be NULL. */
typedef void gw_train_tick(void *ctx, int64_t done, int64_t of);
gw_status gw_trainer_evaluate(gw_trainer *trainer, gw_train_tick *tick, void *ctx, gw_loss *total, gw_error *error);

/* ---- internal to src/train ---- */

/* A pass for that many examples. */
gw_status gw_trainer_pass(gw_trainer *trainer, int64_t batch, bool trains, gw_pass **pass, gw_error *error);
/* Fills its input (in the first stage) and the trainer's labels. */
void gw_trainer_load(gw_trainer *trainer, gw_pass *pass, bool trains, int64_t first);
/* A pass begins, or goes on after a wait: the next layer's time begins. */
void gw_trainer_pass_goes_on(gw_trainer *trainer);
/* On failure of a call on the trainer's communicator: copies its last error to *error. Returns status. */
gw_status gw_trainer_check(const gw_trainer *trainer, gw_status status, gw_error *error);

#endif
