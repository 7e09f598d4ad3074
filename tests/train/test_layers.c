/* test_layers.c - the gradients of every kind of layer against central differences, and what layers promise beside. */
#include "train/train_test.h"

#define STEP 4e-3f /* of the differences: f32 noise and curvature are both far below 1 % there */

/* The loss is a random combination of the outputs, in double. */
static double loss_of(bench *b, const float *direction) {
    gw_error error = {0};
    CHECK_EQ(GW_OK, gw_pass_forward(b->pass, true, NULL, &error));
    double loss = 0;
    const float *output = gw_pass_output(b->pass);
    for (size_t i = 0; i < b->outputs; i++) loss += (double)output[i] * (double)direction[i];
    return loss;
}

typedef struct tally {
    int checked, kinks;
    double worst;
} tally;

/* One element of the weights or the input. Where the two one-sided differences disagree there is a kink (a relu or a
 * maximum changes hands), and no derivative to compare with. */
static void compare(bench *b, const float *direction, float *element, float analytic, double scale, tally *t) {
    float saved = *element;
    double here = loss_of(b, direction);
    *element = saved + STEP;
    float above = *element;
    double up = loss_of(b, direction);
    *element = saved - STEP;
    float below = *element;
    double down = loss_of(b, direction);
    *element = saved;
    double right = (up - here) / ((double)above - saved), left = (here - down) / ((double)saved - below);
    t->checked++;
    if (fabs(right - left) > 0.04 * (fabs(analytic) + scale)) {
        t->kinks++;
        return;
    }
    double numeric = (up - down) / ((double)above - below);
    double off = fabs(numeric - analytic) / (fabs(analytic) + scale);
    if (off > t->worst) t->worst = off;
}

static double root_mean_square(const float *values, size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; i++) sum += (double)values[i] * values[i];
    return sqrt(sum / (double)(count ? count : 1));
}

static void compare_all(bench *b, const float *direction, float *elements, const float *gradients, size_t count,
                        const char *what) {
    tally t = {0};
    double scale = root_mean_square(gradients, count) + 1e-3;
    size_t stride = count > 150 ? count / 150 : 1;
    for (size_t i = 0; i < count; i += stride) compare(b, direction, elements + i, gradients[i], scale, &t);
    if (t.worst > 0.01 || t.kinks * 5 > t.checked)
        printf("    %s: off by %.4f, %d kinks of %d\n", what, t.worst, t.kinks, t.checked);
    CHECK(t.worst <= 0.01);
    CHECK(t.kinks * 5 <= t.checked);
}

static void fill_input(bench *b, gw_rng *rng) {
    for (size_t i = 0; i < b->inputs; i++)
        if (b->spec->vocabulary)
            ((int32_t *)gw_pass_input(b->pass))[i] = (int32_t)gw_rng_below(rng, (uint64_t)b->spec->vocabulary);
        else gw_pass_input(b->pass)[i] = uniform(rng, 0.2f, 1.2f) * (gw_rng_u32(rng) & 1 ? 1.0f : -1.0f);
}

static void differences(const char *text, int batch) {
    bench b;
    gw_error error = {0};
    gw_rng rng = gw_rng_make(11, 0);
    if (!bench_open(&b, text, batch)) return;
    fill_input(&b, &rng);
    for (size_t i = 0; i < b.model->count; i++) b.model->weights[i] += uniform(&rng, -0.2f, 0.2f);
    float *direction = malloc(b.outputs * sizeof(float));
    float *gradients = malloc(b.model->count * sizeof(float)), *input_gradient = malloc(b.inputs * sizeof(float));
    for (size_t i = 0; i < b.outputs; i++) direction[i] = uniform(&rng, -1, 1);
    loss_of(&b, direction);
    memcpy(gw_pass_output_gradient(b.pass), direction, b.outputs * sizeof(float));
    CHECK_EQ(GW_OK, gw_pass_backward(b.pass, false, NULL, &error));
    memcpy(gradients, b.model->gradients, b.model->count * sizeof(float));
    if (gw_pass_input_gradient(b.pass)) {
        memcpy(input_gradient, gw_pass_input_gradient(b.pass), b.inputs * sizeof(float));
        compare_all(&b, direction, gw_pass_input(b.pass), input_gradient, b.inputs, "input");
    }
    for (int p = 0; p < b.model->parameters; p++) {
        const gw_parameter *table = &b.model->table[p];
        compare_all(&b, direction, b.model->weights + table->offset, gradients + table->offset, table->count,
                    table->name);
    }
    free(direction);
    free(gradients);
    free(input_gradient);
    bench_close(&b);
}

