/* sparse.c - see sparse.h: writing and reading of sparse payloads. */
#include "compress/sparse.h"

#include "base/cpu.h"

/* Of tensors that are sliced: a stripe of an owner (arch/owners.c), and the smallest slice (schedule/schedule.h). */
#define SLICED_BLOCK_MIN 4096u

static size_t put_gap(uint8_t *at, uint32_t gap) {
    size_t bytes = 0;
    for (; gap >= 128; gap >>= 7) at[bytes++] = (uint8_t)(gap | 128);
    at[bytes++] = (uint8_t)gap;
    return bytes;
}

/* Of a valid payload, where values follow. Without a branch for gaps of one byte and of two, which are mixed. */
static inline uint32_t get_gap(const uint8_t **at) {
    const uint8_t *byte = *at;
    uint32_t more = byte[0] >> 7, gap = (byte[0] & 127u) | ((byte[1] & 127u & (0u - more)) << 7);
    if (more & byte[1] >> 7) gap |= (uint32_t)byte[++more] << 14;
    *at = byte + 1 + more;
    return gap;
}

static void put_count(uint8_t *at, size_t count) {
    for (int i = 0; i < 3; i++) at[i] = (uint8_t)(count >> 8 * i);
}

static size_t get_count(const uint8_t *at) { return (size_t)at[0] | (size_t)at[1] << 8 | (size_t)at[2] << 16; }

/* Gaps add up to less than a block: at most 511 of them take a second byte and 3 a third. */
size_t gw_sparse_bound(size_t count, size_t k) {
    if (k > count) k = count;
    return GW_SPARSE_HEAD + k * (sizeof(float) + 1) + (k < 511 ? k : 511) + (k < 3 ? k : 3);
}

/* A payload being written: gaps grow upwards from the head, and there must be room for as many values after them. */
typedef struct sparse_writer {
    const float *x;
    uint8_t *out;
    size_t capacity, at; /* bytes */
    size_t written;      /* values */
    uint32_t next;       /* the element after the last one written */
    uint32_t above;
    size_t ties; /* still to be written */
} sparse_writer;

/* False: no more fits. */
static bool offer(sparse_writer *w, uint32_t index) {
    if (gw_rank_bits(w->x[index]) == w->above) {
        if (w->ties == 0) return true;
        w->ties--;
    }
    uint8_t gap[4];
    size_t bytes = put_gap(gap, index - w->next);
    if (w->at + bytes + (w->written + 1) * sizeof(float) > w->capacity) return false;
    memcpy(w->out + w->at, gap, bytes);
    w->at += bytes;
    w->written++;
    w->next = index + 1;
    return true;
}

static bool scan_plain(sparse_writer *w, size_t from, size_t count) {
    for (size_t i = from; i < count; i++) {
        if (gw_rank_bits(w->x[i]) >= w->above && !offer(w, (uint32_t)i)) return false;
    }
    return true;
}

#if defined(__x86_64__)
#include <immintrin.h>

/* A bit for each of 8 elements: 1 if it is at or above the threshold. */
__attribute__((target("avx2"))) static inline unsigned hits8(const float *x, __m256i below) {
    __m256i bits = _mm256_and_si256(_mm256_loadu_si256((const __m256i *)x), _mm256_set1_epi32(0x7fffffff));
    return (unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpgt_epi32(bits, below)));
}

/* Most runs of 32 have no hit, and cost four comparisons. SIZE_MAX: no more fits. */
__attribute__((target("avx2"))) static size_t scan_avx2(sparse_writer *w, size_t count) {
    const __m256i below = _mm256_set1_epi32((int)w->above - 1);
    size_t i = 0;
    for (; i + 32 <= count; i += 32) {
        uint32_t hits = hits8(w->x + i, below) | hits8(w->x + i + 8, below) << 8 | hits8(w->x + i + 16, below) << 16 |
                        hits8(w->x + i + 24, below) << 24;
        for (; hits; hits &= hits - 1) {
            if (!offer(w, (uint32_t)i + (uint32_t)__builtin_ctz(hits))) return SIZE_MAX;
        }
    }
    return i;
}
#endif

