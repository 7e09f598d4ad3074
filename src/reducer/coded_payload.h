/* coded_payload.h - encodes and decodes tensors with a codec, for exchanges (coded_exchange.c) and servers
 * (ps_codec.c).
 *
 * A payload message is a sequence of coded ranges of tensors, in an order that both sides know. A coded range is a
 * 32-bit word, then the payload, padded to 4 bytes. The word has the length in bytes; its top bit says that the range
 * was sent exact. If a codec has several rounds and is not reduced in flight, all rounds run at once, each on the
 * result of the previous one. The payloads of the rounds then follow each other. */
#ifndef GW_REDUCER_CODED_PAYLOAD_H
#define GW_REDUCER_CODED_PAYLOAD_H

#include "arch/owners.h"
#include "compress/compress.h"

#define GW_CODING_ROUNDS_MAX 2

typedef struct gw_coding {
    gw_codec_setup setup, second; /* of the worker's pass and the owner's */
    gw_codec_setup exact;         /* sends values and the residual of the coded pass */
    gw_codec_setup plain;         /* has no state: for tensors that are always exact, and for decoding exact ranges */
    gw_codec_call call;
} gw_coding;

/* A tensor and the state that its codec keeps. Exchanges and servers that carry parts of it use it, one at a time. */
typedef struct gw_coded_tensor {
    gw_codec_tensor what;  /* the name is a copy */
    gw_owners owners;      /* of exchanges; servers have shards */
    gw_codec_state state;  /* of the worker's pass, for what this rank encodes */
    gw_codec_state second; /* of the owner's pass, for what this rank owns */
    gw_codec_report report;
    gw_codec_report owner_report; /* of the owner's pass, if it is asked for samples */
    gw_codec_guard guard;
    float clip;            /* of the current step */
    bool exact;            /* always sent exact */
    uint64_t prepared;     /* one more than the step that gw_coding_prepare was called for */
    int parts, parts_over; /* of exchanges: those that carry a part of it; those that are over in this step */
} gw_coded_tensor;

gw_status gw_coding_open(gw_coding *coding, const gw_codec_setup *setup, uint64_t seed, int rank, int world,
                         gw_error *error);

/* exact: never encode it. Small tensors and those that the codec refuses are not encoded either. Makes no state. */
gw_status gw_coding_name(const gw_coding *coding, gw_coded_tensor *tensor, const gw_codec_tensor *given, bool exact,
                         gw_error *error);
/* For exchanges: names it, and makes its state for the lanes of this rank. two_pass: owners encode again. */
gw_status gw_coding_tensor_open(const gw_coding *coding, gw_coded_tensor *tensor, const gw_codec_tensor *given,
                                bool exact, const gw_lanes *lanes, bool two_pass, gw_error *error);
size_t gw_coding_tensor_bytes(const gw_coded_tensor *tensor); /* of its state */
void gw_coding_tensor_free(gw_coded_tensor *tensor);          /* frees its name and state */

/* Bytes at most of all values of a tensor when they travel, in a world of so many ranks: encoded, or exact. */
size_t gw_coding_payload_bytes(const gw_codec_setup *setup, const gw_codec_tensor *tensor, uint32_t world);

/* Before a range is encoded; only the first call of a step does something. gradient: of the whole tensor; NULL: this
 * rank does not have it. */
void gw_coding_prepare(gw_coding *coding, gw_coded_tensor *tensor, const float *gradient);
/* Bytes that a coded range takes in a message at most, its length word included. */
size_t gw_coding_bound(const gw_coding *coding, const gw_coded_tensor *tensor, const gw_codec_setup *setup,
                       gw_codec_range range);
size_t gw_coding_padded(size_t bytes); /* to 4 bytes */
/* GW_UNSUPPORTED if that is more than the length word can say. */
gw_status gw_coding_check_bound(const gw_coding *coding, const gw_coded_tensor *tensor, const gw_codec_setup *setup,
                                gw_codec_range range, gw_error *error);

/* Encodes one range at *at, and moves *at behind it. state: the worker's or the owner's. */
gw_status gw_coding_encode(gw_coding *coding, gw_coded_tensor *tensor, const gw_codec_setup *setup,
                           gw_codec_state *state, gw_codec_range range, const float *values, uint8_t **at,
                           gw_error *error);
/* Decodes one range at *at, from that rank, adds it to a sum, and moves *at behind it. */
gw_status gw_coding_decode_add(const gw_coding *coding, const gw_coded_tensor *tensor, const gw_codec_setup *setup,
                               gw_codec_range range, int from, const uint8_t **at, const uint8_t *end, float scale,
                               float *sum, gw_error *error);
/* After a step: decides whether the tensor is sent exact from now on, and logs a change. */
void gw_coding_guard(const gw_coding *coding, gw_coded_tensor *tensor);

#endif
