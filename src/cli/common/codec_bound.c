/* codec_bound.c - see codec_bound.h. Loops over vectors of 4 floats, which every CPU of today has; memory
 * is slower than they are. */
#include "cli/common/codec_bound.h"

#include <string.h>

#define WIDTH 4
#define STRETCH 2048 /* elements after which their part of the payload is written */

typedef float vec __attribute__((vector_size(WIDTH * sizeof(float))));

static inline vec load(const float *from) {
    vec value;
    memcpy(&value, from, sizeof value);
    return value;
}

static inline void store(float *to, vec value) { memcpy(to, &value, sizeof value); }

/* Spread evenly: the end of the payload of the elements before `at`. */
static size_t end_of(size_t bytes, uint64_t at, uint64_t count) {
    return (size_t)((double)bytes * ((double)at / (double)count));
}

/* Reads x, and writes something that depends on all of it. */
static void read_pass(const float *x, uint64_t count, uint8_t *payload, size_t bytes) {
    size_t written = 0;
    for (uint64_t at = 0; at < count; at += STRETCH) {
        uint64_t end = count - at < STRETCH ? count : at + STRETCH;
        vec a = {0}, b = a, c = a, d = a;
        for (uint64_t i = at; i + 4 * WIDTH <= end; i += 4 * WIDTH) {
            a += load(x + i);
            b += load(x + i + WIDTH);
            c += load(x + i + 2 * WIDTH);
            d += load(x + i + 3 * WIDTH);
        }
        a += b + c + d;
        size_t to = end_of(bytes, end, count);
        memset(payload + written, (int)a[0] + (int)a[WIDTH - 1], to - written);
        written = to;
    }
}

static void add_pass(float *e, const float *g, uint64_t count) {
    for (uint64_t i = 0; i + WIDTH <= count; i += WIDTH) store(e + i, load(e + i) + load(g + i));
}

static void momentum_pass(float *u, float *v, const float *g, uint64_t count) {
    for (uint64_t i = 0; i + WIDTH <= count; i += WIDTH) {
        vec sum = 0.9f * load(u + i) + load(g + i);
        store(u + i, sum);
        store(v + i, load(v + i) + sum);
    }
}

static void change_pass(float *e, uint64_t count, float by) {
    for (uint64_t i = 0; i + WIDTH <= count; i += WIDTH) store(e + i, load(e + i) + by);
}

void gw_codec_bound_encode(const gw_codec_setup *setup, const gw_codec_buffers *b) {
    bool residual = gw_codec_residual(setup);
    uint32_t rounds = gw_codec_rounds(setup);
    if (!residual) read_pass(b->gradient, b->count, b->payload[0], b->bytes[0]);
    else if (gw_codec_momentum(setup) > 0) momentum_pass(b->momentum, b->residual, b->gradient, b->count);
    else add_pass(b->residual, b->gradient, b->count);
    for (uint32_t r = 1; r < rounds; r++)
        read_pass(residual ? b->residual : b->gradient, b->count, b->payload[r], b->bytes[r]);
    if (residual && rounds > 1) change_pass(b->residual, b->count, 1e-9f);
}

static float sum_of(const uint8_t *payload, size_t bytes) {
    uint64_t sum = 0, eight;
    for (size_t i = 0; i + sizeof eight <= bytes; i += sizeof eight) {
        memcpy(&eight, payload + i, sizeof eight);
        sum += eight;
    }
    return (float)sum * 1e-30f;
}

void gw_codec_bound_decode(const gw_codec_setup *setup, const gw_codec_buffers *b) {
    uint32_t last = gw_codec_rounds(setup) - 1;
    change_pass(b->residual, b->count, sum_of(b->payload[last], b->bytes[last]));
}
