/* qsgd.c - random rounding to a few levels (Alistarh, Grubic, Li, Tomioka, Vojnovic: "QSGD", NeurIPS 2017).
 * Unbiased.
 *
 * With s levels and a block's norm N, x becomes N/s * floor(s x/N + coin). Blocks of 512. Packed (1, 2, 4, 8 bits a
 * value; s = 1, 1, 7, 127) the norm is the largest magnitude, as in the paper's experiments; at one bit there is no
 * level 0: x becomes N with probability (1 + x/N)/2, else -N. Payload of a block: f32 N/s, then codes as in quant.h.
 *
 * elias: the norm is the 2-norm, most levels are zero, and they are coded as in the paper's theorem: runs of zeros,
 * signs and levels in Elias gamma (elias.h). Payload of a block: f32 N/s, then whole bytes of bits. It pays if s is
 * much smaller than sqrt(512).
 *
 * With feedback N/s is replaced by the unit that loses least (gw_quant_fit): that is biased, and does not diverge.
 *
 * Variance at most min(n/s^2, sqrt(n)/s) times the squared norm, n = 512. A block with a NaN or an infinity decodes to
 * NaN as a whole; a block whose norm is below 2^-100 decodes to zero. */
#include "compress/codec.h"
#include "compress/elias.h"
#include "compress/quant.h"

#include <math.h>

#define BLOCK 512u

enum { PARAM_BITS, PARAM_ELIAS };
static const gw_param params[] = {
    {.name = "bits", .about = "bits of a value, sign included", .kind = GW_PARAM_CHOICE, .preset = 2,
     .choices = GW_CHOICES("1", "2", "4", "8")},
    {.name = "elias", .about = "variable length codes", .kind = GW_PARAM_FLAG},
    GW_CODEC_FEEDBACK(GW_FEEDBACK_NONE),
    GW_CODEC_FORM,
    GW_CODEC_LIMIT,
    {.name = NULL},
};

static int bits_of(const gw_codec_setup *setup) { return 1 << (int)setup->value[PARAM_BITS]; }
static bool is_elias(const gw_codec_setup *setup) { return setup->value[PARAM_ELIAS] != 0; }

static size_t block_bound(const gw_codec_setup *setup, size_t count) {
    int bits = bits_of(setup);
    return sizeof(float) +
           (is_elias(setup) ? gw_elias_bound(count, gw_quant_levels(bits)) : gw_quant_bytes(bits, count));
}

static size_t bound(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range) {
    (void)call;
    size_t whole = range.count / BLOCK, rest = range.count % BLOCK;
    return whole * block_bound(setup, BLOCK) + (rest ? block_bound(setup, rest) : 0);
}

/* NaN where the block is not finite, 0 where it is too small to divide by. */
static float usable(float norm) {
    if (!isfinite(norm)) return NAN;
    return norm < GW_QUANT_TINY ? 0.0f : norm;
}

static size_t pack_block(int bits, bool fit, uint32_t peak, const float *x, size_t count, uint64_t key, uint64_t first,
                         uint8_t *out) {
    float norm = usable(gw_float_of_bits(peak)), levels = (float)gw_quant_levels(bits);
    size_t bytes = gw_quant_bytes(bits, count);
    uint8_t *codes = out + sizeof(float);
    float unit = norm / levels, limit = bits == 1 ? 0.5f : levels;
    if (norm > 0) gw_quant_pack(bits, x, count, limit / norm, limit, key, first, codes);
    else memset(codes, 0, bytes);
    gw_put_f32(out, fit ? gw_quant_fit_codes(bits, x, codes, count, unit) : unit);
    return sizeof(float) + bytes;
}

/* In f64 where a sum of squares in f32 would lose small values or overflow. */
static float norm_of(const float *x, size_t count) {
    double sum = gw_kernel_norm2(x, count);
    if (sum > 0x1p-60 && sum < 0x1p100) return (float)sqrt(sum);
    sum = 0;
    for (size_t i = 0; i < count; i++) sum += (double)x[i] * (double)x[i];
    return (float)sqrt(sum);
}

/* Between a code of 8 bits and its level as a number of 8 bits, both ways. */
static void turn_signs(uint8_t bytes[BLOCK]) {
    for (size_t i = 0; i < BLOCK; i += sizeof(uint64_t)) {
        uint64_t eight;
        memcpy(&eight, bytes + i, sizeof eight);
        eight ^= UINT64_C(0x8080808080808080);
        memcpy(bytes + i, &eight, sizeof eight);
    }
}

