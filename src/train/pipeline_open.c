/* pipeline_open.c - a pipeline before its first step and between steps: who is which stage of which replica, where the
 * model is cut, and what stages have to do with each other beside activations. See pipeline.h. */
#include <stdlib.h>
#include <string.h>

#include "train/stages.h"
#include "train/trainer.h"

/* ---- cutting ---- */

static gw_status check(const gw_trainer *t, const gw_pieces *pieces, gw_error *error) {
    int stages = t->settings.pipeline.stages;
    if (t->world % stages)
        return gw_fail(error, GW_INVALID,
                       "a pipeline of %d stages needs %d workers, or a multiple of that for several replicas; there "
                       "are %d",
                       stages, stages, t->world);
    if (stages > pieces->count)
        return gw_fail(error, GW_INVALID,
                       "the model %s can be cut into %d stages at most, not %d: a cut is possible only where a single "
                       "tensor crosses it, so not inside a residual block",
                       t->settings.model, pieces->count, stages);
    return GW_OK;
}

static int64_t largest_micro(const gw_trainer *t) {
    const gw_pipeline_settings *s = &t->settings.pipeline;
    int64_t share = (t->settings.batch - 1) / (t->world / s->stages) + 1;
    return (share - 1) / s->micro + 1;
}

/* Rank 0 measures, so that all cut at the same places. costs has a place more: the status of measuring. */
static gw_status agree_on_costs(const gw_trainer *t, const gw_pieces *pieces, uint64_t *costs, gw_error *error) {
    size_t count = (size_t)pieces->count;
    if (t->rank == 0)
        costs[count] = (uint64_t)gw_pieces_measure(t->spec, pieces, (int)largest_micro(t), costs, error);
    gw_status status = gw_broadcast(t->comm, costs, costs, count + 1, GW_I64, 0);
    if (status != GW_OK) return gw_trainer_told(t, status, error);
    if (costs[count] != GW_OK && t->rank != 0) gw_fail(error, (gw_status)costs[count], "%s", "");
    return (gw_status)costs[count];
}

static gw_status cut(const gw_trainer *t, gw_pipeline *p, const gw_pieces *pieces, gw_error *error) {
    int piece[GW_STAGES_MAX + 1];
    uint64_t *costs = calloc((size_t)pieces->count + 1, sizeof *costs), total = 0;
    if (!costs) return gw_fail(error, GW_MEMORY, "no memory for the costs of layers");
    gw_status status = agree_on_costs(t, pieces, costs, error);
    if (status == GW_OK) status = gw_stages_choose(costs, pieces->count, p->stages, piece, error);
    for (int i = 0; i < pieces->count; i++) total += costs[i];
    for (int s = 0; status == GW_OK && s < p->stages; s++) {
        p->first[s] = pieces->first[piece[s]];
        for (int i = piece[s]; i < piece[s + 1]; i++) p->part[s] += (double)costs[i] / (double)(total ? total : 1);
    }
    p->first[p->stages] = t->spec->node_count;
    free(costs);
    return status;
}

/* ---- making one ---- */

static gw_status connect(const gw_trainer *t, gw_pipeline *p, gw_error *error) {
    gw_status status = gw_comm_split(t->comm, p->replica, p->stage, &p->line);
    if (status == GW_OK) status = gw_comm_split(t->comm, p->stage, p->replica, &p->peers);
    if (status != GW_OK) return gw_trainer_told(t, status, error);
    if (p->stage == 0) return GW_OK;
    int64_t micro = largest_micro(t), most = micro > GW_TRAIN_TEST_BATCH ? micro : GW_TRAIN_TEST_BATCH;
    p->landing = malloc((size_t)most * gw_shape_count(t->spec->nodes[p->first[p->stage] - 1].out) * sizeof(float));
    return p->landing ? GW_OK : gw_fail(error, GW_MEMORY, "no memory for activations that arrive");
}

/* A rank that has failed before would leave the others waiting in the collectives that follow. */
static gw_status all_go_on(const gw_trainer *t, gw_status so_far, gw_error *error) {
    int32_t failed = so_far != GW_OK;
    gw_status status = gw_allreduce(t->comm, &failed, &failed, 1, GW_I32, GW_MAX);
    if (so_far != GW_OK) return so_far;
    if (status != GW_OK) return gw_trainer_told(t, status, error);
    return failed ? gw_fail(error, GW_ABORTED, "%s", "") : GW_OK;
}

