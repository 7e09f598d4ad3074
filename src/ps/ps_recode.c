/* ps_recode.c - the server's side of partitions through a codec: merges pushes or decodes them into a sum, and encodes
 * answers. See ps_codec.c. */
#include <string.h>

#include "ps/ps_codec.h"

void gw_ps_codec_note(gw_ps *ps, int worker, const gw_am_message *message) {
    if (!ps->codec) return;
    *gw_ps_push_of(ps, (int)message->partition, worker) = (gw_ps_push){message->step, message->bytes, message->growth};
}

static const uint8_t *payload_of(const gw_ps *ps, const gw_partition *p, int worker) {
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
    return add(ps, partition, worker, error);
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
    size_t bytes = round ? p->slot_bytes - p->second_at : p->second_at;
    uint8_t *into = ps->codec->answers + p->slot_at;
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
    ps->codec->answer_bytes[partition] = bytes;
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

/* The mean is what workers make of it, or the update's business: here are sums. */
gw_status gw_ps_codec_sum(gw_ps *ps, int partition, gw_error *error) {
    const gw_partition *p = &ps->partitions[partition];
    gw_ps_codec *c = ps->codec;
    gw_ps_push last = {0};
    gw_status status = GW_OK;
    if (c->merges) return merge_all(ps, partition, error);
    memset(sum_of(ps, p), 0, p->bytes);
    for (int w = 0; !status && w < ps->world; w++) {
        if (!gw_clock_table_in(ps->store.clocks, partition, w)) continue;
        last = *gw_ps_push_of(ps, partition, w);
        status = add(ps, partition, w, error);
    }
    if (c->differences) gw_ps_weights_changed(c->differences, partition);
    if (status || ps->weights_here) return status;
    gw_ps_codec_second_pass(ps, last.step, p->server, last.growth);
    return gw_ps_codec_put(ps, p, sum_of(ps, p), c->answers + p->slot_at, &c->answer_bytes[partition], error);
}

const uint8_t *gw_ps_codec_answer(gw_ps *ps, int partition, int worker, gw_am_message *message, gw_error *error) {
    const gw_partition *p = &ps->partitions[partition];
    gw_ps_codec *c = ps->codec;
    if (c->differences) return gw_ps_difference_answer(ps, partition, worker, message, error);
    message->kind = GW_PS_CODED_ANSWER;
    message->step = gw_ps_push_of(ps, partition, worker)->step;
    message->bytes = c->answer_bytes[partition];
    return c->answers + p->slot_at;
}

bool gw_ps_codec_answers(const gw_ps *ps, const gw_partition *p, int worker) {
    return p->coded && (!ps->weights_here || (ps->codec->codes_differences && worker != ps->rank));
}
