/* ps_codec.h - what the worker's and the server's side of coded partitions share: ps_codec.c has the layout and the
 * worker's side, ps_recode.c the server's. */
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

struct gw_ps_codec {
    gw_coding coding;
    gw_coded_tensor *tensors; /* of the stepper */
    int count;
    bool merges;      /* the first form */
    bool differences; /* answers with weights are encoded */
    uint8_t *slots;   /* the worker's */
    size_t slots_bytes, state_bytes;
    /* The server's. */
    uint8_t *answers;     /* encoded means, slot by slot */
    size_t *answer_bytes; /* of each parcel */
    gw_ps_push *pushes;   /* by parcel, then by worker */
    float **views;        /* by worker: the own space as it has it; NULL: none */
    bool *known;          /* by parcel, then by worker: the view is of that parcel */
    uint64_t encodings;   /* of differences: random numbers are drawn anew in each */
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

/* The codec's step, pass and growth of the learning rate for what follows. */
void gw_ps_codec_at_step(gw_ps *ps, uint64_t step, uint32_t pass, float growth);
/* First form: bytes of a segment in a round; they are known beforehand. */
size_t gw_ps_codec_merged_bytes(const gw_ps *ps, const gw_segment *part, uint32_t round);
/* Adds a message of pieces to values: those of the parcel's segments, or the own space from the parcel on. */
gw_status gw_ps_codec_take(gw_ps *ps, const gw_partition *p, const gw_codec_setup *setup, int from, const uint8_t *at,
                           size_t bytes, float scale, float *space, gw_error *error);

#endif
