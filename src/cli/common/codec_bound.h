/* codec_bound.h - what memory alone allows a codec: loops that read and write as much as it must, and hardly compute.
 */
#ifndef GW_CLI_COMMON_CODEC_BOUND_H
#define GW_CLI_COMMON_CODEC_BOUND_H

#include "compress/compress.h"

/* Buffers of count floats that loops read and write, and the payloads of the rounds. */
typedef struct gw_codec_buffers {
    const float *gradient;
    float *residual, *momentum;
    uint64_t count;
    uint8_t *payload[2];
    size_t bytes[2];
} gw_codec_buffers;

/* An encoding. Without feedback each round reads the gradient. With it, the first adds the gradient to the residual
 * (with momentum: to the momentum, and that to the residual), and further rounds read the residual; if there are
 * several, the last one subtracts from it, in a pass of its own because the payload depends on all values. */
void gw_codec_bound_encode(const gw_codec_setup *setup, const gw_codec_buffers *buffers);
/* A decoding: reads the last payload and changes every element of `residual`. */
void gw_codec_bound_decode(const gw_codec_setup *setup, const gw_codec_buffers *buffers);

#endif
