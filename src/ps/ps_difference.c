/* ps_difference.c - answers that are coded differences of weights (asp, ssp and backup with feedback=both).
 *
 * A server has one view of its weights, which all its workers share: the sum of the differences that it has encoded,
 * bit for bit as workers add them up. When the weights have changed since, the answer to the next push encodes what the
 * view lacks and appends it to a log; so what one encoding lost is in the next difference. A worker gets all that was
 * appended since its last answer. Where that is more than the values themselves, or the log has begun again meanwhile,
 * it gets the whole view.
 *
 * The log of a partition begins again, with a view that equals the weights, when it is as long as these. So no element
 * of an answer is older than the differences that fit into the bytes of the weights (4 of int8, 31 of onebit, 75 of
 * topk:ratio=0.01), and in the long run workers get at most twice the bytes of these differences.
 *
 * Memory: the shard three times, whatever the number of workers. Layout of a difference: the step of the push that it
 * answers, then coded ranges (coded_payload.h). */
#include <stdlib.h>
#include <string.h>

#include "ps/ps_codec.h"

typedef uint64_t step_word;

/* Of one partition. */
typedef struct gw_ps_log {
    size_t at, used; /* in gw_ps_differences.memory; bytes */
    uint64_t begun;  /* how often; 0: never, the view is not of this partition yet */
    bool behind;     /* the weights have changed since */
} gw_ps_log;

/* How much of a log a worker has. */
typedef struct gw_ps_seen {
    uint64_t begun;
    size_t used;
} gw_ps_seen;

struct gw_ps_differences {
    float *view;      /* the own space */
    gw_ps_log *logs;  /* by partition */
    gw_ps_seen *seen; /* by partition, then by worker */
    uint8_t *memory;  /* of the logs */
    size_t bytes;
};

gw_status gw_ps_differences_open(gw_ps_differences **out, size_t space, gw_error *error) {
    gw_ps_differences *d = calloc(1, sizeof *d);
    if (d) d->view = malloc(space + 1);
    if (!d || !d->view) {
        gw_ps_differences_close(d);
        return gw_fail(error, GW_MEMORY, "out of memory for a second copy of %zu bytes of weights", space);
    }
    *out = d;
    return GW_OK;
}

void gw_ps_differences_close(gw_ps_differences *d) {
    if (!d) return;
    free(d->view);
    free(d->logs);
    free(d->seen);
    free(d->memory);
    free(d);
}

/* One difference more than the weights have bytes. */
static size_t log_bytes(const gw_partition *p) { return p->bytes + sizeof(step_word) + p->answer_bytes; }

gw_status gw_ps_differences_lay(gw_ps *ps, gw_ps_differences *d, gw_error *error) {
    size_t partitions = (size_t)ps->partition_count + 1;
    free(d->logs);
    free(d->seen);
    free(d->memory);
    d->bytes = 0;
    d->logs = calloc(partitions, sizeof *d->logs);
    d->seen = calloc(partitions * (size_t)ps->world, sizeof *d->seen);
    for (int i = 0; d->logs && i < ps->partition_count; i++) {
        if (ps->partitions[i].server != ps->own) continue;
        d->logs[i] = (gw_ps_log){.at = d->bytes, .behind = true};
        d->bytes += log_bytes(&ps->partitions[i]);
    }
    d->memory = malloc(d->bytes + 1);
    if (d->logs && d->seen && d->memory) return GW_OK;
    return gw_fail(error, GW_MEMORY, "out of memory for %zu bytes of coded weights", d->bytes);
}

size_t gw_ps_differences_bytes(const gw_ps *ps, const gw_ps_differences *d) {
    return d->bytes + ps->shards.space_bytes[ps->own];
}

void gw_ps_weights_changed(gw_ps_differences *d, int partition) { d->logs[partition].behind = true; }

