/* test_optimiser.c - every optimiser against its definition in double, in whole and in parts; learning rates; the loops
 * at every CPU level. */
#include "base/cpu.h"
#include "nn/vectors.h"
#include "optim/learning_rate.h"
#include "optim/optimiser.h"
#include "train/train_test.h"

#define COUNT 1203
#define STEPS 5

static const gw_parameter table[] = {
    {.name = "a", .offset = 0, .count = 1000, .decay = true},
    {.name = "b", .offset = 1000, .count = 3, .decay = false},
    {.name = "c", .offset = 1003, .count = 200, .decay = true},
};

typedef struct reference {
    double w[COUNT], m[COUNT], v[COUNT];
} reference;

static double norm(const double *x, size_t from, size_t count) {
    double sum = 0;
    for (size_t i = from; i < from + count; i++) sum += x[i] * x[i];
    return sqrt(sum);
}

static void reference_sgd(reference *r, const double *g, const gw_parameter *p, const gw_optimiser_settings *s,
                          double rate, int lars) {
    double decay = p->decay ? s->decay : 0, w_norm = norm(r->w, p->offset, p->count);
    double ratio = lars && p->decay ? s->eta * w_norm / (norm(g, p->offset, p->count) + decay * w_norm) : 1;
    for (size_t i = p->offset; i < p->offset + p->count; i++) {
        double d = ratio * (g[i] + decay * r->w[i]);
        r->m[i] = s->momentum * r->m[i] + d;
        r->w[i] -= rate * (s->nesterov ? d + s->momentum * r->m[i] : r->m[i]);
    }
}

static void reference_adam(reference *r, const double *g, const gw_parameter *p, const gw_optimiser_settings *s,
                           double rate, int step, const char *name) {
    static double direction[COUNT];
    int coupled = strcmp(name, "adam") == 0, lamb = strcmp(name, "lamb") == 0;
    double decay = p->decay ? s->decay : 0;
    for (size_t i = p->offset; i < p->offset + p->count; i++) {
        double d = g[i] + (coupled ? decay * r->w[i] : 0);
        r->m[i] = s->beta1 * r->m[i] + (1 - s->beta1) * d;
        r->v[i] = s->beta2 * r->v[i] + (1 - s->beta2) * d * d;
        double m = r->m[i] / (1 - pow(s->beta1, step)), v = r->v[i] / (1 - pow(s->beta2, step));
        direction[i] = m / (sqrt(v) + s->epsilon) + (coupled ? 0 : decay * r->w[i]);
    }
    double ratio = norm(r->w, p->offset, p->count) / norm(direction, p->offset, p->count);
    ratio = lamb && p->decay ? fmin(fmax(ratio, 0.01), 10) : 1;
    for (size_t i = p->offset; i < p->offset + p->count; i++) r->w[i] -= rate * ratio * direction[i];
}

static void reference_step(reference *r, const float *gradients, const gw_optimiser_kind *kind,
                           const gw_optimiser_settings *s, double rate, double scale, int step) {
    static double g[COUNT];
    for (int i = 0; i < COUNT; i++) g[i] = gradients[i] * scale;
    for (int p = 0; p < 3; p++)
        if (kind == &gw_sgd || kind == &gw_lars) reference_sgd(r, g, &table[p], s, rate, kind == &gw_lars);
        else reference_adam(r, g, &table[p], s, rate, step, kind->name);
}

/* In uneven parts that do not respect parameters. */
static void step_in_parts(gw_optimiser *o, float *weights, float *gradients, const gw_update *update) {
    static const size_t ends[] = {0, 7, 400, 1001, 1002, 1100, COUNT};
    gw_optimiser_forget_norms(o, 0, 3);
    for (int i = 0; i < 6; i++) gw_optimiser_prepare(o, weights, gradients, ends[i], ends[i + 1] - ends[i], update);
    for (int i = 5; i >= 0; i--) gw_optimiser_apply(o, weights, gradients, ends[i], ends[i + 1] - ends[i], update);
}

static void against_reference(const gw_optimiser_kind *kind, gw_optimiser_settings s) {
    static float whole[COUNT], parts[COUNT], gradients[COUNT], copy[COUNT];
    static reference r;
    gw_optimiser *o[2] = {NULL};
    gw_error error = {0};
    gw_rng rng = gw_rng_make(2, 0);
    memset(&r, 0, sizeof r);
    for (int i = 0; i < COUNT; i++) r.w[i] = whole[i] = parts[i] = uniform(&rng, -1, 1);
    for (int i = 0; i < 2; i++) CHECK_EQ(GW_OK, gw_optimiser_create(kind, &s, table, 3, &o[i], &error));
    for (int step = 1; step <= STEPS; step++) {
        gw_update update = {.step = (uint64_t)step, .rate = 0.05 / step, .scale = 0.25};
        for (int i = 0; i < COUNT; i++) gradients[i] = uniform(&rng, -4, 4);
        reference_step(&r, gradients, kind, &s, update.rate, update.scale, step);
        memcpy(copy, gradients, sizeof copy);
        gw_optimiser_step(o[0], whole, copy, 0, 3, &update);
        memcpy(copy, gradients, sizeof copy);
        step_in_parts(o[1], parts, copy, &update);
    }
    double worst = 0, between = 0;
    for (int i = 0; i < COUNT; i++) {
        worst = fmax(worst, fabs(whole[i] - r.w[i]));
        between = fmax(between, fabs(whole[i] - parts[i]));
    }
    if (worst > 2e-6) printf("    %s: off by %g\n", kind->name, worst);
    CHECK(worst <= 2e-6);
    CHECK(gw_optimiser_needs_norms(o[0]) ? between < 1e-6 : between == 0);
    CHECK_EQ(kind->states * COUNT * (int)sizeof(float), gw_optimiser_bytes(o[0]));
    for (int i = 0; i < 2; i++) gw_optimiser_destroy(o[i]);
}

