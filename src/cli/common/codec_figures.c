/* codec_figures.c - see codec_figures.h. */
#include "cli/common/codec_figures.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/rng.h"
#include "cli/common/codec_bound.h"

#define ROUNDS_MAX 2
#define CHECKED_MOST ((uint64_t)4 << 20) /* bytes of input */

/* One codec at one size. */
typedef struct trial {
    gw_codec_setup setup;
    gw_codec_tensor tensor;
    gw_codec_state state;
    gw_codec_call call;
    float *gradient, *sum; /* tensor.count; the gradient is the bench's */
    uint8_t *payload[ROUNDS_MAX];
    size_t capacity[ROUNDS_MAX], bytes[ROUNDS_MAX];
} trial;

static double median(double *x, int count) {
    for (int i = 1; i < count; i++) {
        for (int j = i; j > 0 && x[j] < x[j - 1]; j--) {
            double t = x[j];
            x[j] = x[j - 1];
            x[j - 1] = t;
        }
    }
    return x[count / 2];
}

/* Roughly a normal distribution: like gradients, most values are near zero and a few are large. */
static void fill(float *x, uint64_t count, uint64_t seed) {
    for (uint64_t i = 0; i < count; i += 4) {
        uint32_t word[4];
        gw_philox(seed, i, 0, word);
        for (uint64_t j = 0; j < 4 && i + j < count; j++) {
            int sum = 0;
            for (int byte = 0; byte < 4; byte++) sum += (int)(word[j] >> 8 * byte & 255) - 128;
            x[i + j] = (float)sum * (1.0f + (float)(word[j] & 1023) * 0x1p-12f) * 1e-4f;
        }
    }
}

static void trial_free(trial *t) {
    for (int r = 0; r < ROUNDS_MAX; r++) free(t->payload[r]);
    free(t->sum);
    gw_codec_state_free(&t->state);
}

static gw_status trial_make(trial *t, const char *text, float *gradient, uint64_t count, gw_error *error) {
    *t = (trial){.gradient = gradient};
    gw_status status = gw_codec_parse(text, &t->setup, error);
    if (status) return status;
    uint64_t rows = 1;
    while (rows * rows * 4 <= count && count % (rows * 2) == 0) rows *= 2;
    t->tensor = gw_codec_tensor_make("bench", rows, count / rows);
    t->call = (gw_codec_call){.seed = 1, .world = 1, .clip = 1};
    const char *refusal = gw_codec_refuses(&t->setup, &t->tensor, 1);
    if (refusal) return gw_fail(error, GW_UNSUPPORTED, "%s: this tensor %s", text, refusal);
    gw_codec_range whole = gw_codec_whole(&t->tensor);
    status = gw_codec_state_make(&t->state, &t->setup, whole, error);
    if (status) return status;
    t->state.born = 0;
    t->call.step = UINT64_C(1) << 40; /* long after any warm-up */
    t->sum = calloc(count ? count : 1, sizeof(float));
    bool short_of = !t->sum;
    for (uint32_t r = 0; r < gw_codec_rounds(&t->setup); r++) {
        t->call.round = r;
        t->capacity[r] = gw_codec_bound(&t->setup, &t->call, whole);
        t->payload[r] = malloc(t->capacity[r] + 1);
        if (t->payload[r]) memset(t->payload[r], 0, t->capacity[r]);
        short_of |= !t->payload[r];
    }
    if (!short_of) return GW_OK;
    trial_free(t);
    *t = (trial){.gradient = NULL};
    return gw_fail(error, GW_MEMORY, "%s: no memory for %llu elements", text, (unsigned long long)count);
}

static void set_round(trial *t, uint32_t round) {
    t->call.round = round;
    t->call.reduced = round ? t->payload[round - 1] : NULL;
    t->call.reduced_bytes = round ? t->bytes[round - 1] : 0;
}

