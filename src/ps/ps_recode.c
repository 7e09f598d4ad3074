/* ps_recode.c - the server's side of partitions through a codec: merges pushes or decodes them into a sum, and encodes
 * answers. See ps_codec.c. */
#include <string.h>

#include "ps/ps_codec.h"

void gw_ps_codec_note(gw_ps *ps, int worker, const gw_am_message *message) {
    if (!ps->codec) return;
    *gw_ps_push_of(ps, (int)message->partition, worker) = (gw_ps_push){message->step, message->bytes, message->growth};
}

static uint8_t *payload_of(const gw_ps *ps, const gw_partition *p, int worker) {
    return worker == ps->rank ? gw_ps_codec_slot(p) : ps->recv_buffer[worker] + p->slot_at;
}

static float *sum_of(const gw_ps *ps, const gw_partition *p) { return (float *)(void *)(ps->store.result + p->at); }

static gw_status add(gw_ps *ps, int partition, int worker, gw_error *error) {
    const gw_partition *p = &ps->partitions[partition];
    const gw_ps_push *push = gw_ps_push_of(ps, partition, worker);
    const uint8_t *at = payload_of(ps, p, worker);
    gw_ps_codec_first_pass(ps, push->step, 0);
    return gw_ps_codec_take(ps, p, &ps->codec->coding.setup, worker, &at, at + push->bytes, 1, sum_of(ps, p), error);
}

gw_status gw_ps_codec_decode(gw_ps *ps, int partition, int worker, gw_error *error) {
    const gw_partition *p = &ps->partitions[partition];
    memset(sum_of(ps, p), 0, p->bytes);
    if (ps->codec->differences) gw_ps_weights_changed(ps->codec->differences, partition);
    gw_status status = add(ps, partition, worker, error);
    if (!status && gw_ps_has_replica(ps)) memcpy(payload_of(ps, p, worker), sum_of(ps, p), p->bytes);
    return status;
}

static void merge(gw_ps *ps, const gw_partition *p, uint32_t round, uint8_t *into, const uint8_t *from) {
    const gw_coding *coding = &ps->codec->coding;
    gw_codec_call call = coding->call;
    call.round = round;
    for (int i = 0; i < p->segments; i++) {
        const gw_segment *part = &ps->segments[p->first + i];
        size_t bytes = gw_ps_codec_merged_bytes(ps, part, round);
        bool exact = gw_ps_tensor_of(ps, part)->exact;
        if (bytes) gw_codec_merge(exact ? &coding->plain : &coding->setup, &call, into, from, bytes);
        into += gw_coding_padded(bytes);
        from += gw_coding_padded(bytes);
    }
}

static gw_status merge_all(gw_ps *ps, int partition, gw_error *error) {
    const gw_partition *p = &ps->partitions[partition];
    uint32_t round = (uint32_t)(gw_clock_table_round(ps->store.clocks, partition) % p->rounds);
    size_t bytes = gw_ps_merged_bytes(p, round);
    uint8_t *into = ps->store.result + p->at;
    bool first = true;
    for (int w = 0; w < ps->world; w++) {
        if (!gw_clock_table_in(ps->store.clocks, partition, w)) continue;
        if (gw_ps_push_of(ps, partition, w)->bytes != bytes)
            return gw_fail_rank(error, GW_PROTOCOL, w, "rank %d pushed %zu compressed bytes where %zu are expected", w,
                                gw_ps_push_of(ps, partition, w)->bytes, bytes);
        if (first) memcpy(into, payload_of(ps, p, w), bytes);
        else merge(ps, p, round, into, payload_of(ps, p, w));
        first = false;
    }
    return GW_OK;
}

gw_status gw_ps_codec_put(gw_ps *ps, const gw_partition *p, const float *values, uint8_t *to, size_t *bytes,
                          gw_error *error) {
    gw_coding *coding = &ps->codec->coding;
    uint8_t *at = to;
    gw_status status = GW_OK;
    for (int i = 0; !status && i < p->segments; i++) {
        const gw_segment *part = &ps->segments[p->first + i];
        gw_coded_tensor *t = gw_ps_tensor_of(ps, part);
        status = gw_coding_encode(coding, t, &coding->second, &t->second, gw_ps_range_of(ps, part), values, &at, error);
        values += part->count;
    }
    *bytes = (size_t)(at - to);
    return status;
}

static void divide(float *values, size_t count, int by) {
    for (size_t i = 0; i < count; i++) values[i] *= 1.0f / (float)by;
}

/* Weights are updated with the mean, and an exact answer is the mean. Workers divide an encoded sum that comes back. */
gw_status gw_ps_codec_sum(gw_ps *ps, int partition, int joined, gw_error *error) {
    const gw_partition *p = &ps->partitions[partition];
    gw_ps_codec *c = ps->codec;
    gw_status status = GW_OK;
    c->answer_bytes[partition] = 0;
    if (c->differences) gw_ps_weights_changed(c->differences, partition);
    if (c->merges) return merge_all(ps, partition, error);
    memset(sum_of(ps, p), 0, p->bytes);
    for (int w = 0; !status && w < ps->world; w++)
        if (gw_clock_table_in(ps->store.clocks, partition, w)) status = add(ps, partition, w, error);
    bool means = ps->weights_here || !c->codes_answers;
    if (means && ps->step_engine->config.options.op == GW_AVG) divide(sum_of(ps, p), p->count, joined);
    return status;
}

/* The sum is encoded once, with the first answer: after a loss another rank may have it, from the replica. */
static const uint8_t *answer_with_sum(gw_ps *ps, int partition, const gw_ps_push *push, size_t *bytes,
                                      gw_error *error) {
    const gw_partition *p = &ps->partitions[partition];
    gw_ps_codec *c = ps->codec;
    size_t *known = &c->answer_bytes[partition];
    if (c->merges) {
        *bytes = gw_ps_merged_bytes(p, gw_clock_table_round(ps->store.clocks, partition) - 1);
        return ps->store.result + p->at;
    }
    gw_ps_codec_second_pass(ps, push->step, p->server, push->growth);
    if (!*known) gw_ps_codec_put(ps, p, sum_of(ps, p), c->answers + p->slot_at, known, error);
    *bytes = *known;
    return c->answers + p->slot_at;
}

const uint8_t *gw_ps_codec_answer(gw_ps *ps, int partition, int worker, gw_am_message *message, gw_error *error) {
    const gw_ps_push *push = gw_ps_push_of(ps, partition, worker);
    if (ps->codec->differences) return gw_ps_difference_answer(ps, partition, worker, message, error);
    message->kind = GW_PS_CODED_ANSWER;
    message->step = push->step;
    return answer_with_sum(ps, partition, push, &message->bytes, error);
}

bool gw_ps_codec_answers(const gw_ps *ps, const gw_partition *p, int worker) {
    return p->coded && ps->codec->codes_answers && (!ps->weights_here || worker != ps->rank);
}
