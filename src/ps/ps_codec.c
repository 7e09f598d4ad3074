/* ps_codec.c - partitions through a codec. See ps.h.
 *
 * Two forms. Where the codec's payloads can be merged and servers answer with means, the server merges what workers
 * push, in worker order, and answers with that, round by round of the codec. Otherwise it decodes pushes, in worker
 * order, into a sum (coded ranges as in coded_payload.h). What comes back then depends on what an answer is:
 *   the mean      the sum is encoded again, with a residual of the server's own where feedback=both (DoubleSqueeze);
 *                 as it is where feedback=worker, because nobody would keep what that encoding loses
 *   weights       as they are; where feedback=both differences of weights are encoded (ps_difference.c)
 * gw_coded_form_served has the rule.
 *
 * A partition's slot holds its payloads: one in the worker's memory, one for each worker in the server's. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "ps/ps_codec.h"

#define ALIGNMENT 64

static size_t padded(size_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

static bool coded(const gw_ps *ps, int tensor) {
    return ps->codec && ps->step_engine->tensors[tensor].what.dtype == GW_F32;
}

bool gw_ps_encodes(const gw_ps *ps, int tensor) { return coded(ps, tensor) && !ps->codec->tensors[tensor].exact; }

/* Set-up. */

size_t gw_ps_codec_grain(const gw_ps *ps, int tensor, size_t grain) {
    if (!gw_ps_encodes(ps, tensor)) return grain;
    size_t block = gw_codec_block(&ps->codec->coding.setup);
    return block % grain ? block * grain : block;
}

/* So much that its payload is GW_PARTITION_BYTES, as far as that can be said of any tensor. */
size_t gw_ps_codec_partition(const gw_ps *ps) {
    if (!ps->codec) return GW_PARTITION_BYTES;
    const gw_coding *coding = &ps->codec->coding;
    gw_codec_tensor values = gw_codec_tensor_make("partition", 1, GW_CODED_PARTITION_BYTES / sizeof(float));
    const char *(*refuses)(const gw_codec_setup *, const gw_codec_tensor *, uint32_t) = coding->setup.codec->refuses;
    if (refuses && refuses(&coding->setup, &values, coding->call.world)) return GW_CODED_PARTITION_BYTES;
    size_t payload = gw_codec_bound(&coding->setup, &coding->call, gw_codec_whole(&values));
    if (payload <= GW_PARTITION_BYTES) return GW_CODED_PARTITION_BYTES;
    size_t bytes = (size_t)GW_CODED_PARTITION_BYTES / 1024 * GW_PARTITION_BYTES / payload * 1024;
    return bytes > GW_PARTITION_BYTES ? bytes : GW_PARTITION_BYTES;
}

static gw_status name_tensors(gw_ps *ps, gw_error *error) {
    gw_ps_codec *c = ps->codec;
    gw_status status = GW_OK;
    for (int i = 0; !status && i < c->count; i++) {
        const gw_reducer_tensor *t = &ps->step_engine->tensors[i].what;
        size_t rows = t->rows ? t->rows : 1;
        gw_codec_tensor given = gw_codec_tensor_make(t->name, rows, t->count / rows);
        status = gw_coding_name(&c->coding, &c->tensors[i], &given, t->exact || t->dtype != GW_F32, error);
        bool pushes = !ps->step_engine->config.serves_only;
        if (status || c->tensors[i].exact || !gw_codec_stateful(&c->coding.setup) || !pushes) continue;
        gw_codec_range whole = gw_codec_whole(&c->tensors[i].what);
        c->state_bytes += gw_codec_state_bytes(&c->coding.setup, whole);
        status = gw_codec_state_make(&c->tensors[i].state, &c->coding.setup, whole, error);
    }
    return status;
}