static gw_status encode_once(trial *t, gw_codec_report *report, gw_error *error) {
    gw_codec_range whole = gw_codec_whole(&t->tensor);
    gw_status status = GW_OK;
    t->call.step++;
    gw_codec_prepare(&t->setup, &t->call, &t->tensor, &t->state, t->gradient);
    for (uint32_t r = 0; !status && r < gw_codec_rounds(&t->setup); r++) {
        set_round(t, r);
        status = gw_codec_encode(&t->setup, &t->call, whole, &t->state, t->gradient, t->payload[r], t->capacity[r],
                                 &t->bytes[r], report, error);
    }
    return status;
}

static gw_status decode_once(trial *t, gw_error *error) {
    uint32_t last = gw_codec_rounds(&t->setup) - 1;
    set_round(t, last);
    return gw_codec_decode_add(&t->setup, &t->call, gw_codec_whole(&t->tensor), t->payload[last], t->bytes[last], 1.0f,
                               t->sum, error);
}

/* A first step with new state, without residual: the loss that the encoder reports must be the difference between the
 * gradient and the decoded values. */
static gw_status check_once(trial *t, double *relative, gw_error *error) {
    gw_codec_report report = {0};
    gw_status status = encode_once(t, &report, error);
    if (!status) status = decode_once(t, error);
    if (status) return status;
    double lost = 0;
    for (uint64_t i = 0; i < t->tensor.count; i++) {
        double d = (double)t->gradient[i] - (double)t->sum[i];
        lost += d * d;
    }
    *relative = report.input > 0 ? sqrt(lost / report.input) : 0;
    double said = report.input > 0 ? sqrt(report.error / report.input) : 0;
    if (fabs(said - *relative) <= 1e-3) return GW_OK;
    return gw_fail(error, GW_PROTOCOL, "%s says that it lost %g of the gradient, and %g is missing",
                   t->setup.codec->technique.name, said, *relative);
}

static double seconds_since(gw_time start) { return (double)(gw_clock_now() - start) / (double)GW_SECOND; }

/* What is timed in a repetition, in this order. */
enum { MEMCPY, ENCODE_BOUND, ENCODE, DECODE_BOUND, DECODE, TIMED };

typedef struct timings {
    double seconds[TIMED][GW_CODEC_REPEATS_MAX];
} timings;

/* The copy of the gradient serves as the residual of the bounds, and the sum as their momentum. */
static gw_status run_timed(trial *t, int what, float *copy, gw_error *error) {
    gw_codec_buffers buffers = {
        .gradient = t->gradient, .residual = copy, .momentum = t->sum, .count = t->tensor.count};
    for (uint32_t r = 0; r < gw_codec_rounds(&t->setup); r++) {
        buffers.payload[r] = t->payload[r];
        buffers.bytes[r] = t->bytes[r];
    }
    switch (what) {
    case MEMCPY: memcpy(copy, t->gradient, t->tensor.count * sizeof(float)); break;
    case ENCODE_BOUND: gw_codec_bound_encode(&t->setup, &buffers); break;
    case ENCODE: return encode_once(t, NULL, error);
    case DECODE_BOUND: gw_codec_bound_decode(&t->setup, &buffers); break;
    default: return decode_once(t, error);
    }
    return GW_OK;
}

static double ratio_of(const timings *all, int of, int to, int repeats) {
    double ratio[GW_CODEC_REPEATS_MAX];
    for (int i = 0; i < repeats; i++) ratio[i] = all->seconds[to][i] / all->seconds[of][i];
    return median(ratio, repeats);
}

static void conclude(const trial *t, timings *all, int repeats, gw_codec_figures *out) {
    double input = (double)(t->tensor.count * sizeof(float)), sent = 0;
    for (uint32_t r = 0; r < gw_codec_rounds(&t->setup); r++) sent += (double)t->bytes[r];
    out->encode_of_memcpy = ratio_of(all, ENCODE, MEMCPY, repeats);
    out->encode_of_bound = ratio_of(all, ENCODE, ENCODE_BOUND, repeats);
    out->decode_of_memcpy = ratio_of(all, DECODE, MEMCPY, repeats);
    out->decode_of_bound = t->setup.codec->least ? NAN : ratio_of(all, DECODE, DECODE_BOUND, repeats);
    out->memcpy_gbs = input / median(all->seconds[MEMCPY], repeats) / 1e9;
    out->encode_gbs = input / median(all->seconds[ENCODE], repeats) / 1e9;
    out->decode_gbs = input / median(all->seconds[DECODE], repeats) / 1e9;
    out->ratio = sent > 0 ? input / sent : 0;
}