static void optimisers(void) {
    for (int i = 0; gw_optimiser_kinds[i]; i++) {
        gw_optimiser_settings s = gw_optimiser_kinds[i]->defaults;
        against_reference(gw_optimiser_kinds[i], s);
        s.decay = 0.1;
        s.nesterov = true;
        against_reference(gw_optimiser_kinds[i], s);
    }
    gw_error error = {0};
    CHECK(gw_optimiser_find("adamw", &error) == &gw_adamw);
    CHECK(gw_optimiser_find("adan", &error) == NULL);
    CHECK(strstr(error.text, "did you mean \"adam\"?") != NULL);
}

/* Gradients that have had their momentum: the same weights as if the optimiser had applied it, decay included. */
static void after_momentum(void) {
    gw_optimiser_settings s = {.momentum = 0.9, .decay = 0.01};
    static float own[COUNT], taken[COUNT], sum[COUNT], gradients[COUNT];
    gw_optimiser *with = NULL, *without = NULL;
    gw_error error = {0};
    CHECK_EQ(GW_OK, gw_optimiser_create(&gw_sgd, &s, table, 3, &with, &error));
    CHECK_EQ(GW_OK, gw_optimiser_create(&gw_sgd, &s, table, 3, &without, &error));
    for (int i = 0; i < COUNT; i++) own[i] = taken[i] = (float)sin(i);
    memset(sum, 0, sizeof sum);
    for (int step = 1; step <= 50; step++) {
        gw_update update = {.step = (uint64_t)step, .rate = 0.05, .scale = 0.5};
        for (int i = 0; i < COUNT; i++) gradients[i] = (float)cos(i * step);
        for (int i = 0; i < COUNT; i++) sum[i] = 0.9f * sum[i] + gradients[i];
        gw_optimiser_step(with, own, gradients, 0, 3, &update);
        update.has_momentum = true;
        gw_optimiser_step(without, taken, sum, 0, 3, &update);
    }
    for (int i = 0; i < COUNT; i++) CHECK(fabsf(own[i] - taken[i]) < 1e-5f * (1 + fabsf(own[i])));
    gw_optimiser_destroy(with);
    gw_optimiser_destroy(without);
}

static void zero_gradients_and_weights(void) {
    for (int k = 0; gw_optimiser_kinds[k]; k++) {
        float weights[COUNT] = {0}, gradients[COUNT] = {0};
        gw_optimiser *o = NULL;
        gw_error error = {0};
        const gw_optimiser_kind *kind = gw_optimiser_kinds[k];
        CHECK_EQ(GW_OK, gw_optimiser_create(kind, &kind->defaults, table, 3, &o, &error));
        gw_optimiser_step(o, weights, gradients, 0, 3, &(gw_update){.step = 1, .rate = 1, .scale = 1});
        gradients[5] = 1;
        gw_optimiser_step(o, weights, gradients, 0, 3, &(gw_update){.step = 2, .rate = 1, .scale = 1});
        CHECK(weights[5] < 0 && isfinite(weights[5]) && weights[6] == 0);
        gw_optimiser_destroy(o);
    }
}

/* --- learning rates --- */

static int near(double a, double b) { return fabs(a - b) <= 1e-12 * (1 + fabs(b)); }

