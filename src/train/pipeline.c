/* pipeline.c - a batch on its way through one stage. See pipeline.h.
 *
 * Everything that travels is started early and awaited late. Activations arrive in a landing of their own while others
 * are computed; gradients arrive where the backward pass reads them. What leaves is sent from where it was computed,
 * and awaited before its place is written again. */
#include "train/pipeline.h"

#include <string.h>

#include "train/trainer.h"

/* A share of examples, cut into micro-batches. */
typedef struct course {
    gw_trainer *t;
    gw_pipeline *p;
    const gw_pipeline_batch *batch;
    bool trains;
    int micros, in_flight;
    int arriving; /* the micro-batch whose activations arrive next */
    size_t inputs, outputs; /* floats of one example */
    gw_loss loss;
} course;

int gw_pipeline_order(int stage, int stages, int micro, int i) {
    int ahead = stages - 1 - stage < micro ? stages - 1 - stage : micro; /* forwards before the first backward */
    int alternating = 2 * (micro - ahead);
    if (i < ahead) return i;
    if (i < ahead + alternating) return (i - ahead) % 2 ? -1 - (i - ahead) / 2 : ahead + (i - ahead) / 2;
    return -1 - (i - micro);
}

/* ---- waiting ---- */

static gw_status await(course *c, gw_request **request, gw_error *error) {
    if (!*request) return GW_OK;
    gw_time begun = gw_clock_now();
    gw_status status = gw_wait(*request);
    *request = NULL;
    c->p->waited += gw_clock_now() - begun;
    return gw_trainer_told(c->t, status, error);
}

/* count: examples. */
static gw_status start_sending(course *c, const float *data, int64_t count, size_t floats, int stage,
                               gw_request **request, gw_error *error) {
    gw_time begun = gw_clock_now();
    gw_status status = gw_send_start(c->p->line, data, (size_t)count * floats, GW_F32, stage, request);
    c->p->waited += gw_clock_now() - begun;
    c->p->bytes += (size_t)count * floats * sizeof(float);
    return gw_trainer_told(c->t, status, error);
}

static gw_share micro_batch(const course *c, int m) {
    gw_share part = gw_share_cut(c->batch->share.count, m, c->micros);
    part.first += c->batch->share.first;
    return part;
}

static gw_status expect_activations(course *c, gw_error *error) {
    if (c->p->stage == 0 || c->arriving == c->micros) return GW_OK;
    size_t count = (size_t)micro_batch(c, c->arriving++).count * c->inputs;
    return gw_trainer_told(
        c->t, gw_recv_start(c->p->line, c->p->landing, count, GW_F32, c->p->stage - 1, &c->p->activation_arrives),
        error);
}

/* ---- forward ---- */

/* A pass whose output has left. */
static gw_status take_pass(course *c, gw_transit *transit, int64_t count, gw_error *error) {
    bool same = transit->pass && gw_pass_batch(transit->pass) == count && transit->trained == c->trains;
    gw_status status = await(c, &transit->output_leaves, error);
    if (same || status != GW_OK) return status;
    status = await(c, &transit->gradient_leaves, error); /* its pass may make room for another */
    if (status != GW_OK) return status;
    transit->trained = c->trains;
    return gw_passes_get(
        &transit->passes, c->t->model,
        &(gw_pass_options){.batch = (int)count, .trains = c->trains, .input_gradient = c->trains && c->p->stage > 0},
        &transit->pass, error);
}

static gw_status take_activations(course *c, gw_pass *pass, gw_error *error) {
    if (c->p->stage == 0) return GW_OK;
    gw_status status = await(c, &c->p->activation_arrives, error);
    if (status != GW_OK) return status;
    memcpy(gw_pass_input(pass), c->p->landing, (size_t)gw_pass_batch(pass) * c->inputs * sizeof(float));
    return expect_activations(c, error);
}

static void add_loss(course *c, gw_pass *pass) {
    gw_loss part = gw_loss_cross_entropy(gw_pass_output(pass), c->t->labels, gw_pass_batch(pass) * c->t->rows,
                                         gw_model_output(c->t->model).channels, c->batch->scale,
                                         gw_pass_output_gradient(pass));
    c->loss = (gw_loss){c->loss.sum + part.sum, c->loss.correct + part.correct, c->loss.counted + part.counted};
}

