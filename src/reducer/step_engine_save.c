/* step_engine_save.c - the state that a reducer keeps from step to step, as one block of bytes: a head, then for each
 * tensor its codec state of both passes, its anchor, its outer momentum, its shard of the weights if this rank's server
 * keeps them, and what a former codec has left. Host byte order; values are saved bit by bit. */
#include <stdlib.h>
#include <string.h>

#include "ps/ps.h"
#include "reducer/step_engine_internal.h"

#define MAGIC UINT32_C(0x32737767) /* "gws2" */

typedef struct state_head {
    uint32_t magic;
    uint32_t tensors, world, rank;
    uint64_t bytes; /* of all */
} state_head;

/* One of a tensor's parts. */
typedef enum state_part { WORKER, OWNER, ANCHOR, MOMENTUM, SERVED, CARRIED, STATE_PARTS } state_part;

typedef struct part_head {
    uint32_t tensor, part;
    uint64_t bytes;
} part_head;

static gw_codec_state *codec_state(const gw_step_engine *s, int tensor, state_part part) {
    if (s->ps) return gw_ps_codec_state(s->ps, tensor, part == OWNER);
    if (!s->coded) return NULL;
    gw_codec_state *state = part == WORKER ? &s->coded[tensor].state : &s->coded[tensor].second;
    return state->tensor.count ? state : NULL;
}

/* Floats that are saved as they are; NULL: none. */
static float *kept(const gw_step_engine *s, int tensor, state_part part, size_t *count) {
    const gw_sync_tensor *view = &s->tensors[tensor].view;
    gw_stripes covers;
    float *served;
    *count = s->tensors[tensor].what.count;
    switch (part) {
    case ANCHOR: return view->anchored ? view->anchor : NULL;
    case MOMENTUM: return view->momentum;
    case CARRIED: return s->tensors[tensor].carried;
    case SERVED: /* not with a replica, which would not get the restored weights */
        served = s->ps && !s->config.replicas ? gw_ps_weights(s->ps, tensor, &covers) : NULL;
        if (served) *count = gw_stripes_count(&covers);
        return served;
    default: return NULL;
    }
}

static bool is_coded(state_part part) { return part == WORKER || part == OWNER; }

static size_t part_bytes(const gw_step_engine *s, int tensor, state_part part) {
    size_t count;
    if (!is_coded(part)) return kept(s, tensor, part, &count) ? count * sizeof(float) : 0;
    gw_codec_state *state = codec_state(s, tensor, part);
    return state ? gw_codec_state_saved_bytes(state) : 0;
}

size_t gw_step_engine_state_bytes(const gw_step_engine *s) {
    size_t bytes = sizeof(state_head);
    for (int t = 0; t < s->config.count; t++)
        for (int part = 0; part < STATE_PARTS; part++) {
            size_t length = part_bytes(s, t, (state_part)part);
            if (length) bytes += sizeof(part_head) + length;
        }
    return bytes;
}

void gw_step_engine_state_save(const gw_step_engine *s, void *memory) {
    uint8_t *at = memory;
    state_head head = {.magic = MAGIC, .tensors = (uint32_t)s->config.count,
                       .world = (uint32_t)gw_team_size(s->config.team), .rank = (uint32_t)gw_team_rank(s->config.team),
                       .bytes = gw_step_engine_state_bytes(s)};
    memcpy(at, &head, sizeof head);
    at += sizeof head;
    for (int t = 0; t < s->config.count; t++)
        for (int part = 0; part < STATE_PARTS; part++) {
            part_head entry = {.tensor = (uint32_t)t, .part = (uint32_t)part,
                               .bytes = part_bytes(s, t, (state_part)part)};
            if (!entry.bytes) continue;
            memcpy(at, &entry, sizeof entry);
            at += sizeof entry;
            size_t count;
            if (is_coded((state_part)part)) gw_codec_state_save(codec_state(s, t, (state_part)part), at);
            else memcpy(at, kept(s, t, (state_part)part, &count), entry.bytes);
            at += entry.bytes;
        }
}

static gw_status wrong(gw_error *error, const char *what) {
    return gw_fail(error, GW_MISMATCH, "the saved state of a reducer does not fit: %s", what);
}

/* What codecs have left of a tensor is added to its next gradient. */
static float *carried(gw_step_engine *s, int tensor, gw_error *error) {
    gw_step_engine_tensor *t = &s->tensors[tensor];
    if (!t->carried && !(t->carried = calloc(t->what.count + 1, sizeof *t->carried)))
        gw_fail(error, GW_MEMORY, "out of memory for what a codec has left of %s", t->what.name);
    return t->carried;
}

/* Anchors, outer momenta, a server's weights, what a former codec has left. */
static gw_status restore_kept(gw_step_engine *s, const part_head *head, const uint8_t *bytes, gw_error *error) {
    int t = (int)head->tensor;
    if (head->part == CARRIED && !carried(s, t, error)) return GW_MEMORY;
    gw_sync_tensor *view = &s->tensors[t].view;
    size_t count = view->count;
    float *to = head->part == ANCHOR ? view->anchor : kept(s, t, (state_part)head->part, &count);
    if (!to || head->bytes != count * sizeof(float)) return wrong(error, "it is of another synchronization");
    memcpy(to, bytes, head->bytes);
    view->anchored |= head->part == ANCHOR;
    return GW_OK;
}