gw_status gw_ps_codec_open(gw_ps *ps, gw_error *error) {
    const gw_step_engine_config *config = &ps->step_engine->config;
    if (config->codec.codec->identity) return GW_OK;
    gw_ps_codec *c = ps->codec = calloc(1, sizeof *c);
    if (!c) return gw_fail(error, GW_MEMORY, "out of memory for a codec");
    c->count = config->count;
    gw_coded_form form = gw_coded_form_served(&config->codec, ps->weights_here);
    c->merges = form == GW_FORM_IN_FLIGHT;
    c->codes_answers = form != GW_FORM_ONE_PASS;
    c->tensors = calloc((size_t)c->count + 1, sizeof *c->tensors);
    if (!c->tensors) return gw_fail(error, GW_MEMORY, "out of memory for %d coded tensors", c->count);
    gw_status status = gw_coding_open(&c->coding, &config->codec, config->options.seed, ps->rank, ps->workers, error);
    c->coding.call.mean = config->options.op == GW_AVG;
    return status ? status : name_tensors(ps, error);
}

/* What the server keeps of its shards; once these are known. */
gw_status gw_ps_codec_serve(gw_ps *ps, gw_error *error) {
    gw_ps_codec *c = ps->codec;
    gw_status status = GW_OK;
    if (c) c->coding.call.world = (uint32_t)ps->workers;
    if (!c || ps->own < 0 || !c->codes_answers) return GW_OK;
    for (int i = 0; !status && i < ps->shards.first_of[ps->shards.tensors]; i++) {
        const gw_shard *shard = &ps->shards.list[i];
        gw_coded_tensor *t = &c->tensors[shard->tensor];
        if (shard->server != ps->own || t->exact || c->merges || !gw_codec_stateful(&c->coding.second)) continue;
        size_t before = gw_coding_tensor_bytes(t);
        status = gw_codec_state_make_for(&t->second, &c->coding.second, &t->what, &shard->covers, error);
        c->state_bytes += gw_coding_tensor_bytes(t) - before;
    }
    if (status || !ps->weights_here) return status;
    return gw_ps_differences_open(&c->differences, ps->shards.space_bytes[ps->own], error);
}

void gw_ps_codec_close(gw_ps *ps) {
    gw_ps_codec *c = ps->codec;
    if (!c) return;
    for (int i = 0; c->tensors && i < c->count; i++) gw_coding_tensor_free(&c->tensors[i]);
    gw_ps_differences_close(c->differences);
    free(c->tensors);
    free(c->slots);
    free(c->answers);
    free(c->answer_bytes);
    free(c->pushes);
    free(c);
}

/* Slots. */

size_t gw_ps_codec_merged_bytes(const gw_ps *ps, const gw_segment *part, uint32_t round) {
    const gw_coding *coding = &ps->codec->coding;
    if (gw_ps_tensor_of(ps, part)->exact) return round ? 0 : part->count * sizeof(float);
    gw_codec_call call = coding->call;
    call.round = round;
    return gw_codec_bound(&coding->setup, &call, gw_ps_range_of(ps, part));
}

static void measure(gw_ps *ps, gw_partition *p) {
    const gw_coding *coding = &ps->codec->coding;
    size_t first = 0, second = 0;
    p->rounds = 1;
    p->coded = coded(ps, ps->segments[p->first].tensor);
    p->slot_bytes = p->bytes;
    if (!p->coded) return;
    for (int i = 0; i < p->segments; i++) {
        const gw_segment *part = &ps->segments[p->first + i];
        gw_coded_tensor *t = gw_ps_tensor_of(ps, part);
        first += ps->codec->merges ? gw_coding_padded(gw_ps_codec_merged_bytes(ps, part, 0))
                                   : gw_coding_bound(coding, t, &coding->setup, gw_ps_range_of(ps, part));
        if (ps->codec->codes_answers) second += gw_coding_bound(coding, t, &coding->second, gw_ps_range_of(ps, part));
        if (ps->codec->merges && !t->exact) p->rounds = gw_codec_rounds(&coding->setup);
    }
    p->second_at = first;
    if (ps->codec->merges) {
        for (int i = 0; p->rounds > 1 && i < p->segments; i++)
            first += gw_coding_padded(gw_ps_codec_merged_bytes(ps, &ps->segments[p->first + i], 1));
        second = first;
    }
    assert(!ps->codec->merges || (p->second_at <= p->bytes && first - p->second_at <= p->bytes));
    p->push_bytes = first;
    p->answer_bytes = second;
    p->slot_bytes = first > second ? first : second;
    if (ps->weights_here && p->bytes > p->slot_bytes) p->slot_bytes = p->bytes;
}

