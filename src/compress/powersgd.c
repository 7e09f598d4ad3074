/* powersgd.c - a matrix as the product of two thin ones (Vogels, Karimireddy, Jaggi: "PowerSGD", NeurIPS 2019).
 *
 * One step of power iteration, warm-started. Round 0 sends P = M Q (rows x r) and sums it over the ranks; the columns
 * of the sum are made orthonormal. Round 1 sends Q = Mt P (cols x r) and sums it; the result is P Qt. Payloads are f32,
 * the rows of P and the columns of Q one after the other, and reduced in flight by addition. The summed Q is kept for
 * the next step (settle). Always with feedback: each rank keeps M - P (its own Q)t.
 *
 * Orthonormal columns are P T, where T (r x r, f64) comes from PtP: so a decoder needs no memory for them. A column
 * that depends on those before it is left out.
 *
 * A NaN or an infinity anywhere makes the whole result NaN; the next step starts from new columns of Q. */
#include "base/rng.h"
#include "compress/codec.h"
#include "compress/low_rank.h"

#include <math.h>

#define RANK_MAX 32
#define TILE_ROWS 4u    /* of a tile of the matrix, or a multiple where rows are short: it stays in cache */
#define TILE_LEAST 2048 /* elements */
#define GATHER_COLS 2048u

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
    if (t->count == 0) return 0;
    return columns(setup, t) * (call->round == 0 ? range.count / t->cols : t->cols) * sizeof(float);
}

static size_t tile_rows(const gw_codec_tensor *t) {
    return TILE_ROWS * gw_blocks(TILE_LEAST, (uint32_t)smaller(TILE_ROWS * t->cols, TILE_LEAST));
}

/* Row i of P needs row i of M alone. */
static uint64_t chunk(const gw_codec_call *call, const gw_codec_tensor *t) {
    return call->round == 0 && t->count ? tile_rows(t) * t->cols : t->count;
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
    for (size_t a = 0; a < r; a++) memset(g[a], 0, r * sizeof g[a][0]);
    for (size_t i = 0; i < rows; i++, p += r) {
        for (size_t a = 0; a < r; a++)
            for (size_t b = 0; b <= a; b++) g[a][b] += (double)p[a] * (double)p[b];
    }
    for (size_t a = 0; a < r; a++)
        for (size_t b = 0; b < a; b++) g[b][a] = g[a][b];
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

/* scale times rows of P T. */
static void orthonormal_rows(const transform *x, const float *p, size_t rows, float scale, float *out) {
    for (size_t i = 0; i < rows; i++, p += x->r, out += x->r) {
        for (size_t c = 0; c < x->r; c++) {
            double sum = 0;
            for (size_t k = 0; k <= c; k++) sum += (double)p[k] * x->t[k][c];
            out[c] = scale * (float)sum;
        }
    }
}

/* Some columns of M at a time, so that those of Q stay in cache. */
static void encode_q(const gw_codec_tensor *t, size_t r, const float *m, const float *p, float *q) {
    transform x;
    float row[TILE_ROWS * RANK_MAX];
    find_transform(p, t->rows, r, &x);
    memset(q, 0, r * t->cols * sizeof *q);
    for (size_t at = 0; at < t->cols; at += GATHER_COLS) {
        size_t width = smaller(GATHER_COLS, t->cols - at);
        for (size_t i = 0; i < t->rows; i += TILE_ROWS) {
            size_t rows = smaller(TILE_ROWS, t->rows - i);
            orthonormal_rows(&x, p + i * r, rows, 1, row);
            gw_low_rank_gather(m + i * t->cols + at, rows, t->cols, width, r, row, q + at);
        }
    }
}

static gw_status encode(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range,
                        gw_codec_state *state, const float *v, void *payload, size_t capacity, size_t *bytes,
                        gw_error *error) {
    (void)capacity, (void)error;
    size_t r = columns(setup, range.tensor);
    uint64_t cols = range.tensor->cols;
    if (call->round == 0) gw_low_rank_dots(v, range.count / cols, cols, r, state->own, payload, v + range.count);
    else encode_q(range.tensor, r, v, call->reduced, payload);
    *bytes = bound(setup, call, range);
    return GW_OK;
}

/* A tile that was added is in cache: the gradient of the next one is read meanwhile. */
static void one_pass(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range,
                     gw_codec_state *state, const float *gradient, void *payload, size_t capacity, size_t *bytes,
                     gw_codec_report *lost) {
    (void)capacity;
    const gw_codec_tensor *t = range.tensor;
    float *m = state->residual, *p = payload;
    size_t r = columns(setup, t), tile = tile_rows(t);
    for (size_t i = 0; i < t->rows; i += tile, m += tile * t->cols, gradient += tile * t->cols) {
        size_t rows = smaller(tile, t->rows - i);
        lost->input += gw_kernel_add(m, gradient, rows * t->cols);
        gw_low_rank_dots(m, rows, t->cols, r, state->own, p + i * r, gradient + rows * t->cols);
    }
    *bytes = bound(setup, call, range);
}

/* m += scale P Qt; where left is not NULL, m is sanitised and *left becomes its sum of squares. */
static void add_product(const gw_codec_setup *setup, const gw_codec_tensor *t, const float *p, const float *q,
                        float scale, float *m, double *left) {
    transform x;
    float row[TILE_ROWS * RANK_MAX];
    find_transform(p, t->rows, columns(setup, t), &x);
    for (size_t i = 0; i < t->rows; i += TILE_ROWS) {
        size_t rows = smaller(TILE_ROWS, t->rows - i);
        orthonormal_rows(&x, p + i * x.r, rows, scale, row);
        if (left) *left += gw_low_rank_add_clear(m + i * t->cols, rows, t->cols, x.r, row, q);
        else gw_low_rank_add(m + i * t->cols, rows, t->cols, x.r, row, q);
    }
}

static gw_status decode_add(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range,
                            const void *payload, size_t bytes, float scale, float *sum, gw_error *error) {
    size_t expected = bound(setup, call, range);
    if (bytes != expected) return gw_codec_length_error(setup->codec, range, bytes, expected, error);
    add_product(setup, range.tensor, call->reduced, payload, scale, sum, NULL);
    return GW_OK;
}

static double take_off(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range,
                       gw_codec_state *state, const void *payload, double norm2) {
    (void)norm2;
    double left = 0;
    add_product(setup, range.tensor, call->reduced, payload, -1, state->residual, &left);
    return left;
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
    .encode_rate = 6e9,
    .decode_rate = 22e9,
    .trusted = {.error = 8, .aligned = 0.15},
    .compensates = true,
    .block = 0,
    .merge_unit = sizeof(float),
    .refuses = refuses,
    .rounds = rounds,
    .bound = bound,
    .chunk = chunk,
    .encode = encode,
    .one_pass = one_pass,
    .decode_add = decode_add,
    .merge = merge,
    .take_off = take_off,
    .own_count = own_count,
    .prepare = prepare,
    .settle = settle,
};
