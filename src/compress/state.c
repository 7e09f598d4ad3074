/* state.c - the state that a codec keeps for a tensor, identified by the name of the tensor: make, save, restore, drop.
 *
 * Saved form (little endian): the words of saved_head, then the floats of the residual and of the codec's own. */
#include "compress/codec.h"

#include <inttypes.h>
#include <stdlib.h>
#include <sys/mman.h>

#define ALIGNMENT 64u
#define PAGE 4096u
#define HUGE_LEAST ((size_t)4 << 20)
#define MAGIC UINT64_C(0x3265746174737767) /* "gwstate2" */

typedef struct saved_head {
    uint64_t magic, key, tensor_count;
    uint64_t first, end, length, period, shift; /* gw_stripes */
    uint64_t residual_count, own_count, born;
} saved_head;

static uint64_t residual_count(const gw_codec_setup *setup, gw_codec_range range) {
    return gw_codec_residual(setup) ? range.count : 0;
}

static uint64_t own_count(const gw_codec_setup *setup, gw_codec_range range) {
    return setup->codec->own_count ? setup->codec->own_count(setup, range) : 0;
}

uint64_t gw_codec_state_bytes(const gw_codec_setup *setup, gw_codec_range range) {
    return (residual_count(setup, range) + own_count(setup, range)) * sizeof(float);
}

gw_status gw_codec_state_make(gw_codec_state *state, const gw_codec_setup *setup, gw_codec_range range,
                              gw_error *error) {
    gw_stripes covers = gw_stripes_whole(range.first, range.first + range.count);
    return gw_codec_state_make_for(state, setup, range.tensor, &covers, error);
}

/* The range that has as many elements. */
static gw_codec_range counted(const gw_codec_tensor *tensor, const gw_stripes *covers) {
    return (gw_codec_range){tensor, covers->first, gw_stripes_count(covers)};
}

uint64_t gw_codec_state_own_count(const gw_codec_setup *setup, const gw_codec_state *state) {
    return own_count(setup, counted(&state->tensor, &state->covers));
}

float *gw_codec_residual_at(const gw_codec_state *state, uint64_t element) {
    return state->residual ? state->residual + gw_stripes_place(&state->covers, element) : NULL;
}

/* Aligned for vectors. Large states are in huge pages where the system has them: prefetching stops at the end of a
 * page.
 */
