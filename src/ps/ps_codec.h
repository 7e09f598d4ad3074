/* ps_codec.h - what the worker's and the server's side of coded partitions share: ps_codec.c has the layout and the
 * worker's side, ps_recode.c the server's, ps_difference.c answers with weights. */
#ifndef GW_PS_PS_CODEC_H
#define GW_PS_PS_CODEC_H

#include "ps/ps_internal.h"
#include "reducer/coded_payload.h"

/* A push as it came. */
typedef struct gw_ps_push {
    uint64_t step;
    size_t bytes;
    float growth; /* of the learning rate, which a server process does not know by itself */
} gw_ps_push;

typedef struct gw_ps_differences gw_ps_differences;

struct gw_ps_codec {
    gw_coding coding;
    gw_coded_tensor *tensors; /* of the step engine */
    int count;
    bool merges;        /* the first form */
    bool codes_answers; /* merged payloads, encoded sums or differences of weights; false: values as they are */
    uint8_t *slots;     /* the worker's */
    size_t slots_bytes, state_bytes;
    /* The server's. */
    uint8_t *answers;               /* encoded sums, slot by slot */
    size_t *answer_bytes;           /* of each partition; 0: its sum has not been encoded yet */
    gw_ps_push *pushes;             /* by partition, then by worker */
    gw_ps_differences *differences; /* NULL: answers are not differences of weights */
    size_t served_bytes;
};

static inline gw_coded_tensor *gw_ps_tensor_of(const gw_ps *ps, const gw_segment *part) {
    return &ps->codec->tensors[part->tensor];
}

static inline gw_codec_range gw_ps_range_of(const gw_ps *ps, const gw_segment *part) {
    return (gw_codec_range){.tensor = &gw_ps_tensor_of(ps, part)->what, .first = part->first, .count = part->count};
}

static inline gw_ps_push *gw_ps_push_of(const gw_ps *ps, int partition, int worker) {
    return &ps->codec->pushes[(size_t)partition * (size_t)ps->world + (size_t)worker];
}

/* Sets step and growth of the learning rate for what follows: a worker's own pass, or a server's. rank: of the random
 * numbers. A server may move to another rank, and one server encodes several answers in a step. */
void gw_ps_codec_first_pass(gw_ps *ps, uint64_t step, float growth);
void gw_ps_codec_second_pass(gw_ps *ps, uint64_t step, int rank, float growth);
/* First form: bytes of a segment in a round; they are known beforehand. */
size_t gw_ps_codec_merged_bytes(const gw_ps *ps, const gw_segment *part, uint32_t round);
/* The same of a whole partition. */
static inline size_t gw_ps_merged_bytes(const gw_partition *p, uint64_t round) {
    return round % p->rounds ? p->slot_bytes - p->second_at : p->second_at;
}
/* Adds coded ranges at *at to values: those of the partition's segments, or the own space from the partition on. Moves
 * *at behind them. */
gw_status gw_ps_codec_take(gw_ps *ps, const gw_partition *p, const gw_codec_setup *setup, int from, const uint8_t **at,
                           const uint8_t *end, float scale, float *space, gw_error *error);
/* Encodes values of the own space, from the partition on, with the server's own state. */
gw_status gw_ps_codec_put(gw_ps *ps, const gw_partition *p, const float *values, uint8_t *to, size_t *bytes,
                          gw_error *error);

/* ps_difference.c. space: bytes of the own space. After each cut: lay. */
gw_status gw_ps_differences_open(gw_ps_differences **differences, size_t space, gw_error *error);
gw_status gw_ps_differences_lay(gw_ps *ps, gw_ps_differences *differences, gw_error *error);
void gw_ps_differences_close(gw_ps_differences *differences); /* NULL is fine */
size_t gw_ps_differences_bytes(const gw_ps *ps, const gw_ps_differences *differences);
void gw_ps_weights_changed(gw_ps_differences *differences, int partition);
const uint8_t *gw_ps_difference_answer(gw_ps *ps, int partition, int worker, gw_am_message *message, gw_error *error);
/* The worker's. */
gw_status gw_ps_difference_answered(gw_ps *ps, const gw_partition *p, int from, const uint8_t *at, size_t bytes,
                                    gw_error *error);

#endif