static gw_status restore_part(gw_step_engine *s, const state_head *from, const part_head *head, const uint8_t *bytes,
                              gw_error *error) {
    (void)from;
    if (!is_coded((state_part)head->part)) return restore_kept(s, head, bytes, error);
    gw_codec_state *state = codec_state(s, (int)head->tensor, (state_part)head->part);
    if (!state) return wrong(error, "it holds residuals, and this strategy keeps none");
    if (s->coded) s->coded[head->tensor].prepared = 0; /* the next step may have the number of the last one */
    return gw_codec_state_restore(state, bytes, head->bytes, error);
}

/* Every rank adds 1/world of an old rank's residuals, those as a worker and those as an owner. Anchors are the same on
 * all ranks: those of rank 0 are used. */
static gw_status take_over_part(gw_step_engine *s, const state_head *from, const part_head *head, const uint8_t *bytes,
                                gw_error *error) {
    if (!is_coded((state_part)head->part)) return from->rank == 0 ? restore_kept(s, head, bytes, error) : GW_OK;
    gw_codec_state *state = codec_state(s, (int)head->tensor, WORKER);
    if (!state) return wrong(error, "it holds residuals, and this strategy keeps none");
    return gw_codec_state_add(state, 1.0f / (float)from->world, bytes, head->bytes, error);
}

/* This rank's own residuals. Anchors and outer momentum stayed in place. */
static gw_status carry_over_part(gw_step_engine *s, const state_head *from, const part_head *head, const uint8_t *bytes,
                                 gw_error *error) {
    (void)from;
    gw_codec_state *state = is_coded((state_part)head->part) ? codec_state(s, (int)head->tensor, WORKER) : NULL;
    return state ? gw_codec_state_add(state, 1, bytes, head->bytes, error) : GW_OK;
}

/* Residuals of this rank's codecs, whatever codec it has now. */
static gw_status carry_part(gw_step_engine *s, const state_head *from, const part_head *head, const uint8_t *bytes,
                            gw_error *error) {
    int t = (int)head->tensor;
    if (!is_coded((state_part)head->part)) return restore_part(s, from, head, bytes, error);
    float *to = carried(s, t, error);
    return to ? gw_codec_saved_residual_add(to, s->tensors[t].what.count, bytes, head->bytes, error) : GW_MEMORY;
}

static gw_status read_head(const gw_step_engine *s, const void *memory, size_t bytes, state_head *head,
                           gw_error *error) {
    if (bytes < sizeof *head) return wrong(error, "it is cut short");
    memcpy(head, memory, sizeof *head);
    if (head->magic != MAGIC || head->bytes != bytes || !head->world)
        return wrong(error, "it is not such a state, or cut short");
    if (head->tensors != (uint32_t)s->config.count) return wrong(error, "it is of a model with other tensors");
    return GW_OK;
}

typedef gw_status part_reader(gw_step_engine *s, const state_head *from, const part_head *head, const uint8_t *bytes,
                              gw_error *error);

static gw_status read_parts(gw_step_engine *s, const state_head *head, const uint8_t *at, part_reader *read,
                            gw_error *error) {
    const uint8_t *end = at + head->bytes;
    at += sizeof *head;
    while (at < end) {
        part_head part;
        if ((size_t)(end - at) < sizeof part) return wrong(error, "it is cut short");
        memcpy(&part, at, sizeof part);
        at += sizeof part;
        if (part.tensor >= head->tensors || part.part >= STATE_PARTS || part.bytes > (size_t)(end - at))
            return wrong(error, "it is damaged");
        gw_status status = read(s, head, &part, at, error);
        if (status) return status;
        at += part.bytes;
    }
    return GW_OK;
}

gw_status gw_step_engine_state_restore(gw_step_engine *s, const void *memory, size_t bytes, bool any_codec,
                                       gw_error *error) {
    state_head head;
    gw_status status = read_head(s, memory, bytes, &head, error);
    if (status) return status;
    if (head.world != (uint32_t)gw_team_size(s->config.team) || head.rank != (uint32_t)gw_team_rank(s->config.team))
        return wrong(error, "it is of another rank, or of a job of another size");
    return read_parts(s, &head, memory, any_codec ? carry_part : restore_part, error);
}

gw_status gw_step_engine_state_carry(gw_step_engine *s, const void *memory, size_t bytes, gw_error *error) {
    state_head head;
    gw_status status = read_head(s, memory, bytes, &head, error);
    return status ? status : read_parts(s, &head, memory, carry_part, error);
}

gw_status gw_step_engine_state_take_over(gw_step_engine *s, const void *memory, size_t bytes, gw_error *error) {
    state_head head;
    gw_status status = read_head(s, memory, bytes, &head, error);
    if (!status && s->ps) status = wrong(error, "servers have other shards now");
    return status ? status : read_parts(s, &head, memory, take_over_part, error);
}

gw_status gw_step_engine_state_move(gw_step_engine *s, const void *memory, size_t bytes, gw_error *error) {
    state_head head;
    gw_status status = read_head(s, memory, bytes, &head, error);
    return status ? status : read_parts(s, &head, memory, carry_over_part, error);
}
