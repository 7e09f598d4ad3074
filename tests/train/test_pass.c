/* test_pass.c - whole models: order of the hooks, accumulation, cuts, batch sizes, determinism, the loss. */
#include "nn/loss.h"
#include "nn/model_text.h"
#include "train/train_test.h"

#define BATCH 4
#define INITIAL_HASH 2021496399622402811 /* FNV-1a over words */

static const char small[] =
    "input 8 8 2\nconv 4 3 nobias\nbatchnorm relu as a\nconv 4 3\nadd a relu\nmaxpool 2\nflatten\n"
    "dense 6 relu\ndense 3\n";

static void fill(bench *b, uint64_t seed) {
    gw_rng rng = gw_rng_make(seed, 0);
    for (size_t i = 0; i < b->inputs; i++) gw_pass_input(b->pass)[i] = uniform(&rng, -1, 1);
}

static gw_loss train(gw_pass *pass, int rows, int accumulate, const gw_pass_hooks *hooks) {
    static const int32_t labels[] = {0, 2, 1, 2, 0, 1, 0, 2};
    gw_error error = {0};
    CHECK_EQ(GW_OK, gw_pass_forward(pass, true, hooks, &error));
    gw_loss loss =
        gw_loss_cross_entropy(gw_pass_output(pass), labels, rows, 3, 1.0f / BATCH, gw_pass_output_gradient(pass));
    CHECK_EQ(GW_OK, gw_pass_backward(pass, accumulate, hooks, &error));
    return loss;
}

/* --- hooks --- */

typedef struct diary {
    bench *b;
    int needed, ready[32], ready_count;
    int layers[2];
} diary;

static gw_status needed(void *ctx, int first, int count, gw_error *error) {
    (void)error;
    diary *d = ctx;
    CHECK_EQ(d->needed, first);
    d->needed += count;
    return GW_OK;
}
static void ready(void *ctx, int parameter) {
    diary *d = ctx;
    const gw_parameter *p = &d->b->model->table[parameter];
    int nonzero = 0;
    for (size_t i = 0; i < p->count; i++) nonzero |= d->b->model->gradients[p->offset + i] != 0;
    CHECK(nonzero);
    if (d->ready_count < 32) d->ready[d->ready_count++] = parameter;
}
static void done(void *ctx, int node, bool backward) {
    (void)node;
    ((diary *)ctx)->layers[backward]++;
}
static gw_status refuse(void *ctx, int first, int count, gw_error *error) {
    (void)ctx, (void)count;
    return first ? gw_fail(error, GW_PEER_LOST, "rank 3 is gone") : GW_OK;
}

static void hooks_in_order(void) {
    bench b;
    if (!bench_open(&b, small, BATCH)) return;
    fill(&b, 1);
    diary d = {.b = &b};
    gw_pass_hooks hooks = {.ctx = &d, .needed = needed, .gradient_ready = ready, .layer_done = done};
    train(b.pass, BATCH, 0, &hooks);
    CHECK_EQ(b.model->parameters, d.needed);
    CHECK_EQ(b.model->parameters, d.ready_count);
    for (int i = 0; i < d.ready_count; i++) CHECK_EQ(b.model->parameters - 1 - i, d.ready[i]);
    CHECK_EQ(7, d.layers[0]);
    CHECK_EQ(7, d.layers[1]);
    gw_error error = {0};
    hooks.needed = refuse;
    CHECK_EQ(GW_PEER_LOST, gw_pass_forward(b.pass, true, &hooks, &error));
    CHECK_STR("rank 3 is gone", error.text);
    bench_close(&b);
}

/* --- gradients --- */

static double apart(const float *a, const float *b, size_t count) {
    double off = 0, size = 0;
    for (size_t i = 0; i < count; i++) {
        off += pow((double)a[i] - b[i], 2);
        size += pow(b[i], 2);
    }
    return sqrt(off / (size + 1e-30));
}

static void accumulation(void) {
    bench b;
    if (!bench_open(&b, small, BATCH)) return;
    size_t bytes = b.model->count * sizeof(float);
    float *first = malloc(bytes), *both = malloc(bytes);
    fill(&b, 1);
    train(b.pass, BATCH, 0, NULL);
    memcpy(first, b.model->gradients, bytes);
    fill(&b, 2);
    train(b.pass, BATCH, 0, NULL);
    for (size_t i = 0; i < b.model->count; i++) both[i] = first[i] + b.model->gradients[i];
    memcpy(b.model->gradients, first, bytes);
    train(b.pass, BATCH, 1, NULL);
    CHECK(memcmp(both, b.model->gradients, bytes) == 0);
    free(first);
    free(both);
    bench_close(&b);
}

