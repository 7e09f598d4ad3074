/* evaluate.c - collective calls between steps: evaluation, sums of the ranks' work, and a comparison of their weights.
 * See trainer.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/trainer.h"

enum { LIST_BYTES = 96 };

/* ---- comparing weights ---- */

static uint64_t mix(uint64_t hash, uint64_t bits) {
    hash = (hash ^ bits) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 32;
}

/* Not cryptographic. Any changed bit changes the hash, because each step is a bijection (odd multiplier). */
static uint64_t hash_of(const float *values, size_t count, uint64_t seed) {
    enum { LANES = 4 };
    uint64_t lanes[LANES] = {1, 2, 3, 4}, hash = seed;
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, values + i, sizeof bits);
        lanes[i % LANES] = mix(lanes[i % LANES], bits);
    }
    for (int k = 0; k < LANES; k++) hash = mix(hash, lanes[k]);
    return hash;
}

uint64_t gw_trainer_hash(const gw_trainer *t) {
    const gw_model *m = t->model;
    uint64_t before = (uint64_t)m->spec->nodes[m->first].first_parameter, sum = 0;
    for (int i = 0; i < m->parameters; i++)
        sum += hash_of(m->weights + m->table[i].offset, m->table[i].count, before + (uint64_t)i);
    return sum;
}

gw_status gw_trainer_hash_whole(gw_trainer *t, uint64_t *hash, gw_error *error) {
    *hash = gw_trainer_hash(t);
    if (!t->pipeline) return GW_OK;
    return gw_trainer_check(t, gw_allreduce(t->pipeline->stage_comm, hash, hash, 1, GW_I64, GW_SUM), error);
}

/* Ranks of the same stage with this hash. */
static int holders(const uint64_t *hashes, int world, int stages, int rank) {
    int count = 0;
    for (int i = rank % stages; i < world; i += stages) count += hashes[i] == hashes[rank];
    return count;
}

/* A rank of this stage with the most common weights. */
static int common(const uint64_t *hashes, int world, int stages, int stage) {
    int best = stage;
    for (int i = stage + stages; i < world; i += stages)
        if (holders(hashes, world, stages, i) > holders(hashes, world, stages, best)) best = i;
    return best;
}

gw_status gw_train_compare(const uint64_t *hashes, int world, int stages, uint64_t updates, gw_error *error) {
    int odd = -1, count = 0;
    char list[LIST_BYTES] = "";
    for (int stage = 0; stage < stages; stage++) {
        uint64_t right = hashes[common(hashes, world, stages, stage)];
        for (int i = stage; i < world; i += stages) {
            if (hashes[i] == right) continue;
            size_t used = strlen(list);
            if (used + 16 < sizeof list) snprintf(list + used, sizeof list - used, "%s%d", count ? ", " : "", i);
            if (!count++) odd = i;
        }
    }
    if (!count) return GW_OK;
    return gw_fail_rank(error, GW_MISMATCH, odd,
                        "after update %llu the weights of %d of %d ranks differ from the others': rank%s %s; the same "
                        "program, CPU level and data on every host? resume from the last checkpoint",
                        (unsigned long long)updates, count, world, count > 1 ? "s" : "", list);
}

/* ---- sums ---- */

typedef struct rank_report {
    gw_train_work work;
    uint64_t hash;
} rank_report;

/* Whether the strategy keeps the weights of all ranks the same. */
static bool agrees(const gw_trainer *t) { return !t->reducer || gw_reducer_read_counters(t->reducer).weights_agree; }

/* Adds each worker's times. With servers it also reads their counters: time that others waited for the worker, and late
 * pushes. */
static gw_status update_workers(gw_trainer *t, const rank_report *reports, gw_error *error) {
    uint64_t pushes = 0;
    for (int i = 0; i < t->world; i++) {
        t->workers[i].compute += reports[i].work.compute;
        t->workers[i].waiting += reports[i].work.waiting;
    }
    if (!t->reducer || t->pipeline) return GW_OK;
    gw_status status = gw_trainer_check(t, gw_reducer_workers(t->reducer, t->server_counts), error);
    for (int i = 0; i < t->world; i++) pushes += t->server_counts[i].pushes;
    if (!pushes) gw_train_workers_compare(t->workers, t->world);
    for (int i = 0; pushes && i < t->world; i++) {
        t->workers[i].awaited = t->server_counts[i].held_others_ns;
        t->workers[i].late = t->server_counts[i].late;
    }
    return status;
}