gw_status gw_pipeline_open(gw_trainer *t, gw_status so_far, gw_pipeline **pipeline, gw_error *error) {
    const gw_pipeline_settings *s = &t->settings.pipeline;
    gw_pipeline *p = so_far == GW_OK ? calloc(1, sizeof *p) : NULL;
    gw_pieces pieces = {0};
    gw_status status = so_far;
    if (status == GW_OK && !p) status = gw_fail(error, GW_MEMORY, "no memory for a pipeline");
    if (status == GW_OK) status = gw_pieces_find(t->spec, &pieces, error);
    if (status == GW_OK) status = check(t, &pieces, error);
    status = all_go_on(t, status, error);
    if (status != GW_OK) goto fail;
    *p = (gw_pipeline){.stages = s->stages, .micro = s->micro, .stage = t->rank % s->stages,
                       .replica = t->rank / s->stages, .replicas = t->world / s->stages};
    status = cut(t, p, &pieces, error);
    if (status == GW_OK) status = connect(t, p, error);
    if (status != GW_OK) goto fail;
    gw_pieces_free(&pieces);
    *pipeline = p;
    return GW_OK;
fail:
    gw_pieces_free(&pieces);
    gw_pipeline_close(p);
    return status;
}

void gw_pipeline_close(gw_pipeline *p) {
    if (!p) return;
    gw_wait(p->activation_arrives);
    for (int i = 0; i < GW_STAGES_MAX; i++) {
        gw_wait(p->transit[i].output_leaves);
        gw_wait(p->transit[i].gradient_leaves);
        gw_wait(p->transit[i].gradient_arrives);
        gw_passes_destroy(&p->transit[i].passes);
    }
    free(p->landing);
    gw_finalize(p->peers);
    gw_finalize(p->line);
    free(p);
}

/* ---- between steps ---- */

gw_status gw_pipeline_sum(gw_trainer *t, double *value, gw_error *error) {
    return gw_trainer_told(t, gw_allreduce(t->pipeline->line, value, value, 1, GW_F64, GW_SUM), error);
}

/* Where a stage's part lies in the whole, told by the stage to the first one. */
static gw_status tell_place(const gw_pipeline *p, int stage, uint64_t place[2]) {
    return p->stage == 0 ? gw_recv(p->line, place, 2, GW_I64, stage) : gw_send(p->line, place, 2, GW_I64, 0);
}

gw_status gw_pipeline_collect(gw_trainer *t, const float *part, size_t offset, size_t count, float *whole,
                              gw_error *error) {
    const gw_pipeline *p = t->pipeline;
    gw_status status = GW_OK;
    if (p->replica != 0) return GW_OK;
    if (p->stage == 0) memcpy(whole + offset, part, count * sizeof(float));
    for (int s = 1; s < p->stages && status == GW_OK; s++) {
        uint64_t place[2] = {offset, count};
        if (p->stage != 0 && p->stage != s) continue;
        status = tell_place(p, s, place);
        if (status == GW_OK)
            status = p->stage == 0 ? gw_recv(p->line, whole + place[0], place[1], GW_F32, s)
                                   : gw_send(p->line, part, count, GW_F32, 0);
    }
    return gw_trainer_told(t, status, error);
}

gw_status gw_pipeline_spread(gw_trainer *t, float *part, size_t offset, size_t count, const float *whole,
                             gw_error *error) {
    const gw_pipeline *p = t->pipeline;
    gw_status status = GW_OK;
    if (t->rank == 0) memcpy(part, whole + offset, count * sizeof(float));
    for (int s = 1; s < p->stages && status == GW_OK && p->replica == 0; s++) {
        uint64_t place[2] = {offset, count};
        if (p->stage != 0 && p->stage != s) continue;
        status = tell_place(p, s, place);
        if (status == GW_OK)
            status = p->stage == 0 ? gw_send(p->line, whole + place[0], place[1], GW_F32, s)
                                   : gw_recv(p->line, part, count, GW_F32, 0);
    }
    if (status == GW_OK) status = gw_broadcast(p->peers, part, part, count, GW_F32, 0);
    return gw_trainer_told(t, status, error);
}