static gw_status hand_on(course *c, gw_transit *transit, gw_error *error) {
    int64_t count = gw_pass_batch(transit->pass);
    int next = c->p->stage + 1;
    if (next == c->p->stages) {
        add_loss(c, transit->pass);
        return GW_OK;
    }
    gw_status status = start_sending(c, gw_pass_output(transit->pass), count, c->outputs, next,
                                     &transit->output_leaves, error);
    if (status != GW_OK || !c->trains) return status;
    return gw_trainer_told(c->t,
                           gw_recv_start(c->p->line, gw_pass_output_gradient(transit->pass),
                                         (size_t)count * c->outputs, GW_F32, next, &transit->gradient_arrives),
                           error);
}

static gw_status forward(course *c, int m, gw_error *error) {
    gw_transit *transit = &c->p->transit[m % c->in_flight];
    gw_share part = micro_batch(c, m);
    gw_status status = take_pass(c, transit, part.count, error);
    if (status == GW_OK) status = take_activations(c, transit->pass, error);
    if (status != GW_OK) return status;
    if (c->p->stage == 0 || c->p->stage == c->p->stages - 1)
        gw_trainer_load(c->t, transit->pass, c->trains, part.first);
    status = gw_pass_forward(transit->pass, c->trains, c->batch->hooks, error);
    /* The gradient of the output may lie where that of an earlier input was sent from. */
    if (status == GW_OK) status = await(c, &transit->gradient_leaves, error);
    return status == GW_OK ? hand_on(c, transit, error) : status;
}

/* ---- backward ---- */

static gw_status backward(course *c, int m, gw_error *error) {
    gw_transit *transit = &c->p->transit[m % c->in_flight];
    bool completes = c->batch->last && m == c->micros - 1;
    gw_status status = await(c, &transit->gradient_arrives, error);
    if (status == GW_OK)
        status = gw_pass_backward(transit->pass, c->batch->accumulates || m > 0, completes ? c->batch->hooks : NULL,
                                  error);
    if (status != GW_OK || c->p->stage == 0) return status;
    return start_sending(c, gw_pass_input_gradient(transit->pass), gw_pass_batch(transit->pass), c->inputs,
                         c->p->stage - 1, &transit->gradient_leaves, error);
}

/* ---- the whole ---- */

static course begin(gw_trainer *t, const gw_pipeline_batch *batch, int micros, int in_flight) {
    return (course){.t = t, .p = t->pipeline, .batch = batch, .micros = micros, .in_flight = in_flight,
                    .inputs = gw_shape_count(gw_model_input(t->model)),
                    .outputs = gw_shape_count(gw_model_output(t->model))};
}

gw_status gw_pipeline_train(gw_trainer *t, const gw_pipeline_batch *batch, gw_loss *loss, gw_error *error) {
    const gw_pipeline *p = t->pipeline;
    int micros = batch->share.count < p->micro ? (int)batch->share.count : p->micro;
    course c = begin(t, batch, micros, p->stages - p->stage);
    c.trains = true;
    gw_status status = expect_activations(&c, error);
    for (int i = 0; i < 2 * micros && status == GW_OK; i++) {
        int m = gw_pipeline_order(p->stage, p->stages, micros, i);
        status = m >= 0 ? forward(&c, m, error) : backward(&c, -1 - m, error);
    }
    *loss = c.loss;
    return status;
}

gw_status gw_pipeline_test(gw_trainer *t, gw_share share, void (*tick)(void *ctx, int64_t done, int64_t of), void *ctx,
                           gw_loss *loss, gw_error *error) {
    gw_pipeline_batch batch = {.share = share, .scale = 1};
    int micros = (int)((share.count + GW_TRAIN_TEST_BATCH - 1) / GW_TRAIN_TEST_BATCH);
    course c = begin(t, &batch, micros, 2); /* one leaves while the next is computed */
    gw_status status = expect_activations(&c, error);
    for (int m = 0; m < micros && status == GW_OK; m++) {
        status = forward(&c, m, error);
        if (tick) tick(ctx, m + 1, micros);
    }
    *loss = c.loss;
    return status;
}
