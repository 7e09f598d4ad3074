/* elias.c - see elias.h. */
#include "compress/elias.h"

#include <string.h>

typedef struct bit_writer {
    uint8_t *out;
    uint64_t at; /* bit */
} bit_writer;

typedef struct bit_reader {
    const uint8_t *in;
    uint64_t at, end; /* bits */
} bit_reader;

static int log2_floor(uint32_t n) { return 31 - __builtin_clz(n); }

static void put_bit(bit_writer *w, unsigned bit) {
    if (w->at % 8 == 0) w->out[w->at / 8] = 0;
    w->out[w->at / 8] |= (uint8_t)(bit << w->at % 8);
    w->at++;
}

static void put_gamma(bit_writer *w, uint32_t n) {
    int width = log2_floor(n);
    for (int i = 0; i < width; i++) put_bit(w, 0);
    for (int i = width; i >= 0; i--) put_bit(w, n >> i & 1);
}

static bool get_bit(bit_reader *r, unsigned *bit) {
    if (r->at >= r->end) return false;
    *bit = r->in[r->at / 8] >> r->at % 8 & 1;
    r->at++;
    return true;
}

static bool get_gamma(bit_reader *r, uint32_t *n) {
    unsigned bit = 0;
    int width = 0;
    while (get_bit(r, &bit) && !bit) {
        if (++width > 16) return false;
    }
    uint32_t value = 1;
    for (int i = 0; i < width; i++) {
        if (!get_bit(r, &bit)) return false;
        value = value << 1 | bit;
    }
    *n = value;
    return bit || width > 0; /* the first bit of a number is a one */
}

/* A value costs most where none is zero: gamma(1), sign, gamma(levels). Zeros instead of it cost less. */
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
        put_bit(&w, level[i] < 0);
        put_gamma(&w, (uint32_t)(level[i] < 0 ? -level[i] : level[i]));
        zeros = 0;
    }
    if (zeros) put_gamma(&w, zeros + 1);
    return (w.at + 7) / 8;
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
