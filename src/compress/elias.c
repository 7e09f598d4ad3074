/* elias.c - see elias.h. A gamma code is written and read as one number of up to 33 bits. */
#include "compress/elias.h"

#include <string.h>

#define WIDTH_MAX 16 /* runs go up to a block's length, levels to 127 */

typedef struct bit_writer {
    uint8_t *out;
    uint64_t held; /* bits not yet written, the first lowest */
    int count;     /* of them, below 8 between calls */
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

static void put(bit_writer *w, uint64_t bits, int count) {
    w->held |= bits << w->count;
    for (w->count += count; w->count >= 8; w->count -= 8) {
        *w->out++ = (uint8_t)w->held;
        w->held >>= 8;
    }
}

static void put_gamma(bit_writer *w, uint32_t n) {
    int width = log2_floor(n);
    put(w, (uint64_t)reversed(n, width + 1) << width, 2 * width + 1);
}

/* The next 40 bits or more; zeros beyond the end. */
static uint64_t peek(const bit_reader *r) {
    uint64_t first = r->at / 8, left = r->end / 8 - first, bits = 0;
    memcpy(&bits, r->in + first, left < sizeof bits ? left : sizeof bits);
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

size_t gw_elias_write(const int8_t *level, size_t count, uint8_t *out) {
    bit_writer w = {.out = out};
    uint32_t zeros = 0;
    for (size_t i = 0; i < count; i++) {
        if (level[i] == 0) {
            zeros++;
            continue;
        }
        put_gamma(&w, zeros + 1);
        put(&w, level[i] < 0, 1);
        put_gamma(&w, (uint32_t)(level[i] < 0 ? -level[i] : level[i]));
        zeros = 0;
    }
    if (zeros) put_gamma(&w, zeros + 1);
    put(&w, 0, -w.count & 7);
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
