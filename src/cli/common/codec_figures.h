/* codec_figures.h - the speed of encode and decode on one core, compared with memcpy of the same input and with what
 * memory allows (codec_bound.h) in the same run, and the relative error.
 *
 * Each repetition times all of these one after the other, and medians are taken, of ratios too. The result is checked:
 * the decoded values must have the error that the encoder reports. */
#ifndef GW_CLI_COMMON_CODEC_FIGURES_H
#define GW_CLI_COMMON_CODEC_FIGURES_H

#include "base/status.h"

#define GW_CODEC_REPEATS_MAX 99

/* What codecs encode: made-up gradients, f32. */
typedef struct gw_codec_input {
    float *gradient, *copy; /* count, owned */
    uint64_t count;
} gw_codec_input;

typedef struct gw_codec_figures {
    double encode_gbs, decode_gbs, memcpy_gbs; /* of input */
    double encode_of_memcpy, encode_of_bound;  /* 1: as fast */
    double decode_of_memcpy, decode_of_bound;  /* the latter NAN where a codec sends few values, and changes few */
    double ratio;                              /* input bytes / payload bytes of all rounds */
    double error;                              /* relative, of the last step */
} gw_codec_figures;

gw_status gw_codec_input_make(gw_codec_input *input, uint64_t bytes, gw_error *error);
void gw_codec_input_free(gw_codec_input *input);
/* Compares the fast version with the plain one: payload, decoded values and residual of two steps, on at most 4 MiB of
 * the input. GW_MISMATCH where a bit differs; GW_UNSUPPORTED as below. */
gw_status gw_codec_check_levels(const gw_codec_input *input, const char *codec, gw_error *error);
/* codec: "topk:ratio=0.001". GW_UNSUPPORTED: it does not take this input. */
gw_status gw_codec_measure(const gw_codec_input *input, const char *codec, int repeats, gw_codec_figures *figures,
                           gw_error *error);

#endif