static void scan(sparse_writer *w, size_t count) {
    size_t done = 0;
#if defined(__x86_64__)
    if (gw_cpu() >= GW_CPU_AVX2) done = scan_avx2(w, count);
#endif
    if (done != SIZE_MAX) scan_plain(w, done, count);
}

/* As put_gap, without a branch for gaps of one byte and of two; writes a byte beyond. */
static inline size_t put_gap_quickly(uint8_t *at, uint32_t gap) {
    if (gap >= 1u << 14) return put_gap(at, gap);
    uint32_t more = gap >= 128;
    uint16_t two = (uint16_t)((gap & 127) | more << 7 | gap >> 7 << 8);
    memcpy(at, &two, sizeof two);
    return 1 + more;
}

/* Needs the capacity of the longest payload of such a list. */
static size_t write_list(const gw_selection *s, uint8_t *out) {
    size_t at = GW_SPARSE_HEAD;
    uint32_t next = 0;
    for (size_t i = 0; i < s->list_count; i++) {
        at += put_gap_quickly(out + at, s->list[i] - next);
        next = s->list[i] + 1u;
    }
    put_count(out, s->list_count);
    memcpy(out + at, s->value, s->list_count * sizeof(float));
    return at + s->list_count * sizeof(float);
}

static size_t finish(const sparse_writer *w) {
    put_count(w->out, w->written);
    const uint8_t *gap = w->out + GW_SPARSE_HEAD;
    uint8_t *values = w->out + w->at;
    uint32_t index = 0;
    for (size_t i = 0; i < w->written; i++, index++) {
        index += get_gap(&gap);
        gw_put_f32(values + i * sizeof(float), w->x[index]);
    }
    return w->at + w->written * sizeof(float);
}

size_t gw_sparse_write(const float *x, size_t count, const gw_selection *selection, uint8_t *out, size_t capacity) {
    if (selection->listed && gw_sparse_bound(count, selection->list_count) <= capacity)
        return write_list(selection, out);
    sparse_writer w = {.x = x,
                       .out = out,
                       .capacity = capacity,
                       .at = GW_SPARSE_HEAD,
                       .above = selection->listed ? 0 : selection->above,
                       .ties = selection->listed ? count : selection->ties};
    if (!selection->listed) scan(&w, count);
    for (size_t i = 0; selection->listed && i < selection->list_count; i++)
        if (!offer(&w, selection->list[i])) break;
    return finish(&w);
}

uint32_t gw_sparse_sliced_block(double ratio) {
    uint32_t block = SLICED_BLOCK_MIN;
    while (block < GW_SPARSE_BLOCK && ratio * block < 1) block *= 2;
    return block;
}

size_t gw_sparse_range_bound(const gw_codec_setup *setup, gw_codec_range range, double ratio) {
    uint32_t block = gw_codec_block(setup);
    size_t whole = range.count / block, rest = range.count % block;
    size_t each = gw_sparse_bound(block, gw_sparse_k(ratio, block));
    return whole * each + (rest ? gw_sparse_bound(rest, gw_sparse_k(ratio, rest)) : 0);
}

size_t gw_sparse_encode(const gw_codec_setup *setup, gw_codec_range range, double ratio, const float *v,
                        uint8_t *payload, size_t capacity) {
    uint32_t block = gw_codec_block(setup), peaks[GW_PEAKS];
    size_t used = 0;
    for (uint64_t at = 0; at < range.count; at += block) {
        size_t length = gw_block_length(range.count, at, block);
        gw_selection selection;
        gw_kernel_peaks32(v + at, length, peaks);
        gw_select_largest(v + at, length, peaks, gw_sparse_k(ratio, length), &selection);
        used += gw_sparse_write(v + at, length, &selection, payload + used,
                                gw_sparse_room(setup, range, at + length, capacity - used));
    }
    return used;
}

