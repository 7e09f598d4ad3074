/* coded_payload.c - see coded_payload.h. */
#include "reducer/coded_payload.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"

#define EXACT_COUNT_MAX 1024 /* smaller tensors (biases, norms) are sent exact: they cost next to nothing */
#define EXACT_BIT UINT32_C(0x80000000)

gw_status gw_coding_open(gw_coding *c, const gw_codec_setup *setup, uint64_t seed, int rank, int world,
                         gw_error *error) {
    *c = (gw_coding){.setup = *setup, .second = gw_codec_second(setup), .exact = gw_codec_exact(setup),
                     .plain = gw_codec_default(&gw_codec_none),
                     .call = {.seed = seed, .rank = (uint32_t)rank, .world = (uint32_t)world, .clip = 1}};
    return gw_codec_check(setup, error);
}

static bool is_exact(const gw_codec_setup *setup, const gw_codec_tensor *tensor, uint32_t world) {
    return tensor->count < EXACT_COUNT_MAX || gw_codec_refuses(setup, tensor, world);
}

gw_status gw_coding_name(const gw_coding *c, gw_coded_tensor *t, const gw_codec_tensor *given, bool exact,
                         gw_error *error) {
    t->what = *given;
    t->what.name = strdup(given->name);
    if (!t->what.name) return gw_fail(error, GW_MEMORY, "out of memory for %s", given->name);
    t->guard.limit = c->setup.limit;
    t->clip = 1;
    const char *why = gw_codec_refuses(&c->setup, &t->what, c->call.world);
    t->exact = exact || is_exact(&c->setup, &t->what, c->call.world);
    if (why) gw_log(GW_LOG_INFO, (int)c->call.rank, "%s is sent exact: it %s", t->what.name, why);
    return GW_OK;
}

gw_status gw_coding_tensor_open(const gw_coding *c, gw_coded_tensor *t, const gw_codec_tensor *given, bool exact,
                                const gw_lanes *lanes, bool two_pass, gw_error *error) {
    gw_status status = gw_coding_name(c, t, given, exact, error);
    t->owners = gw_owners_of(lanes, t->what.key, t->what.count, gw_codec_block(&c->setup));
    if (status || t->exact) return status;
    gw_stripes encodes = gw_owners_in_lanes(&t->owners, lanes->first, lanes->last);
    gw_stripes owns = gw_owners_at_host(&t->owners, lanes->first, lanes->last, lanes->host);
    if (gw_codec_stateful(&c->setup)) status = gw_codec_state_make_for(&t->state, &c->setup, &t->what, &encodes, error);
    if (!status && two_pass && gw_codec_stateful(&c->second))
        status = gw_codec_state_make_for(&t->second, &c->second, &t->what, &owns, error);
    return status;
}

static size_t state_bytes(const gw_codec_state *state) {
    uint64_t residual = state->residual ? gw_stripes_count(&state->covers) : 0;
    return (size_t)(residual + state->own_count) * sizeof(float);
}

size_t gw_coding_tensor_bytes(const gw_coded_tensor *t) { return state_bytes(&t->state) + state_bytes(&t->second); }

void gw_coding_tensor_free(gw_coded_tensor *t) {
    gw_codec_state_free(&t->state);
    gw_codec_state_free(&t->second);
    free((char *)(uintptr_t)t->what.name);
}

void gw_coding_prepare(gw_coding *c, gw_coded_tensor *t, const float *gradient) {
    if (t->prepared == c->call.step + 1) return;
    t->prepared = c->call.step + 1;
    t->report = t->owner_report = (gw_codec_report){0};
    if (t->exact) return;
    gw_codec_prepare(&c->setup, &c->call, &t->what, gw_codec_stateful(&c->setup) ? &t->state : NULL, gradient);
    t->clip = c->call.clip;
}

size_t gw_coding_padded(size_t bytes) { return (bytes + 3) / 4 * 4; }

/* The bound of the payload of all rounds, each encoded as in a world of one. */
static size_t rounds_bound(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range) {
    gw_codec_call alone = *call;
    size_t bytes = 0;
    uint32_t rounds = gw_codec_rounds(setup);
    if (rounds > 1) alone.world = 1;
    for (alone.round = 0; alone.round < rounds; alone.round++) bytes += gw_codec_bound(setup, &alone, range);
    return bytes;
}

size_t gw_coding_payload_bytes(const gw_codec_setup *setup, const gw_codec_tensor *tensor, uint32_t world) {
    gw_codec_call call = {.world = world};
    return is_exact(setup, tensor, world) ? tensor->count * sizeof(float)
                                          : rounds_bound(setup, &call, gw_codec_whole(tensor));
}

size_t gw_coding_bound(const gw_coding *c, const gw_coded_tensor *t, const gw_codec_setup *setup,
                       gw_codec_range range) {
    size_t coded = t->exact || !range.count ? 0 : rounds_bound(setup, &c->call, range);
    bool may_be_exact = t->exact || t->guard.limit > 0;
    size_t exact = may_be_exact && range.count ? gw_codec_bound(&c->plain, &c->call, range) : 0;
    return sizeof(uint32_t) + gw_coding_padded(coded > exact ? coded : exact);
}

