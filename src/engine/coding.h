/* coding.h - tensors on their way through a codec: what exchanges (exchange.c) and servers (stepper_ps_codec.c) have in
 * common.
 *
 * A payload message is a sequence of pieces, ranges of tensors in an order that both sides know: a word with the
 * piece's length and, in the top bit, whether it was sent exact, then the piece, padded to 4 bytes. A codec of several
 * rounds that nobody reduces in flight goes through all of them at once, each round on what the one before gave: its
 * piece is the payloads of the rounds, one after the other. */
#ifndef GW_ENGINE_CODING_H
#define GW_ENGINE_CODING_H

#include "compress/compress.h"

#define GW_CODING_ROUNDS_MAX 2

typedef struct gw_coding {
    gw_codec_setup setup, second;
    gw_codec_setup exact; /* flushes the residual of the coded pass */
    gw_codec_setup plain; /* keeps nothing: tensors that are always exact, and decoding either */
    gw_codec_call call;
} gw_coding;

typedef struct gw_coded_tensor {
    gw_codec_tensor what;  /* the name is a copy */
    gw_codec_state state;  /* of the worker's pass, the whole tensor */
    gw_codec_state second; /* of the owner's pass, the own share */
    gw_codec_report report;
    gw_codec_guard guard;
    float clip;            /* of the step under way */
    bool exact;            /* always */
} gw_coded_tensor;

gw_status gw_coding_open(gw_coding *coding, const gw_codec_setup *setup, uint64_t seed, int rank, int world,
                         gw_error *error);

/* exact: never encode it; small tensors and such as the codec refuses are not either. No state is made. */
gw_status gw_coding_name(const gw_coding *coding, gw_coded_tensor *tensor, const gw_codec_tensor *given, bool exact,
                         gw_error *error);
void gw_coding_forget(gw_coded_tensor *tensor); /* frees what it keeps */

/* Once a step and tensor, before its first range is encoded; the whole gradient. */
void gw_coding_prepare(gw_coding *coding, gw_coded_tensor *tensor, const float *gradient);
/* Bytes that a piece may take in a message, its length included. */
size_t gw_coding_room(const gw_coding *coding, const gw_coded_tensor *tensor, const gw_codec_setup *setup,
                      gw_codec_range range);
size_t gw_coding_padded(size_t bytes); /* to 4 bytes */

/* Encodes one piece at *at, and moves *at behind it. state: the worker's or the owner's. */
gw_status gw_coding_put(gw_coding *coding, gw_coded_tensor *tensor, const gw_codec_setup *setup, gw_codec_state *state,
                        gw_codec_range range, const float *values, uint8_t **at, gw_error *error);
/* Adds one piece at *at, from that rank, to a sum, and moves *at behind it. */
gw_status gw_coding_take(const gw_coding *coding, const gw_coded_tensor *tensor, const gw_codec_setup *setup,
                         gw_codec_range range, int from, const uint8_t **at, const uint8_t *end, float scale,
                         float *sum, gw_error *error);
/* After a step: whether it is sent exact from now on, which is said in the log. */
void gw_coding_guard(const gw_coding *coding, gw_coded_tensor *tensor);

#endif
