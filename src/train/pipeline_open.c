/* pipeline_open.c - opens a pipeline (assigns ranks to stages and replicas, cuts the model), and moves data between
 * stages outside of steps. See pipeline.h. */
#include <stdlib.h>
#include <string.h>

#include "train/stage_cut.h"
#include "train/trainer.h"

/* ---- cutting ---- */

static gw_status check(const gw_trainer *t, const gw_model_blocks *blocks, gw_error *error) {
    int stages = t->settings.pipeline.stages;
    if (t->world % stages)
        return gw_fail(error, GW_INVALID,
                       "a pipeline of %d stages needs %d workers, or a multiple of that for several replicas; there "
                       "are %d",
                       stages, stages, t->world);
    if (stages > blocks->count)
        return gw_fail(error, GW_INVALID,
                       "the model %s can be cut into %d stages at most, not %d: a cut is possible only where a single "
                       "tensor crosses it, so not inside a residual block",
                       t->settings.model, blocks->count, stages);
    return GW_OK;
}

static int64_t largest_micro(const gw_trainer *t) {
    const gw_pipeline_settings *s = &t->settings.pipeline;
    int64_t shard = (t->settings.batch - 1) / (t->world / s->stages) + 1;
    return (shard - 1) / s->micro + 1;
}

/* Rank 0 measures, so that all ranks make the same cut. costs has one more entry: the status of measuring. */
static gw_status agree_on_costs(const gw_trainer *t, const gw_model_blocks *blocks, uint64_t *costs, gw_error *error) {
    size_t count = (size_t)blocks->count;
    if (t->rank == 0)
        costs[count] = (uint64_t)gw_model_blocks_measure(t->spec, blocks, (int)largest_micro(t), costs, error);
    gw_status status = gw_broadcast(t->comm, costs, costs, count + 1, GW_I64, 0);
    if (status != GW_OK) return gw_trainer_check(t, status, error);
    if (costs[count] != GW_OK && t->rank != 0) gw_fail(error, (gw_status)costs[count], "%s", "");
    return (gw_status)costs[count];
}

static gw_status cut(const gw_trainer *t, gw_pipeline *p, const gw_model_blocks *blocks, gw_error *error) {
    int block[GW_STAGES_MAX + 1];
    uint64_t *costs = calloc((size_t)blocks->count + 1, sizeof *costs), total = 0;
    if (!costs) return gw_fail(error, GW_MEMORY, "no memory for the costs of layers");
    gw_status status = agree_on_costs(t, blocks, costs, error);
    if (status == GW_OK) status = gw_stages_choose(costs, blocks->count, p->stages, block, error);
    for (int i = 0; i < blocks->count; i++) total += costs[i];
    for (int s = 0; status == GW_OK && s < p->stages; s++) {
        p->first[s] = blocks->first[block[s]];
        for (int i = block[s]; i < block[s + 1]; i++) p->part[s] += (double)costs[i] / (double)(total ? total : 1);
    }
    p->first[p->stages] = t->spec->node_count;
    free(costs);
    return status;
}

/* ---- opening ---- */

static gw_status connect(const gw_trainer *t, gw_pipeline *p, gw_error *error) {
    gw_status status = gw_comm_split(t->comm, p->replica, p->stage, &p->stage_comm);
    if (status == GW_OK) status = gw_comm_split(t->comm, p->stage, p->replica, &p->peers);
    if (status != GW_OK) return gw_trainer_check(t, status, error);
    if (p->stage == 0) return GW_OK;
    int64_t micro = largest_micro(t), most = micro > GW_TRAIN_TEST_BATCH ? micro : GW_TRAIN_TEST_BATCH;
    p->incoming = malloc((size_t)most * gw_shape_count(t->spec->nodes[p->first[p->stage] - 1].out) * sizeof(float));
    return p->incoming ? GW_OK : gw_fail(error, GW_MEMORY, "no memory for activations that arrive");
}

/* If a rank has failed, all stop here: otherwise they would wait for it in the next collectives. */
static gw_status agree_to_continue(const gw_trainer *t, gw_status so_far, gw_error *error) {
    int32_t failed = so_far != GW_OK;
    gw_status status = gw_allreduce(t->comm, &failed, &failed, 1, GW_I32, GW_MAX);
    if (so_far != GW_OK) return so_far;
    if (status != GW_OK) return gw_trainer_check(t, status, error);
    return failed ? gw_fail(error, GW_ABORTED, "%s", "") : GW_OK;
}