static float *zeroed(uint64_t count) {
    size_t bytes = (count * sizeof(float) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    char *made = aligned_alloc(ALIGNMENT, bytes), *page = made ? made + (-(uintptr_t)made & (PAGE - 1)) : NULL;
    if (made && bytes >= HUGE_LEAST) madvise(page, (size_t)(made + bytes - page) & ~(size_t)(PAGE - 1), MADV_HUGEPAGE);
    return made ? memset(made, 0, bytes) : NULL;
}

gw_status gw_codec_state_make_for(gw_codec_state *state, const gw_codec_setup *setup, const gw_codec_tensor *tensor,
                                  const gw_stripes *covers, gw_error *error) {
    gw_codec_range range = counted(tensor, covers);
    uint64_t residual = residual_count(setup, range), own = own_count(setup, range);
    gw_codec_state made = {.tensor = *tensor, .covers = *covers, .own_count = own, .born = UINT64_MAX};
    made.tensor.name = strdup(range.tensor->name);
    if (!made.tensor.name) goto fail;
    if (residual && !(made.residual = zeroed(residual))) goto fail;
    if (own && !(made.own = zeroed(own))) goto fail;
    *state = made;
    return GW_OK;
fail:
    gw_codec_state_free(&made);
    return gw_fail(error, GW_MEMORY, "tensor %s: no memory for %" PRIu64 " bytes of %s state", range.tensor->name,
                   gw_codec_state_bytes(setup, range), setup->codec->technique.name);
}

void gw_codec_state_free(gw_codec_state *state) {
    free(state->own);
    free(state->residual);
    free((char *)(uintptr_t)state->tensor.name);
    *state = (gw_codec_state){0};
}

void gw_codec_state_drop(gw_codec_state *state) {
    if (state->residual) memset(state->residual, 0, gw_stripes_count(&state->covers) * sizeof(float));
    if (state->own) memset(state->own, 0, state->own_count * sizeof(float));
    state->born = UINT64_MAX;
}

static saved_head head_of(const gw_codec_state *state) {
    return (saved_head){.magic = MAGIC,
                        .key = state->tensor.key,
                        .tensor_count = state->tensor.count,
                        .first = state->covers.first,
                        .end = state->covers.end,
                        .length = state->covers.length,
                        .period = state->covers.period,
                        .shift = state->covers.shift,
                        .born = state->born,
                        .residual_count = state->residual ? gw_stripes_count(&state->covers) : 0,
                        .own_count = state->own_count};
}

/* Reads only what never changes: a driver may be encoding. */
size_t gw_codec_state_saved_bytes(const gw_codec_state *state) {
    uint64_t residual = state->residual ? gw_stripes_count(&state->covers) : 0;
    return sizeof(saved_head) + (residual + state->own_count) * sizeof(float);
}

void gw_codec_state_save(const gw_codec_state *state, void *bytes) {
    saved_head head = head_of(state);
    uint8_t *at = bytes;
    memcpy(at, &head, sizeof head);
    at += sizeof head;
    if (head.residual_count) memcpy(at, state->residual, head.residual_count * sizeof(float));
    at += head.residual_count * sizeof(float);
    if (head.own_count) memcpy(at, state->own, head.own_count * sizeof(float));
}

gw_status gw_codec_state_restore(gw_codec_state *state, const void *bytes, size_t length, gw_error *error) {
    saved_head mine = head_of(state), saved;
    if (length != gw_codec_state_saved_bytes(state)) {
        return gw_fail(error, GW_MISMATCH, "tensor %s: a saved state has %zu bytes, this codec's has %zu",
                       state->tensor.name, length, gw_codec_state_saved_bytes(state));
    }
    memcpy(&saved, bytes, sizeof saved);
    mine.born = saved.born;
    if (memcmp(&mine, &saved, sizeof mine) != 0) {
        return gw_fail(error, GW_MISMATCH, "tensor %s: the saved state is of another tensor, range or codec",
                       state->tensor.name);
    }
    const uint8_t *at = (const uint8_t *)bytes + sizeof saved;
    if (saved.residual_count) memcpy(state->residual, at, saved.residual_count * sizeof(float));
    at += saved.residual_count * sizeof(float);
    if (saved.own_count) memcpy(state->own, at, saved.own_count * sizeof(float));
    state->born = saved.born;
    return GW_OK;
}

static gw_stripes stripes_of(const saved_head *saved) {
    return (gw_stripes){.first = saved->first, .end = saved->end, .length = saved->length, .period = saved->period,
                        .shift = saved->shift};
}

static bool is_sound(const saved_head *saved) {
    return saved->magic == MAGIC && saved->end <= saved->tensor_count && saved->length > 0 &&
           saved->period >= saved->length && saved->shift < saved->period;
}

/* The part of an owner has only a residual. The own state of a worker's codec is one float for each element (dgc), or
 * of the whole tensor (powersgd). */
static bool fits(const gw_codec_state *state, const saved_head *saved, size_t length) {
    gw_stripes covers = stripes_of(saved);
    if (!is_sound(saved) || saved->key != state->tensor.key || saved->tensor_count != state->tensor.count) return false;
    uint64_t mine = gw_stripes_count(&state->covers), theirs = gw_stripes_count(&covers);
    bool keeps = state->residual != NULL || mine == 0; /* a state of no elements fits every codec */
    bool residual =
        saved->residual_count == 0 ? theirs == 0 || !state->residual : saved->residual_count == theirs && keeps;
    bool by_element = saved->own_count == theirs && state->own_count == mine;
    bool own = saved->own_count == 0 || by_element || saved->own_count == state->own_count;
    return residual && own && length == sizeof *saved + (saved->residual_count + saved->own_count) * sizeof(float);
}

static void add_floats(float *to, float share, const uint8_t *from, uint64_t count) {
    for (uint64_t i = 0; i < count; i++) to[i] += share * gw_get_f32(from + i * sizeof(float));
}

/* Adds the elements that both sets have. */
static void add_elements(float *to, const gw_stripes *covers, float share, const gw_stripes *saved,
                         const uint8_t *floats) {
    uint64_t from = 0, run;
    while (gw_stripes_next(covers, &from, saved->end, &run)) {
        uint64_t at = from, end = from + run, both;
        for (; gw_stripes_next(saved, &at, end, &both); at += both)
            add_floats(to + gw_stripes_place(covers, at), share, floats + gw_stripes_place(saved, at) * sizeof(float),
                       both);
        from = end;
    }
}

gw_status gw_codec_state_add(gw_codec_state *state, float share, const void *bytes, size_t length, gw_error *error) {
    saved_head saved = {0};
    if (length >= sizeof saved) memcpy(&saved, bytes, sizeof saved);
    if (!fits(state, &saved, length))
        return gw_fail(error, GW_MISMATCH, "tensor %s: the saved state is of another tensor or codec, or cut short",
                       state->tensor.name);
    const uint8_t *at = (const uint8_t *)bytes + sizeof saved;
    gw_stripes covers = stripes_of(&saved);
    const uint8_t *own = at + saved.residual_count * sizeof(float);
    if (saved.residual_count) add_elements(state->residual, &state->covers, share, &covers, at);
    if (saved.own_count == gw_stripes_count(&covers)) add_elements(state->own, &state->covers, share, &covers, own);
    else add_floats(state->own, share, own, saved.own_count);
    if (saved.born < state->born) state->born = saved.born;
    return GW_OK;
}

gw_status gw_codec_saved_residual_add(float *values, uint64_t count, const void *bytes, size_t length,
                                      gw_error *error) {
    gw_stripes whole = gw_stripes_whole(0, count);
    saved_head saved = {0};
    if (length >= sizeof saved) memcpy(&saved, bytes, sizeof saved);
    gw_stripes covers = stripes_of(&saved);
    if (!is_sound(&saved) || saved.tensor_count != count ||
        (saved.residual_count && saved.residual_count != gw_stripes_count(&covers)) ||
        length != sizeof saved + (saved.residual_count + saved.own_count) * sizeof(float))
        return gw_fail(error, GW_MISMATCH, "a saved residual is of another tensor, or cut short");
    if (saved.residual_count) add_elements(values, &whole, 1, &covers, (const uint8_t *)bytes + sizeof saved);
    return GW_OK;
}