/* The length of the block at the start of `bytes` bytes; 0: it is invalid. */
static size_t checked_block(const uint8_t *in, size_t bytes, size_t count) {
    if (bytes < GW_SPARSE_HEAD) return 0;
    size_t values = get_count(in), at = GW_SPARSE_HEAD, index = 0;
    if (values > count) return 0;
    for (size_t i = 0; i < values; i++, index++) {
        size_t gap = 0;
        int shift = 0;
        do {
            if (at >= bytes || shift > 14) return 0;
            gap |= (size_t)(in[at] & 127) << shift;
            shift += 7;
        } while (in[at++] & 128);
        index += gap;
        if (index >= count) return 0;
    }
    if (bytes - at < values * sizeof(float)) return 0;
    return at + values * sizeof(float);
}

static bool checked(uint32_t block, gw_codec_range range, const uint8_t *in, size_t bytes) {
    for (uint64_t at = 0; at < range.count; at += block) {
        size_t used = checked_block(in, bytes, gw_block_length(range.count, at, block));
        if (used == 0) return false;
        in += used;
        bytes -= used;
    }
    return bytes == 0;
}

/* Where the values of a checked block begin. A gap ends with a byte below 128; eight bytes at a time. */
static const uint8_t *values_of(const uint8_t *block) {
    size_t count = get_count(block);
    const uint8_t *at = block + GW_SPARSE_HEAD;
    for (uint64_t eight; count >= sizeof eight; at += sizeof eight) {
        memcpy(&eight, at, sizeof eight);
        count -= ((~eight >> 7 & UINT64_C(0x0101010101010101)) * UINT64_C(0x0101010101010101)) >> 56;
    }
    for (; count; at++) count -= *at < 128;
    return at;
}

static const uint8_t *add_block(const uint8_t *in, float scale, float *sum) {
    size_t count = get_count(in);
    const uint8_t *gap = in + GW_SPARSE_HEAD, *values = values_of(in);
    for (size_t i = 0, index = 0; i < count; i++, index++) {
        index += get_gap(&gap);
        sum[index] += scale * gw_get_f32(values + i * sizeof(float));
    }
    return values + count * sizeof(float);
}

gw_status gw_sparse_decode_add(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range,
                               const void *payload, size_t bytes, float scale, float *sum, gw_error *error) {
    (void)call;
    const uint8_t *in = payload;
    uint32_t block = gw_codec_block(setup);
    if (!checked(block, range, in, bytes)) {
        return gw_codec_payload_error(setup->codec, range, "is cut short, too long or points outside of its block",
                                      error);
    }
    for (uint64_t at = 0; at < range.count; at += block) in = add_block(in, scale, sum + at);
    return GW_OK;
}

double gw_sparse_clear(const gw_codec_setup *setup, gw_codec_range range, const void *payload, float *x) {
    const uint8_t *in = payload;
    uint32_t block = gw_codec_block(setup);
    double went = 0;
    for (uint64_t at = 0; at < range.count; at += block) {
        size_t count = get_count(in);
        const uint8_t *gap = in + GW_SPARSE_HEAD;
        in = values_of(in) + count * sizeof(float);
        for (size_t i = 0, index = 0; i < count; i++, index++) {
            index += get_gap(&gap);
            went += (double)x[at + index] * (double)x[at + index];
            x[at + index] = 0.0f;
        }
    }
    return went;
}

/* Sums of f32 are exact to a millionth of the input. */
double gw_sparse_take_off(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range,
                          gw_codec_state *state, const void *payload, double norm2) {
    (void)call;
    double left = norm2 - gw_sparse_clear(setup, range, payload, gw_codec_residual_at(state, range.first));
    return left < 0 ? 0 : left;
}