static void conv(void) {
    differences("input 6 5 3\nconv 4 3\n", 2);
    differences("input 7 7 2\nconv 8 3 stride 2 relu\n", 2);
    differences("input 6 6 4\nconv 3 1 nobias\n", 3);
    differences("input 8 8 1\nconv 16 5 pad 0\n", 2);
}
static void dense(void) {
    differences("input 1 1 9\ndense 7 relu\n", 5);
    differences("input 4 1 6\ndense 5 nobias\ndense 3\n", 2);
}
static void batchnorm(void) {
    differences("input 3 3 4\nbatchnorm\n", 4);
    differences("input 3 2 8\nconv 8 1 nobias\nbatchnorm relu\n", 4);
}
static void layernorm(void) { differences("input 5 1 6\nlayernorm\n", 3); }
static void activations(void) {
    differences("input 5 1 4\nrelu\ndense 3\n", 2);
    differences("input 5 1 4\ngelu\ndense 3\n", 2);
}
static void pools(void) {
    differences("input 6 6 3\nmaxpool 2\nconv 2 1\n", 2);
    differences("input 7 7 3\nmaxpool 3 stride 2 pad 1\nconv 2 1\n", 2);
    differences("input 6 6 3\navgpool 3 stride 2 pad 1\nconv 2 1\n", 2);
    differences("input 5 4 3\nglobalpool\ndense 2\n", 2);
}
static void softmax(void) { differences("input 3 1 5\ndense 5\nsoftmax\n", 2); }
static void attention(void) {
    differences("input 5 1 24\nattention 2\ndense 3\n", 2);
    differences("input 7 1 4\ndense 12\nattention 1\n", 2);
}
static void embedding(void) { differences("input tokens 6 9\nembedding 4\npositions\ndense 3\n", 3); }
static void residual(void) {
    differences("input 4 4 3\nconv 3 3 as a\nconv 3 3 relu\nadd a relu\nconv 2 1\n", 2);
    differences("input 4 4 3\nconv 4 3 as a\nadd a as b\nconv 4 1 from a\nadd b\nadd a\nflatten\ndense 3\n", 2);
    differences("input 4 4 3\nconv 4 3 as a\nconv 6 3 stride 2 from a as m\nconv 6 1 stride 2 from a\nadd m\n", 2);
}

/* --- promises --- */

static void attention_looks_back_only(void) {
    bench b;
    gw_error error = {0};
    gw_rng rng = gw_rng_make(3, 0);
    if (!bench_open(&b, "input 8 1 6\ndense 12\nattention 2\n", 1)) return;
    fill_input(&b, &rng);
    CHECK_EQ(GW_OK, gw_pass_forward(b.pass, false, NULL, &error));
    float before[8 * 4];
    memcpy(before, gw_pass_output(b.pass), sizeof before);
    gw_pass_input(b.pass)[5 * 6] += 1; /* position 5 */
    CHECK_EQ(GW_OK, gw_pass_forward(b.pass, false, NULL, &error));
    CHECK(memcmp(before, gw_pass_output(b.pass), 5 * 4 * sizeof(float)) == 0);
    CHECK(memcmp(before + 20, gw_pass_output(b.pass) + 20, 4 * sizeof(float)) != 0);
    bench_close(&b);
}

static void tokens_outside_the_vocabulary(void) {
    bench b;
    gw_error error = {0};
    if (!bench_open(&b, "input tokens 4 10\nembedding 4\ndense 2\n", 2)) return;
    ((int32_t *)gw_pass_input(b.pass))[5] = 10;
    CHECK(gw_pass_forward(b.pass, false, NULL, &error) != GW_OK);
    CHECK(strstr(error.text, "token 10 at place 5") != NULL);
    bench_close(&b);
}

static void batchnorm_follows_and_uses_the_running_statistics(void) {
    bench b;
    gw_error error = {0};
    gw_rng rng = gw_rng_make(5, 0);
    if (!bench_open(&b, "input 2 2 3\nbatchnorm\n", 8)) return;
    for (size_t i = 0; i < b.inputs; i++) gw_pass_input(b.pass)[i] = 4 + uniform(&rng, -1, 1);
    double mean = 0, variance = 0;
    for (size_t i = 0; i < 32; i++) mean += gw_pass_input(b.pass)[3 * i] / 32.0;
    for (size_t i = 0; i < 32; i++) variance += pow(gw_pass_input(b.pass)[3 * i] - mean, 2) / 31.0;
    CHECK_EQ(GW_OK, gw_pass_forward(b.pass, true, NULL, &error));
    CHECK(fabs(b.model->buffers[0] - 0.1 * mean) < 1e-5);
    CHECK(fabs(b.model->buffers[3] - (0.9 + 0.1 * variance)) < 1e-5);
    CHECK(fabs(gw_pass_output(b.pass)[0]) < 3);
    CHECK_EQ(GW_OK, gw_pass_forward(b.pass, false, NULL, &error));
    double expected = (gw_pass_input(b.pass)[0] - b.model->buffers[0]) / sqrt(b.model->buffers[3] + 1e-5);
    CHECK(fabs(gw_pass_output(b.pass)[0] - expected) < 1e-4);
    bench_close(&b);
}

TEST_MAIN(CASE(conv), CASE(dense), CASE(batchnorm), CASE(layernorm), CASE(activations), CASE(pools), CASE(softmax),
          CASE(attention), CASE(embedding), CASE(residual), CASE(attention_looks_back_only),
          CASE(tokens_outside_the_vocabulary), CASE(batchnorm_follows_and_uses_the_running_statistics))
