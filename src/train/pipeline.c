/* pipeline.c - runs a batch through one stage. See pipeline.h.
 *
 * Transfers overlap compute: each is started early and awaited late. Activations arrive in a separate receive buffer;
 * gradients arrive where the backward pass reads them. Sends read the pass's own memory, and complete before that
 * memory is written again. */
#include "train/pipeline.h"

#include <string.h>

#include "train/trainer.h"

/* One run of a shard of examples, cut into micro-batches. */
typedef struct batch_run {
    gw_trainer *t;
    gw_pipeline *p;
    const gw_pipeline_batch *batch;
    bool trains;
    int micro_batches, in_flight;
    int arriving;           /* next micro-batch whose activations to receive */
    size_t inputs, outputs; /* floats of one example */
    gw_loss loss;
} batch_run;

int gw_pipeline_order(int stage, int stages, int micro, int i) {
    int warmup = stages - 1 - stage < micro ? stages - 1 - stage : micro; /* forwards before the first 1F1B pair */
    int alternating = 2 * (micro - warmup);
    if (i < warmup) return i;
    if (i < warmup + alternating) return (i - warmup) % 2 ? -1 - (i - warmup) / 2 : warmup + (i - warmup) / 2;
    return -1 - (i - micro);
}

/* ---- waiting ---- */

static gw_status await(batch_run *c, gw_request **request, gw_error *error) {
    if (!*request) return GW_OK;
    gw_time begun = gw_clock_now();
    gw_status status = gw_wait(*request);
    *request = NULL;
    c->p->waited += gw_clock_now() - begun;
    return gw_trainer_check(c->t, status, error);
}

/* count: examples. */
static gw_status start_sending(batch_run *c, const float *data, int64_t count, size_t floats, int stage,
                               gw_request **request, gw_error *error) {
    gw_time begun = gw_clock_now();
    gw_status status = gw_send_start(c->p->stage_comm, data, (size_t)count * floats, GW_F32, stage, request);
    c->p->waited += gw_clock_now() - begun;
    c->p->bytes += (size_t)count * floats * sizeof(float);
    return gw_trainer_check(c->t, status, error);
}

static gw_data_shard micro_batch(const batch_run *c, int m) {
    gw_data_shard part = gw_data_shard_cut(c->batch->shard.count, m, c->micro_batches);
    part.first += c->batch->shard.first;
    return part;
}

static gw_status expect_activations(batch_run *c, gw_error *error) {
    if (c->p->stage == 0 || c->arriving == c->micro_batches) return GW_OK;
    size_t count = (size_t)micro_batch(c, c->arriving++).count * c->inputs;
    return gw_trainer_check(
        c->t, gw_recv_start(c->p->stage_comm, c->p->incoming, count, GW_F32, c->p->stage - 1, &c->p->activation_recv),
        error);
}

/* ---- forward ---- */

/* Gets a pass for count examples. First waits for the sends that read the memory of the slot's previous pass. */
static gw_status take_pass(batch_run *c, gw_micro_batch *slot, int64_t count, gw_error *error) {
    bool same = slot->pass && gw_pass_batch(slot->pass) == count && slot->trained == c->trains;
    gw_status status = await(c, &slot->output_send, error);
    if (same || status != GW_OK) return status;
    status = await(c, &slot->gradient_send, error); /* gw_passes_get may destroy the pass that this send reads */
    if (status != GW_OK) return status;
    slot->trained = c->trains;
    return gw_passes_get(
        &slot->passes, c->t->model,
        &(gw_pass_options){.batch = (int)count, .trains = c->trains, .input_gradient = c->trains && c->p->stage > 0},
        &slot->pass, error);
}

static gw_status take_activations(batch_run *c, gw_pass *pass, gw_error *error) {
    if (c->p->stage == 0) return GW_OK;
    gw_status status = await(c, &c->p->activation_recv, error);
    if (status != GW_OK) return status;
    memcpy(gw_pass_input(pass), c->p->incoming, (size_t)gw_pass_batch(pass) * c->inputs * sizeof(float));
    return expect_activations(c, error);
}

static void add_loss(batch_run *c, gw_pass *pass) {
    gw_loss part =
        gw_loss_cross_entropy(gw_pass_output(pass), c->t->labels, gw_pass_batch(pass) * c->t->rows,
                              gw_model_output(c->t->model).channels, c->batch->scale, gw_pass_output_gradient(pass));
    c->loss = (gw_loss){c->loss.sum + part.sum, c->loss.correct + part.correct, c->loss.counted + part.counted};
}