static bool again(void **memory, size_t bytes) {
    void *grown = realloc(*memory, bytes + 1);
    if (grown) *memory = grown;
    return grown != NULL;
}

static bool serve_slots(gw_ps *ps, size_t bytes) {
    gw_ps_codec *c = ps->codec;
    size_t members = (size_t)ps->partition_count * (size_t)ps->world,
           answers = ps->weights_here || c->merges || !c->codes_answers ? 0 : bytes;
    bool fits = again((void **)&c->answers, answers) &&
                again((void **)&c->answer_bytes, (size_t)ps->partition_count * sizeof *c->answer_bytes) &&
                again((void **)&c->pushes, members * sizeof *c->pushes);
    for (int w = 0; fits && w < ps->world; w++)
        if (w != ps->rank && !ps->placement.members[w].serves_only) fits = again((void **)&ps->recv_buffer[w], bytes);
    if (fits) memset(c->answer_bytes, 0, (size_t)ps->partition_count * sizeof *c->answer_bytes);
    ps->recv_buffer_bytes = bytes;
    c->served_bytes = answers;
    return fits;
}

/* Merged payloads have no length words. */
static gw_status check_pieces(const gw_ps *ps, gw_error *error) {
    const gw_coding *coding = &ps->codec->coding;
    gw_status status = GW_OK;
    for (int i = 0; i < ps->partition_count && !ps->codec->merges; i++)
        for (int k = 0; ps->partitions[i].coded && k < ps->partitions[i].segments && !status; k++) {
            const gw_segment *part = &ps->segments[ps->partitions[i].first + k];
            const gw_coded_tensor *t = gw_ps_tensor_of(ps, part);
            status = gw_coding_check_bound(coding, t, &coding->setup, gw_ps_range_of(ps, part), error);
            if (!status) status = gw_coding_check_bound(coding, t, &coding->second, gw_ps_range_of(ps, part), error);
        }
    return status;
}

gw_status gw_ps_codec_lay(gw_ps *ps, gw_error *error) {
    gw_ps_codec *c = ps->codec;
    if (!c) return GW_OK;
    size_t own = 0;
    c->slots_bytes = 0;
    for (int i = 0; i < ps->partition_count; i++) {
        gw_partition *p = &ps->partitions[i];
        measure(ps, p);
        c->slots_bytes += padded(p->slot_bytes);
    }
    gw_status status = check_pieces(ps, error);
    if (status) return status;
    bool fits = again((void **)&c->slots, c->slots_bytes);
    uint8_t *slot = c->slots;
    for (int i = 0; fits && i < ps->partition_count; i++) {
        gw_partition *p = &ps->partitions[i];
        p->slot = slot;
        slot += padded(p->slot_bytes);
        p->slot_at = own;
        if (p->server == ps->own) own += padded(p->slot_bytes);
    }
    if (fits && ps->own >= 0) fits = serve_slots(ps, own);
    if (!fits) return gw_fail(error, GW_MEMORY, "out of memory for %zu bytes of compressed pushes", c->slots_bytes);
    if (!c->differences) return GW_OK;
    status = gw_ps_differences_lay(ps, c->differences, error);
    c->served_bytes = gw_ps_differences_bytes(ps, c->differences);
    return status;
}

/* The worker's side. */

static void set_pass(gw_ps *ps, uint32_t pass, uint64_t step, int rank, float growth) {
    gw_codec_call *call = &ps->codec->coding.call;
    call->step = step;
    call->pass = pass;
    call->rank = (uint32_t)rank;
    call->rate_growth = growth;
}

void gw_ps_codec_first_pass(gw_ps *ps, uint64_t step, float growth) { set_pass(ps, 0, step, ps->rank, growth); }

void gw_ps_codec_second_pass(gw_ps *ps, uint64_t step, int rank, float growth) { set_pass(ps, 1, step, rank, growth); }

void gw_ps_codec_begin(gw_ps *ps, int bucket, uint64_t step) {
    const gw_tensor_range *ranges = gw_schedule_ranges(ps->step_engine->schedule, bucket);
    if (!ps->codec) return;
    gw_ps_codec_first_pass(ps, step, 0);
    for (int i = 0; i < gw_schedule_bucket(ps->step_engine->schedule, bucket)->ranges; i++)
        if (coded(ps, ranges[i].tensor))
            gw_coding_prepare(&ps->codec->coding, &ps->codec->tensors[ranges[i].tensor],
                              ps->step_engine->tensors[ranges[i].tensor].view.travels);
}