/* Two passes of 2 give the gradients of one of 4 (without batch norm); the last one is made for another size. */
static void another_batch_size(void) {
    static const char text[] = "input 8 8 2\nconv 4 3 relu\nmaxpool 2\nflatten\ndense 6 relu\ndense 3\n";
    static const int32_t labels[] = {0, 2, 1, 2};
    bench b;
    gw_error error = {0};
    gw_pass *half = NULL;
    if (!bench_open(&b, text, BATCH)) return;
    fill(&b, 5);
    train(b.pass, BATCH, 0, NULL);
    float *whole = malloc(b.model->count * sizeof(float));
    memcpy(whole, b.model->gradients, b.model->count * sizeof(float));
    CHECK_EQ(GW_OK, gw_pass_create(b.model, &(gw_pass_options){.batch = BATCH / 2, .trains = true}, &half, &error));
    for (int part = 0; part < 2 && half; part++) {
        memcpy(gw_pass_input(half), gw_pass_input(b.pass) + (size_t)part * b.inputs / 2, b.inputs / 2 * sizeof(float));
        CHECK_EQ(GW_OK, gw_pass_forward(half, true, NULL, &error));
        gw_loss_cross_entropy(gw_pass_output(half), labels + 2 * part, 2, 3, 1.0f / BATCH,
                              gw_pass_output_gradient(half));
        CHECK_EQ(GW_OK, gw_pass_backward(half, part > 0, NULL, &error));
    }
    CHECK(apart(b.model->gradients, whole, b.model->count) < 1e-5);
    CHECK(half && gw_pass_bytes(half) < gw_pass_bytes(b.pass));
    free(whole);
    gw_pass_destroy(half);
    bench_close(&b);
}

/* Two stages, each with its own parameters, against the whole: the same bits. */
static void cut_in_two(void) {
    bench b;
    gw_error error = {0};
    gw_model *model[2] = {NULL};
    gw_pass *pass[2] = {NULL};
    if (!bench_open(&b, small, BATCH)) return;
    fill(&b, 9);
    for (int s = 0; s < 2; s++) {
        gw_model_options options = {.seed = 7, .first = s ? 5 : 0, .end = s ? 0 : 5};
        CHECK_EQ(GW_OK, gw_model_create(b.spec, &options, &model[s], &error));
        CHECK_EQ(GW_OK,
                 gw_pass_create(model[s], &(gw_pass_options){.batch = BATCH, .trains = true, .input_gradient = s == 1},
                                &pass[s], &error));
    }
    CHECK(memcmp(model[0]->weights, b.model->weights, model[0]->count * sizeof(float)) == 0);
    CHECK(memcmp(model[1]->weights, b.model->weights + model[0]->count, model[1]->count * sizeof(float)) == 0);
    CHECK_EQ(b.model->count, model[0]->count + model[1]->count);
    size_t crossing = BATCH * gw_shape_count(gw_model_output(model[0])) * sizeof(float);
    memcpy(gw_pass_input(pass[0]), gw_pass_input(b.pass), b.inputs * sizeof(float));
    CHECK_EQ(GW_OK, gw_pass_forward(pass[0], true, NULL, &error));
    memcpy(gw_pass_input(pass[1]), gw_pass_output(pass[0]), crossing);
    gw_loss loss = train(pass[1], BATCH, 0, NULL), whole = train(b.pass, BATCH, 0, NULL);
    memcpy(gw_pass_output_gradient(pass[0]), gw_pass_input_gradient(pass[1]), crossing);
    CHECK_EQ(GW_OK, gw_pass_backward(pass[0], false, NULL, &error));
    CHECK(loss.sum == whole.sum);
    CHECK(memcmp(model[0]->gradients, b.model->gradients, model[0]->count * sizeof(float)) == 0);
    CHECK(memcmp(model[1]->gradients, b.model->gradients + model[0]->count, model[1]->count * sizeof(float)) == 0);
    gw_model *impossible = NULL;
    CHECK_EQ(GW_INVALID, gw_model_create(b.spec, &(gw_model_options){.first = 3}, &impossible, &error));
    for (int s = 0; s < 2; s++) {
        gw_pass_destroy(pass[s]);
        gw_model_destroy(model[s]);
    }
    bench_close(&b);
}