static gw_status send_output(batch_run *c, gw_micro_batch *slot, gw_error *error) {
    int64_t count = gw_pass_batch(slot->pass);
    int next = c->p->stage + 1;
    if (next == c->p->stages) {
        add_loss(c, slot->pass);
        return c->trains ? gw_trainer_check_loss(c->t, &c->loss, error) : GW_OK;
    }
    gw_status status = start_sending(c, gw_pass_output(slot->pass), count, c->outputs, next, &slot->output_send, error);
    if (status != GW_OK || !c->trains) return status;
    return gw_trainer_check(c->t,
                            gw_recv_start(c->p->stage_comm, gw_pass_output_gradient(slot->pass),
                                          (size_t)count * c->outputs, GW_F32, next, &slot->gradient_recv),
                            error);
}

static gw_status forward(batch_run *c, int m, gw_error *error) {
    gw_micro_batch *slot = &c->p->slots[m % c->in_flight];
    gw_data_shard part = micro_batch(c, m);
    gw_status status = take_pass(c, slot, part.count, error);
    if (status == GW_OK) status = take_activations(c, slot->pass, error);
    if (status != GW_OK) return status;
    if (c->p->stage == 0 || c->p->stage == c->p->stages - 1) gw_trainer_load(c->t, slot->pass, c->trains, part.first);
    status = gw_pass_forward(slot->pass, c->trains, c->batch->hooks, error);
    /* Gradients share memory: the output gradient may overwrite the input gradient that is being sent. */
    if (status == GW_OK) status = await(c, &slot->gradient_send, error);
    return status == GW_OK ? send_output(c, slot, error) : status;
}

/* ---- backward ---- */

static gw_status backward(batch_run *c, int m, gw_error *error) {
    gw_micro_batch *slot = &c->p->slots[m % c->in_flight];
    bool completes = c->batch->last && m == c->micro_batches - 1;
    gw_status status = await(c, &slot->gradient_recv, error);
    if (status == GW_OK)
        status =
            gw_pass_backward(slot->pass, c->batch->accumulates || m > 0, completes ? c->batch->hooks : NULL, error);
    if (status != GW_OK || c->p->stage == 0) return status;
    return start_sending(c, gw_pass_input_gradient(slot->pass), gw_pass_batch(slot->pass), c->inputs, c->p->stage - 1,
                         &slot->gradient_send, error);
}

/* ---- whole batch ---- */

static batch_run begin(gw_trainer *t, const gw_pipeline_batch *batch, int micro_batches, int in_flight) {
    return (batch_run){.t = t, .p = t->pipeline, .batch = batch, .micro_batches = micro_batches, .in_flight = in_flight,
                    .inputs = gw_shape_count(gw_model_input(t->model)),
                    .outputs = gw_shape_count(gw_model_output(t->model))};
}

gw_status gw_pipeline_train(gw_trainer *t, const gw_pipeline_batch *batch, gw_loss *loss, gw_error *error) {
    const gw_pipeline *p = t->pipeline;
    int micro_batches = batch->shard.count < p->micro ? (int)batch->shard.count : p->micro;
    batch_run c = begin(t, batch, micro_batches, p->stages - p->stage);
    c.trains = true;
    gw_status status = expect_activations(&c, error);
    for (int i = 0; i < 2 * micro_batches && status == GW_OK; i++) {
        int m = gw_pipeline_order(p->stage, p->stages, micro_batches, i);
        status = m >= 0 ? forward(&c, m, error) : backward(&c, -1 - m, error);
    }
    *loss = c.loss;
    return status;
}

gw_status gw_pipeline_test(gw_trainer *t, gw_data_shard shard, void (*tick)(void *ctx, int64_t done, int64_t of),
                           void *ctx, gw_loss *loss, gw_error *error) {
    gw_pipeline_batch batch = {.shard = shard, .scale = 1};
    int micro_batches = (int)((shard.count + GW_TRAIN_TEST_BATCH - 1) / GW_TRAIN_TEST_BATCH);
    batch_run c = begin(t, &batch, micro_batches, 2); /* 2 slots: one is sent while the next is computed */
    gw_status status = expect_activations(&c, error);
    for (int m = 0; m < micro_batches && status == GW_OK; m++) {
        status = forward(&c, m, error);
        if (tick) tick(ctx, m + 1, micro_batches);
    }
    *loss = c.loss;
    return status;
}
