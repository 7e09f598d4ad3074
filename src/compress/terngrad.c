/* terngrad.c - three levels (Wen et al.: "TernGrad", NeurIPS 2017): x becomes s * sign(x) with probability |x|/s,
 * else 0.
 *
 * s is the largest magnitude of each block of 2,048; before that values are cut to `clip` standard deviations of the
 * block (2.5 as in the paper; 0: not cut, which makes it unbiased). Payload of a block: f32 s, then two bits a value
 * as in quant.h (codes 1, 2, 3 for -1, 0, 1).
 *
 * shared: the ranks agree on the largest s of each block first, and then codes add up: reduced in flight. Round 0:
 * f32 s of each block, merged by the larger. Round 1: codes as two's complement numbers of 4 bits (up to 7 ranks) or
 * 8 (up to 127), merged by addition of each.
 *
 * With feedback s is replaced by the unit that loses least (gw_quant_fit); with shared, by s/2, because all ranks must
 * agree on it. Three levels at full size would lose more than the input, and residuals would grow.
 *
 * A block with a NaN or an infinity has s = NaN and decodes to NaN as a whole (shared: on every rank); a block whose s
 * is below 2^-100 decodes to zero. */
#include "base/cpu.h"
#include "compress/codec.h"
#include "compress/quant.h"

#include <math.h>

#define BLOCK 2048u
#define LANES 32

enum { PARAM_CLIP, PARAM_SHARED };
static const gw_param params[] = {
    {.name = "clip", .about = "standard deviations, 0: off", .kind = GW_PARAM_NUMBER, .preset = 2.5, .highest = 1000},
    {.name = "shared", .about = "one scale for all ranks, reduced in flight", .kind = GW_PARAM_FLAG},
    GW_CODEC_FEEDBACK(GW_FEEDBACK_NONE),
    GW_CODEC_FORM,
    GW_CODEC_LIMIT,
    {.name = NULL},
};

static bool is_shared(const gw_codec_setup *setup) { return setup->value[PARAM_SHARED] != 0; }
static uint32_t rounds(const gw_codec_setup *setup) { return is_shared(setup) ? 2 : 1; }

static int code_bits(const gw_codec_setup *setup, uint32_t world) {
    if (!is_shared(setup)) return 2;
    return world <= 7 ? 4 : 8;
}

static const char *refuses(const gw_codec_setup *setup, const gw_codec_tensor *tensor, uint32_t world) {
    (void)tensor;
    return is_shared(setup) && world > 127 ? "adds up in 8 bits, so for at most 127 ranks" : NULL;
}

static size_t bound(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range) {
    size_t scales = gw_blocks(range.count, BLOCK) * sizeof(float);
    size_t codes = gw_quant_bytes(code_bits(setup, call->world), range.count);
    if (!is_shared(setup)) return scales + codes;
    return call->round == 0 ? scales : codes;
}

/* What one pass over a block learns: the largest |x| as bits; sum and sum of squares in lanes, the lane of a value
 * being its number modulo LANES. */
typedef struct moments {
    float sum[LANES], square[LANES];
    uint32_t peak;
} moments;

static void moments_plain(const float *x, size_t from, size_t count, moments *m) {
    for (size_t i = from; i < count; i++) {
        uint32_t bits = gw_magnitude_bits(x[i]);
        m->sum[i % LANES] += x[i];
        m->square[i % LANES] += x[i] * x[i];
        if (bits > m->peak) m->peak = bits;
    }
}

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2")))

/* Of 8 values; the absolute values of floats are ordered as integers are. */
typedef struct moments8 {
    __m256 sum, square;
    __m256i peak;
} moments8;

AVX2 static inline void learn8(moments8 *m, __m256 x) {
    m->sum = _mm256_add_ps(m->sum, x);
    m->square = _mm256_add_ps(m->square, _mm256_mul_ps(x, x));
    m->peak = _mm256_max_epi32(m->peak, _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7fffffff)));
}

AVX2 static size_t moments_avx2(const float *x, size_t count, moments *m) {
    moments8 a = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_si256()}, b = a, c = a, d = a;
    uint32_t peaks[8];
    size_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        learn8(&a, _mm256_loadu_ps(x + i));
        learn8(&b, _mm256_loadu_ps(x + i + 8));
        learn8(&c, _mm256_loadu_ps(x + i + 16));
        learn8(&d, _mm256_loadu_ps(x + i + 24));
    }
    const moments8 *const parts[] = {&a, &b, &c, &d};
    for (int p = 0; p < 4; p++) {
        _mm256_storeu_ps(m->sum + 8 * p, parts[p]->sum);
        _mm256_storeu_ps(m->square + 8 * p, parts[p]->square);
        _mm256_storeu_si256((__m256i *)peaks, parts[p]->peak);
        for (int lane = 0; lane < 8; lane++) m->peak = peaks[lane] > m->peak ? peaks[lane] : m->peak;
    }
    return i;
}
#endif