/* The guard decides when all slices of a tensor have been encoded. */
void gw_ps_codec_begun(gw_ps *ps, int bucket) {
    const gw_schedule *schedule = ps->step_engine->schedule;
    const gw_tensor_range *ranges = gw_schedule_ranges(schedule, bucket);
    for (int i = 0, first; ps->codec && i < gw_schedule_bucket(schedule, bucket)->ranges; i++) {
        gw_coded_tensor *t = &ps->codec->tensors[ranges[i].tensor];
        if (!coded(ps, ranges[i].tensor)) continue;
        if (++t->parts_over < gw_schedule_buckets_of(schedule, ranges[i].tensor, &first)) continue;
        t->parts_over = 0;
        gw_coding_guard(&ps->codec->coding, t);
    }
}

bool gw_ps_codec_fits(const gw_ps *ps, const gw_partition *p, bool answer, size_t bytes) {
    const gw_ps_codec *c = ps->codec;
    if (answer && c->merges) return bytes == gw_ps_merged_bytes(p, p->round);
    return bytes && bytes <= p->slot_bytes && (!answer || c->codes_answers);
}

uint8_t *gw_ps_codec_slot(const gw_partition *p) { return p->slot + (p->round % p->rounds ? p->second_at : 0); }

/* The merged payload of round 0 of a segment, and where this one's stands in a later round. */
static gw_codec_call call_in_round(const gw_ps *ps, const gw_segment *part, uint32_t round, const uint8_t *before) {
    gw_codec_call call = ps->codec->coding.call;
    call.round = round;
    call.clip = gw_ps_tensor_of(ps, part)->clip;
    if (round == 0) return call;
    call.reduced = before;
    call.reduced_bytes = gw_ps_codec_merged_bytes(ps, part, round - 1);
    return call;
}

static gw_status encode_merged(gw_ps *ps, const gw_partition *p, size_t *bytes, gw_error *error) {
    const gw_codec_setup *setup = &ps->codec->coding.setup;
    uint32_t round = (uint32_t)(p->round % p->rounds);
    uint8_t *begin = gw_ps_codec_slot(p), *at = begin;
    const uint8_t *before = p->slot;
    gw_status status = GW_OK;
    for (int i = 0; !status && i < p->segments; i++) {
        const gw_segment *part = &ps->segments[p->first + i];
        gw_coded_tensor *t = gw_ps_tensor_of(ps, part);
        const uint8_t *values = gw_ps_tensor_at(ps, part, false);
        size_t room = gw_ps_codec_merged_bytes(ps, part, round), used;
        gw_codec_call call = call_in_round(ps, part, round, before);
        if (t->exact) memcpy(at, values, room);
        else
            status =
                gw_codec_encode(setup, &call, gw_ps_range_of(ps, part), gw_codec_stateful(setup) ? &t->state : NULL,
                                (const float *)(const void *)values, at, room, &used, &t->report, error);
        at += gw_coding_padded(room);
        before += gw_coding_padded(gw_ps_codec_merged_bytes(ps, part, 0));
    }
    *bytes = (size_t)(at - begin);
    return status;
}

gw_status gw_ps_codec_encode(gw_ps *ps, const gw_partition *p, uint64_t step, size_t *bytes, gw_error *error) {
    gw_coding *coding = &ps->codec->coding;
    uint8_t *at = p->slot;
    gw_status status = GW_OK;
    gw_ps_codec_first_pass(ps, step, gw_dispatch_rate_growth(ps->step_engine, step));
    if (ps->codec->merges) return encode_merged(ps, p, bytes, error);
    for (int i = 0; !status && i < p->segments; i++) {
        const gw_segment *part = &ps->segments[p->first + i];
        gw_coded_tensor *t = gw_ps_tensor_of(ps, part);
        status = gw_coding_encode(coding, t, &coding->setup, &t->state, gw_ps_range_of(ps, part),
                                  (const float *)(const void *)gw_ps_tensor_at(ps, part, false), &at, error);
    }
    *bytes = (size_t)(at - p->slot);
    return status;
}