gw_status gw_pipeline_open(gw_trainer *t, gw_status so_far, gw_pipeline **pipeline, gw_error *error) {
    const gw_pipeline_settings *s = &t->settings.pipeline;
    gw_pipeline *p = so_far == GW_OK ? calloc(1, sizeof *p) : NULL;
    gw_model_blocks blocks = {0};
    gw_status status = so_far;
    if (status == GW_OK && !p) status = gw_fail(error, GW_MEMORY, "no memory for a pipeline");
    if (status == GW_OK) status = gw_model_blocks_find(t->spec, &blocks, error);
    if (status == GW_OK) status = check(t, &blocks, error);
    status = agree_to_continue(t, status, error);
    if (status != GW_OK) goto fail;
    *p = (gw_pipeline){.stages = s->stages, .micro = s->micro, .stage = t->rank % s->stages,
                       .replica = t->rank / s->stages, .replicas = t->world / s->stages};
    status = cut(t, p, &blocks, error);
    if (status == GW_OK) status = connect(t, p, error);
    if (status != GW_OK) goto fail;
    gw_model_blocks_free(&blocks);
    *pipeline = p;
    return GW_OK;
fail:
    gw_model_blocks_free(&blocks);
    gw_pipeline_close(p);
    return status;
}

void gw_pipeline_close(gw_pipeline *p) {
    if (!p) return;
    gw_wait(p->activation_recv);
    for (int i = 0; i < GW_STAGES_MAX; i++) {
        gw_wait(p->slots[i].output_send);
        gw_wait(p->slots[i].gradient_send);
        gw_wait(p->slots[i].gradient_recv);
        gw_passes_destroy(&p->slots[i].passes);
    }
    free(p->incoming);
    gw_finalize(p->peers);
    gw_finalize(p->stage_comm);
    free(p);
}

/* ---- between steps ---- */

gw_status gw_pipeline_sum(gw_trainer *t, double *value, gw_error *error) {
    return gw_trainer_check(t, gw_allreduce(t->pipeline->stage_comm, value, value, 1, GW_F64, GW_SUM), error);
}

/* A stage sends stage 0 the offset and count of its part. */
static gw_status exchange_range(const gw_pipeline *p, int stage, uint64_t range[2]) {
    return p->stage == 0 ? gw_recv(p->stage_comm, range, 2, GW_I64, stage)
                         : gw_send(p->stage_comm, range, 2, GW_I64, 0);
}

gw_status gw_pipeline_collect(gw_trainer *t, const float *part, size_t offset, size_t count, float *whole,
                              gw_error *error) {
    const gw_pipeline *p = t->pipeline;
    gw_status status = GW_OK;
    if (p->replica != 0) return GW_OK;
    if (p->stage == 0) memcpy(whole + offset, part, count * sizeof(float));
    for (int s = 1; s < p->stages && status == GW_OK; s++) {
        uint64_t range[2] = {offset, count};
        if (p->stage != 0 && p->stage != s) continue;
        status = exchange_range(p, s, range);
        if (status == GW_OK)
            status = p->stage == 0 ? gw_recv(p->stage_comm, whole + range[0], range[1], GW_F32, s)
                                   : gw_send(p->stage_comm, part, count, GW_F32, 0);
    }
    return gw_trainer_check(t, status, error);
}

gw_status gw_pipeline_spread(gw_trainer *t, float *part, size_t offset, size_t count, const float *whole,
                             gw_error *error) {
    const gw_pipeline *p = t->pipeline;
    gw_status status = GW_OK;
    if (t->rank == 0) memcpy(part, whole + offset, count * sizeof(float));
    for (int s = 1; s < p->stages && status == GW_OK && p->replica == 0; s++) {
        uint64_t range[2] = {offset, count};
        if (p->stage != 0 && p->stage != s) continue;
        status = exchange_range(p, s, range);
        if (status == GW_OK)
            status = p->stage == 0 ? gw_send(p->stage_comm, whole + range[0], range[1], GW_F32, s)
                                   : gw_recv(p->stage_comm, part, count, GW_F32, 0);
    }
    if (status == GW_OK) status = gw_broadcast(p->peers, part, part, count, GW_F32, 0);
    return gw_trainer_check(t, status, error);
}
