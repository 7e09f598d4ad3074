/* codec.c - the calls of compress.h: they check arguments once, and codecs rely on it. */
#include "compress/codec.h"

#include <inttypes.h>

static uint64_t mixed(uint64_t x) { /* the finaliser of splitmix64 (Steele, Lea, Flood 2014) */
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static uint64_t join(uint64_t hash, uint64_t next) {
    return mixed(hash + UINT64_C(0x9e3779b97f4a7c15) + mixed(next + UINT64_C(0x9e3779b97f4a7c15)));
}

uint64_t gw_codec_random_key(const gw_codec_call *call, const gw_codec_tensor *tensor, bool by_rank) {
    uint64_t key = join(join(join(0, call->seed), call->step), tensor->key);
    if (by_rank) key = join(key, (uint64_t)call->pass << 32 | call->rank);
    return key;
}

gw_codec_tensor gw_codec_tensor_make(const char *name, uint64_t rows, uint64_t cols) {
    uint64_t key = UINT64_C(0xcbf29ce484222325); /* FNV-1a, then mixed */
    for (const char *c = name; *c; c++) key = (key ^ (uint8_t)*c) * UINT64_C(0x100000001b3);
    return (gw_codec_tensor){.name = name, .key = mixed(key), .count = rows * cols, .rows = rows, .cols = cols};
}

gw_codec_range gw_codec_whole(const gw_codec_tensor *tensor) {
    return (gw_codec_range){.tensor = tensor, .first = 0, .count = tensor->count};
}

gw_status gw_codec_length_error(const gw_codec *codec, gw_codec_range range, size_t bytes, size_t expected,
                                gw_error *error) {
    return gw_fail(error, GW_PROTOCOL,
                   "tensor %s: a %s payload for elements %" PRIu64 " to %" PRIu64 " has %zu bytes instead of %zu",
                   range.tensor->name, codec->technique.name, range.first, range.first + range.count, bytes, expected);
}

gw_status gw_codec_payload_error(const gw_codec *codec, gw_codec_range range, const char *what, gw_error *error) {
    return gw_fail(error, GW_PROTOCOL, "tensor %s: a %s payload for elements %" PRIu64 " to %" PRIu64 " %s",
                   range.tensor->name, codec->technique.name, range.first, range.first + range.count, what);
}

static gw_status check_range(const gw_codec_setup *setup, gw_codec_range range, gw_error *error) {
    uint64_t end = range.first + range.count, total = range.tensor->count;
    uint32_t block = gw_codec_block(setup);
    bool inside = end >= range.first && end <= total;
    bool aligned = block ? range.first % block == 0 && (end == total || end % block == 0) : range.count == total;
    if (inside && aligned) return GW_OK;
    return gw_fail(error, GW_INVALID,
                   "tensor %s of %" PRIu64 " elements: %s cannot work on elements %" PRIu64 " to %" PRIu64
                   ": cut at multiples of %" PRIu32 " (0: not at all)",
                   range.tensor->name, total, setup->codec->technique.name, range.first, end, block);
}

static gw_status check_state(const gw_codec_setup *setup, gw_codec_range range, const gw_codec_state *state,
                             gw_error *error) {
    if (!gw_codec_stateful(setup)) return GW_OK;
    bool fits = state && state->tensor.key == range.tensor->key &&
                gw_stripes_cover(&state->covers, range.first, range.count) &&
                (state->residual || !gw_codec_residual(setup) || range.count == 0) &&
                state->own_count == gw_codec_state_own_count(setup, state);
    if (fits) return GW_OK;
    return gw_fail(error, GW_INVALID, "tensor %s: %s needs the state that was made for it", range.tensor->name,
                   setup->codec->technique.name);
}

static gw_status check_capacity(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range,
                                size_t capacity, gw_error *error) {
    const gw_codec *codec = setup->codec;
    size_t needed = codec->least ? codec->least * gw_blocks(range.count, gw_codec_block(setup))
                                 : gw_codec_bound(setup, call, range);
    if (capacity >= needed) return GW_OK;
    return gw_fail(error, GW_INVALID, "tensor %s: %s needs %zu bytes for %" PRIu64 " elements, and has %zu",
                   range.tensor->name, codec->technique.name, needed, range.count, capacity);
}

static gw_status check_round(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range,
                             gw_error *error) {
    if (call->round >= gw_codec_rounds(setup)) {
        return gw_fail(error, GW_INVALID, "tensor %s: %s has no round %" PRIu32, range.tensor->name,
                       setup->codec->technique.name, call->round);
    }
    if (call->round == 0) return GW_OK;
    gw_codec_call before = *call;
    before.round--;
    size_t expected = gw_codec_bound(setup, &before, range);
    if (call->reduced && call->reduced_bytes == expected) return GW_OK;
    return gw_codec_length_error(setup->codec, range, call->reduced ? call->reduced_bytes : 0, expected, error);
}

void gw_codec_prepare(const gw_codec_setup *setup, gw_codec_call *call, const gw_codec_tensor *tensor,
                      gw_codec_state *state, const float *gradient) {
    call->clip = 1;
    if (setup->codec->prepare) setup->codec->prepare(setup, call, tensor, state, gradient);
    if (state && state->born == UINT64_MAX) state->born = call->step;
}

size_t gw_codec_bound(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range) {
    return setup->codec->bound(setup, call, range);
}

gw_status gw_codec_encode(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range,
                          gw_codec_state *state, const float *gradient, void *payload, size_t capacity, size_t *bytes,
                          gw_codec_report *report, gw_error *error) {
    *bytes = 0;
    gw_status status = check_range(setup, range, error);
    if (!status) status = check_round(setup, call, range, error);
    if (!status) status = check_state(setup, range, state, error);
    if (!status) status = check_capacity(setup, call, range, capacity, error);
    if (status || range.count == 0) return status;
    if (gw_codec_residual(setup)) {
        status = gw_feedback_encode(setup, call, range, state, gradient, payload, capacity, bytes, report, error);
    } else if (report) {
        status = gw_measured_encode(setup, call, range, gradient, payload, capacity, bytes, report, error);
    } else {
        status = setup->codec->encode(setup, call, range, state, gradient, payload, capacity, bytes, error);
    }
    if (status) *bytes = 0;
    return status;
}

gw_status gw_codec_decode_add(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range,
                              const void *payload, size_t bytes, float scale, float *sum, gw_error *error) {
    gw_status status = check_range(setup, range, error);
    if (!status) status = check_round(setup, call, range, error);
    if (!status && call->round + 1 != gw_codec_rounds(setup)) {
        status = gw_fail(error, GW_INVALID, "tensor %s: only the last round of %s is decoded", range.tensor->name,
                         setup->codec->technique.name);
    }
    if (status) return status;
    if (range.count == 0) return bytes ? gw_codec_length_error(setup->codec, range, bytes, 0, error) : GW_OK;
    return setup->codec->decode_add(setup, call, range, payload, bytes, scale, sum, error);
}

void gw_codec_merge(const gw_codec_setup *setup, const gw_codec_call *call, void *into, const void *from,
                    size_t bytes) {
    setup->codec->merge(setup, call, into, from, bytes);
}

gw_status gw_codec_settle(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range,
                          gw_codec_state *state, const void *payload, size_t bytes, gw_error *error) {
    if (!setup->codec->settle || range.count == 0) return GW_OK;
    gw_status status = check_range(setup, range, error);
    if (!status) status = check_round(setup, call, range, error);
    if (!status) status = check_state(setup, range, state, error);
    return status ? status : setup->codec->settle(setup, call, range, state, payload, bytes, error);
}
