/* powersgd.c - a matrix as the product of two thin ones (Vogels, Karimireddy, Jaggi: "PowerSGD", NeurIPS 2019).
 *
 * One step of power iteration, warm-started. Round 0 sends P = M Q (rows x r) and sums it over the ranks; the columns
 * of the sum are made orthonormal. Round 1 sends Q = Mt P (cols x r) and sums it; the result is P Qt. Payloads are f32,
 * one column after the other, and reduced in flight by addition. The summed Q is kept for the next step (settle).
 * Always with feedback: each rank keeps M - P (its own Q)t.
 *
 * Orthonormal columns are P T, where T (r x r, f64) comes from PtP: so a decoder needs no memory for them. A column
 * that depends on those before it is left out.
 *
 * A NaN or an infinity anywhere makes the whole result NaN; the next step starts from new columns of Q. */
#include "base/rng.h"
#include "compress/codec.h"

#include <math.h>

#define RANK_MAX 32

enum { PARAM_RANK };
static const gw_param params[] = {
    {.name = "rank", .about = "columns of the factors", .kind = GW_PARAM_INTEGER, .preset = 4, .lowest = 1,
     .highest = RANK_MAX},
    GW_CODEC_FEEDBACK(GW_FEEDBACK_WORKER),
    GW_CODEC_FORM,
    {.name = NULL},
};

static uint64_t smaller(uint64_t a, uint64_t b) { return a < b ? a : b; }

static size_t columns(const gw_codec_setup *setup, const gw_codec_tensor *t) {
    return smaller((uint64_t)setup->value[PARAM_RANK], smaller(t->rows, t->cols));
}

static const char *refuses(const gw_codec_setup *setup, const gw_codec_tensor *tensor, uint32_t world) {
    (void)world;
    bool gains = columns(setup, tensor) * (tensor->rows + tensor->cols) < tensor->count;
    return gains ? NULL : "is no matrix that two thin ones are smaller than";
}

static uint32_t rounds(const gw_codec_setup *setup) {
    (void)setup;
    return 2;
}

static size_t bound(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range) {
    const gw_codec_tensor *t = range.tensor;
    return columns(setup, t) * (call->round == 0 ? t->rows : t->cols) * sizeof(float);
}

static uint64_t own_count(const gw_codec_setup *setup, gw_codec_range range) {
    return columns(setup, range.tensor) * range.tensor->cols;
}

/* Any non-degenerate column works, if it is the same on all ranks. */
static void fresh_column(const gw_codec_call *call, const gw_codec_tensor *tensor, gw_codec_state *state, size_t c) {
    gw_codec_call first = *call;
    first.step = 0;
    gw_rng rng = gw_rng_make(gw_codec_random_key(&first, tensor, false), c);
    for (uint64_t j = 0; j < tensor->cols; j++) state->own[c * tensor->cols + j] = (float)(2 * gw_rng_unit(&rng) - 1);
}

static void prepare(const gw_codec_setup *setup, gw_codec_call *call, const gw_codec_tensor *tensor,
                    gw_codec_state *state, const float *gradient) {
    (void)gradient;
    for (size_t c = 0; state->born == UINT64_MAX && c < columns(setup, tensor); c++) {
        fresh_column(call, tensor, state, c);
    }
}

/* T: P T has orthonormal columns. */
typedef struct transform {
    size_t r;
    double t[RANK_MAX][RANK_MAX];
} transform;

static void gram(const float *p, size_t rows, size_t r, double g[RANK_MAX][RANK_MAX]) {
    for (size_t a = 0; a < r; a++) {
        for (size_t b = 0; b <= a; b++) {
            double sum = 0;
            for (size_t i = 0; i < rows; i++) sum += (double)p[a * rows + i] * (double)p[b * rows + i];
            g[a][b] = g[b][a] = sum;
        }
    }
}

/* Gram-Schmidt on the columns of T under the inner product that the Gram matrix gives: no pass over P. */
static void orthonormalise(transform *x, double g[RANK_MAX][RANK_MAX]) {
    for (size_t c = 0; c < x->r; c++) {
        double column[RANK_MAX] = {0}, norm2 = 0;
        column[c] = 1;
        for (size_t b = 0; b < c; b++) {
            double overlap = 0;
            for (size_t k = 0; k <= b; k++) overlap += x->t[k][b] * g[k][c];
            for (size_t k = 0; k <= b; k++) column[k] -= overlap * x->t[k][b];
        }
        for (size_t k = 0; k <= c; k++) {
            for (size_t l = 0; l <= c; l++) norm2 += column[k] * g[k][l] * column[l];
        }
        bool depends = norm2 <= 1e-12 * g[c][c]; /* false for a NaN, which must stay visible */
        for (size_t k = 0; k < x->r; k++) x->t[k][c] = depends ? 0 : column[k] / sqrt(norm2);
    }
}

