/* elias.c - see elias.h. A gamma code is written and read as one number of up to 33 bits. */
#include "compress/elias.h"

#include <string.h>

#define WIDTH_MAX 16 /* runs go up to a block's length, levels to 127 */

typedef struct bit_writer {
    uint8_t *out;
    uint64_t held; /* bits not yet written, the first lowest */
    int count;     /* of them, below 32 between calls */
} bit_writer;

typedef struct bit_reader {
    const uint8_t *in;
    uint64_t at, end; /* bits */
} bit_reader;

static int log2_floor(uint32_t n) { return 31 - __builtin_clz(n); }

/* The lowest `count` bits of n in reverse order. */
static uint32_t reversed(uint32_t n, int count) {
    n = (n >> 1 & 0x55555555u) | (n & 0x55555555u) << 1;
    n = (n >> 2 & 0x33333333u) | (n & 0x33333333u) << 2;
    n = (n >> 4 & 0x0f0f0f0fu) | (n & 0x0f0f0f0fu) << 4;
    return __builtin_bswap32(n) >> (32 - count);
}

/* At most 33 bits. */
static void put(bit_writer *w, uint64_t bits, int count) {
    w->held |= bits << w->count;
    w->count += count;
    if (w->count < 32) return;
    uint32_t full = (uint32_t)w->held;
    memcpy(w->out, &full, sizeof full);
    w->out += sizeof full;
    w->held >>= 32;
    w->count -= 32;
}

static void put_rest(bit_writer *w) {
    for (; w->count > 0; w->count -= 8, w->held >>= 8) *w->out++ = (uint8_t)w->held;
}

static uint64_t gamma_bits(uint32_t n, int width) { return (uint64_t)reversed(n, width + 1) << width; }

static void put_gamma(bit_writer *w, uint32_t n) {
    int width = log2_floor(n);
    put(w, gamma_bits(n, width), 2 * width + 1);
}

/* A run of zeros and the level after it: 19 bits, 1 and 13 at most. */
static void put_level(bit_writer *w, uint32_t zeros, int level) {
    uint32_t magnitude = (uint32_t)(level < 0 ? -level : level);
    int run = log2_floor(zeros + 1), width = log2_floor(magnitude);
    uint64_t bits = gamma_bits(zeros + 1, run) | (uint64_t)(level < 0) << (2 * run + 1);
    put(w, bits | gamma_bits(magnitude, width) << (2 * run + 2), 2 * run + 2 + 2 * width + 1);
}

/* The next 40 bits or more; zeros beyond the end. */
static uint64_t peek(const bit_reader *r) {
    uint64_t first = r->at / 8, left = r->end / 8 - first, bits = 0;
    if (left >= sizeof bits) memcpy(&bits, r->in + first, sizeof bits);
    else memcpy(&bits, r->in + first, left);
    return bits >> r->at % 8;
}

static bool get_gamma(bit_reader *r, uint32_t *n) {
    uint64_t bits = peek(r);
    int width = bits ? __builtin_ctzll(bits) : WIDTH_MAX + 1;
    if (width > WIDTH_MAX || r->end - r->at < (uint64_t)(2 * width + 1)) return false;
    *n = reversed((uint32_t)(bits >> width), width + 1);
    r->at += (uint64_t)(2 * width + 1);
    return true;
}

static bool get_bit(bit_reader *r, unsigned *bit) {
    if (r->at >= r->end) return false;
    *bit = r->in[r->at / 8] >> r->at % 8 & 1;
    r->at++;
    return true;
}

/* The worst case has no zeros: gamma(1), sign, gamma(levels) for each value. A zero in its place costs less. */
size_t gw_elias_bound(size_t count, int levels) {
    size_t each = 1 + 1 + 2 * (size_t)log2_floor((uint32_t)levels) + 1;
    return (count * each + 7) / 8;
}

/* Bit 8 i + 7 of the result: byte i is not 0. */
static uint64_t bytes_that_are_not_0(const int8_t *bytes) {
    const uint64_t low = UINT64_C(0x7f7f7f7f7f7f7f7f);
    uint64_t eight;
    memcpy(&eight, bytes, sizeof eight);
    return (((eight & low) + low) | eight) & ~low;
}

size_t gw_elias_write(const int8_t *level, size_t count, uint8_t *out) {
    bit_writer w = {.out = out};
    size_t next = 0, i = 0; /* the element after the last level written */
    for (; i + 8 <= count; i += 8) {
        for (uint64_t some = bytes_that_are_not_0(level + i); some; some &= some - 1) {
            size_t at = i + (size_t)__builtin_ctzll(some) / 8;
            put_level(&w, (uint32_t)(at - next), level[at]);
            next = at + 1;
        }
    }
    for (; i < count; i++) {
        if (level[i] == 0) continue;
        put_level(&w, (uint32_t)(i - next), level[i]);
        next = i + 1;
    }
    if (next < count) put_gamma(&w, (uint32_t)(count - next) + 1);
    put_rest(&w);
    return (size_t)(w.out - out);
}

bool gw_elias_read(const uint8_t *in, size_t bytes, int levels, int8_t *level, size_t count, size_t *used) {
    bit_reader r = {.in = in, .end = (uint64_t)bytes * 8};
    size_t i = 0;
    memset(level, 0, count);
    while (i < count) {
        uint32_t run, magnitude;
        unsigned negative;
        if (!get_gamma(&r, &run) || run - 1 > count - i) return false;
        i += run - 1;
        if (i == count) break;
        if (!get_bit(&r, &negative) || !get_gamma(&r, &magnitude) || magnitude > (uint32_t)levels) return false;
        level[i++] = (int8_t)(negative ? -(int)magnitude : (int)magnitude);
    }
    *used = (r.at + 7) / 8;
    return true;
}