static void rates(void) {
    gw_learning_rate r = {.kind = GW_RATE_CONSTANT, .peak = 0.4, .start = 0.1, .warmup = 3};
    CHECK(near(0.2, gw_learning_rate_at(&r, 0)) && near(0.3, gw_learning_rate_at(&r, 1)) &&
          near(0.4, gw_learning_rate_at(&r, 2)));
    CHECK(near(0.4, gw_learning_rate_at(&r, 1000000)));
    r = (gw_learning_rate){.kind = GW_RATE_STEP, .peak = 1, .every = 10, .factor = 0.1};
    CHECK(near(1, gw_learning_rate_at(&r, 9)) && near(0.1, gw_learning_rate_at(&r, 10)) &&
          near(0.01, gw_learning_rate_at(&r, 29)));
    r = (gw_learning_rate){.kind = GW_RATE_COSINE, .peak = 1, .last = 0.2, .warmup = 10, .total = 110};
    CHECK(near(1, gw_learning_rate_at(&r, 10)) && near(0.6, gw_learning_rate_at(&r, 60)) &&
          near(0.2, gw_learning_rate_at(&r, 110)));
    CHECK(near(0.2, gw_learning_rate_at(&r, 5000)));
    r = (gw_learning_rate){.kind = GW_RATE_LINEAR, .peak = 1, .total = 100};
    CHECK(near(1, gw_learning_rate_at(&r, 0)) && near(0.25, gw_learning_rate_at(&r, 75)) &&
          near(0, gw_learning_rate_at(&r, 100)));
    r = (gw_learning_rate){.kind = GW_RATE_LINEAR, .peak = 1, .warmup = 10, .total = 5};
    CHECK(near(0, gw_learning_rate_at(&r, 10)));
    CHECK(near(0.8, gw_learning_rate_scaled(0.1, 64, 512)));
    gw_learning_rate_kind kind;
    gw_error error = {0};
    CHECK(gw_learning_rate_find("cosine", &kind, &error) == GW_OK && kind == GW_RATE_COSINE);
    CHECK_EQ(GW_INVALID, gw_learning_rate_find("cosin", &kind, &error));
    CHECK(strstr(error.text, "did you mean \"cosine\"?") != NULL);
}

/* --- loops --- */

typedef struct results {
    float to[COUNT], softmax[COUNT], back[COUNT], w[COUNT], m[COUNT], v[COUNT];
    float larger[COUNT];
    int32_t chosen[COUNT];
    double squares;
    float log_sum;
} results;

static void run_loops(const gw_vectors *x, results *r, size_t count) {
    gw_rng rng = gw_rng_make(4, count);
    static float a[COUNT], b[COUNT];
    memset(r, 0, sizeof *r);
    for (size_t i = 0; i < count; i++) a[i] = uniform(&rng, -30, 30), b[i] = uniform(&rng, -1, 1);
    for (size_t i = 0; i < count; i++) r->w[i] = uniform(&rng, -1, 1);
    x->sum_relu(r->to, a, b, count);
    x->add(r->to, b, count);
    x->mask(r->to, b, count);
    memcpy(r->larger, b, sizeof r->larger);
    x->take_larger(r->larger, r->chosen, a, 3, count);
    x->give_back(r->larger, r->chosen, b, 3, count);
    r->squares = x->sum_squares(a, count);
    r->log_sum = x->softmax(r->softmax, a, 0.7f, count);
    memcpy(r->back, b, sizeof r->back);
    x->softmax_backward(r->back, r->softmax, 0.7f, count);
    x->adam(r->w, b, r->m, r->v,
            &(gw_adam_step){.rate = 0.1f,
                            .beta1 = 0.9f,
                            .beta2 = 0.99f,
                            .epsilon = 1e-8f,
                            .correction1 = 10,
                            .correction2 = 100,
                            .coupled = 0.1f,
                            .decoupled = 0.2f,
                            .scale = 1},
            count);
    x->sgd(
        r->w, a, r->m,
        &(gw_sgd_step){.rate = 0.1f, .momentum = 0.9f, .decay = 0.1f, .scale = 1, .ratio = 0.5f, .velocity_share = 1},
        count);
}

static void same_bits_at_every_level(void) {
    static results plain, other;
    const size_t counts[] = {0, 1, 7, 15, 16, 17, 33, 255, COUNT};
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
        run_loops(&gw_vectors_plain, &plain, counts[c]);
        run_loops(gw_vectors_get(), &other, counts[c]);
        CHECK(memcmp(&plain, &other, sizeof plain) == 0);
        if (gw_cpu() == GW_CPU_AVX512) {
            run_loops(&gw_vectors_avx2, &other, counts[c]);
            CHECK(memcmp(&plain, &other, sizeof plain) == 0);
        }
    }
}

static void softmax_to_rounding(void) {
    float in[300], out[300];
    gw_rng rng = gw_rng_make(6, 0);
    for (int round = 0; round < 50; round++) {
        size_t count = 1 + (size_t)gw_rng_below(&rng, 300);
        double sum = 0, most = -1e9;
        for (size_t i = 0; i < count; i++) in[i] = uniform(&rng, -60, 60);
        for (size_t i = 0; i < count; i++) most = fmax(most, in[i]);
        for (size_t i = 0; i < count; i++) sum += exp(in[i] - most);
        float log_sum = gw_vectors_get()->softmax(out, in, 1, count);
        CHECK(fabs(log_sum - (most + log(sum))) < 1e-4);
        for (size_t i = 0; i < count; i++) {
            double expected = exp(in[i] - most) / sum;
            CHECK(fabs(out[i] - expected) <= 1e-5 * expected + 1e-37);
        }
    }
}

TEST_MAIN(CASE(optimisers), CASE(after_momentum), CASE(zero_gradients_and_weights), CASE(rates),
          CASE(same_bits_at_every_level), CASE(softmax_to_rounding))