static void find_transform(const float *p, size_t rows, size_t r, transform *x) {
    double g[RANK_MAX][RANK_MAX];
    x->r = r;
    gram(p, rows, r, g);
    orthonormalise(x, g);
}

/* Row i of P T. */
static void orthonormal_row(const transform *x, const float *p, size_t rows, size_t i, float out[RANK_MAX]) {
    for (size_t c = 0; c < x->r; c++) {
        double sum = 0;
        for (size_t k = 0; k <= c; k++) sum += (double)p[k * rows + i] * x->t[k][c];
        out[c] = (float)sum;
    }
}

static void encode_p(const gw_codec_tensor *t, size_t r, const float *m, const float *q, float *p) {
    for (size_t i = 0; i < t->rows; i++) {
        for (size_t c = 0; c < r; c++) {
            p[c * t->rows + i] = (float)gw_kernel_dot(m + i * t->cols, q + c * t->cols, t->cols);
        }
    }
}

static void encode_q(const gw_codec_tensor *t, size_t r, const float *m, const float *p, float *q) {
    transform x;
    float row[RANK_MAX];
    find_transform(p, t->rows, r, &x);
    memset(q, 0, r * t->cols * sizeof *q);
    for (size_t i = 0; i < t->rows; i++) {
        orthonormal_row(&x, p, t->rows, i, row);
        for (size_t c = 0; c < r; c++) gw_kernel_axpy(q + c * t->cols, m + i * t->cols, row[c], t->cols);
    }
}

static gw_status encode(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range,
                        gw_codec_state *state, const float *v, void *payload, size_t capacity, size_t *bytes,
                        gw_error *error) {
    (void)capacity, (void)error;
    size_t r = columns(setup, range.tensor);
    if (call->round == 0) encode_p(range.tensor, r, v, state->own, payload);
    else encode_q(range.tensor, r, v, call->reduced, payload);
    *bytes = bound(setup, call, range);
    return GW_OK;
}

static gw_status decode_add(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range,
                            const void *payload, size_t bytes, float scale, float *sum, gw_error *error) {
    const gw_codec_tensor *t = range.tensor;
    size_t expected = bound(setup, call, range), r = columns(setup, t);
    if (bytes != expected) return gw_codec_length_error(setup->codec, range, bytes, expected, error);
    const float *q = payload, *p = call->reduced;
    transform x;
    float row[RANK_MAX];
    find_transform(p, t->rows, r, &x);
    for (size_t i = 0; i < t->rows; i++) {
        orthonormal_row(&x, p, t->rows, i, row);
        for (size_t c = 0; c < r; c++) gw_kernel_axpy(sum + i * t->cols, q + c * t->cols, scale * row[c], t->cols);
    }
    return GW_OK;
}

static void merge(const gw_codec_setup *setup, const gw_codec_call *call, void *into, const void *from, size_t bytes) {
    (void)setup, (void)call;
    gw_kernel_axpy(into, from, 1.0f, bytes / sizeof(float));
}

static gw_status settle(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range,
                        gw_codec_state *state, const void *payload, size_t bytes, gw_error *error) {
    size_t expected = bound(setup, call, range);
    if (bytes != expected) return gw_codec_length_error(setup->codec, range, bytes, expected, error);
    const float *q = payload;
    uint64_t cols = range.tensor->cols;
    for (size_t c = 0; c < columns(setup, range.tensor); c++, q += cols) {
        uint32_t peak = gw_kernel_peak(q, cols);
        if (peak == 0 || peak >= GW_INFINITY_BITS) {
            fresh_column(call, range.tensor, state, c);
            continue;
        }
        for (uint64_t j = 0; j < cols; j++) state->own[c * cols + j] = q[j] / (float)call->world;
    }
    return GW_OK;
}

const gw_codec gw_codec_powersgd = {
    .technique = {.name = "powersgd", .about = "matrices as the product of two thin ones", .params = params,
                  .examples = GW_CHOICES("rank=4")},
    .encode_rate = 1.7e9,
    .decode_rate = 8.1e9,
    .trusted = {.error = 8, .aligned = 0.15},
    .compensates = true,
    .block = 0,
    .merge_unit = sizeof(float),
    .refuses = refuses,
    .rounds = rounds,
    .bound = bound,
    .encode = encode,
    .decode_add = decode_add,
    .merge = merge,
    .own_count = own_count,
    .prepare = prepare,
    .settle = settle,
};