gw_status gw_coding_check_bound(const gw_coding *c, const gw_coded_tensor *t, const gw_codec_setup *setup,
                                gw_codec_range range, gw_error *error) {
    size_t bytes = gw_coding_bound(c, t, setup, range), most = EXACT_BIT - 1;
    if (bytes <= most) return GW_OK;
    return gw_fail(
        error, GW_UNSUPPORTED,
        "%s: a piece of it may take %zu bytes encoded, and the limit is %zu: cut the tensor in two, or choose "
        "another codec",
        t->what.name, bytes, most);
}

/* Every round uses the payload of the previous round as if it were the reduced one. */
static gw_status encode_rounds(const gw_codec_setup *setup, gw_codec_call call, gw_codec_range range,
                               gw_codec_state *state, const float *values, uint8_t *payload, size_t room, size_t *bytes,
                               gw_codec_report *report, gw_error *error) {
    uint32_t rounds = gw_codec_rounds(setup);
    gw_status status = GW_OK;
    size_t length = 0;
    *bytes = 0;
    if (rounds > 1) call.world = 1;
    for (call.round = 0; !status && call.round < rounds; call.round++) {
        status = gw_codec_encode(setup, &call, range, state, values, payload + *bytes, room - *bytes, &length, report,
                                 error);
        if (!status && call.round + 1 == rounds && state)
            status = gw_codec_settle(setup, &call, range, state, payload + *bytes, length, error);
        call.reduced = payload + *bytes;
        call.reduced_bytes = length;
        *bytes += length;
    }
    return status;
}

gw_status gw_coding_encode(gw_coding *c, gw_coded_tensor *t, const gw_codec_setup *setup, gw_codec_state *state,
                           gw_codec_range range, const float *values, uint8_t **at, gw_error *error) {
    bool exact = t->exact || t->guard.exact;
    const gw_codec_setup *with = t->exact ? &c->plain : exact ? &c->exact : setup;
    gw_codec_state *kept = !t->exact && state->tensor.count ? state : NULL;
    size_t bytes = 0, room = gw_coding_bound(c, t, setup, range) - sizeof(uint32_t);
    gw_status status = GW_OK;
    gw_codec_call call = c->call;
    call.clip = call.pass ? 1 : t->clip;
    if (call.pass && kept && kept->born == UINT64_MAX) /* no whole gradient is there to prepare with */
        gw_codec_prepare(setup, &call, &t->what, kept, NULL);
    gw_codec_report *owners = t->owner_report.samples ? &t->owner_report : NULL;
    if (range.count)
        status = encode_rounds(with, call, range, gw_codec_stateful(with) ? kept : NULL, values, *at + sizeof(uint32_t),
                               room, &bytes, call.pass ? owners : &t->report, error);
    uint32_t word = (uint32_t)bytes | (exact ? EXACT_BIT : 0);
    memcpy(*at, &word, sizeof word);
    *at += sizeof word + gw_coding_padded(bytes);
    return status;
}

static gw_status decode_rounds(const gw_codec_setup *setup, gw_codec_call call, gw_codec_range range,
                               const uint8_t *payload, size_t bytes, float scale, float *sum, gw_error *error) {
    uint32_t last = gw_codec_rounds(setup) - 1;
    if (last) {
        call.world = 1;
        size_t whole = rounds_bound(setup, &call, range);
        if (bytes != whole)
            return gw_fail(error, GW_PROTOCOL, "tensor %s: a %s payload has %zu bytes instead of %zu",
                           range.tensor->name, setup->codec->technique.name, bytes, whole);
    }
    for (call.round = 0; call.round < last; call.round++) {
        call.reduced = payload;
        call.reduced_bytes = gw_codec_bound(setup, &call, range);
        payload += call.reduced_bytes;
        bytes -= call.reduced_bytes;
    }
    return gw_codec_decode_add(setup, &call, range, payload, bytes, scale, sum, error);
}

gw_status gw_coding_decode_add(const gw_coding *c, const gw_coded_tensor *t, const gw_codec_setup *setup,
                               gw_codec_range range, int from, const uint8_t **at, const uint8_t *end, float scale,
                               float *sum, gw_error *error) {
    uint32_t word = 0;
    size_t left = (size_t)(end - *at);
    if (left >= sizeof word) memcpy(&word, *at, sizeof word);
    size_t bytes = word & ~EXACT_BIT;
    if (left < sizeof word || gw_coding_padded(bytes) > left - sizeof word || (!range.count && bytes))
        return gw_fail_rank(error, GW_PROTOCOL, from, "the compressed gradient of %s from rank %d is cut short",
                            t->what.name, from);
    const gw_codec_setup *with = word & EXACT_BIT ? &c->plain : setup;
    gw_status status = GW_OK;
    if (range.count) status = decode_rounds(with, c->call, range, *at + sizeof word, bytes, scale, sum, error);
    *at += sizeof word + gw_coding_padded(bytes);
    return status;
}

void gw_coding_guard(const gw_coding *c, gw_coded_tensor *t) {
    if (t->exact || !gw_codec_guard_update(&t->guard, &t->report)) return;
    gw_log(GW_LOG_WARN, (int)c->call.rank, "%s loses %.2g of its norm to compress=%s: it is sent %s from now on",
           t->what.name, t->guard.error, c->setup.codec->technique.name, t->guard.exact ? "exact" : "compressed again");
}