/* Standard deviation; not finite where squares overflow: then nothing is cut. */
static float deviation(const moments *m, size_t count) {
    double sum = 0, square = 0;
    for (int i = 0; i < LANES; i++) {
        sum += (double)m->sum[i];
        square += (double)m->square[i];
    }
    double mean = sum / (double)count, variance = square / (double)count - mean * mean;
    return (float)sqrt(variance > 0 ? variance : 0);
}

static float scale_of(const float *x, size_t count, double clip) {
    moments m = {.peak = 0};
    size_t done = 0;
#if defined(__x86_64__)
    if (gw_cpu() >= GW_CPU_AVX2) done = moments_avx2(x, count, &m);
#endif
    moments_plain(x, done, count, &m);
    float largest = gw_float_of_bits(m.peak);
    if (m.peak >= GW_INFINITY_BITS) return NAN;
    if (largest < GW_QUANT_TINY) return 0.0f;
    if (clip == 0) return largest;
    float cut = (float)clip * deviation(&m, count);
    return cut < largest && cut >= GW_QUANT_TINY ? cut : largest; /* all equal: no deviation, nothing to cut */
}

/* All codes are 0 where the scale is 0. The packer clips values above the scale. */
static void codes_of(int bits, const float *x, size_t count, float scale, uint64_t key, uint64_t first, uint8_t *out) {
    bool usable = isfinite(scale) && scale >= GW_QUANT_TINY;
    gw_quant_pack(bits, x, count, usable ? 1.0f / scale : 0.0f, 1.0f, key, first, out);
}

static size_t encode_alone(const gw_codec_setup *setup, uint64_t key, gw_codec_range range, const float *v,
                           uint8_t *payload) {
    uint8_t *out = payload;
    for (uint64_t at = 0; at < range.count; at += BLOCK) {
        size_t length = gw_block_length(range.count, at, BLOCK);
        float scale = scale_of(v + at, length, setup->value[PARAM_CLIP]);
        uint8_t *codes = out + sizeof(float);
        codes_of(2, v + at, length, scale, key, range.first + at, codes);
        if (gw_codec_residual(setup)) scale = gw_quant_fit_codes(2, v + at, codes, length, scale);
        gw_put_f32(out, scale);
        out += sizeof(float) + gw_quant_bytes(2, length);
    }
    return (size_t)(out - payload);
}

static size_t encode_scales(const gw_codec_setup *setup, gw_codec_range range, const float *v, uint8_t *payload) {
    uint8_t *out = payload;
    for (uint64_t at = 0; at < range.count; at += BLOCK, out += sizeof(float)) {
        gw_put_f32(out, scale_of(v + at, gw_block_length(range.count, at, BLOCK), setup->value[PARAM_CLIP]));
    }
    return (size_t)(out - payload);
}

/* The sign bits of the codes in a byte. A code with an offset and a two's complement number differ only in this bit. */
static uint8_t sign_bits(int bits) { return bits == 4 ? 0x88 : 0x80; }

#define EIGHT(byte) (UINT64_C(0x0101010101010101) * (byte))

/* May work in place. */
static void turn_signs(const uint8_t *from, size_t bytes, uint8_t signs, uint8_t *to) {
    size_t i = 0;
    for (uint64_t eight; i + sizeof eight <= bytes; i += sizeof eight) {
        memcpy(&eight, from + i, sizeof eight);
        eight ^= EIGHT(signs);
        memcpy(to + i, &eight, sizeof eight);
    }
    for (; i < bytes; i++) to[i] = from[i] ^ signs;
}

static size_t encode_shared(const gw_codec_call *call, int bits, uint64_t key, gw_codec_range range, const float *v,
                            uint8_t *payload) {
    const uint8_t *scales = call->reduced;
    uint8_t *out = payload;
    for (uint64_t at = 0; at < range.count; at += BLOCK, scales += sizeof(float)) {
        size_t length = gw_block_length(range.count, at, BLOCK), bytes = gw_quant_bytes(bits, length);
        codes_of(bits, v + at, length, gw_get_f32(scales), key, range.first + at, out);
        turn_signs(out, bytes, sign_bits(bits), out);
        out += bytes;
    }
    return (size_t)(out - payload);
}