static size_t elias_block(int bits, bool fit, const float *x, size_t count, uint64_t key, uint64_t first,
                          uint8_t *out) {
    uint8_t level[BLOCK];
    float norm = usable(norm_of(x, count)), levels = (float)gw_quant_levels(bits), unit = norm / levels;
    memset(level, 0x80, sizeof level);
    if (norm > 0) gw_quant_pack(8, x, count, levels / norm, levels, key, first, level);
    gw_put_f32(out, fit ? gw_quant_fit_codes(8, x, level, count, unit) : unit);
    turn_signs(level);
    return sizeof(float) + gw_elias_write((int8_t *)level, count, out + sizeof(float));
}

/* The peak of the next block is found before a block is packed, so that packing does not wait for one. */
static uint8_t *pack(const gw_codec_setup *setup, uint64_t key, gw_codec_range range, const float *v, uint8_t *out) {
    uint32_t peak = gw_kernel_peak(v, gw_block_length(range.count, 0, BLOCK));
    for (uint64_t at = 0; at < range.count; at += BLOCK) {
        size_t length = gw_block_length(range.count, at, BLOCK), after = range.count - at - length;
        uint32_t next = gw_kernel_peak(v + at + length, after < BLOCK ? after : BLOCK);
        out += pack_block(bits_of(setup), gw_codec_residual(setup), peak, v + at, length, key, range.first + at, out);
        peak = next;
    }
    return out;
}

static gw_status encode(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range,
                        gw_codec_state *state, const float *v, void *payload, size_t capacity, size_t *bytes,
                        gw_error *error) {
    (void)state, (void)capacity, (void)error;
    uint64_t key = gw_codec_random_key(call, range.tensor, true);
    uint8_t *out = payload;
    if (!is_elias(setup)) out = pack(setup, key, range, v, out);
    for (uint64_t at = 0; is_elias(setup) && at < range.count; at += BLOCK) {
        size_t length = gw_block_length(range.count, at, BLOCK);
        out += elias_block(bits_of(setup), gw_codec_residual(setup), v + at, length, key, range.first + at, out);
    }
    *bytes = (size_t)(out - (uint8_t *)payload);
    return GW_OK;
}

static gw_status packed_decode_add(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range,
                                   const uint8_t *in, size_t bytes, float scale, float *sum, gw_error *error) {
    size_t expected = bound(setup, call, range);
    if (bytes != expected) return gw_codec_length_error(setup->codec, range, bytes, expected, error);
    int bits = bits_of(setup);
    for (uint64_t at = 0; at < range.count; at += BLOCK) {
        size_t length = gw_block_length(range.count, at, BLOCK);
        gw_quant_unpack_add(bits, in + sizeof(float), length, gw_get_f32(in) * scale, sum + at);
        in += sizeof(float) + gw_quant_bytes(bits, length);
    }
    return GW_OK;
}

/* Goes over all blocks; sum NULL: only checks. False: the payload makes no sense. */
static bool elias_pass(const gw_codec_setup *setup, gw_codec_range range, const uint8_t *in, size_t bytes, float scale,
                       float *sum) {
    int levels = gw_quant_levels(bits_of(setup));
    const uint8_t *end = in + bytes;
    for (uint64_t at = 0; at < range.count; at += BLOCK) {
        size_t length = gw_block_length(range.count, at, BLOCK), used;
        uint8_t level[BLOCK] = {0};
        if ((size_t)(end - in) < sizeof(float)) return false;
        float unit = gw_get_f32(in) * scale;
        in += sizeof(float);
        if (!gw_elias_read(in, (size_t)(end - in), levels, (int8_t *)level, length, &used)) return false;
        in += used;
        if (!sum) continue;
        turn_signs(level);
        gw_quant_unpack_add(8, level, length, unit, sum + at);
    }
    return in == end;
}

static gw_status decode_add(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range,
                            const void *payload, size_t bytes, float scale, float *sum, gw_error *error) {
    if (!is_elias(setup)) return packed_decode_add(setup, call, range, payload, bytes, scale, sum, error);
    if (!elias_pass(setup, range, payload, bytes, scale, NULL)) {
        return gw_codec_payload_error(setup->codec, range, "is cut short, too long or not Elias coded", error);
    }
    elias_pass(setup, range, payload, bytes, scale, sum);
    return GW_OK;
}

const gw_codec gw_codec_qsgd = {
    .technique = {.name = "qsgd", .about = "random rounding to 1, 2, 4 or 8 bits, unbiased", .params = params,
                  .examples = GW_CHOICES("bits=1", "bits=2", "bits=4", "bits=8", "bits=2,elias")},
    .encode_rate = 10.6e9,
    .decode_rate = 21e9,
    .trusted = {.error = 0.6, .aligned = 0.88},
    .unbiased = true,
    .block = BLOCK,
    .bound = bound,
    .encode = encode,
    .decode_add = decode_add,
};