static gw_status measure(trial *t, float *copy, int repeats, gw_codec_figures *out, gw_error *error) {
    timings all;
    gw_status status = check_once(t, &out->error, error);
    for (int i = -1; !status && i < repeats; i++) { /* the first warms up */
        for (int what = 0; !status && what < TIMED; what++) {
            gw_time start = gw_clock_now();
            status = run_timed(t, what, copy, error);
            all.seconds[what][i < 0 ? 0 : i] = seconds_since(start);
        }
    }
    if (!status) conclude(t, &all, repeats, out);
    return status;
}

static gw_status step_at(gw_cpu_level level, trial *t, gw_error *error) {
    gw_cpu_level before = gw_cpu();
    gw_cpu_limit(level < before ? level : before);
    gw_status status = encode_once(t, NULL, error);
    if (!status) status = decode_once(t, error);
    gw_cpu_limit(before);
    return status;
}

static bool same(const trial *a, const trial *b) {
    uint32_t last = gw_codec_rounds(&a->setup) - 1;
    size_t bytes = a->tensor.count * sizeof(float);
    bool payload = a->bytes[last] == b->bytes[last] && memcmp(a->payload[last], b->payload[last], a->bytes[last]) == 0;
    bool residual = !a->state.residual || memcmp(a->state.residual, b->state.residual, bytes) == 0;
    return payload && residual && memcmp(a->sum, b->sum, bytes) == 0;
}

gw_status gw_codec_check_levels(const gw_codec_input *input, const char *codec, gw_error *error) {
    trial plain, fast;
    uint64_t count = input->count < CHECKED_MOST / sizeof(float) ? input->count : CHECKED_MOST / sizeof(float);
    gw_status status = trial_make(&plain, codec, input->gradient, count, error);
    if (status) return status;
    status = trial_make(&fast, codec, input->gradient, count, error);
    for (int step = 0; !status && step < 2; step++) {
        status = step_at(GW_CPU_PLAIN, &plain, error);
        if (!status) status = step_at(GW_CPU_AVX512, &fast, error);
        if (!status && !same(&plain, &fast))
            status = gw_fail(error, GW_MISMATCH, "%s at %s has other bits than the plain version", codec,
                             gw_cpu_name(gw_cpu()));
    }
    trial_free(&fast);
    trial_free(&plain);
    return status;
}

gw_status gw_codec_input_make(gw_codec_input *input, uint64_t bytes, gw_error *error) {
    *input = (gw_codec_input){.gradient = malloc(bytes + 1), .copy = malloc(bytes + 1), .count = bytes / sizeof(float)};
    if (!input->gradient || !input->copy) {
        gw_codec_input_free(input);
        return gw_fail(error, GW_MEMORY, "no memory for two buffers of %llu bytes", (unsigned long long)bytes);
    }
    fill(input->gradient, input->count, 7);
    return GW_OK;
}

void gw_codec_input_free(gw_codec_input *input) {
    free(input->gradient);
    free(input->copy);
    *input = (gw_codec_input){.count = 0};
}

gw_status gw_codec_measure(const gw_codec_input *input, const char *codec, int repeats, gw_codec_figures *figures,
                           gw_error *error) {
    trial t;
    *figures = (gw_codec_figures){.ratio = 0};
    gw_status status = trial_make(&t, codec, input->gradient, input->count, error);
    if (status) return status;
    status = measure(&t, input->copy, repeats, figures, error);
    trial_free(&t);
    return status;
}