static void the_same_bits_again(void) {
    bench a, b;
    if (!bench_open(&a, small, BATCH) || !bench_open(&b, small, BATCH)) return;
    fill(&a, 3);
    fill(&b, 3);
    for (int i = 0; i < 3; i++) {
        gw_loss x = train(a.pass, BATCH, 0, NULL), y = train(b.pass, BATCH, 0, NULL);
        CHECK(x.sum == y.sum);
    }
    CHECK(memcmp(a.model->gradients, b.model->gradients, a.model->count * sizeof(float)) == 0);
    CHECK(memcmp(a.model->buffers, b.model->buffers, a.model->buffer_count * sizeof(float)) == 0);
    gw_model *other = NULL;
    gw_error error = {0};
    CHECK_EQ(GW_OK, gw_model_create(a.spec, &(gw_model_options){.seed = 8}, &other, &error));
    CHECK(memcmp(a.model->weights, other->weights, a.model->count * sizeof(float)) != 0);
    gw_model_destroy(other);
    bench_close(&a);
    bench_close(&b);
}

/* What every rank must draw from seed 1, whatever machine it is. */
static void initial_weights(void) {
    gw_spec *spec = NULL;
    gw_model *model = NULL;
    gw_error error = {0};
    CHECK_EQ(GW_OK, gw_model_spec("cnn", NULL, &spec, &error));
    CHECK_EQ(GW_OK, gw_model_create(spec, &(gw_model_options){.seed = 1}, &model, &error));
    uint64_t hash = 1469598103934665603u;
    for (size_t i = 0; i < model->count; i++) {
        uint32_t bits;
        memcpy(&bits, model->weights + i, 4);
        hash = (hash ^ bits) * 1099511628211u;
    }
    CHECK_EQ((int64_t)INITIAL_HASH, (int64_t)hash);
    double sum = 0;
    const gw_parameter *w = &model->table[4];
    for (size_t i = 0; i < w->count; i++) sum += pow(model->weights[w->offset + i], 2);
    CHECK(fabs(sum / (double)w->count / (2.0 / 3136) - 1) < 0.01); /* He: variance 2 / fan in */
    gw_model_destroy(model);
    gw_spec_destroy(spec);
}

static void cross_entropy(void) {
    float scores[3][4] = {{1, 2, 3, 4}, {100, -100, 0, 0}, {0, 0, 0, 5}}, gradient[3][4];
    const int32_t labels[] = {3, 1, -1};
    double expected = log(exp(-3) + exp(-2) + exp(-1) + 1) + 200;
    gw_loss loss = gw_loss_cross_entropy(scores[0], labels, 3, 4, 0.5f, gradient[0]);
    CHECK(fabs(loss.sum - expected) < 1e-4);
    CHECK_EQ(1, loss.correct);
    CHECK_EQ(2, loss.counted);
    CHECK(fabs(gradient[0][3] - 0.5 * (1 / (exp(-3) + exp(-2) + exp(-1) + 1) - 1)) < 1e-6);
    CHECK(fabs(gradient[1][1] + 0.5) < 1e-6 && fabs(gradient[1][0] - 0.5) < 1e-6);
    for (int c = 0; c < 4; c++) CHECK(gradient[2][c] == 0);
    loss = gw_loss_cross_entropy(scores[0], labels, 3, 4, 1, NULL);
    CHECK(fabs(loss.sum - expected) < 1e-4);
}

/* --- another order of layers --- */

static int choices;

static int choose_last(void *ctx, const int *parameters, int count) {
    (void)ctx;
    for (int i = 1; i < count; i++) CHECK(parameters[i - 1] < parameters[i]);
    choices++;
    return count - 1;
}

static void branches_run_in_any_order(void) {
    static const char branches[] = "input 8 8 2\nconv 4 3 relu as stem\nconv 4 5 relu\nconv 4 3 relu as wide\n"
                                   "conv 4 1 relu from stem\nbatchnorm\nadd wide relu\nflatten\ndense 3\n";
    bench b[2];
    gw_pass_hooks hooks = {.choose = choose_last};
    for (int i = 0; i < 2; i++) {
        if (!bench_open(&b[i], branches, BATCH)) return;
        fill(&b[i], 3);
        train(b[i].pass, BATCH, 0, i ? &hooks : NULL);
    }
    CHECK(choices > 0);
    CHECK_EQ(0, memcmp(b[0].model->gradients, b[1].model->gradients, b[0].model->count * sizeof(float)));
    for (int i = 0; i < 2; i++) bench_close(&b[i]);
}

TEST_MAIN(CASE(hooks_in_order), CASE(branches_run_in_any_order), CASE(accumulation), CASE(another_batch_size),
          CASE(cut_in_two), CASE(the_same_bits_again), CASE(initial_weights), CASE(cross_entropy))
