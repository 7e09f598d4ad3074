/* codec.h - helpers that the files of this folder share: keys, blocks, bytes. */
#ifndef GW_COMPRESS_CODEC_H
#define GW_COMPRESS_CODEC_H

#include "compress/compress.h"
#include "compress/kernels.h"

#define GW_SPARSE_BLOCK 65536u /* elements among which the sparse codecs select, at most */

/* A magnitude below this is sent as zero by the quantisers: its reciprocal would overflow. */
#define GW_QUANT_TINY 0x1p-100f

/* Parameters that follow the own parameters of a codec in its table. FEEDBACK(default): which ranks keep a residual.
 * FORM: of all codecs but none. LIMIT, if payloads are not always reduced in flight: the limit of the accuracy guard.
 */
#define GW_CODEC_FORM                                                                                                  \
    {                                                                                                                  \
        .name = "form", .kind = GW_PARAM_CHOICE, .choices = GW_CHOICES("auto", "inflight", "onepass", "twopass"),      \
        .about = "how payloads become a sum"                                                                           \
    }
#define GW_CODEC_FEEDBACK(who)                                                                                         \
    {                                                                                                                  \
        .name = "feedback", .kind = GW_PARAM_CHOICE, .preset = (who), .choices = GW_CHOICES("none", "worker", "both"), \
        .about = "ranks that keep a residual"                                                                          \
    }
#define GW_CODEC_LIMIT                                                                                                 \
    {                                                                                                                  \
        .name = "limit", .kind = GW_PARAM_NUMBER, .highest = 1000,                                                     \
        .about = "relative error beyond which a tensor is sent exact, 0: never"                                        \
    }

/* doublesqueeze.c: not a codec itself, but another codec with feedback on both passes. */
extern const gw_technique gw_doublesqueeze;
gw_codec_setup gw_doublesqueeze_setup(const double *values);

/* The key of the random numbers of a tensor in a step. by_rank: every rank and pass draws its own numbers. */
uint64_t gw_codec_random_key(const gw_codec_call *call, const gw_codec_tensor *tensor, bool by_rank);

static inline uint64_t gw_blocks(uint64_t count, uint32_t block) { return (count + block - 1) / block; }

/* Elements of the block that starts at element `at` of a range of count. */
static inline size_t gw_block_length(uint64_t count, uint64_t at, uint32_t block) {
    return (size_t)(count - at < block ? count - at : block);
}

static inline void gw_put_f32(uint8_t *at, float x) { memcpy(at, &x, sizeof x); }

static inline float gw_get_f32(const uint8_t *at) {
    float x;
    memcpy(&x, at, sizeof x);
    return x;
}

/* state.c: floats of state.own that this setup needs. */
uint64_t gw_codec_state_own_count(const gw_codec_setup *setup, const gw_codec_state *state);

/* The error for a payload that does not have the only possible length. */
gw_status gw_codec_length_error(const gw_codec *codec, gw_codec_range range, size_t bytes, size_t expected,
                                gw_error *error);
/* The error for a payload whose content is invalid; `what` ends the sentence. */
gw_status gw_codec_payload_error(const gw_codec *codec, gw_codec_range range, const char *what, gw_error *error);

/* feedback.c: e += g, encode e, e -= decoded. report may be NULL. */
gw_status gw_feedback_encode(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range,
                             gw_codec_state *state, const float *gradient, void *payload, size_t capacity,
                             size_t *bytes, gw_codec_report *report, gw_error *error);
/* feedback.c: encodes without a residual, and measures the loss. */
gw_status gw_measured_encode(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range,
                             const float *gradient, void *payload, size_t capacity, size_t *bytes,
                             gw_codec_report *report, gw_error *error);

#endif
