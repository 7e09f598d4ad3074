/* doublesqueeze.c - error feedback on both passes (Tang, Yu, Lian, Zhang, Liu: "DoubleSqueeze", ICML 2019).
 *
 * Any codec that is decoded, added and encoded again by an owner will do: this is that codec, at its defaults, with
 * feedback=both. With parameters of its own it is written as that codec, such as qsgd:bits=2,feedback=both. */
#include "compress/codec.h"

enum { PARAM_CODEC, PARAM_LIMIT };

static const char *const inner[] = {"onebit", "topk", "threshold", "int8", "qsgd", "terngrad", NULL};

const gw_technique gw_doublesqueeze = {
    .name = "doublesqueeze",
    .about = "a codec with feedback on both passes",
    .params = GW_PARAMS({.name = "codec", .about = "which", .kind = GW_PARAM_CHOICE, .choices = inner}, GW_CODEC_LIMIT),
};

gw_codec_setup gw_doublesqueeze_setup(const double *values) {
    gw_codec_setup setup = gw_codec_default(gw_codec_find(inner[(int)values[PARAM_CODEC]]));
    setup.feedback = GW_FEEDBACK_BOTH;
    setup.limit = values[PARAM_LIMIT];
    return setup;
}
