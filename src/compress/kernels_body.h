/* kernels_body.h - passes of kernels.h that also sum squares, written once over vec16.h. The including file sets
 * VECTOR_BYTES, the target and TABLE (the name of the table of kernels). */
#include "compress/vec16.h"

#define GROUP GW_KERNEL_NORM_LANES
#define AHEAD GW_KERNEL_AHEAD

/* Sums of squares of every 32nd element. */
typedef struct lanes32 {
    vec16 a, b;
} lanes32;

INLINE lanes32 lanes_load(const float *lane) { return (lanes32){load16(lane), load16(lane + 16)}; }

INLINE void lanes_store(lanes32 sums, float *lane) {
    store16(lane, sums.a);
    store16(lane + 16, sums.b);
}

INLINE void square32(lanes32 *sums, vec16 a, vec16 b) {
    sums->a = add16(sums->a, mul16(a, a));
    sums->b = add16(sums->b, mul16(b, b));
}

INLINE void put32(lanes32 *sums, float *x, vec16 a, vec16 b) {
    store16(x, a);
    store16(x + 16, b);
    square32(sums, a, b);
}

INLINE void fetch32(const float *x) {
    _mm_prefetch((const char *)x, _MM_HINT_T0);
    _mm_prefetch((const char *)(x + 16), _MM_HINT_T0);
}

static size_t norm2(float *lane, const float *x, size_t count) {
    lanes32 sums = lanes_load(lane);
    size_t i = 0;
    for (; i + GROUP <= count; i += GROUP) square32(&sums, load16(x + i), load16(x + i + 16));
    lanes_store(sums, lane);
    return i;
}

static size_t add(float *lane, float *e, const float *g, size_t count) {
    lanes32 sums = lanes_load(lane);
    size_t i = 0;
    for (; i + GROUP <= count; i += GROUP) {
        fetch32(g + i + AHEAD);
        fetch32(e + i + AHEAD);
        put32(&sums, e + i, add16(load16(e + i), load16(g + i)), add16(load16(e + i + 16), load16(g + i + 16)));
    }
    lanes_store(sums, lane);
    return i;
}

/* Without a branch: those where values are would be mispredicted. */
static size_t add_move(float *lane, float *e, const float *g, size_t count, size_t first, gw_kernel_list *list) {
    lanes32 sums = lanes_load(lane);
    size_t i = 0, found = list->count;
    const uint32_t least = list->least;
    for (; i + GROUP <= count; i += GROUP) {
        fetch32(g + i + AHEAD);
        fetch32(e + i + AHEAD);
        vec16 a = add16(load16(e + i), load16(g + i)), b = add16(load16(e + i + 16), load16(g + i + 16));
        mask16 in_a = reaches16(a, least), in_b = reaches16(b, least);
        store16(e + i, unless16(in_a, a));
        store16(e + i + 16, unless16(in_b, b));
        square32(&sums, a, b);
        found += compress16(a, in_a, first + i, list->index + found, list->value + found);
        found += compress16(b, in_b, first + i + 16, list->index + found, list->value + found);
    }
    list->count = found;
    lanes_store(sums, lane);
    return i;
}

static size_t sanitise(float *lane, float *e, size_t count) {
    lanes32 sums = lanes_load(lane);
    size_t i = 0;
    for (; i + GROUP <= count; i += GROUP) put32(&sums, e + i, finite16(load16(e + i)), finite16(load16(e + i + 16)));
    lanes_store(sums, lane);
    return i;
}

/* v after u = m*u + clip*g, v += u */
INLINE vec16 momentum16(float *u, const float *v, const float *g, vec16 m, vec16 clip) {
    vec16 sum = add16(mul16(m, load16(u)), mul16(clip, load16(g)));
    store16(u, sum);
    return add16(load16(v), sum);
}

static size_t momentum(float *lane, float *u, float *v, const float *g, float factor, float clip, size_t count) {
    lanes32 sums = lanes_load(lane);
    vec16 m = splat16(factor), c = splat16(clip);
    size_t i = 0;
    for (; i + GROUP <= count; i += GROUP) {
        fetch32(g + i + AHEAD);
        fetch32(u + i + AHEAD);
        fetch32(v + i + AHEAD);
        vec16 a = momentum16(u + i, v + i, g + i, m, c);
        put32(&sums, v + i, a, momentum16(u + i + 16, v + i + 16, g + i + 16, m, c));
    }
    lanes_store(sums, lane);
    return i;
}

const gw_kernels TABLE = {
    .norm2 = norm2, .add = add, .add_move = add_move, .sanitise = sanitise, .momentum = momentum};
