/* codec_run.h - for tests of codecs: their setups, difficult inputs, and one rank that encodes and decodes a tensor,
 * all rounds, by itself. */
#ifndef GW_TEST_CODEC_RUN_H
#define GW_TEST_CODEC_RUN_H

#include "base/cpu.h"
#include "base/rng.h"
#include "compress/compress.h"
#include "test.h"

#include <math.h>

/* Beside the examples of the codecs themselves: feedback, and the ends of parameters. */
static const char *const more_setups[] = {
    "int8:feedback=worker",
    "onebit:threshold=mean",
    "onebit:feedback=none",
    "qsgd:bits=8,elias",
    "qsgd:feedback=worker",
    "terngrad:shared,feedback=worker",
    "topk:ratio=0.3",
    "topk:ratio=1",
    "randomk:ratio=0.1",
    "randomk:feedback=none",
    "threshold:ratio=0.05",
    "dgc:ratio=0.01",
    "powersgd:rank=2",
    "dgc:ratio=0.01,momentum=0.9,warmup=10,clip=0.5",
    NULL,
};

/* Setup `index`, until the next call; NULL past the last. */
__attribute__((unused)) static const char *codec_setup(int index) {
    static char text[GW_TECHNIQUE_TEXT_BYTES];
    for (int c = 0; gw_codecs[c]; c++)
        for (int i = 0; gw_technique_example(&gw_codecs[c]->technique, i, text); i++)
            if (index-- == 0) return text;
    return more_setups[index];
}

typedef enum input_kind {
    INPUT_NORMAL,
    INPUT_NASTY,
    INPUT_ZERO,
    INPUT_EQUAL,
    INPUT_DENORMAL,
    INPUT_HUGE,
    INPUT_LEVELS, /* nine values: many are equal */
    INPUTS
} input_kind;

static float nasty_float(gw_rng *rng) {
    static const uint32_t corners[] = {0,          0x80000000, 1,          0x80000001, 0x7fffff,   0x800000,
                                       0x3f800000, 0xbf800000, 0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000,
                                       0x7fc00000, 0xffc00001, 0x7f800001, 0x477ff000, 0x33000001};
    uint32_t bits =
        gw_rng_u32(rng) % 3 ? gw_rng_u32(rng) : corners[gw_rng_below(rng, sizeof corners / sizeof corners[0])];
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static float normal_float(gw_rng *rng) {
    double sum = 0;
    for (int i = 0; i < 4; i++) sum += gw_rng_unit(rng) - 0.5;
    return (float)(sum * 0.02);
}

__attribute__((unused)) static void fill_input(float *x, size_t count, input_kind kind, uint64_t seed) {
    gw_rng rng = gw_rng_make(seed, kind);
    for (size_t i = 0; i < count; i++) {
        if (kind == INPUT_NORMAL) x[i] = normal_float(&rng);
        if (kind == INPUT_NASTY) x[i] = nasty_float(&rng);
        if (kind == INPUT_ZERO) x[i] = 0.0f;
        if (kind == INPUT_EQUAL) x[i] = -0.37f;
        if (kind == INPUT_DENORMAL) x[i] = (float)((int)gw_rng_below(&rng, 200) - 100) * 1e-44f;
        if (kind == INPUT_LEVELS) x[i] = (float)((int)gw_rng_below(&rng, 9) - 4);
        if (kind == INPUT_HUGE) x[i] = (gw_rng_u32(&rng) & 1 ? 1.0f : -1.0f) * 3e38f * (float)gw_rng_unit(&rng);
    }
}

/* One rank, one tensor. */
typedef struct codec_run {
    gw_codec_setup setup;
    gw_codec_tensor tensor;
    gw_codec_state state;
    gw_codec_call call;
    uint8_t *payload[2]; /* of each round, of bound() bytes */
    size_t capacity[2], bytes[2];
    gw_codec_report report;
} codec_run;

/* False where the codec refuses the tensor. rows 0: something like a square where that is possible. */
static bool run_open(codec_run *r, const char *text, uint64_t rows, uint64_t count) {
    gw_error error = {0};
    *r = (codec_run){.call = {.seed = 42, .step = 100, .world = 1}};
    if (gw_codec_parse(text, &r->setup, &error)) {
        CHECK_STR("", error.text);
        return false;
    }
    for (uint64_t i = 2; rows == 0 && i * i <= count; i++) {
        if (count % i == 0) rows = i;
        if (count % i == 0 && i * i * 16 > count) break;
    }
    if (rows == 0) rows = 1;
    r->tensor = gw_codec_tensor_make("layer.weight", rows, count / rows);
    if (gw_codec_refuses(&r->setup, &r->tensor, 1)) return false;
    gw_codec_range whole = gw_codec_whole(&r->tensor);
    CHECK_EQ(GW_OK, gw_codec_state_make(&r->state, &r->setup, whole, &error));
    for (uint32_t round = 0; round < gw_codec_rounds(&r->setup); round++) {
        r->call.round = round;
        r->capacity[round] = gw_codec_bound(&r->setup, &r->call, whole);
        r->payload[round] = malloc(r->capacity[round] ? r->capacity[round] : 1);
    }
    return true;
}

static void run_close(codec_run *r) {
    for (int i = 0; i < 2; i++) free(r->payload[i]);
    gw_codec_state_free(&r->state);
}

static void run_round(codec_run *r, uint32_t round) {
    r->call.round = round;
    r->call.reduced = round ? r->payload[round - 1] : NULL;
    r->call.reduced_bytes = round ? r->bytes[round - 1] : 0;
}

static uint32_t run_last(const codec_run *r) { return gw_codec_rounds(&r->setup) - 1; }

/* One step: encodes g in all rounds and settles. */
static void run_encode(codec_run *r, const float *g) {
    gw_codec_range whole = gw_codec_whole(&r->tensor);
    gw_error error = {0};
    r->call.step++;
    r->report = (gw_codec_report){.samples = r->report.samples};
    gw_codec_prepare(&r->setup, &r->call, &r->tensor, &r->state, g);
    for (uint32_t round = 0; round <= run_last(r); round++) {
        run_round(r, round);
        CHECK_EQ(GW_OK, gw_codec_encode(&r->setup, &r->call, whole, &r->state, g, r->payload[round], r->capacity[round],
                                        &r->bytes[round], &r->report, &error));
        CHECK(r->bytes[round] <= r->capacity[round]);
    }
    uint32_t last = run_last(r);
    CHECK_EQ(GW_OK, gw_codec_settle(&r->setup, &r->call, whole, &r->state, r->payload[last], r->bytes[last], &error));
    CHECK_STR("", error.text);
}

/* sum += decoded */
static void run_decode(codec_run *r, float *sum) {
    gw_error error = {0};
    uint32_t last = run_last(r);
    run_round(r, last);
    CHECK_EQ(GW_OK, gw_codec_decode_add(&r->setup, &r->call, gw_codec_whole(&r->tensor), r->payload[last],
                                        r->bytes[last], 1.0f, sum, &error));
    CHECK_STR("", error.text);
}

#endif
