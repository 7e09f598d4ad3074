/* none.c - values as they are, 4 bytes each. Exact; reduced in flight by addition. NaN and infinities arrive unchanged.
 */
#include "compress/codec.h"

static size_t bound(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range) {
    (void)setup, (void)call;
    return range.count * sizeof(float);
}

static gw_status encode(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range,
                        gw_codec_state *state, const float *v, void *payload, size_t capacity, size_t *bytes,
                        gw_error *error) {
    (void)state, (void)capacity, (void)error;
    *bytes = bound(setup, call, range);
    memcpy(payload, v, *bytes);
    return GW_OK;
}

static gw_status decode_add(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range,
                            const void *payload, size_t bytes, float scale, float *sum, gw_error *error) {
    size_t expected = bound(setup, call, range);
    if (bytes != expected) return gw_codec_length_error(setup->codec, range, bytes, expected, error);
    gw_kernel_axpy(sum, payload, scale, range.count);
    return GW_OK;
}

static void merge(const gw_codec_setup *setup, const gw_codec_call *call, void *into, const void *from, size_t bytes) {
    (void)setup, (void)call;
    gw_kernel_axpy(into, from, 1.0f, bytes / sizeof(float));
}

const gw_codec gw_codec_none = {
    .technique = {.name = "none", .about = "values are sent unchanged"},
    .identity = true,
    .significand = 24,
    .encode_rate = 18e9,
    .decode_rate = 16e9,
    .block = 1,
    .merge_unit = sizeof(float),
    .bound = bound,
    .encode = encode,
    .decode_add = decode_add,
    .merge = merge,
};