static gw_status encode(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range,
                        gw_codec_state *state, const float *v, void *payload, size_t capacity, size_t *bytes,
                        gw_error *error) {
    (void)state, (void)capacity, (void)error;
    uint64_t key = gw_codec_random_key(call, range.tensor, true);
    if (!is_shared(setup)) *bytes = encode_alone(setup, key, range, v, payload);
    else if (call->round == 0) *bytes = encode_scales(setup, range, v, payload);
    else *bytes = encode_shared(call, code_bits(setup, call->world), key, range, v, payload);
    return GW_OK;
}

static void decode_shared(const gw_codec_call *call, int bits, gw_codec_range range, const uint8_t *in, float scale,
                          float *sum) {
    const uint8_t *scales = call->reduced;
    uint8_t codes[BLOCK];
    for (uint64_t at = 0; at < range.count; at += BLOCK, scales += sizeof(float)) {
        size_t length = gw_block_length(range.count, at, BLOCK), bytes = gw_quant_bytes(bits, length);
        turn_signs(in, bytes, sign_bits(bits), codes);
        gw_quant_unpack_add(bits, codes, length, gw_get_f32(scales) * scale, sum + at);
        in += bytes;
    }
}

static gw_status decode_add(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range,
                            const void *payload, size_t bytes, float scale, float *sum, gw_error *error) {
    size_t expected = bound(setup, call, range);
    if (bytes != expected) return gw_codec_length_error(setup->codec, range, bytes, expected, error);
    const uint8_t *in = payload;
    if (is_shared(setup)) {
        float shrunk = gw_codec_residual(setup) ? scale / 2 : scale;
        decode_shared(call, code_bits(setup, call->world), range, in, shrunk, sum);
        return GW_OK;
    }
    for (uint64_t at = 0; at < range.count; at += BLOCK) {
        size_t length = gw_block_length(range.count, at, BLOCK);
        gw_quant_unpack_add(2, in + sizeof(float), length, gw_get_f32(in) * scale, sum + at);
        in += sizeof(float) + gw_quant_bytes(2, length);
    }
    return GW_OK;
}

/* Magnitudes as bits, so a NaN beats everything. */
static void merge_scales(uint8_t *into, const uint8_t *from, size_t bytes) {
    for (size_t i = 0; i < bytes; i += sizeof(float)) {
        if (gw_magnitude_bits(gw_get_f32(from + i)) > gw_magnitude_bits(gw_get_f32(into + i))) {
            memcpy(into + i, from + i, sizeof(float));
        }
    }
}

/* Adds numbers of 4 or 8 bits side by side: without their sign bits no carry leaves a number. */
static void merge_codes(uint8_t *into, const uint8_t *from, size_t bytes, uint8_t signs) {
    uint64_t sign = EIGHT(signs);
    size_t i = 0;
    for (; i + sizeof sign <= bytes; i += sizeof sign) {
        uint64_t a, b;
        memcpy(&a, into + i, sizeof a);
        memcpy(&b, from + i, sizeof b);
        a = ((a & ~sign) + (b & ~sign)) ^ ((a ^ b) & sign);
        memcpy(into + i, &a, sizeof a);
    }
    for (; i < bytes; i++)
        into[i] = (uint8_t)(((into[i] & ~signs) + (from[i] & ~signs)) ^ ((into[i] ^ from[i]) & signs));
}

static void merge(const gw_codec_setup *setup, const gw_codec_call *call, void *into, const void *from, size_t bytes) {
    if (call->round == 0) merge_scales(into, from, bytes);
    else merge_codes(into, from, bytes, sign_bits(code_bits(setup, call->world)));
}

static unsigned needs(const gw_codec_setup *setup) { return is_shared(setup) ? GW_NEEDS_SAME_STEP : 0; }

/* An owner encodes the sum with its own scale, since nothing is added to that payload. */
static gw_codec_setup second(const gw_codec_setup *first) {
    gw_codec_setup alone = *first;
    alone.value[PARAM_SHARED] = 0;
    return alone;
}

const gw_codec gw_codec_terngrad = {
    .technique = {.name = "terngrad",
                  .about = "three levels, two bits a value, unbiased without clipping",
                  .params = params,
                  .examples = GW_CHOICES("", "clip=0", "shared")},
    .encode_rate = 10.4e9,
    .decode_rate = 21e9,
    .trusted = {.error = 1.4, .aligned = 0.5},
    .unbiased = true,
    .block = BLOCK,
    .merge_unit = sizeof(float),
    .refuses = refuses,
    .second = second,
    .rounds = rounds,
    .needs = needs,
    .bound = bound,
    .encode = encode,
    .decode_add = decode_add,
    .merge = merge,
    .merges = is_shared,
};
