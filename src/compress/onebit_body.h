/* onebit_body.h - onebit_kernels.h, written once over vec16.h. The including file sets VECTOR_BYTES, the target and
 * TABLE (the name of the table of kernels). */
#include "compress/onebit_kernels.h"
#include "compress/vec16.h"

#define AHEAD GW_ONEBIT_BLOCK /* elements that are prefetched */

INLINE void fetch(const float *x) { _mm_prefetch((const char *)x, _MM_HINT_T0); }

/* Sums of squares and cubes, or of the values themselves. */
typedef struct sums {
    vec16 low, low2, low3, high, high2, high3;
} sums;

INLINE unsigned divide16(sums *s, vec16 value, vec16 t, bool weighted) {
    mask16 is_high = at_least16(value, t);
    vec16 above = sub16(value, t);
    if (weighted) {
        vec16 square = mul16(above, above), cube = mul16(square, above);
        s->low2 = add_unless16(s->low2, is_high, square);
        s->high2 = add_where16(s->high2, is_high, square);
        s->low3 = add_unless16(s->low3, is_high, cube);
        s->high3 = add_where16(s->high3, is_high, cube);
    } else {
        s->low = add_unless16(s->low, is_high, above);
        s->high = add_where16(s->high, is_high, above);
    }
    return bits16(is_high);
}

INLINE void keep_sums(const sums *from, size_t count, size_t highs, gw_onebit_sides *s) {
    store16(s->low.sum, from->low);
    store16(s->low.squares, from->low2);
    store16(s->low.cubes, from->low3);
    store16(s->high.sum, from->high);
    store16(s->high.squares, from->high2);
    store16(s->high.cubes, from->high3);
    s->high.count = highs;
    s->low.count = count - highs;
}

INLINE size_t divide_as(const float *x, size_t count, float threshold, bool weighted, uint8_t *bits,
                        gw_onebit_sides *s) {
    const vec16 zero = splat16(0), t = splat16(threshold);
    sums all = {zero, zero, zero, zero, zero, zero};
    size_t i = 0, highs = 0;
    for (; i + 16 <= count; i += 16) {
        fetch(x + i + AHEAD);
        unsigned mask = divide16(&all, load16(x + i), t, weighted);
        memcpy(bits + i / 8, &mask, 2);
        highs += (unsigned)__builtin_popcount(mask);
    }
    keep_sums(&all, i, highs, s);
    return i;
}

static size_t divide(const float *x, size_t count, float threshold, bool weighted, uint8_t *bits, gw_onebit_sides *s) {
    return weighted ? divide_as(x, count, threshold, true, bits, s) : divide_as(x, count, threshold, false, bits, s);
}

/* x + the value of its side; `bits` are those of the 16 elements. */
INLINE vec16 added16(const float *x, const uint8_t *bits, vec16 low, vec16 high) {
    uint16_t mask;
    memcpy(&mask, bits, sizeof mask);
    return add16(load16(x), blend16(mask_of16(mask), low, high));
}

static size_t add(gw_onebit_coded coded, size_t count, float *x) {
    const vec16 low = splat16(coded.low), high = splat16(coded.high);
    size_t i = 0;
    for (; i + 16 <= count; i += 16) store16(x + i, added16(x + i, coded.bits + i / 8, low, high));
    return i;
}

INLINE void take_off16(float *e, const uint8_t *bits, vec16 low, vec16 high, vec16 *squares) {
    vec16 x = finite16(added16(e, bits, low, high));
    store16(e, x);
    *squares = add16(*squares, mul16(x, x));
}

static size_t take_off(gw_onebit_coded coded, size_t count, float *e, float *lane) {
    const vec16 low = splat16(coded.low), high = splat16(coded.high);
    vec16 a = splat16(0), b = a;
    size_t i = 0;
    for (; i + 32 <= count; i += 32) {
        take_off16(e + i, coded.bits + i / 8, low, high, &a);
        take_off16(e + i + 16, coded.bits + i / 8 + 2, low, high, &b);
    }
    store16(lane, a);
    store16(lane + 16, b);
    return i;
}

INLINE vec16 sum16(float *e, const float *gradient) {
    fetch(gradient + AHEAD);
    fetch(e + AHEAD);
    vec16 sum = add16(load16(e), load16(gradient));
    store16(e, sum);
    return sum;
}

/* Both in one loop, so that memory is read all the time. */
static void turn(float *e, const float *gradient, uint8_t *bits, gw_onebit_sides *s, gw_onebit_coded before,
                 float *lane) {
    const vec16 zero = splat16(0), low = splat16(before.low), high = splat16(before.high);
    sums all = {zero, zero, zero, zero, zero, zero};
    vec16 a = zero, b = zero;
    size_t highs = 0;
    for (size_t i = 0; i < GW_ONEBIT_BLOCK; i += 32) {
        uint32_t mask = divide16(&all, sum16(e + i, gradient + i), zero, true);
        mask |= divide16(&all, sum16(e + i + 16, gradient + i + 16), zero, true) << 16;
        memcpy(bits + i / 8, &mask, sizeof mask);
        highs += (unsigned)__builtin_popcount(mask);
        take_off16(e + i - GW_ONEBIT_BLOCK, before.bits + i / 8, low, high, &a);
        take_off16(e + i + 16 - GW_ONEBIT_BLOCK, before.bits + i / 8 + 2, low, high, &b);
    }
    keep_sums(&all, GW_ONEBIT_BLOCK, highs, s);
    store16(lane, a);
    store16(lane + 16, b);
}

const gw_onebit_kernels TABLE = {.divide = divide, .add = add, .take_off = take_off, .turn = turn};