gw_status gw_trainer_gather_work(gw_trainer *t, gw_train_work *total, gw_error *error) {
    gw_status status = gw_trainer_flush(t, error);
    if (status != GW_OK) return status;
    rank_report own = {.work = t->work, .hash = gw_trainer_hash(t)}, *reports = (rank_report *)(void *)t->reports;
    gw_time begun = gw_clock_now();
    status = gw_allgather(t->comm, &own, reports, sizeof own, GW_U8);
    if (status != GW_OK) return gw_trainer_check(t, status, error);
    *total = (gw_train_work){.bytes = own.work.bytes, .dense = own.work.dense};
    for (int i = 0; i < t->world; i++) {
        total->loss_sum += reports[i].work.loss_sum;
        total->correct += reports[i].work.correct;
        total->counted += reports[i].work.counted;
        total->compute += reports[i].work.compute / (uint64_t)t->world;
        total->waiting += reports[i].work.waiting / (uint64_t)t->world;
        t->hashes[i] = reports[i].hash;
    }
    status = update_workers(t, reports, error);
    if (status != GW_OK) return status;
    t->work = (gw_train_work){.waiting = gw_clock_now() - begun};
    if (!agrees(t)) return GW_OK;
    return gw_train_compare(t->hashes, t->world, t->world / t->replicas, t->updates, error);
}

gw_status gw_trainer_average(gw_trainer *t, int have, gw_error *error) {
    size_t count = t->model->buffer_count;
    float *buffers = t->model->buffers, more = (float)t->replicas / (float)have;
    if (count == 0) return GW_OK;
    float *mean = malloc(count * sizeof *mean); /* not in place: a failed all-reduce leaves partial sums */
    if (!mean) return gw_fail(error, GW_MEMORY, "no memory for the mean of %zu running statistics", count);
    if (t->lacks_statistics) memset(buffers, 0, count * sizeof *buffers);
    gw_status status = gw_trainer_check(t, gw_allreduce(t->peers, buffers, mean, count, GW_F32, GW_AVG), error);
    for (size_t i = 0; status == GW_OK && i < count; i++) buffers[i] = mean[i] * more;
    free(mean);
    return status;
}

/* ---- evaluation ---- */

static gw_status evaluate_shard(gw_trainer *t, gw_train_tick *tick, void *ctx, gw_loss *sum, gw_error *error) {
    gw_data_shard shard = gw_data_shard_cut(gw_dataset_describe(t->test)->count, t->replica, t->replicas);
    if (t->pipeline) return gw_pipeline_test(t, shard, tick, ctx, sum, error);
    for (int64_t done = 0; done < shard.count;) {
        int64_t left = shard.count - done, count = left < GW_TRAIN_TEST_BATCH ? left : GW_TRAIN_TEST_BATCH;
        gw_pass *pass = NULL;
        gw_status status = gw_trainer_pass(t, count, false, &pass, error);
        if (status != GW_OK) return status;
        gw_trainer_load(t, pass, false, shard.first + done);
        status = gw_pass_forward(pass, false, NULL, error);
        if (status != GW_OK) return status;
        gw_loss part = gw_loss_cross_entropy(gw_pass_output(pass), t->labels, count * t->rows,
                                             gw_model_output(t->model).channels, 1, NULL);
        *sum = (gw_loss){sum->sum + part.sum, sum->correct + part.correct, sum->counted + part.counted};
        done += count;
        if (tick) tick(ctx, done, shard.count);
    }
    return GW_OK;
}

/* If the ranks' weights may differ, the test uses their mean. *kept saves this rank's own. */
static gw_status use_mean_weights(gw_trainer *t, float **kept, gw_error *error) {
    size_t count = t->model->count;
    if (agrees(t)) return GW_OK;
    *kept = malloc(count * sizeof **kept);
    if (!*kept) return gw_fail(error, GW_MEMORY, "no memory for the mean of %zu weights", count);
    memcpy(*kept, t->model->weights, count * sizeof **kept);
    return gw_trainer_check(t, gw_allreduce(t->peers, *kept, t->model->weights, count, GW_F32, GW_AVG), error);
}

static void restore_own_weights(gw_trainer *t, float *kept) {
    if (kept) memcpy(t->model->weights, kept, t->model->count * sizeof *kept);
    free(kept);
}

gw_status gw_trainer_evaluate(gw_trainer *t, gw_train_tick *tick, void *ctx, gw_loss *total, gw_error *error) {
    gw_loss own = {0};
    float *kept = NULL;
    gw_train_tracing_pause(&t->tracing);
    gw_status status = gw_trainer_flush(t, error);
    if (status == GW_OK) status = gw_trainer_average(t, t->replicas, error);
    if (status == GW_OK) status = use_mean_weights(t, &kept, error);
    if (status == GW_OK) status = evaluate_shard(t, tick, ctx, &own, error);
    restore_own_weights(t, kept);
    if (status != GW_OK) return status;
    double sums[3] = {own.sum, (double)own.correct, (double)own.counted};
    status = gw_trainer_check(t, gw_allreduce(t->comm, sums, sums, 3, GW_F64, GW_SUM), error);
    if (status == GW_OK) *total = (gw_loss){sums[0], (int64_t)sums[1], (int64_t)sums[2]};
    return status;
}