static gw_status decode_merged(gw_ps *ps, const gw_partition *p, float scale, gw_error *error) {
    const gw_codec_setup *setup = &ps->codec->coding.setup;
    const uint8_t *before = p->slot, *at = gw_ps_codec_slot(p);
    uint32_t last = (uint32_t)p->rounds - 1;
    gw_status status = GW_OK;
    for (int i = 0; !status && i < p->segments; i++) {
        const gw_segment *part = &ps->segments[p->first + i];
        gw_coded_tensor *t = gw_ps_tensor_of(ps, part);
        float *to = (float *)(void *)gw_ps_tensor_at(ps, part, false);
        size_t bytes = gw_ps_codec_merged_bytes(ps, part, last);
        gw_codec_call call = call_in_round(ps, part, last, before);
        memset(to, 0, part->count * sizeof *to);
        if (t->exact) { /* in round 0, which may be before the last */
            gw_codec_call plain = call_in_round(ps, part, 0, NULL);
            status = gw_codec_decode_add(&ps->codec->coding.plain, &plain, gw_ps_range_of(ps, part), before,
                                         part->count * sizeof *to, scale, to, error);
        } else {
            status = gw_codec_decode_add(setup, &call, gw_ps_range_of(ps, part), at, bytes, scale, to, error);
            if (!status && gw_codec_stateful(setup))
                status = gw_codec_settle(setup, &call, gw_ps_range_of(ps, part), &t->state, at, bytes, error);
        }
        at += gw_coding_padded(bytes);
        before += gw_coding_padded(gw_ps_codec_merged_bytes(ps, part, 0));
    }
    return status;
}

gw_status gw_ps_codec_take(gw_ps *ps, const gw_partition *p, const gw_codec_setup *setup, int from, const uint8_t **at,
                           const uint8_t *end, float scale, float *space, gw_error *error) {
    gw_status status = GW_OK;
    for (int i = 0; !status && i < p->segments; i++) {
        const gw_segment *part = &ps->segments[p->first + i];
        float *to = space ? space : (float *)(void *)gw_ps_tensor_at(ps, part, ps->weights_here);
        status = gw_coding_decode_add(&ps->codec->coding, gw_ps_tensor_of(ps, part), setup, gw_ps_range_of(ps, part),
                                      from, at, end, scale, to, error);
        if (space) space += part->count;
    }
    return status;
}

gw_status gw_ps_codec_answered(gw_ps *ps, const gw_partition *p, int from, const gw_am_message *message,
                               gw_error *error) {
    const uint8_t *at = p->slot;
    if (ps->weights_here) return gw_ps_difference_answered(ps, p, from, at, message->bytes, error);
    if (!message->joined)
        return gw_fail_rank(error, GW_PROTOCOL, from, "the server on rank %d answered for a round of nobody", from);
    float scale = ps->step_engine->config.options.op == GW_AVG ? 1.0f / (float)message->joined : 1.0f;
    set_pass(ps, ps->codec->merges ? 0 : 1, message->step, ps->rank, 0);
    if (ps->codec->merges) return decode_merged(ps, p, scale, error);
    for (int i = 0; i < p->segments; i++) {
        const gw_segment *part = &ps->segments[p->first + i];
        memset(gw_ps_tensor_at(ps, part, false), 0, part->count * sizeof(float));
    }
    return gw_ps_codec_take(ps, p, &ps->codec->coding.second, from, &at, at + message->bytes, scale, NULL, error);
}

/* What it comes to. */

size_t gw_ps_codec_memory(const gw_ps *ps) { return ps->codec ? ps->codec->slots_bytes + ps->codec->served_bytes : 0; }
size_t gw_ps_codec_state_bytes(const gw_ps *ps) { return ps->codec ? ps->codec->state_bytes : 0; }

gw_codec_state *gw_ps_codec_state(const gw_ps *ps, int tensor, bool owner) {
    gw_ps_codec *c = ps->codec;
    if (!c || c->tensors[tensor].exact) return NULL;
    gw_codec_state *state = owner ? &c->tensors[tensor].second : &c->tensors[tensor].state;
    return state->tensor.count && !(owner && ps->weights_here) ? state : NULL;
}