/* What was lost is in the next difference, so the codec's own residual begins at zero. */
static void clear_residuals(gw_ps *ps, const gw_partition *p) {
    for (int i = 0; i < p->segments; i++) {
        const gw_segment *part = &ps->segments[p->first + i];
        float *residual = gw_codec_residual_at(&gw_ps_tensor_of(ps, part)->second, part->first);
        if (residual) memset(residual, 0, part->count * sizeof *residual);
    }
}

/* Adds what was encoded to the view, not what was meant, as workers do. */
static gw_status append(gw_ps *ps, gw_ps_log *log, const gw_partition *p, int worker, uint64_t step, gw_error *error) {
    gw_ps_differences *d = ps->codec->differences;
    float *view = d->view + p->at / sizeof *view, *difference = (float *)(void *)(ps->store.result + p->at);
    const float *weights = (const float *)(const void *)(ps->store.weights + p->at);
    uint8_t *head = d->memory + log->at + log->used;
    const uint8_t *coded = head + sizeof step;
    size_t bytes = 0;
    for (size_t i = 0; i < p->count; i++) difference[i] = weights[i] - view[i];
    clear_residuals(ps, p);
    memcpy(head, &step, sizeof step);
    gw_ps_codec_second_pass(ps, step, worker, 0);
    gw_status status = gw_ps_codec_put(ps, p, difference, head + sizeof step, &bytes, error);
    log->used += sizeof step + bytes;
    return status ? status
                  : gw_ps_codec_take(ps, p, &ps->codec->coding.second, ps->rank, &coded, coded + bytes, 1, view, error);
}

static gw_status catch_up(gw_ps *ps, int partition, int worker, gw_error *error) {
    const gw_partition *p = &ps->partitions[partition];
    gw_ps_differences *d = ps->codec->differences;
    gw_ps_log *log = &d->logs[partition];
    if (!log->behind) return GW_OK;
    log->behind = false;
    if (log->begun && log->used < p->bytes)
        return append(ps, log, p, worker, gw_ps_push_of(ps, partition, worker)->step, error);
    memcpy((uint8_t *)d->view + p->at, ps->store.weights + p->at, p->bytes);
    log->used = 0;
    log->begun++;
    return GW_OK;
}

/* An answer is never empty: a worker that lacks nothing gets the view too. */
const uint8_t *gw_ps_difference_answer(gw_ps *ps, int partition, int worker, gw_am_message *message, gw_error *error) {
    const gw_partition *p = &ps->partitions[partition];
    gw_ps_differences *d = ps->codec->differences;
    const gw_ps_log *log = &d->logs[partition];
    gw_ps_seen *seen = &d->seen[(size_t)partition * (size_t)ps->world + (size_t)worker];
    if (catch_up(ps, partition, worker, error)) return NULL;
    size_t news = seen->begun == log->begun ? log->used - seen->used : 0;
    bool coded = news > 0 && news < p->bytes;
    const uint8_t *what = coded ? d->memory + log->at + seen->used : (const uint8_t *)d->view + p->at;
    message->kind = coded ? GW_PS_CODED_ANSWER : GW_PS_ANSWER;
    message->bytes = coded ? news : p->bytes;
    *seen = (gw_ps_seen){log->begun, log->used};
    return memcpy(ps->recv_buffer[worker] + p->slot_at, what, message->bytes);
}

gw_status gw_ps_difference_answered(gw_ps *ps, const gw_partition *p, int from, const uint8_t *at, size_t bytes,
                                    gw_error *error) {
    const uint8_t *end = at + bytes;
    gw_status status = GW_OK;
    while (!status && at < end) {
        step_word step;
        if ((size_t)(end - at) < sizeof step)
            return gw_fail_rank(error, GW_PROTOCOL, from, "the compressed weights from rank %d are cut short", from);
        memcpy(&step, at, sizeof step);
        at += sizeof step;
        gw_ps_codec_second_pass(ps, step, from, 0);
        status = gw_ps_codec_take(ps, p, &ps->codec->coding.second, from, &at, end, 1, NULL, error);
    }
    return status;
}
